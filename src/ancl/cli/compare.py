"""``ancl compare``: several methods on one stream, sharing whatever they have in common."""

import json
from time import monotonic
from typing import Annotated

import typer
from typer import Argument, Option

from ancl.cli import options
from ancl.cli.guard import guarded

Methods = Annotated[
    list[str], Argument(metavar="METHOD…", show_default=False, help="Such as lwf a-lwf joint")
]
On = Annotated[
    str | None,
    Option("--on", metavar="BENCHMARK", help="Such as digits/5: ancl list benchmarks"),
]
Baseline = Annotated[
    str | None,
    Option("--baseline", metavar="METHOD", help="Differences are taken to it. [the plain host]"),
]


@guarded
def compare(
    methods: Methods,
    *,
    on: On = None,
    baseline: Baseline = None,
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
    executor: options.Executor = None,
    workers: options.Workers = None,
    address: options.Address = None,
    runs: options.Runs = options.RUNS,
    store: options.Store = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Compare methods on one benchmark; a setting goes to the methods that have it."""
    from ancl.cli.compared import Comparison, choose_baseline
    from ancl.cli.labour import choose_labour
    from ancl.cli.reported import page_of
    from ancl.cli.request import Request
    from ancl.cli.several import resolve_several
    from ancl.cli.sweeping import FAILED, show_plan, sweep
    from ancl.cli.watching import make_watching

    began = monotonic()
    labour = choose_labour(executor, workers, address, threads)
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
        "--threads": labour.threads,
    }
    given = {flag: value for flag, value in flags.items() if value is not None}
    request = Request(
        None, on, given, setting or [], config, seed, seeds, preset=preset, quick=quick
    )
    specs = resolve_several(request, methods)
    against = choose_baseline(methods, baseline)
    places = options.Places.of(runs, store, data_root)
    if dry_run:
        show_plan(specs, places, as_json)
        return
    with make_watching(quiet) as watching:
        swept = sweep(specs, places, labour, watching)
    comparison = Comparison(specs, swept, against, monotonic() - began)
    place = comparison.write(runs)
    page = page_of(swept.finished, runs, place.with_suffix(""))
    if as_json:
        print(json.dumps({**comparison.json(), **page.json}))
    else:
        print(f"{comparison.text(place)}\n{page.text}")
    if swept.failures:
        raise typer.Exit(FAILED)
