"""Deep Model Consolidation: learn both teachers' logits by regression.  Equation: [dmc]."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class Dmc(Regularizer):
    """Squared distance to the anchor's centred logits, averaged over batch and its classes.

    The original averages over all classes at once. With λ = n_old/n and λ_a = n_new/n the two
    anchors' terms add up to that.

    Args:
        centring: Subtract the mean of each ``sample`` over the anchor's own classes (DMC paper),
            or of each class over the ``batch`` (released code).
    """

    reads = "logits"
    centring: Literal["sample", "batch"] = "sample"

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The mean of (z − (z* − mean z*))²."""
        theirs = step.of(anchor).logits[:, anchor.classes]
        centre = theirs.mean(dim=1 if self.centring == "sample" else 0, keepdim=True)
        return F.mse_loss(step.out.logits[:, anchor.classes], theirs - centre)
