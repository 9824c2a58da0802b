"""Task losses: what a network learns a task by."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.types import Step

TaskLoss = Callable[[Step], Tensor]
"""A frozen dataclass (or a function of a module) that maps a step to a scalar."""


@dataclass(frozen=True)
class CrossEntropy:
    """Mean cross-entropy over the classes a sample competes with.  Equation: [ce].

    Args:
        over: Which classes compete: ``own`` (those of the sample's own task), ``seen`` (all so
            far), or ``scenario`` (own where the task is told at test time, else seen).
    """

    over: Literal["scenario", "own", "seen"] = "scenario"

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        own = step.task_aware if self.over == "scenario" else self.over == "own"
        if not own or len(step.tasks) == 1:
            return F.cross_entropy(step.out.logits, step.y)
        if step.exemplars is None:
            current = step.current
            return F.cross_entropy(step.out.logits[:, current], step.y - current.start)
        return F.cross_entropy(own_task_logits(step.out.logits, step.y, step.tasks), step.y)


def own_task_logits(logits: Tensor, y: Tensor, tasks: tuple[slice, ...]) -> Tensor:
    """Logits with every class outside the sample's own task at minus infinity."""
    task_of = torch.empty(logits.shape[1], dtype=torch.long, device=logits.device)
    for index, classes in enumerate(tasks):
        task_of[classes] = index
    return logits.masked_fill(task_of != task_of[y].unsqueeze(1), float("-inf"))
