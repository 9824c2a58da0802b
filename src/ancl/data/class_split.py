"""Which classes come in which order, and how many of them make a task."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import torch

from ancl.errors import ScenarioError, printable, unknown
from ancl.seeding import generator

_ICARL_CLASSES = 100
_ICARL_SEED = 1993
_NAMED = ("natural", "icarl", "tinyimagenet", "seed:N")


def class_order(order: str | Sequence[int], n_classes: int) -> tuple[int, ...]:
    """Class numbers in the order in which they are learned.

    Args:
        order: ``natural`` (0, 1, …), ``icarl`` (the order of iCaRL and most work on CIFAR-100),
            ``tinyimagenet`` (the ANCL paper's of Tiny ImageNet), ``seed:N`` (the N-th random
            order), or the numbers themselves, all or some of them.
        n_classes: How many classes the source has.
    """
    if not isinstance(order, str):
        return _explicit(order, n_classes)
    if order == "natural":
        return tuple(range(n_classes))
    if order in ("icarl", "tinyimagenet"):
        published = _icarl() if order == "icarl" else TINYIMAGENET
        if n_classes != len(published):
            raise ScenarioError(
                f"The order {order!r} is one of {len(published)} classes, and this data has "
                f"{n_classes}. Use 'natural', 'seed:N' or a list of class numbers."
            )
        return published
    if match := re.fullmatch(r"seed:(\d{1,18})", order):
        shuffled = torch.randperm(n_classes, generator=generator(int(match[1]), "order"))
        return tuple(shuffled.tolist())
    raise ScenarioError(
        unknown("class order", order, _NAMED) + " A list of class numbers is possible too."
    )


def _icarl() -> tuple[int, ...]:
    shuffled = np.arange(_ICARL_CLASSES)
    np.random.RandomState(_ICARL_SEED).shuffle(shuffled)
    return tuple(shuffled.tolist())


def _explicit(order: Sequence[int], n_classes: int) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in order)
    outside = [number for number in numbers if not 0 <= number < n_classes]
    repeated = [number for number in numbers if numbers.count(number) > 1]
    if not numbers:
        raise ScenarioError("The class order is empty. Name the classes to learn, or 'natural'.")
    if outside:
        raise ScenarioError(
            f"The class order names {outside[0]}, and the classes are 0 to {n_classes - 1}. "
            "Remove it."
        )
    if repeated:
        raise ScenarioError(
            f"The class order names {repeated[0]} more than once. Name each class at most once."
        )
    return numbers


def task_sizes(
    n_classes: int,
    *,
    tasks: int | None = None,
    classes: str | Sequence[int] | None = None,
    first: int | None = None,
    again: bool = False,
) -> tuple[int, ...]:
    """How many classes each task has.

    Args:
        n_classes: How many classes are to be learned.
        tasks: The number of tasks, all of one size but for ``first``.
        classes: The sizes instead, as numbers or in short: ``50,10x5`` is 50, then five times 10.
        first: The size of the first task; the others share the rest equally.
        again: Whether classes come again, so that a later task may have no new ones: 5,2,0.
    """
    if (tasks is None) == (classes is None):
        given = "both were" if tasks is not None else "neither was"
        raise ScenarioError(
            "The split needs either the number of tasks or the classes of each, and "
            f"{given} given. Use --tasks 10 or --classes 50,10x5."
        )
    if classes is not None:
        if first is not None:
            raise ScenarioError(
                f"The first task's size is given twice: first={first} and classes={classes}. "
                "Leave out first."
            )
        return _listed_sizes(n_classes, classes, again)
    assert tasks is not None
    if tasks < 1:
        raise ScenarioError(f"{tasks} tasks were asked for. Give at least 1.")
    return _equal(n_classes, tasks) if first is None else _after_first(n_classes, tasks, first)


def _listed_sizes(n_classes: int, classes: str | Sequence[int], again: bool) -> tuple[int, ...]:
    sizes = _parse(classes) if isinstance(classes, str) else tuple(int(size) for size in classes)
    if not sizes or min(sizes[:1] if again else sizes) < 1:
        raise ScenarioError(
            f"The sizes {list(sizes)} hold a task without classes. Each task has at least 1."
        )
    if sum(sizes) != n_classes:
        raise ScenarioError(
            f"The sizes {_short(sizes)} add up to {sum(sizes)} classes, and there are {n_classes}. "
            f"Change them to add up to {n_classes}, or name {sum(sizes)} classes in the order."
        )
    return sizes


def _parse(text: str) -> tuple[int, ...]:
    sizes: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,9})(?:x(\d{1,5}))?", part.strip())
        if match is None:
            raise ScenarioError(
                f"{printable(part.strip(), 40)!r} in the sizes {printable(text, 80)!r} is not a "
                "size. Write 10, or 10x5 for five tasks of 10 classes, with commas: 50,10x5."
            )
        sizes += [int(match[1])] * int(match[2] or 1)
    return tuple(sizes)


def _equal(n_classes: int, tasks: int) -> tuple[int, ...]:
    if n_classes % tasks == 0:
        return (n_classes // tasks,) * tasks
    ways = []
    counts = [str(n) for n in range(2, n_classes) if n_classes % n == 0]
    if counts:
        ways.append(f"use {_any_of(counts)}")
    size = n_classes // tasks
    if size >= 2:
        size -= size % 10 if size > 10 else 0
        sizes = (n_classes - size * (tasks - 1),) + (size,) * (tasks - 1)
        ways.append(f"give the sizes: --classes {_short(sizes)}")
    advice = ", or ".join(ways) or "use fewer tasks"
    raise ScenarioError(
        f"{n_classes} classes cannot be split into {tasks} equal tasks. "
        f"{advice[0].upper()}{advice[1:]}."
    )


def _after_first(n_classes: int, tasks: int, first: int) -> tuple[int, ...]:
    rest = n_classes - first
    if first < 1 or rest < 0 or (tasks == 1) != (rest == 0):
        raise ScenarioError(
            f"A first task of {first} classes out of {n_classes} does not go with {tasks} tasks. "
            "Each task has at least 1 class: give another first or another number of tasks."
        )
    if tasks == 1:
        return (first,)
    if rest % (tasks - 1):
        counts = [str(n + 1) for n in range(1, rest + 1) if rest % n == 0]
        raise ScenarioError(
            f"The {rest} classes after the first {first} cannot be split into {tasks - 1} equal "
            f"tasks. Use {_any_of(counts)} tasks in all, or give the sizes: --classes."
        )
    return (first,) + (rest // (tasks - 1),) * (tasks - 1)


def _any_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _short(sizes: tuple[int, ...]) -> str:
    """The sizes in short: equal neighbours become 10x5."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and runs[-1][0] == size:
            runs[-1][1] += 1
        else:
            runs.append([size, 1])
    return ",".join(f"{size}x{count}" if count > 1 else str(size) for size, count in runs)


