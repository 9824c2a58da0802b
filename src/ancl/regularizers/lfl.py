"""Less-forgetful Learning: keep the anchor's features.  Equation: [lfl]."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class Lfl(Regularizer):
    """Squared distance of centred, normalised features to the anchor's, averaged over the batch.

    Differs: the paper sums over the features and the released code averages over them. The
    published λ belong to the mean; with ``sum``, divide them by the number of features.

    Args:
        centre: Subtract from every sample's features their mean.
        normalize: Scale every sample's features to length 1.
        reduction: ``mean`` or ``sum`` over the features.
    """

    reads = "features"
    centre: bool = True
    normalize: bool = True
    reduction: Literal["mean", "sum"] = "mean"

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean of the squared distance."""
        ours = self._prepared(step.out.features)
        theirs = self._prepared(step.of(anchor).features)
        distance = F.mse_loss(ours, theirs)
        return distance if self.reduction == "mean" else distance * ours.shape[1]

    def _prepared(self, features: Tensor) -> Tensor:
        if self.centre:
            features = features - features.mean(dim=1, keepdim=True)
        return F.normalize(features, dim=1) if self.normalize else features
