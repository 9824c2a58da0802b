"""How a step sees classes: which there are, and which compete for an answer."""

from typing import NamedTuple

from torch import Tensor

from ancl.losses import own_task_logits
from ancl.types import positions


class View(NamedTuple):
    """How a step sees classes.

    Args:
        tasks: The classes that every task so far was the first to bring, the current one last.
        task_aware: Whether the task of a sample is known at test time.
        rehearses: Whether images of earlier tasks are learned from too.
        present: The classes whose images the task brings, where known ones come again.
        alone: Whether only those compete for an answer.
    """

    tasks: tuple[slice, ...]
    task_aware: bool
    rehearses: bool = False
    present: Tensor | None = None
    alone: bool = False


def correct_answers(logits: Tensor, y: Tensor, view: View) -> Tensor:
    """How many samples get their own class, among those that compete with it."""
    if view.present is not None and view.alone:
        among = view.present.to(logits.device)
        return (positions(among, logits[:, among].argmax(dim=1)) == y).sum()
    scores = own_task_logits(logits, y, view.tasks) if view.task_aware else logits
    return (scores.argmax(dim=1) == y).sum()
