"""Numbers from an accuracy matrix R: R[i, j] is the accuracy on task j after learning task i.

Accuracies are fractions. Above the diagonal, where a task is not yet learned, R is NaN. A task in
which known classes come again alone has a row and no column: R[b_j, j] is then the first accuracy
of column j, and with as many columns as rows b_j is j.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ancl.errors import StoreError
from ancl.files import read_plain, replace_text

Matrix = NDArray[np.float64]
Sizes = Sequence[int]
ROUNDED = 1e-6
"""How far a number may be from the matrix of a file, which has six decimals."""


@dataclass(frozen=True)
class Metric:
    """One number of a matrix, with the words a table needs.

    Args:
        name: As in files and on the command line.
        label: As in the heading of a table.
        formula: The definition, in one line.
        unit: How the number is written.
        function: The number of a matrix, given the number of test images of each task.
        shown: Whether a run's tables show it; files hold all.
    """

    name: str
    label: str
    formula: str
    unit: str
    function: Callable[[Matrix, Sizes], float]
    shown: bool = True


class Estimate(NamedTuple):
    """A mean over seeds, its standard error, and how many seeds there were."""

    mean: float
    error: float
    n: int


def learned_after(r: Matrix) -> list[int]:
    """b_j: the row of the task that each column is of, the first where it is not NaN.

    >>> learned_after(np.array([[0.8, np.nan], [0.7, np.nan], [0.6, 0.9]]))
    [0, 2]
    """
    rows, columns = r.shape
    if rows == columns:
        return list(range(rows))
    known = ~np.isnan(r)
    return [int(known[:, j].argmax()) if known[:, j].any() else j for j in range(columns)]


def first_rows(r: Matrix, rows: int) -> Matrix:
    """The matrix after its first tasks: their rows, and the columns of those among them."""
    return r[:rows, [j for j, begin in enumerate(learned_after(r)) if begin < rows]]


def _born(r: Matrix) -> Matrix:
    """The accuracy on each column's classes when they were learned: R[b_j, j]."""
    return np.array([r[begin, j] for j, begin in enumerate(learned_after(r))])


def _earlier(r: Matrix) -> list[tuple[int, int]]:
    """(b_j, j) of every column that was learned before the last row."""
    return [(begin, j) for j, begin in enumerate(learned_after(r)) if begin < len(r) - 1]


def aac(r: Matrix) -> float:
    """Average accuracy: the mean of the last row, every task counting the same.

    >>> aac(np.array([[0.8, np.nan], [0.6, 0.9]]))
    0.75
    """
    return float(r[-1].mean())


def aiac(r: Matrix, sizes: Sizes) -> float:
    """Average incremental accuracy: the mean over steps of the accuracy on all classes seen so far.

    A first task of many classes counts by its size in every step; an unweighted mean over tasks
    would be another number.

    >>> round(aiac(np.array([[0.8, np.nan], [0.7, 0.5]]), [50, 10]), 6)
    0.733333
    """
    parts = [first_rows(r, rows)[-1] for rows in range(1, len(r) + 1)]
    return float(np.mean([_pooled(row, sizes[: len(row)]) for row in parts]))


def final_accuracy(r: Matrix, sizes: Sizes) -> float:
    """Accuracy on all classes after the last task: the last row, weighted by size."""
    return _pooled(r[-1], sizes)


def forgetting(r: Matrix) -> float:
    """Mean over earlier tasks of the best accuracy before the last step minus the last one.

    It is negative where the last task helped the earlier ones, and NaN where there are none.

    >>> round(forgetting(np.array([[0.8, np.nan], [0.6, 0.9]])), 6)
    0.2
    """
    last = len(r) - 1
    drops = [r[begin:last, j].max() - r[last, j] for begin, j in _earlier(r)]
    return float(np.mean(drops)) if drops else math.nan


def forgetting_from_best(r: Matrix) -> float:
    """The same with the last step among the best: never negative (Mammoth, PyCIL)."""
    last = len(r) - 1
    drops = [r[begin:, j].max() - r[last, j] for begin, j in _earlier(r)]
    return float(np.mean(drops)) if drops else math.nan


def forgetting_from_learned(r: Matrix) -> float:
    """Mean over earlier tasks of the accuracy when learned minus the last one (Avalanche)."""
    return -backward_transfer(r)


