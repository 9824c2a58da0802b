"""LUCIR's less-forget constraint: keep the direction of the anchor's features."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class LessForget(Regularizer):
    """1 − cos(f, f*), averaged over the batch; no length is compared.  Equation: [less-forget]."""

    reads = "features"

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The mean of 1 − cos(f, f*)."""
        return cosine_distance(step.out.features, step.of(anchor).features)


def cosine_distance(features: Tensor, wanted: Tensor) -> Tensor:
    """The batch mean of 1 − cos."""
    return (1 - F.cosine_similarity(features, wanted, dim=1)).mean()
