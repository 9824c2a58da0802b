"""All numbers of runs as one tidy table: one row for each number, with what it is of."""

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ancl.errors import StoreError
from ancl.experiments.results import Finished, RunResult
from ancl.files import csv_cell
from ancl.metrics import learned_after
from ancl.reporting.collect import collect
from ancl.training.config import Training
from ancl.wording import split_method

COLUMNS = (
    *("run", "benchmark", "scenario", "method", "base", "variant", "seed", "lamb", "lamb_a"),
    *("network", "memory", "epochs", "threads", "quantity", "stage", "epoch", "after", "task"),
    "value",
)
"""The columns of the table; ``docs/report.md`` says what they mean."""


def results(
    stored: str | Path | Sequence[str | Path] | None = None, *, runs: str | Path = "runs"
) -> list[dict[str, Any]]:
    """Every number of finished runs as a row: ``pandas.DataFrame(ancl.results())``.

    The rows of a run have its settings, then what the number is: a metric, an accuracy after one
    task on another, parameters, or the images, backward passes, FLOPs and seconds of a stage.
    Tasks are counted from 1. What a number is not about is ``None``.

    Args:
        stored: Directories of runs, or ``runs/comparisons/NAME.json``, one or several; all below
            ``runs`` by default.
        runs: Where results are.

    Raises:
        StoreError: There is no finished run.
    """
    return [row for run in finished_runs(stored, runs) for row in _rows(run)]


def finished_runs(
    stored: str | Path | Sequence[str | Path] | None = None, runs: str | Path = "runs"
) -> list[Finished]:
    """The finished runs that are there, whole ones alone.

    Raises:
        StoreError: There is none.
    """
    stored = [stored] if isinstance(stored, str | Path) else stored
    paths = [Path(path) for path in stored or [runs]]
    collected = collect(paths)
    if not collected.runs:
        damaged = "".join(f"\n  {run.directory}: {run.reason}" for run in collected.damaged)
        raise StoreError(
            f"There is no finished run in {', '.join(map(str, paths))}. Make one, such as ancl "
            f"demo, or say where they are: --runs DIR.{damaged}"
        )
    return collected.runs


def tidy_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV, empty where there is nothing."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: csv_cell(_plain(row[key])) for key in COLUMNS} for row in rows)
    return text.getvalue()


def _plain(value: Any) -> Any:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def _rows(run: Finished) -> Iterator[dict[str, Any]]:
    result = run.result
    shared = _settings(run)
    nothing = dict.fromkeys(COLUMNS[len(shared) :])
    for quantity, value, where in _numbers(result):
        if not math.isnan(value):
            yield {**shared, **nothing, "quantity": quantity, **where, "value": value}


def _settings(run: Finished) -> dict[str, Any]:
    spec = run.result.spec
    base, variant = split_method(spec.method)
    return {
        "run": str(run.directory),
        "benchmark": spec.stream,
        "scenario": spec.data.scenario,
        "method": spec.method,
        "base": base,
        "variant": variant,
        "seed": spec.seed,
        "lamb": spec.options.get("lamb"),
        "lamb_a": spec.options.get("lamb_a"),
        "network": spec.network["name"],
        "memory": spec.memory.size,
        "epochs": _epochs(spec.training),
        "threads": spec.threads,
    }


def _epochs(training: Training) -> int | str:
    by_task = training.epochs_by_task
    return training.epochs if by_task is None else ",".join(map(str, by_task))


def _numbers(result: RunResult) -> Iterator[tuple[str, float, dict[str, Any]]]:
    """Every number: what it is, its value, and its stage and tasks."""
    for name, value in result.metrics.items():
        yield name, value, {}
    for name, matrix in result.matrices.items():
        tasks = learned_after(matrix)
        for i, row in enumerate(matrix.tolist()):
            for j, value in enumerate(row):
                yield f"accuracy_{name}", value, {"after": i + 1, "task": tasks[j] + 1}
    for epoch in result.log:
        for name, shares in epoch.get("tasks", {}).items():
            where = {"stage": epoch["stage"], "after": epoch["task"] + 1}
            where["epoch"] = epoch["epoch"] + 1
            for j, value in enumerate(shares):
                if value is not None:
                    yield f"accuracy_{name}_in_training", value, {**where, "task": j + 1}
    for task, count in enumerate(result.parameters):
        for name, number in count._asdict().items():
            yield (
                f"{'exemplars' if name == 'images' else f'parameters_{name}'}",
                number,
                {"after": task + 1},
            )
    for name, seconds in result.seconds.items():
        yield "seconds", seconds, _stage(name)
    for name, cost in result.costs.items():
        for kind, number in cost._asdict().items():
            yield _COSTS[kind], number, _stage(name)


_COSTS = {"images": "images", "backward": "backward_passes", "flops": "flops"}


def _stage(name: str) -> dict[str, Any]:
    stage, _, task = name.rpartition(" ")
    return {"stage": stage, "task": int(task) + 1}
