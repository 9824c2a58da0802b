"""Rank correlation: how far one list rises with another, whatever the shape of the curve."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Pearson's correlation of the ranks; NaN where a list has fewer than two distinct values.

    >>> spearman([1, 10, 100], [0.2, 0.3, 0.9])
    1.0
    """
    a, b = ranks(first), ranks(second)
    a, b = a - a.mean(), b - b.mean()
    length = math.sqrt(float(a @ a) * float(b @ b))
    return float(a @ b) / length if length else math.nan


def ranks(values: Sequence[float]) -> NDArray[np.float64]:
    """Positions in ascending order from 1; equal values share the mean of theirs."""
    given = np.asarray(values, dtype=np.float64)
    below = (given[:, None] > given[None, :]).sum(axis=1)
    equal = (given[:, None] == given[None, :]).sum(axis=1)
    result: NDArray[np.float64] = below + (equal + 1) / 2
    return result
