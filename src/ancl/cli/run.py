"""``ancl run``: one method on one stream of tasks, for any number of seeds."""

from __future__ import annotations

import json
from time import monotonic
from typing import TYPE_CHECKING

from ancl.cli import options
from ancl.cli.guard import guarded

if TYPE_CHECKING:
    from ancl.cli.request import Request


@guarded
def run(
    method: options.Method = None,
    benchmark: options.Benchmark = None,
    *,
    lamb: options.Lamb = None,
    lamb_a: options.AuxiliaryLamb = None,
    seed: options.Seed = None,
    seeds: options.Seeds = None,
    scenario: options.Scenario = None,
    tasks: options.Tasks = None,
    classes: options.Classes = None,
    first: options.First = None,
    order: options.Order = None,
    data: options.Data = None,
    data_root: options.DataRoot = None,
    memory_per_class: options.MemoryPerClass = None,
    memory: options.Memory = None,
    memory_selection: options.MemorySelection = None,
    epochs: options.Epochs = None,
    setting: options.Set = None,
    config: options.Config = None,
    preset: options.Preset = "paper",
    quick: options.Quick = False,
    device: options.Device = None,
    threads: options.Threads = None,
    runs: options.Runs = options.RUNS,
    store: options.Store = None,
    log: options.Log = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Learn a benchmark's tasks by a method; a stopped run goes on by the same command.

    METHOD and BENCHMARK may also come from --config.
    """
    from ancl.cli.request import Request

    flags = {
        "--lamb": lamb,
        "--lamb-a": lamb_a,
        "--scenario": scenario,
        "--tasks": tasks,
        "--classes": classes,
        "--first": first,
        "--order": order,
        "--data": data,
        "--memory-per-class": memory_per_class,
        "--memory": memory,
        "--memory-selection": memory_selection,
        "--epochs": epochs,
        "--device": device,
        "--threads": threads,
    }
    given = {flag: value for flag, value in flags.items() if value is not None}
    request = Request(
        method, benchmark, given, setting or [], config, seed, seeds, preset=preset, quick=quick
    )
    places = options.Places.of(runs, store, data_root)
    if dry_run:
        _preview(request, places, as_json)
    else:
        _train(request, places, log, as_json, quiet)


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
    from ancl.cli.reported import page_of
    from ancl.cli.session import run_all
    from ancl.integrations import RunLog, make_writers

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
