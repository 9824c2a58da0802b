"""Learning without Forgetting: keep the anchor's soft answers.  Equation: [lwf]."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Regularizer
from ancl.types import Anchor, Step


@dataclass(frozen=True)
class Lwf(Regularizer):
    """Cross-entropy to the anchor's tempered softmax, over the classes it knows.

    The old network knows earlier classes and the auxiliary network this task's,
    so the same formula serves both terms of the loss. There is no factor T².

    Args:
        temperature: T, by which both sides' logits are divided.
        smoothing: ε of the released code, which keeps the logarithm finite: softmax(z/T) becomes
            (softmax(z/T) + ε/C) / (1 + ε) for C classes.
    """

    reads = "logits"
    temperature: float = 2.0
    smoothing: float = 0.0

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean of −Σ softmax(z*/T) log softmax(z/T)."""
        soft = (step.of(anchor).logits[:, anchor.classes] / self.temperature).softmax(dim=1)
        ours = step.out.logits[:, anchor.classes] / self.temperature
        if not self.smoothing:
            return F.cross_entropy(ours, soft)
        smooth = (ours.softmax(dim=1) + self.smoothing / ours.shape[1]) / (1 + self.smoothing)
        return -(soft * smooth.log()).sum(dim=1).mean()
