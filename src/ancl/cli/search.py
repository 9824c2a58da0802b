"""``ancl search``: λ with the plain method, then λ_a with λ fixed, or λ task by task."""

import json
from typing import Annotated

import typer
from typer import Option

from ancl.cli import options
from ancl.cli.guard import guarded

Protocol = Annotated[
    str,
    Option(
        "--protocol",
        metavar="two-stage|per-task",
        help="One λ, then one λ_a, for all tasks; or λ halved at each task until it learns.",
    ),
]
LambGrid = Annotated[
    str | None, Option("--lamb-grid", metavar="1,10,100", help="λ to try. [the benchmark's]")
]
AuxiliaryGrid = Annotated[
    str | None, Option("--lamb-a-grid", metavar="0.1,1", help="λ_a to try. [the benchmark's]")
]
SearchSeeds = Annotated[
    str, Option("--search-seeds", metavar="0-2,7", help="Seeds that decide, by their mean.")
]
ReportSeeds = Annotated[
    str | None,
    Option("--seeds", metavar="0-2,7", help="Seeds of the command that runs what was found."),
]


@guarded
def search(
    method: options.Method = None,
    benchmark: options.Benchmark = None,
    *,
    protocol: Protocol = "two-stage",
    lamb_grid: LambGrid = None,
    lamb_a_grid: AuxiliaryGrid = None,
    search_seeds: SearchSeeds = "0",
    seeds: ReportSeeds = None,
    lamb: options.Lamb = None,
    lamb_a: options.AuxiliaryLamb = None,
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
    """Search λ and λ_a by validation images, and print the command that runs what was found."""
    from ancl.cli.labour import choose_labour
    from ancl.cli.request import Request
    from ancl.cli.searching import Asked, search_by
    from ancl.cli.sweeping import FAILED

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
        method,
        benchmark,
        given,
        setting or [],
        config,
        seeds=search_seeds,
        preset=preset,
        quick=quick,
    )
    grids = {"lamb": lamb_grid, "lamb_a": lamb_a_grid}
    places = options.Places.of(runs, store, data_root)
    found = search_by(protocol, Asked(request, grids, seeds, places, labour), dry_run, quiet)
    print(json.dumps(found.json) if as_json else found.text)
    if found.failed:
        raise typer.Exit(FAILED)
