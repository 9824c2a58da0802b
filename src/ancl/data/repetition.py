"""Classes that come again: which known classes a task brings, and which of their images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ancl.data.samples import Label
from ancl.errors import ScenarioError
from ancl.seeding import generator

SHARE = 0.5
"""The share of known classes that return in a task where nobody gives one."""


def check_repetition(scenario: str, returning: float | None, per_coming: int | None) -> None:
    """Refuse settings of repetition that are out of range or for another scenario.

    Raises:
        ScenarioError: Naming the setting.
    """
    given = {"data.returning": returning, "data.per_coming": per_coming}
    named = [name for name, value in given.items() if value is not None]
    if named and scenario != "cir":
        raise ScenarioError(
            f"{' and '.join(named)}: for the scenario cir, and this is {scenario}. Use --scenario "
            f"cir, or leave it out."
        )
    if returning is not None and not 0 < returning <= 1:
        raise ScenarioError(
            f"data.returning is {returning}. It is a share of the known classes: more than 0, and "
            f"1 at most."
        )
    if per_coming is not None and per_coming < 1:
        raise ScenarioError(f"data.per_coming is {per_coming}. A task brings at least 1 image.")


def returning_classes(
    sizes: Sequence[int], share: float | None, seed: int
) -> tuple[tuple[int, ...], ...]:
    """The known classes that come again in every task, as ascending positions.

    In each task after the first, ``share`` of all classes known by then is drawn, rounded, and at
    least one. The draw of a task depends on the seed, the task and the number of known classes.

    Args:
        sizes: How many classes each task is the first to bring.
        share: The share; ``SHARE`` if left out.
        seed: The seed of the run.
    """
    visits, known = [()], 0
    for task, size in enumerate(sizes[:-1], start=1):
        known += size
        count = max(1, round((SHARE if share is None else share) * known))
        drawn = torch.randperm(known, generator=generator(seed, "returning", task))[:count]
        visits.append(tuple(sorted(drawn.tolist())))
    return tuple(visits)


@dataclass(frozen=True)
class ClassVisit:
    """One visit of a class: its place among all visits of the class in the stream.

    The training images of a class are shuffled once, by the seed. Each coming takes the next of
    them, so that no image comes twice before all came once.

    Args:
        number: Which coming this is, from 0.
        of: The number of visits of the class in the stream.
        images: How many images it takes, all at most; an equal share of them if left out.
        seed: The seed of the run.
    """

    number: int
    of: int
    images: int | None
    seed: int

    def key(self) -> list[int | None]:
        """What it puts into a task's key."""
        return [self.number, self.of, self.images, self.seed]

    def count(self, n: int, name: Label) -> int:
        """How many of a class's n images it takes.

        Raises:
            ScenarioError: There are fewer images than visits.
        """
        if self.images is not None:
            return min(self.images, n)
        if n < self.of:
            raise ScenarioError(
                f"Class {name!r} comes {self.of} times and has {n} training images, but each time "
                f"it brings at least 1. Give more images, or the number that each coming takes: "
                f"data.per_coming; images then come again."
            )
        return n // self.of + (self.number < n % self.of)

    def taken(self, images: Tensor, class_id: int) -> Tensor:
        """The images that it takes of all images of a class, in their order."""
        n = len(images)
        shuffled = torch.randperm(n, generator=generator(self.seed, "comings", class_id))
        if self.images is None:
            return images[torch.tensor_split(shuffled, self.of)[self.number].sort().values]
        count = min(self.images, n)
        turn = (self.number * count + torch.arange(count)) % n
        return images[shuffled[turn].sort().values]


def class_visits(
    present: Sequence[Sequence[int]], images: int | None, seed: int
) -> tuple[tuple[ClassVisit, ...], ...]:
    """The coming of every class that a task brings, task by task."""
    times, numbers = Counter[int](), list[list[int]]()
    for task in present:
        numbers.append([times[position] for position in task])
        times.update(task)
    return tuple(
        tuple(
            ClassVisit(number, times[position], images, seed)
            for position, number in zip(task, counted, strict=True)
        )
        for task, counted in zip(present, numbers, strict=True)
    )
