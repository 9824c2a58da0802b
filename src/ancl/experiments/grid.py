"""Grids: the best value by mean validation score, what lies beyond an edge, and races of values.

In a race, values that have no chance to win stop early. From half of the tasks on, a value that is
behind the best one stops after a task for one of two reasons. Either its paired differences to the
best one leave no doubt: by their 95 % t-interval it is at most 0.2 points better. Or early tasks
favour it, and it is behind nevertheless: a small λ or a large λ_a shows at once what it learns, and
only later what it forgets. A gap that shrinks counts as what would be left of it after the last
task if it kept shrinking as in the newest one.
"""

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ancl.errors import SpecError
from ancl.metrics import Matrix, Sizes, final_accuracy, first_rows, t_quantile
from ancl.recipe.recipe import RunSpec
from ancl.wording import percent

EXTENDED_FROM = 3
"""Values a grid needs for its edge to be extended: with two, each value is an edge."""

Value = TypeVar("Value")


def check_searchable(spec: RunSpec) -> None:
    """Refuse a search that has no images to decide by.

    Raises:
        SpecError: There are no validation images.
    """
    if spec.data.val_fraction == 0:
        raise SpecError(
            "A search decides by validation images, but data.val_fraction is 0. Raise it, such as "
            "--set data.val_fraction=0.1."
        )


def best_value(scores: Mapping[Value, Sequence[float]]) -> Value | None:
    """The value of the highest mean score; the first of equals, which is the smallest of a grid.

    A value with a score that is NaN, such as that of a run that failed, never wins.

    >>> best_value({1: [0.5, 0.75], 3: [0.75, 0.5], 10: [0.9, float("nan")]})
    1
    >>> best_value({1: []}) is None
    True
    """
    means = {value: float(np.mean(values)) for value, values in scores.items() if len(values)}
    finite = {value: mean for value, mean in means.items() if math.isfinite(mean)}
    return max(finite, key=lambda value: finite[value]) if finite else None


def on_edge(value: float, grid: Sequence[float]) -> bool:
    """Whether a better value may be outside the grid."""
    return len(grid) > 1 and value in (min(grid), max(grid))


def extension(grid: Sequence[float], value: float) -> list[float]:
    """The value beyond an edge that was best; nothing where the best one is inside.

    >>> extension([1, 3, 10], 10), extension([1, 3, 10], 3), extension([1, 3], 3)
    ([33.3], [], [])
    """
    return [beyond(grid, value)] if len(grid) >= EXTENDED_FROM and on_edge(value, grid) else []


def beyond(grid: Sequence[float], edge: float) -> float:
    """The next value after an edge of a grid, by the grid's factor there.

    >>> beyond([1, 3, 10], 10), beyond([1, 3, 10], 1)
    (33.3, 0.333)
    """
    inner = grid[1] if edge == grid[0] else grid[-2]
    return _short(edge * edge / inner)


def around(grid: Sequence[float], centre: float) -> list[float]:
    """Four values around one of a grid: at thirds of the way to both neighbours, in logarithms.

    Beyond an edge the neighbour is the next value by the grid's factor.

    >>> around([1, 8, 64], 8), around([1, 8, 64], 64)
    ([2.0, 4.0, 16.0, 32.0], [16.0, 32.0, 128.0, 256.0])
    """
    ordered = sorted(grid)
    position = ordered.index(centre)
    low = ordered[position - 1] if position else beyond(ordered, centre)
    high = ordered[position + 1] if position + 1 < len(ordered) else beyond(ordered, centre)
    return [
        _short(centre * (other / centre) ** share)
        for other, share in ((low, 2 / 3), (low, 1 / 3), (high, 1 / 3), (high, 2 / 3))
    ]


def _short(value: float) -> float:
    return float(f"{value:.3g}")


# -- races -----------------------------------------------------------------------------------

TOLERANCE = 0.002
"""How much better a value may be by its interval and still stop."""

Pairs = NDArray[np.float64]
"""A row per seed: the accuracies of one value whose mean is compared, one for each task."""
Standing = Sequence[Pairs]
"""Of one value: what is compared after 1, 2, … tasks."""
Learn = Callable[[Sequence[float], int], Mapping[float, Standing]]
"""Trains values on this number of tasks; a value that failed is not in the answer."""
Favoured = Callable[[float, float], bool]
"""Whether early tasks favour the first value against the second."""
FAVOURED: dict[str, Favoured] = {"lamb": operator.lt, "lamb_a": operator.gt}
"""By what is searched: a smaller λ and a larger λ_a learn more and forget more."""


