"""A race of the values of a grid: those that are worse beyond doubt stop early.

From half of the tasks on, a value stops after a task when the 95 % t-interval of its paired
differences to the best value at that moment is below 0, they are at least one point on average,
and they would not close by the last task if they went on shrinking as in the last one.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ancl.metrics import Matrix, Sizes, final_accuracy, t_interval
from ancl.wording import percent

MARGIN = 0.01
"""The smallest mean difference that stops a value: few pairs can be alike by chance."""

Standing = Sequence[Sequence[float]]
"""Of one value: after 1, 2, … tasks, the accuracies of all seeds whose mean is compared."""
Learn = Callable[[Sequence[float], int], Mapping[float, Standing]]
"""Trains values on this number of tasks; a value that failed is not in the answer."""


@dataclass(frozen=True)
class Stop:
    """Why a value went no further.

    Args:
        after: The number of tasks learned.
        best: The value that was best then.
        gap: The mean of the best value's accuracies minus this value's, pair by pair.
        low: The lower end of its 95 % t-interval.
        high: The upper end.
        pairs: The number of pairs of a seed and a task.
    """

    after: int
    best: float
    gap: float
    low: float
    high: float
    pairs: int

    def json(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self)

    def text(self, sign: str) -> str:
        """The same in words, for a value of λ or λ_a.

        >>> Stop(3, 10.0, 0.055, 0.001, 0.109, 6).text("λ")
        'stopped after task 3, 5.5 points below λ=10 (95 % interval 0.1 to 10.9, 6 pairs)'
        """
        gap, low, high = (percent(each) for each in (self.gap, self.low, self.high))
        return (
            f"stopped after task {self.after}, {gap} points below {sign}={self.best:g} "
            f"(95 % interval {low} to {high}, {self.pairs} pairs)"
        )


def earliest(tasks: int) -> int:
    """The number of tasks before which no value stops: early tasks under-rate a large λ.

    >>> earliest(10), earliest(5)
    (5, 3)
    """
    return (tasks + 1) // 2


def race(
    values: Sequence[float],
    tasks: int,
    learn: Learn,
    tell: Callable[[float, Stop], None] = lambda value, stop: None,
) -> dict[float, Stop]:
    """Train values task by task; those that are worse beyond doubt stop.

    It ends when one value is left, whose later tasks decide nothing, or after the last task.

    Args:
        values: The values, of which the first of equals is the best.
        tasks: The number of tasks.
        learn: Trains values; a value once stopped is not asked for again.
        tell: Hears of every value that stops.
    """
    left, stopped = list(values), dict[float, Stop]()
    for learned in range(earliest(tasks), tasks + 1):
        standings = learn(left, learned)
        left = [value for value in left if value in standings]
        if learned < tasks:
            for value, stop in worse(standings, tasks - learned).items():
                stopped[value] = stop
                tell(value, stop)
            left = [value for value in left if value not in stopped]
        if len(left) <= 1:
            break
    return stopped


def worse(standings: Mapping[float, Standing], remaining: int) -> dict[float, Stop]:
    """The values that are worse beyond doubt than the best one at this moment.

    Args:
        standings: Of every value, after the same tasks.
        remaining: The number of tasks to come.
    """
    if not standings:
        return {}
    best = max(standings, key=lambda value: _mean(standings[value][-1]))
    found = {}
    for value, own in standings.items():
        gaps = [_differences(*each) for each in zip(standings[best], own, strict=True)]
        if not gaps[-1]:
            continue  # after the first task AIAC has nothing to compare
        mean, low, high, _, pairs = t_interval(gaps[-1])
        if mean >= MARGIN and low > 0 and not _closing(gaps, remaining):
            found[value] = Stop(len(own), best, mean, low, high, pairs)
    return found


def _closing(gaps: Sequence[Sequence[float]], remaining: int) -> bool:
    """Whether the gap is gone after the last task if it shrinks on as in the last one."""
    if len(gaps) < 2 or not gaps[-2]:
        return False
    before, now = _mean(gaps[-2]), _mean(gaps[-1])
    return now - remaining * (before - now) <= 0


def _differences(ours: Sequence[float], theirs: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(ours, theirs, strict=True)]


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else 0.0


def standing(runs: Sequence[tuple[Matrix, Sizes]], *, task_aware: bool) -> Standing:
    """What is compared after each task, of the validation matrices and image counts of all seeds.

    Where AAC decides, it is the accuracy on every task so far. Where AIAC decides, it is the
    accuracy on all classes so far, after every task but the first, which knows no λ.
    """
    parts = _newest_row if task_aware else _steps
    return [
        [each for matrix, sizes in runs for each in parts(matrix[:learned, :learned], sizes)]
        for learned in range(1, len(runs[0][0]) + 1)
    ]


def _newest_row(matrix: Matrix, sizes: Sizes) -> list[float]:
    return [float(cell) for cell in matrix[-1]]


def _steps(matrix: Matrix, sizes: Sizes) -> list[float]:
    return [
        final_accuracy(matrix[:step, :step], sizes[:step]) for step in range(2, len(matrix) + 1)
    ]
