"""``ancl search``: λ with the plain method, then λ_a with λ fixed, or λ task by task."""

import json
from typing import Annotated

import typer
from typer import Option

from ancl.cli import options
from ancl.cli.groups import Machines, PresetSettings, Results, Seeding, Weights, grouped

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


@grouped
def search(
    method: options.Method = None,
    benchmark: options.Benchmark = None,
    *,
    protocol: Protocol = "two-stage",
    lamb_grid: LambGrid = None,
    lamb_a_grid: AuxiliaryGrid = None,
    search_seeds: SearchSeeds = "0",
    seeds: ReportSeeds = None,
    weights: Weights,
    settings: PresetSettings,
    machines: Machines,
    results: Results,
) -> None:
    """Search λ and λ_a by validation images, and print the command that runs what was found."""
    from ancl.cli.request import Request
    from ancl.cli.searching import Asked, search_by
    from ancl.cli.text import FAILED

    choice = machines.choose()
    machines = machines.with_threads(choice.threads)
    deciding = Seeding(seeds=search_seeds)
    request = Request.of(method, benchmark, weights, deciding, settings, machines)
    grids = {"lamb": lamb_grid, "lamb_a": lamb_a_grid}
    asked = Asked(request, grids, seeds, results.places(settings.data_root), choice)
    found = search_by(protocol, asked, results.dry_run, results.quiet)
    print(json.dumps(found.json) if results.as_json else found.text)
    if found.failed:
        raise typer.Exit(FAILED)
