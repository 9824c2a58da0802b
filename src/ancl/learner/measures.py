"""What is measured: on held images calibration, confusions and rates per class; and the size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ancl.data import Label
from ancl.errors import counted, one_line
from ancl.memory import Exemplars
from ancl.store.entry import StageResult
from ancl.types import Params
from ancl.wording import byte_size, percent

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

ALL, NEWEST, NONE, GIVEN = "all tasks", "newest task only", "not measured", "given images"
"""What a measurement stands on: held images of all tasks, of the newest alone (``NEWEST``), no
images at all, or those that were given."""


@dataclass(frozen=True)
class Calibration:
    """How scores become probabilities, and how well that fits.

    Args:
        temperature: What scores are divided by before the softmax; 1 where nothing is measured.
        images: The number of held images it was fitted on.
        basis: ``all tasks``, ``newest task only``, some tasks by number, or ``not measured``.
        error: The expected calibration error on those images; nothing without any.
        error_before: The same at a temperature of 1.
    """

    temperature: float
    images: int
    basis: str
    error: float | None = None
    error_before: float | None = None


def calibration_error(probabilities: Tensor, labels: Tensor, bins: int = 10) -> float:
    """The expected calibration error: |accuracy - confidence| over equal bins of confidence.

    Bins weigh by their number of images.
    """
    confidence, answers = probabilities.max(dim=1)
    right = (answers == labels).double()
    bin_number = (confidence * bins).long().clamp(max=bins - 1)
    gap = torch.zeros(bins, dtype=torch.double).index_add_(
        0, bin_number, right - confidence.double()
    )
    return float(gap.abs().sum() / len(labels))


@dataclass(frozen=True)
class ClassRates:
    """How one class is answered.

    Args:
        label: The class.
        task: The task that it came with, from 0.
        images: The number of its images.
        recall: The share of its images that get its label; nothing without images.
        precision: The share of images with its label that are its own; nothing without answers.
        mistaken_for: The label that its images get most often besides its own.
    """

    label: Label
    task: int
    images: int
    recall: float | None
    precision: float | None
    mistaken_for: Label | None


@dataclass(frozen=True)
class AccuracyReport:
    """Accuracy in all and per class, and what it was measured on.

    Args:
        accuracy: The share of right answers; nothing without images.
        rows: Every class.
        images: The number of images.
        basis: What they were.
        drift: How far the network moved while it learned, where statistics followed it.
    """

    accuracy: float | None
    rows: tuple[ClassRates, ...]
    images: int
    basis: str
    drift: str = ""

    def __str__(self) -> str:
        """A table."""
        if self.accuracy is None:
            return f"{NONE}: there are no held images. Give images and labels."
        head = ("class", "task", "images", "recall", "precision", "mistaken for")
        rows = [head] + [
            (
                str(row.label),
                str(row.task + 1),
                str(row.images),
                _percent(row.recall),
                _percent(row.precision),
                "" if row.mistaken_for is None else str(row.mistaken_for),
            )
            for row in self.rows
        ]
        on = _measured_on(self.images, self.basis)
        drift = self.drift and f"\n{self.drift}"
        return f"{_table(rows)}\naccuracy {percent(self.accuracy)} % on {on}{drift}"


@dataclass(frozen=True)
class Confusion:
    """How often images of each class (rows) get each label (columns).

    Args:
        classes: The labels, of rows and columns.
        counts: A row for each class.
        basis: What it was measured on.
    """

    classes: tuple[Label, ...]
    counts: tuple[tuple[int, ...], ...]
    basis: str

    def __str__(self) -> str:
        """A table; rows are the images' own classes."""
        if not any(map(any, self.counts)):
            return f"{NONE}: there are no held images. Give images and labels."
        rows = [("", *map(str, self.classes))]
        rows += [
            (str(name), *map(str, row)) for name, row in zip(self.classes, self.counts, strict=True)
        ]
        on = _measured_on(sum(map(sum, self.counts)), self.basis)
        return f"{_table(rows)}\nrows: own class, columns: answer; {on}"


def confused(
    classes: Sequence[Label], own: Sequence[int], answers: Sequence[int], basis: str
) -> Confusion:
    """The confusions of answers, both given as positions of classes."""
    n = len(classes)
    places = torch.tensor(own, dtype=torch.long) * n + torch.tensor(answers, dtype=torch.long)
    counts = places.bincount(minlength=n * n).reshape(n, n).tolist()
    return Confusion(tuple(classes), tuple(map(tuple, counts)), basis)


def report_of(confusion: Confusion, tasks: Sequence[int]) -> AccuracyReport:
    """Rates of every class; ``tasks`` are the tasks that they came with."""
    rows, counts = [], confusion.counts
    for number, (label, task) in enumerate(zip(confusion.classes, tasks, strict=True)):
        images, right = sum(counts[number]), counts[number][number]
        answered = sum(row[number] for row in counts)
        others = [(count, -i) for i, count in enumerate(counts[number]) if i != number and count]
        mistaken = confusion.classes[-max(others)[1]] if others else None
        rows.append(
            ClassRates(
                label,
                task,
                images,
                right / images if images else None,
                right / answered if answered else None,
                mistaken,
            )
        )
    total = sum(map(sum, counts))
    correct = sum(row[number] for number, row in enumerate(counts))
    accuracy = correct / total if total else None
    return AccuracyReport(accuracy, tuple(rows), total, confusion.basis if total else NONE)


def _measured_on(images: int, basis: str) -> str:
    if basis == GIVEN:
        return counted(images, "image")
    return f"{counted(images, 'held image')} ({basis})"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{percent(share)} %"


def _table(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns, the first to the left and the others to the right."""
    rows = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


# -- size ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    """The bytes of a learner.

    Args:
        disk: Of what ``save`` writes.
        memory: Of what is kept in memory, with the network that answers.
        parts: The same by part; ``images`` are those that a method reads again with every task.
    """

    disk: int
    memory: int
    parts: Mapping[str, int]

    def __str__(self) -> str:
        """Both sums, and the parts."""
        parts = ", ".join(f"{part} {byte_size(count)}" for part, count in self.parts.items())
        return f"{byte_size(self.disk)} on disk, {byte_size(self.memory)} in memory ({parts})"


def sizes(
    entries: Mapping[str, StageResult], held: Exemplars | None, images: int, answering: bool
) -> Size:
    """The size of a learner.

    Args:
        entries: What was learned, by part.
        held: The held images.
        images: The bytes of images that are kept in memory alone.
        answering: Whether a network is ready to answer.
    """
    parts = {part: _bytes(entry.tensors) for part, entry in entries.items()}
    parts["held"] = _bytes(held.tensors()) if held else 0
    disk = sum(parts.values())
    ready = _bytes(entries["network"].tensors) if answering else 0
    if images:
        parts["images"] = images
    return Size(disk, disk + ready + images, parts)


def size_of(learner: Learner) -> Size:
    """See ``Learner.size``."""
    learner._learned()
    images = 0
    if learner.method.data == "all" and learner._form:  # they are read again with every task
        counts = [sum(task.sizes) for task in learner._tasks[learner._opened :]]
        images = learner._form.image_bytes * sum(counts)
    return sizes(learner._entries(), learner._held, images, learner._scorer is not None)


def _bytes(tensors: Params) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())
