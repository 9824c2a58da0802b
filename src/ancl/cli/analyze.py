"""``ancl analyze``: where ANCL's network is between the old and the auxiliary one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ancl.cli import flag_values, flags
from ancl.cli.flags import Machine, Results, Seeding, Settings, Weights, grouped
from ancl.errors import SpecError, counted
from ancl.wording import duration, percent, table

if TYPE_CHECKING:
    from ancl.analysis import AnalysisPlan, AnalysisResult
    from ancl.recipe.recipe import RunSpec

Analyzed = Annotated[
    str,
    Argument(
        metavar="METHOD", show_default=False, help="One with an ANCL variant: ewc or a-ewc, …"
    ),
]
On = Annotated[
    str,
    Argument(
        metavar="BENCHMARK", show_default=False, help="Such as digits/5: ancl list benchmarks"
    ),
]
Lambs = Annotated[
    str, Option("--lamb-a", metavar="10,100,…", show_default=False, help="Every λ_a to compare.")
]
Lamb = Annotated[
    str | None, Option("--lamb", metavar="X", help="λ, the pull towards the old network.")
]
SearchLamb = Annotated[
    str | None,
    Option(
        "--search-lamb", metavar="1,10,…", help="Choose λ from these by validation accuracy of CL."
    ),
]
Task = Annotated[int, Option("--task", metavar="T", help="The task; 1 is the first.", min=2)]
Grid = Annotated[
    int, Option("--grid", metavar="N", help="N × N points of landscape; 0 for none.", min=0)
]
OnSplit = Annotated[
    str | None,
    Option(
        "--split",
        metavar="test|val|train|old",
        help="Images for CKA and landscape. [old for CKA, test for the landscape]",
    ),
]
Images = Annotated[
    int,
    Option(
        "--images", metavar="N", help="Largest number of images per measurement; 0 for all.", min=0
    ),
]
Cka = Annotated[
    str, Option("--cka", metavar="biased|unbiased|minibatch", help="The estimator of CKA.")
]
Double = Annotated[bool, Option("--double", help="Compute the Hessian in double precision.")]


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What is measured, where and how."""

    task: Task = 2
    grid: Grid = 7
    split: OnSplit = None
    images: Images = 1000
    estimator: Cka = "biased"
    double: Double = False


@grouped
def analyze(
    method: Analyzed,
    benchmark: On,
    *,
    lamb_a: Lambs,
    lamb: Lamb = None,
    search_lamb: SearchLamb = None,
    measured: Measured,
    seeding: Seeding,
    settings: Settings,
    machine: Machine,
    log: flags.Log = None,
    results: Results,
) -> None:
    """Weight distance, CKA and accuracy landscape of one task over a set of λ_a."""
    from ancl.analysis import make_request, plan_analysis, run_analysis
    from ancl.cli.progress import progress_and_log

    given = flag_values.make_request(
        method, benchmark, Weights(lamb=lamb), seeding, settings, machine
    )

    def specs_of(name: str, first_lamb_a: float) -> list[RunSpec]:
        asked = replace(given, method=name).with_values("--lamb-a", {"lamb_a": first_lamb_a})
        return [resolved.spec for resolved in asked.resolve()]

    request = make_request(
        method,
        specs_of,
        lamb_a=_numbers("--lamb-a", lamb_a),
        lamb=lamb,
        search_lamb=_numbers("--search-lamb", search_lamb) if search_lamb else None,
        **{**vars(measured), "task": measured.task - 1, "images": measured.images or None},
    )
    places = results.places(settings.data_root)
    if results.dry_run:
        plan = plan_analysis(request, store=places.store, data_root=places.data)
        print(json.dumps(plan.json()) if results.as_json else plan_text(plan))
        return
    with progress_and_log(results.quiet, log) as events:
        result = run_analysis(
            request,
            runs=places.runs,
            store=places.store,
            data_root=places.data,
            overwrite=places.overwrite,
            events=events,
        )
    print(json.dumps(result.json()) if results.as_json else result_text(result))


