"""Expected numbers, the paper's and our own, and its grids, from tables beside this file."""

import csv
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from ancl.methods.variants import RELEASED_AUXILIARY_DECAY
from ancl.wording import VARIANTS

RUNS = 3
"""The number of seeds of the paper's means."""

_BENCHMARKS = {"CIFAR-100": "cifar100", "TinyImagenet-200": "tinyimagenet"}
_METHODS = {"Fine-tuning": "finetune"}
_METRICS = {"AAC": "aac", "AIAC": "aiac", "FINAL": "final_accuracy"}
_SETTINGS = {"lambda": "lamb", "lambda_a": "lamb_a"}


class Sourced(NamedTuple):
    """A value, and in a few words where it comes from."""

    value: Any
    source: str


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values alone."""
    return {key: v.value if isinstance(v, Sourced) else v for key, v in settings.items()}


def sources(settings: Mapping[str, Any]) -> dict[str, str]:
    """Where values come from, by key, where that is known."""
    return {key: v.source for key, v in settings.items() if isinstance(v, Sourced)}


class Expected(NamedTuple):
    """A number to expect: mean and standard error in percent over ``n`` seeds.

    ``table`` is the paper's table it stands in; 0 where it was measured with this package.
    """

    metric: str
    mean: float
    error: float
    table: int
    n: int = RUNS

    @property
    def kind(self) -> str:
        """What it is called in a line: ``paper`` or ``expected``."""
        return "paper" if self.table else "expected"


class PaperGrid(NamedTuple):
    """The values the paper tried for λ or λ_a of one method, and the one it chose."""

    setting: str
    values: tuple[float, ...]
    chosen: float


def expected(benchmark: str, method: str) -> tuple[Expected, ...]:
    """What is to be expected of a method, one number per metric.

    >>> expected("cifar100/10", "a-lwf")
    (Expected(metric='aac', mean=79.42, error=0.57, table=2, n=3),)
    """
    return reported(benchmark).get(method, ())


@cache
def reported(benchmark: str) -> dict[str, tuple[Expected, ...]]:
    """Everything that is known for a benchmark, by method."""
    found: dict[str, dict[str, Expected]] = {}
    for row in _rows("paper_tables.csv"):
        if _benchmark(row["benchmark"]) == benchmark:
            base = _METHODS.get(row["method"], row["method"].lower())
            metric, table = _METRICS[row["metric"]], int(row["table"].removeprefix("table")[0])
            number = Expected(metric, float(row["mean"]), float(row["stderr"]), table)
            # Tables 4 and 5 repeat numbers of tables 2 and 3: the first one counts.
            found.setdefault(VARIANTS[row["variant"]] + base, {}).setdefault(metric, number)
    for row in _measured(benchmark):
        # A number of one seed has no spread to compare with, so nothing is expected of it.
        if row["stderr"]:
            number = Expected(
                row["metric"], float(row["mean"]), float(row["stderr"]), 0, int(row["n"])
            )
            found.setdefault(row["method"], {})[row["metric"]] = number
    return {method: tuple(numbers.values()) for method, numbers in found.items()}


def measured_options(benchmark: str) -> dict[str, dict[str, float]]:
    """λ and λ_a of every method of a benchmark that was studied with this package."""
    return {
        row["method"]: {key: float(row[key]) for key in _SETTINGS.values() if row[key]}
        for row in _measured(benchmark)
    }


def _measured(benchmark: str) -> list[dict[str, str]]:
    """Rows of ``measured_tables.csv``, which holds what ``ancl study`` writes."""
    return [row for row in _rows("measured_tables.csv") if row["benchmark"] == benchmark]


@cache
def grids(benchmark: str) -> dict[str, PaperGrid]:
    """The grid of each method of a benchmark: λ for ``ewc``, λ_a for ``a-ewc``.

    >>> grids("cifar100/10")["a-lwf"]
    PaperGrid(setting='lamb_a', values=(0.1, 0.5, 1.0, 5.0, 10.0), chosen=1.0)
    """
    return {
        row["method"].lower(): PaperGrid(
            _SETTINGS[row["hyperparameter"]],
            tuple(map(float, row["grid"].split(";"))),
            float(row["selected"]),
        )
        for row in _rows("paper_grids.csv")
        if _benchmark(row["benchmark"]) == benchmark
    }


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (files("ancl.recipe") / name).read_text(encoding="utf-8")
    return csv.DictReader(text.splitlines())


def _benchmark(label: str) -> str:
    """The name of a benchmark from the paper's, such as "(1) CIFAR-100/10"."""
    data, _, tasks = label.rpartition(" ")[2].partition("/")
    # Rows of the analyses repeat a benchmark with other grids.
    return "" if label.startswith("analysis") else f"{_BENCHMARKS[data]}/{tasks}"


_SAID = "paper"
_CODE = "released code; the paper is silent"
_GRID = "paper, appendix, grid search"
_RATE = "ours: the paper searched rates and prints none"
_AFEC = "AFEC's authors; the ANCL paper gives none"
_LWM = "released code: β = 10, γ = 1"

