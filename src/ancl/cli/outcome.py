"""What finished runs found, as text and as JSON."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ancl.cli.session import Finished
from ancl.cli.table import duration, percent, table
from ancl.experiments.build import RunResult, result_json
from ancl.metrics import METRICS, Estimate, Metric, mean_and_error

SHOWN = {name: metric for name, metric in METRICS.items() if metric.shown}
_LEGEND = "R[i,j]: accuracy on task j after task i of T; n_j: test images of task j."


def estimates(finished: Sequence[Finished]) -> dict[str, Estimate]:
    """Every metric's mean over runs, with its standard error."""
    return {
        name: mean_and_error([each.result.metrics[name] for each in finished]) for name in METRICS
    }


def outcome_json(finished: Sequence[Finished], seconds: float) -> dict[str, Any]:
    """The runs' results with their directories, and the metrics over seeds."""
    return {
        "runs": [{"directory": str(where), **result_json(result)} for where, result in finished],
        "metrics": estimates_json(estimates(finished)),
        "seconds": seconds,
    }


def estimates_json(found: Mapping[str, Estimate]) -> dict[str, Any]:
    """Estimates as JSON; what does not exist is null."""
    return {name: estimate_json(estimate) for name, estimate in found.items()}


def estimate_json(estimate: Estimate) -> dict[str, Any]:
    """Mean, standard error and number of seeds."""
    mean, error, n = estimate
    return {
        "mean": None if math.isnan(mean) else mean,
        "standard_error": None if math.isnan(error) else error,
        "n": n,
    }


def outcome_text(finished: Sequence[Finished], seconds: float) -> str:
    """Matrix and metrics of one run, or the metrics of several seeds."""
    parts = (
        [matrix_text(finished[0].result), metrics_text(finished[0].result)]
        if len(finished) == 1
        else [seeds_text(finished), formulas_text()]
    )
    where = "\n".join(f"Results: {each.directory}" for each in finished)
    return "\n\n".join([*parts, f"{time_text(finished, seconds)}\n{where}"])


def time_text(finished: Sequence[Finished], seconds: float) -> str:
    """How long it took, and how long it would have taken without the store."""
    spent = sum(sum(each.result.seconds.values()) for each in finished)
    found = (
        f" ({duration(spent)} of work, part of it found in the store)" if spent > seconds else ""
    )
    return f"Time: {duration(seconds)}{found}"


def matrix_text(result: RunResult) -> str:
    """The accuracy matrix that counts in the scenario."""
    told, matrix = result.spec.data.scenario == "til", result.counted
    numbers = range(1, len(matrix) + 1)
    rows = [
        [f"task {number}", *("" if math.isnan(v) else percent(v) for v in row)]
        for number, row in zip(numbers, matrix.tolist(), strict=True)
    ]
    head = ["after", *(f"task {number}" for number in numbers)]
    how = "the task is told" if told else "the task is not told"
    title = f"Test accuracy in % on each task after each task ({how}):"
    return f"{title}\n{table(head, rows, 'l' + 'r' * len(matrix))}"


def metrics_text(result: RunResult) -> str:
    """Each metric with its formula."""
    rows = [
        [metric.label, percent(result.metrics[name]), unit(metric), metric.formula]
        for name, metric in SHOWN.items()
    ]
    return f"{table(['metric', '', '', 'formula'], rows, 'lrll')}\n{_LEGEND}"


def seeds_text(finished: Sequence[Finished]) -> str:
    """A line a seed, then mean and standard error."""
    rows = [
        [str(each.result.spec.seed), *(percent(each.result.metrics[name]) for name in SHOWN)]
        for each in finished
    ]
    found = estimates(finished)
    rows.append(["mean", *(percent(found[name].mean) for name in SHOWN)])
    rows.append(["± error", *(percent(found[name].error) for name in SHOWN)])
    head = ["seed", *(f"{metric.label} ({unit(metric)})" for metric in SHOWN.values())]
    note = f"n = {len(finished)} seeds; ± error is the standard error of the mean."
    return f"{table(head, rows, 'l' + 'r' * len(SHOWN))}\n{note}"


def formulas_text() -> str:
    """What each metric is."""
    rows = [[metric.label, metric.formula] for metric in SHOWN.values()]
    return f"{table(['metric', 'formula'], rows, 'll')}\n{_LEGEND}"


def unit(metric: Metric) -> str:
    """Percent for a share, points for a difference of shares."""
    return "points" if metric.unit.startswith("difference") else "%"