def forgetting_without_newest(r: Matrix) -> float:
    """The same without the newest earlier task, still divided by T - 1 (LibContinual)."""
    earlier = _earlier(r)
    drops = [r[begin, j] - r[-1, j] for begin, j in earlier[:-1]]
    return float(np.sum(drops)) / len(earlier) if earlier else math.nan


def backward_transfer(r: Matrix) -> float:
    """Mean over earlier tasks of the last accuracy minus the one when learned (GEM's BWT).

    >>> round(backward_transfer(np.array([[0.8, np.nan], [0.6, 0.9]])), 6)
    -0.2
    """
    gains = [r[-1, j] - r[begin, j] for begin, j in _earlier(r)]
    return float(np.mean(gains)) if gains else math.nan


def intransigence(r: Matrix, joint: Matrix) -> float:
    """Mean over tasks of joint training's accuracy when a task came minus the method's own.

    ``joint`` is the matrix of a joint run on the same stream; it is negative where the method
    learned new tasks better than training on all images did.

    >>> round(intransigence(np.array([[0.8]]), np.array([[0.9]])), 6)
    0.1
    """
    return float((_born(joint) - _born(r)).mean())


def forward_transfer(r: Matrix, alone: Matrix) -> float:
    """Mean over later tasks of the accuracy when a task came minus that of a new network alone.

    ``alone`` is the matrix of a run of the method ``alone`` on the same stream; the first task
    has nothing before it.

    >>> first = np.array([[0.8, np.nan], [0.6, 0.9]])
    >>> round(forward_transfer(first, np.array([[0.7, np.nan], [0.1, 0.8]])), 6)
    0.1
    """
    gains = (_born(r) - _born(alone))[1:]
    return float(gains.mean()) if len(gains) else math.nan


def learning_accuracy(r: Matrix) -> float:
    """Mean of the diagonal: how well each task was learned when it came."""
    return float(_born(r).mean())


def worst_case(r: Matrix) -> float:
    """1/k of the newest column's accuracy, the rest the mean of the lowest ones of all others.

    The lowest accuracy of a column is that of all rows from which on a newer column was there: what
    an evaluation at a bad moment would have shown. It is lower the more often one evaluates.

    >>> nan, rows = np.nan, [(0.5, 0.7, 0.9, 0.4, 0.6, 0.7), (0.3, 0.6, 0.8)]
    >>> worst_case(np.array([rows[0], (nan, nan, nan, *rows[1])]).T)
    0.6
    """
    begins = learned_after(r)
    lowest = [r[after:, j].min() for j, after in enumerate(begins[1:])]
    return float((r[-1, len(begins) - 1] + sum(lowest)) / len(begins))


def _pooled(row: Matrix, sizes: Sizes) -> float:
    assert len(row) == len(sizes), f"{len(row)} tasks and {len(sizes)} sizes"
    return float(np.average(row, weights=np.asarray(sizes, dtype=np.float64)))


_SHARE = "fraction of test images; percent on screen"
_CHANGE = "difference of fractions; percentage points on screen"

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("aac", "AAC", "1/T sum_j R[T,j]", _SHARE, lambda r, sizes: aac(r)),
        Metric("aiac", "AIAC", "1/T sum_i sum_{j<=i} n_j R[i,j] / sum_{j<=i} n_j", _SHARE, aiac),
        Metric(
            "final_accuracy",
            "Final accuracy",
            "sum_j n_j R[T,j] / sum_j n_j",
            _SHARE,
            final_accuracy,
        ),
        Metric(
            "forgetting",
            "Forgetting",
            "1/(T-1) sum_{j<T} (max_{j<=k<T} R[k,j] - R[T,j])",
            _CHANGE,
            lambda r, sizes: forgetting(r),
        ),
        Metric(
            "learning_accuracy",
            "Learning accuracy",
            "1/T sum_j R[j,j]",
            _SHARE,
            lambda r, sizes: learning_accuracy(r),
        ),
        Metric(
            "backward_transfer",
            "Backward transfer",
            "1/(T-1) sum_{j<T} (R[T,j] - R[j,j])",
            _CHANGE,
            lambda r, sizes: backward_transfer(r),
        ),
        Metric(
            "forgetting_from_best",
            "Forgetting from the best of all steps",
            "1/(T-1) sum_{j<T} (max_{j<=k<=T} R[k,j] - R[T,j])",
            _CHANGE,
            lambda r, sizes: forgetting_from_best(r),
            shown=False,
        ),
        Metric(
            "forgetting_from_learned",
            "Forgetting from the step of learning",
            "1/(T-1) sum_{j<T} (R[j,j] - R[T,j])",
            _CHANGE,
            lambda r, sizes: forgetting_from_learned(r),
            shown=False,
        ),
        Metric(
            "forgetting_without_newest",
            "Forgetting without the newest earlier task",
            "1/(T-1) sum_{j<T-1} (R[j,j] - R[T,j])",
            _CHANGE,
            lambda r, sizes: forgetting_without_newest(r),
            shown=False,
        ),
        Metric(
            "worst_case",
            "Worst-case accuracy",
            "1/k (R[T,k] + sum_{j<k} min_{i>=b_(j+1)} R[i,j])",
            _SHARE,
            lambda r, sizes: worst_case(r),
            shown=False,
        ),
    )
}


