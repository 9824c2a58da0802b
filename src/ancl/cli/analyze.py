"""``ancl analyze``: where ANCL's network is between the old and the auxiliary one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ancl.cli import flags
from ancl.cli.flags import Machine, Results, Seeding, Settings, Weights, with_flags
from ancl.errors import SpecError, counted
from ancl.wording import duration, percent, table

if TYPE_CHECKING:
    from ancl.analysis.results import AnalysisResult
    from ancl.analysis.run import AnalysisPlan
    from ancl.recipe.recipe import RunSpec


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What is measured, where and how."""

    task: int = 2
    grid: int = 7
    split: str | None = None
    images: int = 1000
    estimator: str = "biased"
    double: bool = False


@with_flags
def analyze(
    method: str,
    benchmark: str,
    *,
    lamb_a: str,
    lamb: str | None = None,
    search_lamb: str | None = None,
    measured: Measurements,
    seeding: Seeding,
    settings: Settings,
    machine: Machine,
    log: str | None = None,
    results: Results,
) -> None:
    """Weight distance, CKA and accuracy landscape of one task over a set of λ_a."""
    from ancl.analysis.run import make_request, plan_analysis, run_analysis
    from ancl.cli.progress import check_log, progress_and_log

    given = flags.make_request(method, benchmark, Weights(lamb=lamb), seeding, settings, machine)

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
        check_log(log)
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
        f"  {_correlated(name)}: {_signed(correlation.mean)}"
        for name, correlation in result.correlations().items()
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
            table_rows = result.rows(table_name, **wanted, **more)
            cells += [f"{_mean(table_rows, ref):.4f}" for ref in ("old", "auxiliary", "multi")]
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
