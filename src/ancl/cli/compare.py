"""``ancl compare``: several methods on one stream, sharing whatever they have in common."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ancl.cli import options
from ancl.cli.groups import Machines, PresetSettings, Results, Seeding, Weights, grouped
from ancl.cli.guard import guarded

if TYPE_CHECKING:
    from ancl.cli.labour import ExecutorChoice
    from ancl.experiments.spec import RunSpec

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
@grouped
def compare(
    methods: Methods,
    *,
    on: On = None,
    baseline: Baseline = None,
    weights: Weights,
    seeding: Seeding,
    settings: PresetSettings,
    machines: Machines,
    results: Results,
) -> None:
    """Compare methods on one benchmark; a setting goes to the methods that have it."""
    from ancl.cli.compared import choose_baseline
    from ancl.cli.labour import choose_labour
    from ancl.cli.request import Request
    from ancl.cli.several import resolve_several
    from ancl.cli.sweeping import show_plan

    labour = choose_labour(machines.executor, machines.workers, machines.address, machines.threads)
    machines = replace(machines, threads=labour.threads)
    request = Request.of(None, on, weights, seeding, settings, machines)
    specs = resolve_several(request, methods)
    against = choose_baseline(methods, baseline)
    places = results.places(settings.data_root)
    if results.dry_run:
        show_plan(specs, places, results.as_json)
    else:
        _train(specs, against, places, labour, results)


def _train(
    specs: Sequence[RunSpec],
    baseline: str,
    places: options.Places,
    labour: ExecutorChoice,
    shown: Results,
) -> None:
    from ancl.cli.compared import Comparison
    from ancl.cli.sweeping import FAILED, sweep
    from ancl.cli.watching import make_watching
    from ancl.reporting import page_of

    began = monotonic()
    with make_watching(shown.quiet) as watching:
        swept = sweep(specs, places, labour, watching)
    comparison = Comparison(specs, swept, baseline, monotonic() - began)
    place = comparison.write(places.runs)
    page = page_of(swept.finished, places.runs, place.with_suffix(""))
    if shown.as_json:
        print(json.dumps({**comparison.json(), **page.json}))
    else:
        print(f"{comparison.text(place)}\n{page.text}")
    if swept.failures:
        raise typer.Exit(FAILED)