# fmt: off
TINYIMAGENET: tuple[int, ...] = (
    107, 58, 38, 24, 52, 30, 84, 142, 44, 119, 66, 36, 11, 47, 199, 194, 3, 173, 26, 147, 40,
    179, 65, 12, 33, 174, 186, 74, 112, 170, 28, 192, 145, 21, 62, 4, 196, 143, 43, 161, 27, 20,
    22, 72, 178, 149, 77, 16, 86, 91, 139, 105, 117, 98, 78, 108, 18, 104, 100, 90, 50, 73, 89,
    157, 97, 159, 2, 130, 188, 85, 160, 53, 69, 144, 81, 25, 138, 110, 190, 87, 150, 1, 195, 23,
    42, 153, 5, 183, 82, 156, 15, 32, 124, 132, 9, 64, 120, 75, 136, 109, 113, 171, 57, 51, 191,
    175, 166, 165, 111, 96, 141, 146, 79, 6, 41, 56, 180, 99, 122, 155, 83, 68, 114, 134, 148,
    13, 34, 19, 14, 187, 94, 106, 46, 37, 167, 31, 158, 76, 55, 128, 48, 193, 118, 184, 0, 154,
    162, 182, 197, 133, 63, 163, 172, 101, 61, 121, 80, 17, 125, 131, 152, 102, 71, 49, 140, 137,
    135, 70, 116, 92, 189, 176, 129, 59, 39, 8, 103, 151, 115, 168, 181, 169, 93, 198, 95, 127,
    60, 7, 67, 185, 88, 10, 164, 35, 54, 177, 29, 123, 126, 45,
)
# fmt: on
"""Of the 200 classes of Tiny ImageNet, along ``wnids.txt``: the one of the ANCL paper's runs."""
