"""Grids: the best value by mean validation score, and values beyond or between those of a grid."""

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

import numpy as np

EXTENDED_FROM = 3
"""Values a grid needs for its edge to be extended: with two, each value is an edge."""

Value = TypeVar("Value")


def best_value(scores: Mapping[Value, Sequence[float]]) -> Value | None:
    """The value of the highest mean score; the first of equals, which is the smallest of a grid.

    A value with a score that is NaN, such as that of a run that failed, never wins.

    >>> best_value({1: [0.5, 0.75], 3: [0.75, 0.5], 10: [0.9, float("nan")]})
    1
    >>> best_value({1: []}) is None
    True
    """
    means = {value: float(np.mean(found)) for value, found in scores.items() if len(found)}
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
