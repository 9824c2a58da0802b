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
        ours, theirs = step.out.logits, step.of(anchor).logits
        return distillation(
            ours[:, anchor.classes], theirs[:, anchor.classes], self.temperature, self.smoothing
        )


def distillation(ours: Tensor, theirs: Tensor, temperature: float, smoothing: float) -> Tensor:
    """The batch mean of −Σ softmax(z*/T) log softmax(z/T), with ε mixed into the latter."""
    soft, ours = (theirs / temperature).softmax(dim=1), ours / temperature
    if not smoothing:
        return F.cross_entropy(ours, soft)
    smooth = (ours.softmax(dim=1) + smoothing / ours.shape[1]) / (1 + smoothing)
    return -(soft * smooth.log()).sum(dim=1).mean()
