"""``ancl run``: one method on one stream of tasks, for any number of seeds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flags import (
    Machines,
    PresetSettings,
    Results,
    Seeding,
    Weights,
    make_request,
    with_flags,
)

if TYPE_CHECKING:
    from pathlib import Path

    from ancl.compute import ExecutorChoice
    from ancl.experiments.groups import Verdict
    from ancl.experiments.results import Places, RunResult
    from ancl.experiments.run import Outcome
    from ancl.recipe.request import Request

_GAPS = {
    "joint": "Intransigence: {} points, 1/T sum_j (R_joint[j,j] - R[j,j]), against joint training "
    "in --runs.",
    "alone": "Forward transfer: {} points, 1/(T-1) sum_j>1 (R[j,j] - R_alone[j,j]), against "
    "networks that learn each task alone in --runs.",
}
"""What is said of reference runs, by their method."""


@with_flags
def run(
    method: str | None = None,
    benchmark: str | None = None,
    *,
    weights: Weights,
    seeding: Seeding,
    settings: PresetSettings,
    machines: Machines,
    log: str | None = None,
    results: Results,
) -> None:
    """Learn a benchmark's tasks with a method; the same command resumes a stopped run.

    METHOD and BENCHMARK may also come from --config.
    """
    from ancl.cli.progress import check_log

    choice = machines.choose()
    request = make_request(method, benchmark, weights, seeding, settings, machines)
    request = request.with_threads(choice.threads)
    places = results.places(settings.data_root)
    if results.dry_run:
        check_log(log)
        _preview(request, places, choice, results.as_json)
    else:
        _train(request, places, choice, log, results)


def _preview(request: Request, places: Places, choice: ExecutorChoice, as_json: bool) -> None:
    from ancl.cli.text import cost_text, preview_text
    from ancl.compute.graph import Graph
    from ancl.experiments.forecast import estimate_time
    from ancl.experiments.run import preview
    from ancl.store.store import Store

    resolved = request.resolve()
    shown = [preview(run_request, places) for run_request in resolved]
    graph = Graph([run_request.spec for run_request in resolved], places.data)
    time = estimate_time(graph, Store(places.store), choice.workers)
    if as_json:
        print(json.dumps({"runs": shown, "most_seconds": time.seconds}))
    else:
        print(f"{preview_text(shown)}\n\n{cost_text(time, choice.workers)}")


def _train(
    request: Request, places: Places, choice: ExecutorChoice, log: str | None, shown: Results
) -> None:
    from ancl.cli.progress import progress_and_log
    from ancl.cli.text import FAILED, failures_text, results_text
    from ancl.experiments.run import run_all
    from ancl.reporting.report import page_of

    began = monotonic()
    specs = [resolved.spec for resolved in request.resolve()]
    with progress_and_log(shown.quiet, log) as events:
        outcome = run_all(specs, places, choice, events)
    seconds = monotonic() - began
    page = page_of(outcome.finished, places.runs, overwrite=places.overwrite)
    if shown.as_json:
        summary = outcome_json(outcome, seconds)
        closing = closing_json(outcome.results, places.runs, request.quick)
        print(json.dumps({**summary, **closing, **page.json}))
    else:
        parts = []
        if outcome.finished:
            parts = [f"{results_text(outcome.finished, seconds)}\n{page.text}"]
            parts += closing_text(outcome.results, places.runs, request.quick)
        if outcome.failures:
            parts.append(failures_text(outcome.failures))
        print("\n\n".join(parts))
    if outcome.failures:
        raise typer.Exit(FAILED)


def outcome_json(outcome: Outcome, seconds: float) -> dict[str, Any]:
    """The runs' results with their directories, the metrics over seeds, and what failed."""
    from ancl.experiments.results import estimate_json, estimates, result_json

    means = estimates(outcome.results) if outcome.finished else {}
    return {
        "runs": [
            {"directory": str(each.directory), **result_json(each.result)}
            for each in outcome.finished
        ],
        "metrics": {name: estimate_json(each) for name, each in means.items()},
        "failures": [failure.json() for failure in outcome.failures],
        "seconds": seconds,
    }


def closing_text(results: Sequence[RunResult], runs: Path, quick: bool) -> list[str]:
    """The lines after the numbers: the gap to joint training, and the paper's numbers."""
    from ancl.experiments.groups import verdict
    from ancl.recipe.request import QUICK_LOOK

    finding = None if quick else verdict(results)
    notes = list(dict.fromkeys(note for result in results for note in result.notes))
    return [
        *(["\n".join(notes)] if notes else []),
        *choice_lines(results),
        *drift_lines(results),
        *reference_lines(results, runs),
        *([QUICK_LOOK] if quick else []),
        *([verdict_text(finding, results)] if finding else []),
    ]


def choice_lines(results: Sequence[RunResult]) -> list[str]:
    """What validation images chose in the end, run by run."""
    several = len(results) > 1
    return [
        f"{f'Seed {result.spec.seed}: ' if several else ''}{result.choices[-1]}"
        for result in results
        if result.choices
    ]


def drift_lines(results: Sequence[RunResult]) -> list[str]:
    """How far the backbone moved in every task after the first, run by run."""
    from ancl.statistics import drift_text

    several = len(results) > 1
    return [
        f"{f'Seed {result.spec.seed}: ' if several else ''}"
        f"{drift_text(dict(enumerate(result.drifts, start=1)))}"
        for result in results
        if result.drifts
    ]


def closing_json(results: Sequence[RunResult], runs: Path, quick: bool) -> dict[str, Any]:
    """The same as JSON; what does not exist is null."""
    from ancl.experiments.groups import verdict, verdict_json
    from ancl.experiments.pairing import REFERENCES, reference_gap
    from ancl.experiments.results import estimate_json

    finding = verdict(results) if results and not quick else None
    gaps = {n: reference_gap(results, runs, n) if results else None for n in REFERENCES}
    return {
        "intransigence": estimate_json(gaps["joint"]) if gaps["joint"] else None,
        "forward_transfer": estimate_json(gaps["alone"]) if gaps["alone"] else None,
        "quick": quick,
        "paper": verdict_json(finding, results) if finding else None,
    }


def reference_lines(results: Sequence[RunResult], runs: Path) -> list[str]:
    """Intransigence and forward transfer, a line each, where --runs holds their references."""
    from ancl.experiments.pairing import reference_gap
    from ancl.wording import with_error

    gaps = {name: reference_gap(results, runs, name) for name in _GAPS}
    return [text.format(with_error(gap)) for name, text in _GAPS.items() if (gap := gaps[name])]


def verdict_text(found: Verdict, results: Sequence[RunResult]) -> str:
    """Got and paper side by side, or why they are not."""
    from ancl.experiments.results import estimates
    from ancl.metrics import METRICS
    from ancl.wording import with_error

    lines = []
    got = estimates(results)
    for number in found.numbers:
        label = METRICS[number.metric].label
        source = f"table {number.table}" if number.table else f"n = {number.n}, measured with ancl"
        known = f"{number.kind} {number.mean:.2f} ± {number.error:.2f} % ({source})"
        ours = "" if found.differences else f"got {with_error(got[number.metric])} %, "
        lines.append(f"{label}: {ours}{known}")
    if found.differences:
        whose = "The paper's" if found.numbers[0].table else "The benchmark's"
        lines.append(f"{whose} protocol is another one, so these are not compared:")
        lines += [f"  {difference}" for difference in found.differences]
    return "\n".join([*lines, *found.notes])
