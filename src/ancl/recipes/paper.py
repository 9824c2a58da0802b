"""The ANCL paper's numbers and grids, from the tables shipped beside this file."""

import csv
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import NamedTuple

RUNS = 3
"""How many seeds the paper's means are over."""

_BENCHMARKS = {"CIFAR-100": "cifar100", "TinyImagenet-200": "tinyimagenet"}
_METHODS = {"Fine-tuning": "finetune"}
_VARIANTS = {"CL": "", "ANCL": "a-", "AFEC": "afec-"}
_METRICS = {"AAC": "aac", "AIAC": "aiac", "FINAL": "final_accuracy"}
_SETTINGS = {"lambda": "lamb", "lambda_a": "lamb_a"}


class Expected(NamedTuple):
    """A number of the paper: mean and standard error in percent, and the table it stands in."""

    metric: str
    mean: float
    error: float
    table: int


class Grid(NamedTuple):
    """The values the paper tried for λ or λ_a of one method, and the one it chose."""

    setting: str
    values: tuple[float, ...]
    chosen: float


def expected(benchmark: str, method: str) -> tuple[Expected, ...]:
    """What the paper reports for a method, one number a metric.

    >>> expected("cifar100/10", "a-lwf")
    (Expected(metric='aac', mean=79.42, error=0.57, table=2),)
    """
    return reported(benchmark).get(method, ())


@cache
def reported(benchmark: str) -> dict[str, tuple[Expected, ...]]:
    """Everything the paper reports for a benchmark, by method."""
    found: dict[str, dict[str, Expected]] = {}
    for row in _rows("paper_tables.csv"):
        if _benchmark(row["benchmark"]) == benchmark:
            base = _METHODS.get(row["method"], row["method"].lower())
            metric, table = _METRICS[row["metric"]], int(row["table"].removeprefix("table")[0])
            number = Expected(metric, float(row["mean"]), float(row["stderr"]), table)
            # Tables 4 and 5 repeat numbers of tables 2 and 3: the first one counts.
            found.setdefault(_VARIANTS[row["variant"]] + base, {}).setdefault(metric, number)
    return {method: tuple(numbers.values()) for method, numbers in found.items()}


@cache
def grids(benchmark: str) -> dict[str, Grid]:
    """The grid of each method of a benchmark: λ for ``ewc``, λ_a for ``a-ewc``.

    >>> grids("cifar100/10")["a-lwf"]
    Grid(setting='lamb_a', values=(0.1, 0.5, 1.0, 5.0, 10.0), chosen=1.0)
    """
    return {
        row["method"].lower(): Grid(
            _SETTINGS[row["hyperparameter"]],
            tuple(map(float, row["grid"].split(";"))),
            float(row["selected"]),
        )
        for row in _rows("paper_grids.csv")
        if _benchmark(row["benchmark"]) == benchmark
    }


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (files("ancl.recipes") / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


def _benchmark(label: str) -> str:
    """The name of a benchmark from the paper's, such as "(1) CIFAR-100/10"."""
    data, _, tasks = label.rpartition(" ")[2].partition("/")
    # Rows of the analyses repeat a benchmark with other grids.
    return "" if label.startswith("analysis") else f"{_BENCHMARKS[data]}/{tasks}"