def _numbers(flag: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError as error:
        raise SpecError(
            f"{flag}: {text!r} is not a list of positive numbers. Write it as {flag} 10,100,1000."
        ) from error


# -- as text ---------------------------------------------------------------------------------


def plan_text(plan: AnalysisPlan) -> str:
    """The work to do, in two lines."""
    stored = plan.stages - plan.stages_to_do
    return (
        f"{plan.method} on {plan.benchmark}, {counted(len(plan.seeds), 'seed')}: "
        f"{counted(plan.stages, 'stage')}, {stored} stored, {plan.stages_to_do} to do (at "
        f"most {counted(plan.most_epochs_to_do, 'epoch')})\n"
        f"Landscape: {counted(plan.points, 'point')}, about "
        f"{duration(plan.points * plan.seconds_per_point)} ({plan.seconds_per_point:.2f} s each, "
        f"timed just now)"
    )


def result_text(result: AnalysisResult) -> str:
    """A table over λ_a, the rank correlations, and where everything is."""
    from ancl.analysis.figures import INSTALL

    spec, label = result.specs[0], result.tables["cka"][0]
    seeds = counted(len(result.seeds), "seed")
    title = (
        f"{spec.method} on {spec.stream}, λ = {spec.options.get('lamb')}, task "
        f"{result.options.task + 1}: mean over {seeds}\n"
        f"Distances over all parameters; CKA {label['estimator']} on {label['images']} "
        f"{label['split']} images"
    )
    correlations = "\n".join(
        f"  {_correlated(name)}: {_signed(found.mean)}"
        for name, found in result.correlations().items()
    )
    values = counted(len(result.options.lamb_as), "value")
    ranks = f"Rank correlations (Spearman's ρ) over {values} of λ_a, mean over {seeds}:"
    where = [f"Results: {result.directory} ({duration(result.seconds)})"]
    where += [f"  {path}" for path in result.figures if path.suffix == ".png"]
    if not result.figures:
        where.append(INSTALL)
    paragraphs = [title, _table(result), f"{ranks}\n{correlations}", "\n".join(where)]
    return "\n\n".join(paragraphs)


def _table(result: AnalysisResult) -> str:
    head = ["network", "λ_a", "mean acc., %"]
    head += [f"{kind} to {ref}" for kind in ("distance", "CKA") for ref in ("old", "aux", "multi")]
    names: list[tuple[str, float | None]] = [("cl", None)]
    names += [("ancl", lamb_a) for lamb_a in result.options.lamb_as]
    rows = []
    for name, lamb_a in names:
        wanted = {"network": name, "lamb_a": lamb_a}
        cells = [percent(_mean(result.rows("accuracy", **wanted), "mean"))]
        for table_name, more in (("distance", {}), ("cka", {"layer": "mean"})):
            found = result.rows(table_name, **wanted, **more)
            cells += [f"{_mean(found, ref):.4f}" for ref in ("old", "auxiliary", "multi")]
        rows.append([name.upper(), "" if lamb_a is None else f"{lamb_a:g}", *cells])
    return table(head, rows, "lr" + "r" * 7)


def _correlated(name: str) -> str:
    """The name of a rank correlation in words.

    >>> _correlated("distance_old_with_lamb_a")
    'λ_a with the distance to the old network'
    """
    measure, _, other = name.partition("_with_")
    kind, _, network = measure.partition("_")
    reference = f"{'multitask' if network == 'multi' else network} network"
    if other == "lamb_a":
        return f"λ_a with the {kind.replace('cka', 'CKA')} to the {reference}"
    return f"{kind.upper()} to the {reference} with the {other.replace('_', ' ')}"


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return sum(float(row[column]) for row in rows) / len(rows)


def _signed(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:+.2f}"
