"""Task losses, and which classes compete for an answer."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import MethodError
from ancl.types import Step, positions

TaskLoss = Callable[[Step], Tensor]
"""A frozen dataclass (or a function of a module) that maps a step to a scalar."""

Over = Literal["auto", "seen", "own_task"]
"""Which classes compete for a sample: all ``seen`` so far, or those of its ``own_task``.

``auto`` is ``seen`` where images of earlier tasks are learned from too, else ``own_task``, as in
FACIL, the ANCL code and PyCIL: without such images, old classes could only be pushed down. Where
known classes come again it is ``seen``, or ``own_task`` if the task is known (TIL). The own task of
a class is the one that brought it first.
"""


@dataclass(frozen=True)
class CrossEntropy:
    """Mean cross-entropy over the classes a sample competes with.  Equation: [ce].

    Args:
        over: Which classes compete.
    """

    over: Over = "auto"

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        return F.cross_entropy(*competing(step, self.over))


@dataclass(frozen=True)
class PooledCrossEntropy:
    """One mean over the task's batch and its replay batch, where there is one.  Equation: [er].

    Args:
        over: Which classes compete.
    """

    over: Over = "auto"

    def __call__(self, step: Step) -> Tensor:
        """The loss of both batches; every image weighs the same."""
        loss = F.cross_entropy(*competing(step, self.over))
        if step.replay is None:
            return loss
        again, b, m = step.replay, len(step.y), len(step.replay.y)
        replayed = F.cross_entropy(*competing(again, self.over))
        return (b * loss + m * replayed) / (b + m)


@dataclass(frozen=True)
class OpenCrossEntropy:
    """Mean cross-entropy over the open classes alone, as ER-ACE learns new images.

    Closed classes have no gradient: new images do not push old classes down.  Equation: [er-ace].

    Args:
        opened: ``task``: the classes of the task are open, and those of the batch; ``batch``: those
            of the batch alone.
    """

    opened: Literal["task", "batch"] = "task"

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        logits = step.out.logits
        opened = torch.zeros(logits.shape[1], dtype=torch.bool, device=logits.device)
        opened[step.y] = True
        if self.opened == "task":
            opened[step.own] = True
        return F.cross_entropy(logits.masked_fill(~opened, float("-inf")), step.y)


def competing(step: Step, over: Over) -> tuple[Tensor, Tensor]:
    """The logits of the classes that compete, and every sample's position among them."""
    logits, y, current = step.out.logits, step.y, step.current
    seen = step.rehearses if over == "auto" else over == "seen"
    if seen or len(step.tasks) == 1:
        return logits, y
    if step.exemplars is None and step.present is None:
        return logits[:, current], y - current.start
    return own_task_logits(logits, y, step.tasks), y


def own_task_logits(logits: Tensor, y: Tensor, tasks: tuple[slice, ...]) -> Tensor:
    """Logits with every class outside the sample's own task at minus infinity."""
    bounds = tuple((classes.start, classes.stop) for classes in tasks)
    task_of = _task_numbers(bounds, logits.shape[1], logits.device)
    return logits.masked_fill(task_of != task_of[y].unsqueeze(1), float("-inf"))


@lru_cache(maxsize=32)
def _task_numbers(bounds: tuple[tuple[int, int], ...], count: int, device: torch.device) -> Tensor:
    """The task of each class; kept, since a copy to the device at every step would wait for it."""
    numbers = [-1] * max(count, *(stop for _, stop in bounds))
    for index, (start, stop) in enumerate(bounds):
        numbers[start:stop] = [index] * (stop - start)
    return torch.tensor(numbers[:count], device=device)


@dataclass(frozen=True)
class OneHot:
    """Binary cross-entropy of the task's own classes, over the number seen.  Equation: [one-hot].

    iCaRL's original loss is one mean over all classes' sigmoids, where the old network gives the
    targets of the old ones: this, plus n_old/n times ``Icarl(distill="bce_mean")``.
    """

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        logits = step.out.logits
        wanted = F.one_hot(step.y, logits.shape[1])[:, step.own].to(logits.dtype)
        own = logits[:, step.own]
        mean = F.binary_cross_entropy_with_logits(own, wanted)
        return mean * (own.shape[1] / logits.shape[1])


@dataclass(frozen=True)
class Nca:
    """Neighbourhood component analysis on η-scaled similarities, batch mean.  Equation: [nca].

    With s = ηy, the logits, the paper's loss is [−s_y + ηδ + log Σ_{i≠y} exp s_i]₊, where the
    true class does not compete. In the official code the margin cancels and the true class
    competes as if it were the best: cross-entropy where an image is classified right, and more
    where it is not.

    Args:
        form: The ``official`` code, or the ``paper``.
        margin: δ, which moves the paper's form alone.
        over: Which classes compete.
    """

    form: Literal["official", "paper"] = "official"
    margin: float = 0.6
    over: Over = "auto"

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        logits, y = competing(step, self.over)
        target = y.unsqueeze(1)
        if self.form == "official":
            relative = logits - logits.max(dim=1, keepdim=True).values
            others = relative.scatter(1, target, 0.0).logsumexp(dim=1)
            return (others - relative.gather(1, target).squeeze(1)).mean()
        scale = 1.0 if step.scale is None else step.scale
        others = logits.scatter(1, target, float("-inf")).logsumexp(dim=1)
        own = logits.gather(1, target).squeeze(1)
        return F.relu(others - own + scale * self.margin).mean()


@dataclass(frozen=True)
class MarginRanking:
    """Old classes' images should be nearer to their class than to new ones.  Equation: [margin].

    [m − cos_y + cos_k]₊ over the most similar new classes k, without η. It is nothing where the
    batch has no image of an old class.

    Args:
        margin: m, by which the own class should be nearer.
        negatives: How many new classes, the most similar ones.
        reduction: ``mean`` over them (LUCIR's code), or ``sum`` (ANCL paper).
    """

    margin: float = 0.5
    negatives: int = 2
    reduction: Literal["mean", "sum"] = "mean"

    def __call__(self, step: Step) -> Tensor:
        """The mean over the batch's images of old classes."""
        if step.scale is None:
            raise MethodError(
                "Margin ranking compares cosines, and this head gives none. Use head='cosine'."
            )
        cosines = step.out.logits / step.scale
        new = cosines[:, step.current]
        nearest = new.topk(min(self.negatives, new.shape[1]), dim=1).values
        hinges = F.relu(self.margin - cosines.gather(1, step.y.unsqueeze(1)) + nearest)
        each = hinges.mean(dim=1) if self.reduction == "mean" else hinges.sum(dim=1)
        # A mask instead of a selection: an empty batch part is 0 with a gradient, not NaN.
        old = (step.y < step.current.start).to(each.dtype)
        total: Tensor = (each * old).sum() / old.sum().clamp(min=1)
        return total


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
