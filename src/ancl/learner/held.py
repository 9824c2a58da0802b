"""Images held out of learning, and what is measured on them before and after a task."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from ancl.data import Samples, Task
from ancl.learner.images import pixel_hashes
from ancl.learner.ledger import read_statistics
from ancl.learner.scorer import Scorer, mask_other_tasks
from ancl.memory import Exemplars
from ancl.methods.method import Method
from ancl.methods.task_history import adds_classes
from ancl.store.entry import StageResult
from ancl.types import Output


class HeldOut(NamedTuple):
    """Images that nothing is learned from, for measuring.

    Args:
        y: The class of each.
        task: The task that it counts for.
        hashes: The sha256 of each.
        scores: From a scorer to their scores.
    """

    y: Tensor
    task: Tensor
    hashes: Sequence[bytes]
    scores: Callable[[Scorer], Tensor]


class Answering(NamedTuple):
    """Who answers: a scorer, after these tasks, with the task of an image known or not."""

    scorer: Scorer
    tasks: Sequence[Task]
    task_known: bool

    @torch.no_grad()
    def right(self, held: HeldOut) -> Tensor:
        """Whether each held image gets its label; never of a class that is not known."""
        return self.judged(held, held.scores(self.scorer))

    def judged(self, held: HeldOut, scores: Tensor) -> Tensor:
        """The same, of scores."""
        if self.task_known:
            scores = mask_other_tasks(scores, held.task, self.tasks)
        return scores.argmax(dim=1) == held.y


def task_accuracies(
    right: Tensor | None, held: HeldOut | None, tasks: Sequence[Task]
) -> tuple[float | None, ...]:
    """The accuracy on the held images of every task with classes; nothing where it has none."""
    columns = [task.index for task in tasks if task.is_column]
    if held is None or right is None:
        return (None,) * len(columns)
    return tuple(_share(right[held.task == index]) for index in columns)


def _share(right: Tensor) -> float | None:
    return float(right.double().mean()) if len(right) else None


KNOWN, RETURNING, NEW = "classes known before", "new images of known classes", "new classes"
"""Which held images a change is measured on."""


class Change(NamedTuple):
    """What a task changed, on the same held images before and after it.

    Args:
        of: Which images: ``KNOWN``, ``RETURNING``, ``NEW``, or the position of a known class.
        images: Their number.
        before: The share that got the right label before; nothing of a class not known then.
        after: The share that gets it now.
    """

    of: str | int
    images: int
    before: float | None
    after: float


class HeldChanges(NamedTuple):
    """What a task changed.

    Args:
        groups: On classes known before, on new images of these, and on new classes.
        recalls: On every class known before, on images that were held before.
    """

    groups: tuple[Change, ...] = ()
    recalls: tuple[Change, ...] = ()


def compare_held(
    held: HeldOut, earlier: HeldOut | None, before: Answering | None, after: Tensor
) -> HeldChanges:
    """What a task changed, on held images.

    Args:
        held: The held images.
        earlier: Those that were held before the task.
        before: Who answered then; none before the first task.
        after: Whether each image gets its label now.
    """
    y, known = held.y, torch.zeros(len(held.y), dtype=torch.bool)
    was = known.clone()
    if before:
        known = y < before.tasks[-1].classes.stop
        was = before.right(held)
    there = set(earlier.hashes) if earlier else set[bytes]()
    first = torch.tensor([row in there for row in held.hashes], dtype=torch.bool)
    groups = {KNOWN: known & first, RETURNING: known & ~first, NEW: ~known}
    classes = {n: known & first & (y == n) for n in sorted(set(y[known & first].tolist()))}
    return HeldChanges(
        *(
            tuple(
                Change(of, int(rows.sum()), None if of == NEW else _share(was[rows]), share)
                for of, rows in chosen.items()
                if (share := _share(after[rows])) is not None
            )
            for chosen in (groups, classes)
        )
    )


def held_by(
    method: Method,
    tasks: Sequence[Task],
    entries: Mapping[str, StageResult],
    images: Exemplars | None,
) -> HeldOut | None:
    """What a learner holds: images as they are, or as features in a piece of its state.

    Features of earlier images that have followed a network are an estimate, good enough to choose
    a classifier by, and no measurement: where the network moves, images are held as they are.

    Args:
        method: Its method.
        tasks: What was learned.
        entries: What was left behind, by piece.
        images: Those that are held as they are, if there are any.
    """
    piece = method.infer.holds
    if piece is None or not method.holds_features:
        if images is None:
            return None
        x = images.samples.x
        return HeldOut(images.samples.y, images.task, pixel_hashes(x), lambda scorer: scorer(x))
    known = read_statistics(entries[piece].tensors, piece)
    held = known.held
    if not len(held):
        return None
    features = known.grid.back(held.rows)
    output = Output(features.new_zeros(len(held), known.sums.classes), features)
    domains = tasks[-1].is_column and not adds_classes(tasks[-1])
    task = held.tasks if domains else _first_tasks(tasks, held.y)
    hashes = [bytes.fromhex(text) for text in held.hex()]
    return HeldOut(held.y, task, hashes, lambda scorer: scorer.score(output))


def _first_tasks(tasks: Sequence[Task], y: Tensor) -> Tensor:
    """The task that was the first to bring the class of each image."""
    first_tasks = torch.zeros(len(y), dtype=torch.long)
    for task in tasks:
        first_tasks[(y >= task.classes.start) & (y < task.classes.stop)] = task.index
    return first_tasks


def hold_out_images(
    tasks: Sequence[Task],
    val: Samples,
    most: int,
    before: Exemplars | None,
    trained: Collection[bytes],
) -> Exemplars | None:
    """Held images with those of the last task: the first ``most`` validation images of each class.

    They are in the order of their hashes, so the first are as good as any. Those of a known class
    that comes again fill up what it has, and belong to the task that brought it first.

    Args:
        tasks: All tasks.
        val: The validation images of the last.
        most: How many of each class, at most.
        before: The images that are held already; all of them stay.
        trained: The hashes of all images that were trained on, which are not held now.
    """
    task = tasks[-1]
    out = {*trained, *(pixel_hashes(before.samples.x) if before else ())}
    fresh = dict[bytes, int]()  # of equal images, the first
    for index, row in enumerate(pixel_hashes(val.x)):
        if row not in out:
            fresh.setdefault(row, index)
    val = val.take(torch.tensor(list(fresh.values()), dtype=torch.long))
    chosen = [torch.arange(0)]
    for number in sorted(set(val.y.tolist())):
        there = int((before.samples.y == number).sum()) if before and task.returning else 0
        chosen.append(val.of_class(number)[: max(most - there, 0)])
    samples = val.take(torch.cat(chosen))
    if not len(samples):
        return before
    n = len(samples)
    added = Exemplars(samples, _brought_by(tasks, samples.y), torch.ones(n, dtype=torch.bool))
    # A copy of these few: a view would keep all images of their task.
    return Exemplars.of((Exemplars.joined([before, added]) if before else added).tensors())


def _brought_by(tasks: Sequence[Task], y: Tensor) -> Tensor:
    """The task of each image: that which was the first to bring its class, or the last in dil."""
    if tasks[-1].returning:
        return _first_tasks(tasks, y)
    return torch.full((len(y),), tasks[-1].index)


def renumbered(images: Exemplars, classes: Sequence[int], tasks: Sequence[int]) -> Exemplars:
    """Images with other numbers for each class and each task."""
    samples = replace(images.samples, y=torch.tensor(classes)[images.samples.y])
    return replace(images, samples=samples, task=torch.tensor(tasks)[images.task])


def held_together(ours: Exemplars | None, others: Exemplars | None) -> Exemplars | None:
    """What two learners hold as images, each once."""
    both = [images for images in (ours, others) if images]
    if len(both) < 2:
        return both[0] if both else None
    joined = Exemplars.joined(both)
    first = dict[bytes, int]()
    for index, row in enumerate(pixel_hashes(joined.samples.x)):
        first.setdefault(row, index)
    return Exemplars.of(joined.take(torch.tensor(list(first.values()))).tensors())