@dataclass(frozen=True)
class Stop:
    """Why a value stopped.

    Args:
        after: The number of tasks learned.
        best: The value that was best then.
        gap: The mean of the best value's accuracies minus this value's, pair by pair.
        low: The lower end of its 95 % t-interval; nothing where there are too few pairs for one.
        high: The upper end.
        pairs: The number of pairs of a seed and a task.
        favoured: Whether it is behind although early tasks favour it; else the interval decided.
    """

    after: int
    best: float
    gap: float
    low: float | None
    high: float | None
    pairs: int
    favoured: bool = False

    def json(self) -> dict[str, Any]:
        """The same as JSON."""
        return asdict(self)

    def text(self, sign: str) -> str:
        """The same in words, for a value of λ or λ_a.

        >>> Stop(3, 10.0, 0.055, 0.001, 0.109, 6).text("λ")
        'stopped after task 3, 5.5 points below λ=10 (95 % interval 0.1 to 10.9, 6 pairs)'
        >>> Stop(3, 10.0, 0.005, -0.01, 0.02, 6, favoured=True).text("λ")
        'stopped after task 3, 0.5 points below λ=10, although early tasks favour it'
        """
        why = ", although early tasks favour it"
        if self.low is not None and self.high is not None and not self.favoured:
            low, high = percent(self.low), percent(self.high)
            why = f" (95 % interval {low} to {high}, {self.pairs} pairs)"
        below = f"{percent(self.gap)} points below {sign}={self.best:g}"
        return f"stopped after task {self.after}, {below}{why}"


def earliest(tasks: int) -> int:
    """The number of tasks before which no value stops: early tasks underrate a large λ.

    >>> earliest(10), earliest(5)
    (5, 3)
    """
    return (tasks + 1) // 2


def race(
    values: Sequence[float],
    tasks: int,
    learn: Learn,
    favoured: Favoured,
    tell: Callable[[float, Stop], None] = lambda value, stop: None,
) -> dict[float, Stop]:
    """Train values task by task; those that have no chance to win stop.

    It ends when one value is left, whose later tasks decide nothing, or after the last task.

    Args:
        values: The values, of which the first of equals is the best.
        tasks: The number of tasks.
        learn: Trains values; a value once stopped is not asked for again.
        favoured: Which of two values early tasks favour.
        tell: Receives every value that stops.
    """
    left, stopped = list(values), dict[float, Stop]()
    for learned in range(earliest(tasks), tasks + 1):
        standings = learn(left, learned)
        left = [value for value in left if value in standings]
        if learned < tasks:
            for value, stop in hopeless(standings, tasks - learned, favoured).items():
                stopped[value] = stop
                tell(value, stop)
            left = [value for value in left if value not in stopped]
        if len(left) <= 1:
            break
    return stopped


def hopeless(
    standings: Mapping[float, Standing], remaining: int, favoured: Favoured
) -> dict[float, Stop]:
    """The values behind the best one at this moment that stop, and why.

    Args:
        standings: Of every value, after the same tasks.
        remaining: The number of tasks to come.
        favoured: Which of two values early tasks favour.
    """
    if not standings:
        return {}
    best = max(standings, key=lambda value: _mean(standings[value][-1]))
    stops = {}
    for value, standing in standings.items():
        gaps = [ours - theirs for ours, theirs in zip(standings[best], standing, strict=True)]
        mean, reach, last = _mean(gaps[-1]), _reach(gaps[-1]), _last_gap(gaps, remaining)
        proven = last - reach > -TOLERANCE
        if last > 0 and (proven or favoured(value, best)):
            low, high = (None if math.isnan(reach) else mean + x for x in (-reach, reach))
            pairs = int(gaps[-1].size)
            stops[value] = Stop(len(standing), best, mean, low, high, pairs, favoured=not proven)
    return stops


def _reach(gaps: Pairs) -> float:
    """Half of the 95 % t-interval of the mean; NaN where there are too few pairs.

    What differs from task to task is the same for all seeds (a small λ is better on the newest task
    and worse on the others), so it is not noise: with several seeds it is taken out. With one seed
    the two cannot be told apart, and all of it counts as noise.
    """
    alone = len(gaps) == 1
    freedom = gaps.size - 1 if alone else gaps.size - gaps.shape[1]
    if freedom < 1:
        return math.nan
    noise = gaps - gaps.mean(axis=1 if alone else 0, keepdims=True)
    error = math.sqrt(float((noise**2).sum()) / freedom / gaps.size)
    return t_quantile(0.95, freedom) * error


def _last_gap(gaps: Standing, remaining: int) -> float:
    """The mean gap after the last task, if one that shrinks keeps shrinking as in the newest."""
    now = _mean(gaps[-1])
    before = _mean(gaps[-2]) if len(gaps) > 1 and gaps[-2].size else now
    return now - remaining * max(0.0, before - now)


def _mean(pairs: Pairs) -> float:
    """The mean; 0 where AIAC has nothing to compare yet, after the first task."""
    return float(pairs.mean()) if pairs.size else 0.0


def standing(runs: Sequence[tuple[Matrix, Sizes]], *, task_aware: bool) -> Standing:
    """What is compared after each task, of the validation matrices and image counts of all seeds.

    Where AAC decides, it is the accuracy on every task so far. Where AIAC decides, it is the
    accuracy on all classes so far, after every task but the first, which knows no λ.
    """
    parts = _newest_row if task_aware else _steps
    return [
        np.array([parts(first_rows(matrix, learned), sizes) for matrix, sizes in runs])
        for learned in range(1, len(runs[0][0]) + 1)
    ]


def _newest_row(matrix: Matrix, sizes: Sizes) -> list[float]:
    return [float(cell) for cell in matrix[-1]]


def _steps(matrix: Matrix, sizes: Sizes) -> list[float]:
    seen = [first_rows(matrix, step) for step in range(2, len(matrix) + 1)]
    return [final_accuracy(part, sizes[: part.shape[1]]) for part in seen]
