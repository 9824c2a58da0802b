"""PODNet's pooled outputs distillation: keep the rows and columns of every stage's map."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.regularizers.lucir import cosine_distance
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class Pod(Regularizer):
    """λ_c times the distance of pooled maps plus λ_f times that of features.  Equation: [pod].

    Maps are summed over their width and over their height, stages are averaged.

    Differs: the released code takes the distance itself instead of its square. Two such terms
    do not interpolate between two anchors (the nearer minimum is the anchor of the larger λ),
    so ``l2sq`` is the default; ``norm="l2"`` is the released code. The ANCL paper's form is
    ``square=False, normalize="none", flat_form="l2"``, summed instead of averaged over stages.

    Args:
        norm: The squared distance or the distance itself.
        square: Square the activations before they are pooled.
        normalize: Scale an image's pooled rows and columns to ``joint`` length 1, or not.
        spatial: λ_c.
        flat: λ_f.
        flat_form: Of features: ``cosine`` is 1 − cos, ``l2`` the squared distance.
    """

    reads = "maps"
    norm: Literal["l2sq", "l2"] = "l2sq"
    square: bool = True
    normalize: Literal["joint", "none"] = "joint"
    spatial: float = 1.0
    flat: float = 1.0
    flat_form: Literal["cosine", "l2"] = "cosine"

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """λ_c · mean over stages + λ_f · features, averaged over the batch."""
        theirs = step.of(anchor)
        stages = [
            self._distance(self.pooled(ours) - self.pooled(wanted))
            for ours, wanted in zip(step.out.maps, theirs.maps, strict=True)
        ]
        spatial = torch.stack(stages).mean()
        return self.spatial * spatial + self.flat * self._flat(step.out.features, theirs.features)

    def pooled(self, stage: Tensor) -> Tensor:
        """A map's sums over its width and over its height, side by side."""
        values = stage.square() if self.square else stage
        pooled = torch.cat([values.sum(dim=3).flatten(1), values.sum(dim=2).flatten(1)], dim=1)
        return F.normalize(pooled, dim=1) if self.normalize == "joint" else pooled

    def _distance(self, difference: Tensor) -> Tensor:
        if self.norm == "l2sq":
            return difference.square().sum(dim=1).mean()
        # PyTorch's own norm has gradient 0 where the maps agree; a square root would give NaN.
        distances: Tensor = torch.linalg.vector_norm(difference, dim=1)
        return distances.mean()

    def _flat(self, features: Tensor, wanted: Tensor) -> Tensor:
        if self.flat_form == "cosine":
            return cosine_distance(features, wanted)
        return (features - wanted).square().sum(dim=1).mean()