_TRAINING: Mapping[str, Any] = {
    "data.val_fraction": Sourced(0.1, "released code"),
    "network.name": Sourced("resnet32", _SAID),
    "training.epochs": Sourced(200, _SAID),
    "training.batch_size": Sourced(128, _SAID),
    "training.optimizer": Sourced("sgd", _SAID),
    "training.momentum": Sourced(0.9, _SAID),
    "training.schedule": Sourced("patience", _SAID),
    "training.patience": Sourced(5, _SAID),
    "training.factor": Sourced(3.0, _SAID),
    "training.lr_min": Sourced(1e-4, _SAID),
    "training.lr": Sourced(0.05, _RATE),
    "training.lr_first": Sourced(0.1, _RATE),
    "training.weight_decay": Sourced(2e-4, _CODE),
}

_ANCL_TRAINING = {"auxiliary.weight_decay": Sourced(RELEASED_AUXILIARY_DECAY, _CODE)}
"""AFEC and DMC train their auxiliary network as the main one."""

_CIFAR: Mapping[str, Any] = {
    "data.source": Sourced("cifar100", _SAID),
    "data.order": Sourced("icarl", _SAID),
    "data.augment": Sourced("facil", _CODE),
}
_TINY: Mapping[str, Any] = {
    "data.source": Sourced("tinyimagenet", "paper: resized to 32x32"),
    "data.order": Sourced("tinyimagenet", "released code"),
    "data.augment": Sourced("flip", _CODE),
}


class PaperBenchmark(NamedTuple):
    """A benchmark's name, line, settings, options of single methods, and grids."""

    name: str
    explanation: str
    settings: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]]
    grids: Mapping[str, PaperGrid]


def _options(name: str) -> dict[str, dict[str, Any]]:
    """λ and λ_a of every method the paper searched them for, and of its AFEC variant."""
    options: dict[str, dict[str, Any]] = {"lwm": {"lamb": Sourced(10.0, _LWM)}}
    options["lwm"]["gamma"] = Sourced(0.1, _LWM)
    searched = grids(name)
    for method, grid in searched.items():
        if grid.setting == "lamb":
            lamb = Sourced(grid.chosen, _GRID)
            lamb_a = Sourced(searched[f"a-{method}"].chosen, _GRID)
            options[method] = {"lamb": lamb}
            options[f"a-{method}"] = {"lamb": lamb, "lamb_a": lamb_a, **_ANCL_TRAINING}
            options[f"afec-{method}"] = {"lamb": lamb, "lamb_a": Sourced(1.0, _AFEC)}
    return options


def _paper_benchmark(name: str, explanation: str, *parts: Mapping[str, Any]) -> PaperBenchmark:
    settings = {key: value for part in (*parts, _TRAINING) for key, value in part.items()}
    return PaperBenchmark(name, explanation, settings, _options(name), grids(name))


def _task_incremental(tasks: int) -> dict[str, Any]:
    return {"data.scenario": Sourced("til", _SAID), "data.tasks": Sourced(tasks, _SAID)}


def _class_incremental(tasks: int, first: int) -> dict[str, Any]:
    return {
        "data.scenario": Sourced("cil", _SAID),
        "data.tasks": Sourced(tasks, _SAID),
        "data.first": Sourced(first, _SAID),
        "memory.per_class": Sourced(20, _SAID),
        "memory.selection": Sourced("herding", _SAID),
    }


PAPER = (
    _paper_benchmark(
        "cifar100/10",
        "CIFAR-100, task-incremental: 10 tasks of 10 classes",
        _CIFAR,
        _task_incremental(10),
    ),
    _paper_benchmark(
        "cifar100/20",
        "CIFAR-100, task-incremental: 20 tasks of 5 classes",
        _CIFAR,
        _task_incremental(20),
    ),
    _paper_benchmark(
        "tinyimagenet/10",
        "Tiny ImageNet at 32x32, task-incremental: 10 tasks of 20 classes",
        _TINY,
        _task_incremental(10),
    ),
    _paper_benchmark(
        "tinyimagenet/20",
        "Tiny ImageNet at 32x32, task-incremental: 20 tasks of 10 classes",
        _TINY,
        _task_incremental(20),
    ),
    _paper_benchmark(
        "cifar100/6",
        "CIFAR-100, class-incremental: 50 classes, then 5 tasks of 10",
        _CIFAR,
        _class_incremental(6, 50),
    ),
    _paper_benchmark(
        "cifar100/11",
        "CIFAR-100, class-incremental: 50 classes, then 10 tasks of 5",
        _CIFAR,
        _class_incremental(11, 50),
    ),
    _paper_benchmark(
        "tinyimagenet/11",
        "Tiny ImageNet at 32x32, class-incremental: 100 classes, then 10 tasks of 10",
        _TINY,
        _class_incremental(11, 100),
    ),
    _paper_benchmark(
        "tinyimagenet/21",
        "Tiny ImageNet at 32x32, class-incremental: 100 classes, then 20 tasks of 5",
        _TINY,
        _class_incremental(21, 100),
    ),
)
