"""iCaRL: keep the anchor's answers, with one sigmoid per class.  Equation: [icarl]."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.regularizers.lwf import Lwf
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class Icarl(Regularizer):
    """Binary cross-entropy to the anchor's sigmoids over its classes, averaged over the batch.

    Args:
        distill: ``bce_sum`` sums over classes, on whose scale λ was published; ``bce_mean``
            averages over them; ``softmax`` is LwF's distillation, as the ANCL paper writes it.
        temperature: T of ``softmax``; the sigmoids have none.
    """

    reads = "logits"
    distill: Literal["bce_sum", "softmax", "bce_mean"] = "bce_sum"
    temperature: float = 2.0

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean of −Σ σ(z*) log σ(z) + (1 − σ(z*)) log (1 − σ(z))."""
        if self.distill == "softmax":
            return Lwf(self.temperature).penalty(step, anchor)
        logits = step.out.logits[:, anchor.classes]
        wanted = step.of(anchor).logits[:, anchor.classes].sigmoid()
        mean = F.binary_cross_entropy_with_logits(logits, wanted)
        return mean if self.distill == "bce_mean" else mean * logits.shape[1]
