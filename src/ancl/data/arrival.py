"""Streams without boundaries: when each image comes, and how the stream is cut into parts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from ancl.data.samples import Label
from ancl.errors import ScenarioError
from ancl.seeding import generator

_NO_TASK = (
    "in a stream without boundaries there is no task that could be told at test time. Use "
    "--scenario cir"
)
_REASONS = {
    "til": _NO_TASK,
    "cil": "classes come again in it. Use --scenario cir, which is cil with classes that do",
    "dil": "it brings new classes little by little, and not new domains. Use --scenario cir",
}


@dataclass(frozen=True)
class Arrival:
    """When images come. Every image comes once.

    A class belongs to a task, which lasts from time k to k + 1, and its images come at any time of
    it. Parts are cut where a task ends; or, where boundaries are gradual, after as many images as
    a task has; or after every ``part`` images.

    Args:
        blurry: The share of a class's images that come in other tasks, any of them.
        gradual: The deviation of a normal number that is added to the time of every image, in
            tasks: classes come and go gradually.
        part: The number of images of a part, if the stream is cut into equal ones.
    """

    blurry: float = 0.0
    gradual: float = 0.0
    part: int | None = None

    def __bool__(self) -> bool:
        return bool(self.blurry or self.gradual or self.part)

    def cut(self, tasks: Sequence[Mapping[int, int]], seed: int) -> list[Part]:
        """The parts of a stream, from the number of images of each class of each task."""
        classes = [
            (k, class_id, n) for k, sizes in enumerate(tasks) for class_id, n in sizes.items()
        ]
        times = [self._times(k, len(tasks), class_id, n, seed) for k, class_id, n in classes]
        time = torch.cat(times)
        owner = torch.cat(
            [torch.full((n,), position) for position, (_, _, n) in enumerate(classes)]
        )
        number = torch.cat([torch.arange(n) for _, _, n in classes])
        order = time.argsort(stable=True)
        return [
            Part.of([classes[position][1] for position in owner[index].tolist()], number[index])
            for index in self._parts(order, time[order], [sum(sizes.values()) for sizes in tasks])
        ]

    def _times(self, task: int, tasks: int, class_id: int, n: int, seed: int) -> Tensor:
        """When each of a class's images comes."""
        randomness = generator(seed, "arrival", class_id)
        begins = torch.full((n,), task)
        if self.blurry and tasks > 1:
            moved = torch.randperm(n, generator=randomness)[: round(self.blurry * n)]
            others = torch.randint(tasks - 1, (len(moved),), generator=randomness)
            begins[moved] = others + (others >= task)
        time = begins + torch.rand(n, generator=randomness, dtype=torch.double)
        if self.gradual:
            shift = torch.randn(n, generator=randomness, dtype=torch.double)
            time += self.gradual * shift
        return time

    def _parts(self, order: Tensor, time: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        if self.part:
            parts = list(torch.split(order, self.part))
            # Batch norm cannot learn from a single image.
            return [*parts[:-2], torch.cat(parts[-2:])] if len(parts[-1]) == 1 else parts
        if self.gradual:
            ends = list(accumulate(sizes))[:-1]
        else:
            ends = [int((time < task).sum()) for task in range(1, len(sizes))]
        return [part for part in order.tensor_split(ends) if len(part)]


@dataclass(frozen=True)
class Part:
    """What comes between two evaluations: of each class, in order of arrival, which images."""

    images: Mapping[int, Arrived]

    @classmethod
    def of(cls, classes: Sequence[int], numbers: Tensor) -> Part:
        """From the class of each image, and its number among the class's images."""
        by_class: dict[int, list[int]] = {}
        for class_id, number in zip(classes, numbers.tolist(), strict=True):
            by_class.setdefault(class_id, []).append(number)
        return cls(
            {class_id: Arrived(tuple(sorted(images))) for class_id, images in by_class.items()}
        )


@dataclass(frozen=True)
class Arrived:
    """Those of a class's training images that come with a part, as ascending numbers."""

    numbers: tuple[int, ...]

    def count(self, n: int, name: Label) -> int:
        """How many they are."""
        return len(self.numbers)

    def taken(self, images: Tensor, class_id: int) -> Tensor:
        """The images, of all images of the class."""
        return images[torch.tensor(self.numbers)]

    def key(self) -> list[Any]:
        """What it puts into a task's key."""
        text = ",".join(map(str, self.numbers))
        return ["arrived", hashlib.sha256(text.encode()).hexdigest()]


def check_windows(every: int | None, window: int | None, old_every: int | None) -> None:
    """Refuse lengths of a stream's stretches that do not go into one another; all are in batches.

    Args:
        every: Of a part.
        window: Of what is buffered.
        old_every: Between two copies of the old network.

    Raises:
        ScenarioError: Naming the setting.
    """
    given = {"data.window": window, "data.old_every": old_every}
    named = [f"{name}={value}" for name, value in given.items() if value]
    if named and every is None:
        raise ScenarioError(
            f"{' and '.join(named)} with no data.every: they are of a stream that comes once, in "
            f"batches. Give data.every, the number of batches between two evaluations."
        )
    if every is None:
        return
    if window and every % window:
        raise ScenarioError(
            f"data.window={window} does not divide data.every={every}: an evaluation ends a window."
        )
    if old_every and every % old_every and old_every % every:
        raise ScenarioError(
            f"data.old_every={old_every} neither divides data.every={every} nor is a multiple of "
            f"it. Give such a number of batches."
        )
    short, long = sorted((window or every, min(old_every or every, every)))
    if long % short:
        raise ScenarioError(
            f"Of {' and '.join(named)} neither divides the other. Give numbers of batches that go "
            f"into one another."
        )


def check_arrival(
    scenario: str, every: int | None, blurry: float, gradual: float, others: Mapping[str, object]
) -> None:
    """Refuse settings of a stream without boundaries that do not go together.

    Args:
        scenario: The scenario.
        every: Batches of a part.
        blurry: See ``Arrival``.
        gradual: The same.
        others: Settings that say in another way which classes come again.

    Raises:
        ScenarioError: Naming the setting.
    """
    given = {"data.every": every, "data.blurry": blurry, "data.gradual": gradual}
    named = [name for name, value in given.items() if value]
    if not named:
        return
    if scenario in _REASONS:
        raise ScenarioError(
            f"{' and '.join(named)} with the scenario {scenario}: {_REASONS[scenario]}."
        )
    again = [name for name, value in others.items() if value is not None]
    if again:
        raise ScenarioError(
            f"{' and '.join(again)} says which classes come again, and {' and '.join(named)} says "
            f"when each image comes. Give one of them."
        )
