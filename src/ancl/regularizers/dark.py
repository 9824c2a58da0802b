"""Dark experience replay: keep the anchor's logits.  Equation: [dark-er]."""

from dataclasses import dataclass

from torch import Tensor

from ancl.regularizers.base import Regularizer
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class LogitDistance(Regularizer):
    """(1/m) Σ_i (1/k_i) Σ_j (z_ij − z*_ij)², over the k_i of the anchor's classes it answers.

    Stored answers have no column, or NaN, for classes that came after an image was stored. A
    network answers for all its classes, so that it is the mean of all squares.
    """

    reads = "logits"

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean of each image's mean square."""
        theirs = step.of(anchor).logits[:, anchor.classes]
        known = ~theirs.isnan()
        change = step.out.logits[:, anchor.classes][:, : theirs.shape[1]] - theirs.nan_to_num()
        rows = (change.square() * known).sum(dim=1) / known.sum(dim=1).clamp(min=1)
        return rows.mean()
