"""Synthetic run directories: matrices given by hand, everything else as a run writes it."""

import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import RunResult, RunSpec
from tests.lab import (
    Layer,
    ParameterCount,
    Report,
    collect,
    make_report,
    patch_part,
    resolve,
    run_directory,
    summary,
    write_page,
    write_run,
)

Make = Callable[..., Path]
Rows = Sequence[Sequence[float]]


def write_synthetic(
    runs: Path,
    method: str = "lwf",
    seed: int = 0,
    rows: Rows = ((0.8,), (0.6, 0.9)),
    benchmark: str = "digits/5",
    sizes: Sequence[int] | None = None,
    epochs: int = 3,
    parameters: tuple[ParameterCount, ...] = (),
    images: tuple[int, int] = (40, 10),
    **settings: Any,
) -> Path:
    """Write a run whose accuracy matrix has these rows; trainings have ``epochs`` epochs.

    ``images`` are those of a task to train and to validate on.
    """
    spec = _spec(method, benchmark, json.dumps(settings)).model_copy(update={"seed": seed})
    count = len(rows)
    matrix = np.full((count, count), np.nan)
    for i, row in enumerate(rows):
        matrix[i, : i + 1] = row
    sizes = tuple(sizes or [10] * count)
    seconds: dict[str, float] = {}
    log: list[dict[str, Any]] = []
    for task in range(count):
        seconds |= {f"grow {task}": 0.5, f"main {task}": 2.0 + task, f"evaluate {task}": 0.25}
        log += [_epoch(task, epoch) for epoch in range(epochs)]
    result = RunResult(
        spec=spec,
        matrices=dict.fromkeys(("taw", "tag", "taw_val", "tag_val"), matrix),
        images=tuple((*images, size) for size in sizes),
        metrics=summary(matrix, sizes),
        log=tuple(log),
        keys=("key",),
        seconds=seconds,
        parameters=parameters,
    )
    directory = run_directory(runs, spec)
    write_run(directory, result)
    return directory


@cache
def _spec(method: str, benchmark: str, settings: str) -> RunSpec:
    values = {"threads": 1, **json.loads(settings)}
    return resolve(method, benchmark, [Layer("test", values)]).spec


def _epoch(task: int, epoch: int) -> dict[str, Any]:
    terms = {"task": 1.0 / (epoch + 1), **({"old": 0.5} if task else {})}
    return {
        "task": task,
        "stage": "main",
        "role": "main",
        "epoch": epoch,
        "train": terms,
        "val": {name: "nan" if epoch == 1 else value for name, value in terms.items()},
        "lr": 0.1 / (epoch + 1),
        "accuracy": 0.5 + 0.1 * epoch / (epoch + 1),
        **({"lambs": {"lamb_a": 0.5 * epoch}} if task else {}),
    }


def write_synthetic_search(runs: Path) -> Path:
    """A finished two-stage search of λ and λ_a."""
    place = runs / "searches" / "cifar100-10_a-lwf_two-stage_00"
    place.mkdir(parents=True)
    steps = [("lamb", "lwf", 5.0, None), ("lamb", "lwf", 10.0, None)]
    steps += [("lamb_a", "a-lwf", 10.0, 0.5), ("lamb_a", "a-lwf", 10.0, 1.0)]
    trials = [
        {
            "step": step,
            "method": method,
            "lamb": lamb,
            "lamb_a": lamb_a,
            "mean": 0.5,
            "chosen": lamb == 10.0 and lamb_a in (None, 1.0),
        }
        for step, method, lamb, lamb_a in steps
    ]
    decision = {
        "protocol": "two-stage",
        "method": "a-lwf",
        "benchmark": "cifar100/10",
        "decided_by": "validation AAC",
        "lamb": 10.0,
        "lamb_a": 1.0,
    }
    (place / "trials.json").write_text(json.dumps(trials))
    (place / "decision.json").write_text(json.dumps(decision))
    return place


def write_synthetic_analysis(runs: Path) -> Path:
    """An analysis over two λ_a with a landscape of 2 x 2 points."""
    place = runs / "analyses" / "digits-5_a-ewc_00"
    place.mkdir(parents=True)
    networks = [("cl", None, 0.5), ("ancl", 1.0, 0.4), ("ancl", 10.0, 0.2)]
    anchors = [("old", None, 0.0), ("auxiliary", None, 1.0), ("multi", None, 0.7)]
    tables = {
        "distance": [_references(name, lamb_a, x) for name, lamb_a, x in networks],
        "cka": [_references(name, lamb_a, x) | {"layer": "mean"} for name, lamb_a, x in networks],
        "accuracy": [
            {"seed": 0, "network": n, "lamb_a": a, "mean": 0.75, "task 0": 1 - x, "task 1": 0.5 + x}
            for n, a, x in networks
        ],
        "positions": [
            {"seed": 0, "network": n, "lamb_a": a, "task": "mean", "residual": 0.1}
            | {"x_length": x, "y_length": 0.3}
            for n, a, x in [*networks, *anchors]
        ],
        "landscape": [
            {"seed": 0, "task": "mean", "x_length": x, "y_length": y, "taw": (x + y) / 4}
            for x in (0.0, 2.0)
            for y in (0.0, 1.0)
        ],
    }
    found = {
        "method": "a-ewc",
        "benchmark": "digits/5",
        "lamb": 100.0,
        "seeds": [0],
        "rank_correlations": {
            "distance_old_with_lamb_a": {"mean": -1.0, "error": None, "n": 1},
            "cka_multi_with_mean_accuracy": {"mean": None, "error": None, "n": 1},
        },
        "spec": {"data": {"scenario": "til"}},
        "tables": tables,
    }
    (place / "result.json").write_text(json.dumps(found))
    return place


def _references(name: str, lamb_a: float | None, x: float) -> dict[str, Any]:
    own = {"seed": 0, "network": name, "lamb_a": lamb_a}
    return own | {"old": x, "auxiliary": 1 - x, "multi": 0.9}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def make(runs: Path) -> Callable[..., Path]:
    return lambda *args, **kwargs: write_synthetic(runs, *args, **kwargs)


@pytest.fixture
def make_search(runs: Path) -> Callable[[], Path]:
    return lambda: write_synthetic_search(runs)


@pytest.fixture
def make_analysis(runs: Path) -> Callable[[], Path]:
    return lambda: write_synthetic_analysis(runs)


@pytest.fixture
def report_of_all(make: Make, make_analysis: Make, make_search: Make, runs: Path) -> Report:
    """Two streams, a λ that differs, an analysis, a search and a damaged run."""
    for method, last in {"finetune": 0.3, "lwf": 0.7, "a-lwf": 0.8}.items():
        for seed in range(2):
            make(method, seed=seed, rows=[[0.9], [last, 0.7 + 0.02 * seed]])
    make("afec-lwf", seed=0, rows=[[0.9], [0.6, 0.6]], lamb=3.0)
    make("lwf", **{"data.per_class": 9})
    make_analysis()
    make_search()
    (make("joint") / "result.json").write_text("{")
    return make_report(collect([runs]))


@pytest.fixture
def address(report_of_all: Report, runs: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    patch_part(monkeypatch, "report_can_draw", lambda: False)
    return write_page(report_of_all, runs / "report")[0].as_uri()
