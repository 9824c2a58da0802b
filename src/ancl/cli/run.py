"""``ancl run``: one method on one stream of tasks, for any number of seeds."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING

from ancl.cli import options
from ancl.cli.groups import Machine, PresetSettings, Results, Seeding, Weights, grouped
from ancl.cli.guard import guarded

if TYPE_CHECKING:
    from ancl.cli.request import Request


@guarded
@grouped
def run(
    method: options.Method = None,
    benchmark: options.Benchmark = None,
    *,
    weights: Weights,
    seeding: Seeding,
    settings: PresetSettings,
    machine: Machine,
    log: options.Log = None,
    results: Results,
) -> None:
    """Learn a benchmark's tasks by a method; a stopped run goes on by the same command.

    METHOD and BENCHMARK may also come from --config.
    """
    from ancl.cli.request import Request

    request = Request.of(method, benchmark, weights, seeding, settings, machine)
    places = results.places(settings.data_root)
    if results.dry_run:
        _preview(request, places, results.as_json)
    else:
        _train(request, places, log, results.as_json, results.quiet)


def _preview(request: Request, places: options.Places, as_json: bool) -> None:
    from ancl.cli.preview import preview, preview_text

    shown = [preview(resolved, places) for resolved in request.resolve()]
    print(json.dumps({"runs": shown}) if as_json else preview_text(shown))


def _train(
    request: Request, places: options.Places, log: str | None, as_json: bool, quiet: bool
) -> None:
    from ancl.cli.closing import closing_json, closing_text
    from ancl.cli.logs import Logged
    from ancl.cli.outcome import outcome_json, outcome_text
    from ancl.cli.progress import make_progress
    from ancl.cli.session import run_all
    from ancl.integrations import RunLog, make_writers
    from ancl.reporting import page_of

    began = monotonic()
    specs = [resolved.spec for resolved in request.resolve()]
    progress = make_progress(quiet)
    if log is not None:
        progress = Logged(progress, RunLog(make_writers(log)), places.runs)
    finished = run_all(specs, places, progress)
    seconds = monotonic() - began
    page = page_of(finished, places.runs)
    if as_json:
        closing = closing_json(finished, places.runs, request.quick)
        print(json.dumps({**outcome_json(finished, seconds), **closing, **page.json}))
    else:
        closed = closing_text(finished, places.runs, request.quick)
        print("\n\n".join([f"{outcome_text(finished, seconds)}\n{page.text}", *closed]))
