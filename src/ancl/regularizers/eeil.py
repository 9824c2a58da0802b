"""End-to-End Incremental Learning: every task's head keeps the anchor's soft answers."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ancl.regularizers.base import Regularizer
from ancl.regularizers.lwf import distillation
from ancl.types import Anchor, Classes, Step


@dataclass(frozen=True)
class Eeil(Regularizer):
    """Distillation within each task's classes, summed over the anchor's tasks.  Equation: [eeil].

    Unlike LwF's one softmax over all of the anchor's classes, no task's classes compete with
    another's.

    Args:
        temperature: T, by which both sides' logits are divided.
        smoothing: ε, as LwF has it.
    """

    reads = "logits"
    temperature: float = 2.0
    smoothing: float = 0.0

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The batch mean of −Σ_tasks Σ softmax(z*/T) log softmax(z/T)."""
        ours, theirs = step.out.logits, step.of(anchor).logits
        parts = [
            distillation(ours[:, head], theirs[:, head], self.temperature, self.smoothing)
            for head in _heads(step.tasks, anchor.classes)
        ]
        return torch.stack(parts).sum()


def eeil_noise(epoch: int, scale: float = 0.3, decay: float = 0.55) -> float:
    """The deviation of the noise on summed gradients, s / (1 + epoch)^decay.  Equation: [noise]."""
    return float(scale / (1 + epoch) ** decay)


def _heads(tasks: tuple[slice, ...], classes: Classes) -> list[Classes]:
    """The tasks' classes that the anchor knows; tasks that share classes count once."""
    if isinstance(classes, Tensor):
        parts = [classes[(classes >= t.start) & (classes < t.stop)] for t in tasks]
        return [part for part in parts if len(part)]
    spans = {(max(t.start, classes.start), min(t.stop, classes.stop)) for t in tasks}
    return [slice(start, stop) for start, stop in sorted(spans) if start < stop]