def summary(r: Matrix, sizes: Sizes) -> dict[str, float]:
    """All metrics of one matrix by name."""
    return {name: metric.function(r, sizes) for name, metric in METRICS.items()}


def checked_summary(
    r: Matrix, sizes: Sizes, written: Mapping[str, float | None]
) -> dict[str, float]:
    """Every metric of a matrix, which a file must not contradict.

    Raises:
        ValueError: A number that was written is not the matrix's.
    """
    metrics = summary(r, sizes)
    for name in (name for name in metrics if name in written):
        given = written[name]
        number = math.nan if given is None else given
        if not np.isclose(number, metrics[name], rtol=0, atol=ROUNDED, equal_nan=True):
            raise ValueError(
                f"{name} is {given}, and the accuracy matrix beside it gives {metrics[name]:.6f}"
            )
    return metrics


def mean_and_error(values: Sequence[float]) -> Estimate:
    """Mean and standard error s / sqrt(n) with s over n - 1; one value has no error (NaN)."""
    n = len(values)
    error = float(np.std(values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(float(np.mean(values)), error, n)


def main_metric(task_aware: bool) -> str:
    """The metric that counts: AAC where the task is known at test time, else AIAC."""
    return "aac" if task_aware else "aiac"


def score(r: Matrix, sizes: Sizes, task_aware: bool) -> float:
    """The metric that counts, of one matrix."""
    return METRICS[main_metric(task_aware)].function(r, sizes)


def paired(ours: Mapping[int, float], theirs: Mapping[int, float]) -> dict[int, float]:
    """Ours minus theirs by seed, on the seeds both have.

    >>> paired({0: 0.75, 1: 0.5, 2: 1.0}, {0: 0.25, 1: 0.0})
    {0: 0.5, 1: 0.5}
    """
    return {seed: ours[seed] - theirs[seed] for seed in ours if seed in theirs}


def write_matrix(path: Path, r: Matrix) -> None:
    """Write a matrix as CSV: a row after each task, a column per task, empty where not learned."""
    lines = [",".join(["after", *(f"task {task}" for task in learned_after(r))])]
    for i, row in enumerate(r):
        cells = ("" if math.isnan(value) else f"{value:.6f}" for value in row)
        lines.append(",".join([f"task {i}", *cells]))
    replace_text(path, "\n".join(lines) + "\n")


def read_matrix(path: Path) -> Matrix:
    """Read what :func:`write_matrix` wrote.

    Raises:
        StoreError: The file cannot be read, or is not such a matrix.
    """
    try:
        head, *rows = read_plain(path).decode("utf-8").splitlines()
        if not head.startswith("after,"):
            raise ValueError(f"its first line is {head[:40]!r}")
        cells = [[float(cell or "nan") for cell in row.split(",")[1:]] for row in rows]
        matrix = np.array(cells, dtype=np.float64).reshape(len(rows), head.count(","))
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise StoreError(
            f"{path} is not an accuracy matrix: {error}. Expected the header 'after,task 0,...' "
            "and a row of fractions for each task; run the same command again to write it anew."
        ) from error
    return matrix


# -- inference over seeds ---------------------------------------------------------------------


SEEDS = 3
"""Below this many seeds nothing is called higher or lower."""


class Interval(NamedTuple):
    """A mean with its 95 % t-interval and the two-sided p-value of "the mean is 0".

    It is over seeds, on the same test images: it says nothing about other images.
    """

    mean: float
    low: float
    high: float
    p: float
    n: int

    @property
    def side(self) -> int:
        """1 where the mean is above 0, -1 where it is below, and 0 where that is not known.

        >>> Interval(0.01, 0.005, 0.015, 0.02, 3).side, Interval(0.01, 0.005, 0.015, 0.02, 2).side
        (1, 0)
        """
        known = self.n >= SEEDS and not self.low <= 0 <= self.high
        return int(math.copysign(1, self.mean)) if known else 0

    def json(self) -> dict[str, float | None]:
        """The same as JSON; what one value does not say is null."""
        return {k: None if math.isnan(v) else v for k, v in self._asdict().items()}


def t_probability(t: float, freedom: int) -> float:
    """P(|T| ≤ t) of Student's t, by its finite sums for whole degrees of freedom.

    Abramowitz and Stegun, 26.7.3 and 26.7.4.

    >>> round(t_probability(1.0, 1), 6), round(t_probability(2.776445, 4), 6)
    (0.5, 0.95)
    """
    angle = math.atan2(t, math.sqrt(freedom))
    cosine, odd = math.cos(angle), freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(3 if odd else 2, freedom, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    if not odd:
        return math.sin(angle) * total
    return 2 / math.pi * (angle + (math.sin(angle) * total if freedom > 1 else 0.0))


def t_quantile(share: float, freedom: int) -> float:
    """The t with P(|T| ≤ t) = share, by bisection.

    >>> round(t_quantile(0.95, 4), 4)
    2.7764
    """
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < share:
        high *= 2
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < share else (low, middle)
    return high


def t_interval(values: Sequence[float], least: float = 0.0) -> Interval:
    """Mean, 95 % interval and p-value of values that are independent; one value has none (NaN).

    Args:
        values: The values.
        least: How far the interval reaches each way, at least. Differences of accuracies on N test
            images are no finer than one of them, 1/N, though all seeds may give the same.
    """
    mean, error, n = mean_and_error(values)
    if n < 2:
        return Interval(mean, math.nan, math.nan, math.nan, n)
    quantile = t_quantile(0.95, n - 1)
    error = max(error, least / quantile)
    reach = quantile * error
    ratio = math.inf if error == 0 else abs(mean) / error
    p = 1.0 if mean == 0 else 1 - t_probability(ratio, n - 1)
    return Interval(mean, mean - reach, mean + reach, p, n)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjusted p-values: below α, a name is rejected with α for all names together.

    >>> holm({"a": 0.01, "b": 0.04, "c": 0.03})
    {'a': 0.03, 'b': 0.06, 'c': 0.06}
    """
    least, adjusted = 0.0, dict[str, float]()
    for rank, name in enumerate(sorted(p_values, key=lambda name: p_values[name])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = least
    return {name: adjusted[name] for name in p_values}


Points = Sequence[tuple[float, float]]
"""Pairs of forgetting and learning accuracy, one of each run."""


def frontier_difference(ours: Points, theirs: Points) -> float | None:
    """Mean difference in learning accuracy over the common range of forgetting, ours minus theirs.

    Each side is linear between its points; points of equal forgetting count as their mean.
    Nothing where the ranges do not overlap.

    >>> frontier_difference([(0.0, 0.5), (0.2, 0.7)], [(0.1, 0.5), (0.3, 0.5)])
    0.15
    """
    (x, y), (other_x, other_y) = _curve(ours), _curve(theirs)
    low, high = max(x[0], other_x[0]), min(x[-1], other_x[-1])
    if not low < high:
        return None
    inner = np.concatenate([x, other_x])
    at = np.unique([low, high, *inner[(inner > low) & (inner < high)]])
    gaps = np.interp(at, x, y) - np.interp(at, other_x, other_y)
    area = np.sum((gaps[1:] + gaps[:-1]) / 2 * np.diff(at))
    return round(float(area / (high - low)), 12)


def _curve(points: Points) -> tuple[Matrix, Matrix]:
    """Points by ascending forgetting, each forgetting once."""
    x = np.unique([position[0] for position in points])
    y = [np.mean([value for at, value in points if at == position]) for position in x]
    return x, np.array(y)
