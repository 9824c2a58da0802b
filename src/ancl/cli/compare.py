"""``ancl compare``: several methods on one stream, sharing whatever they have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

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
    from ancl.experiments.compare import Comparison
    from ancl.experiments.results import Places
    from ancl.recipe.recipe import RunSpec


@with_flags
def compare(
    methods: list[str],
    *,
    on: str | None = None,
    baseline: str | None = None,
    weights: Weights,
    seeding: Seeding,
    settings: PresetSettings,
    machines: Machines,
    log: str | None = None,
    results: Results,
) -> None:
    """Compare methods on one benchmark; a setting applies to the methods that have it.

    Values for one method alone stand behind it: lwf@lamb=3 my.py:l1@lamb=0.03
    """
    from ancl.cli.progress import check_log, progress_and_log
    from ancl.cli.text import FAILED
    from ancl.experiments.compare import choose_baseline, compare_rows
    from ancl.recipe.method_rows import resolve_rows
    from ancl.reporting.report import page_of

    choice = machines.choose()
    request = make_request(None, on, weights, seeding, settings, machines)
    rows = resolve_rows(request.with_threads(choice.threads), methods)
    choose_baseline(list(rows), baseline)
    places = results.places(settings.data_root)
    if results.dry_run:
        specs = [spec for row in rows.values() for spec in row]
        check_log(log)
        _show_plan(specs, places, choice, results.as_json)
        return
    with progress_and_log(results.quiet, log) as events:
        comparison = compare_rows(rows, places, choice, baseline, events)
    quick = request.quick or comparison.quick_look
    file = comparison.write(places.runs, overwrite=places.overwrite)
    page = page_of(
        comparison.outcome.finished,
        places.runs,
        file.with_suffix(""),
        overwrite=places.overwrite,
        baseline=[run.directory for run in comparison.of(comparison.baseline)],
    )
    if results.as_json:
        print(json.dumps({**comparison.json(), "quick": quick, **page.json}))
    else:
        print(f"{comparison_text(comparison, file, quick)}\n{page.text}")
    if comparison.outcome.failures:
        raise typer.Exit(FAILED)


def _show_plan(
    specs: Sequence[RunSpec], places: Places, choice: ExecutorChoice, as_json: bool
) -> None:
    from ancl.cli.text import cost_text
    from ancl.compute.graph import Graph
    from ancl.experiments.forecast import estimate_time
    from ancl.store.store import Store

    graph, store = Graph(specs, places.data), Store(places.store)
    time = estimate_time(graph, store, choice.workers)
    if as_json:
        print(json.dumps({**graph.counts(store), "most_seconds": time.seconds}))
    else:
        print(f"{graph.summary(store)}\n{cost_text(time, choice.workers)}")


def comparison_text(comparison: Comparison, file: Path, quick: bool) -> str:
    """A table, what failed, and where everything is."""
    from ancl.cli.text import failures_text, time_text
    from ancl.recipe.request import QUICK_LOOK

    title = (
        f"{comparison.specs[0].stream}: mean ± standard error over n seeds; differences are "
        f"taken seed by seed."
    )
    parts = [f"{title}\n\n{_table(comparison)}"]
    finished, failures = comparison.outcome.finished, comparison.outcome.failures
    if failures:
        parts.append(failures_text(failures))
    noted = [(e.result.spec.method, note) for e in finished for note in e.result.notes]
    if noted:
        parts.append("\n".join(f"{method}: {note}" for method, note in dict.fromkeys(noted)))
    if quick:
        parts.append(QUICK_LOOK)
    where = "\n".join(f"  {run.directory}" for run in finished)
    time = time_text([run.result for run in finished], comparison.seconds)
    parts.append(f"{time}\nResults:\n{where}\n  {file}")
    return "\n\n".join(parts)


def _table(comparison: Comparison) -> str:
    """One row per method, with its difference to the baseline and what else differs."""
    from ancl.cli.text import unit
    from ancl.metrics import METRICS
    from ancl.wording import table

    columns = comparison.columns
    pairs = {name: comparison.pairing(name) for name in comparison.methods}
    also = {name: pair.text for name, pair in pairs.items() if pair and pair.text}
    label = METRICS[columns[0]].label
    head = ["method", *(f"{METRICS[n].label}, {unit(METRICS[n])}" for n in columns), "n"]
    head.append(f"{label} minus {comparison.baseline}, points")
    rows = []
    for method in comparison.methods:
        row = _row(comparison, method)
        rows.append([*row, also.get(method, "")] if also else row)
    head += ["what else differs"] if also else []
    sides = "l" + "r" * (len(columns) + 2) + ("w" if also else "")
    return table(head, rows, sides)


def _row(comparison: Comparison, method: str) -> list[str]:
    from ancl.wording import signed_with_error, with_error

    columns, finished = comparison.columns, comparison.of(method)
    if not finished:
        return [method, *("–" for _ in columns), "0", ""]
    means, gap = comparison.estimates(method), comparison.difference(method, columns[0])
    numbers = [with_error(means[name]) for name in columns]
    return [method, *numbers, str(len(finished)), signed_with_error(gap)]
