"""Learning without Forgetting: keep the anchor's soft answers.  Equation: [lwf]."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class Lwf(Regularizer):
    """Cross-entropy to the anchor's tempered softmax, over the classes it speaks for.

    The old network speaks for earlier classes and the auxiliary network for this task's,
    so the same formula serves both terms of the loss. There is no factor T².

    Args:
        temperature: T, by which both sides' logits are divided.
    """

    reads = "logits"
    temperature: float = 2.0

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean of −Σ softmax(z*/T) log softmax(z/T)."""
        soft = (step.of(anchor).logits[:, anchor.classes] / self.temperature).softmax(dim=1)
        return F.cross_entropy(step.out.logits[:, anchor.classes] / self.temperature, soft)
