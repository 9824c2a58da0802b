"""Tables in the paper's layout: one row per method and variant, one column per benchmark."""

from collections.abc import Iterable, Mapping, Sequence

from ancl.experiments.groups import Group
from ancl.experiments.pairing import Difference
from ancl.metrics import METRICS, Estimate
from ancl.recipe.paper import grids
from ancl.reporting.collect import Document
from ancl.reporting.table_formats import Cell, Choice, Number, Table
from ancl.wording import (
    SCENARIOS,
    SIGNS,
    interval_text,
    method_rank,
    method_title,
    natural,
)


def all_tables(
    groups: Sequence[Group],
    differences: Mapping[Group, Difference],
    searches: Sequence[Document],
) -> list[Table]:
    """Every table there is data for."""
    tables: list[Table] = []
    for scenario in dict.fromkeys(group.spec.data.scenario for group in groups):
        in_scenario = [group for group in groups if group.spec.data.scenario == scenario]
        tables.append(accuracy_table(in_scenario, in_scenario[0].decisive))
        if scenario != "til":
            tables.append(accuracy_table(in_scenario, "final_accuracy"))
        tables.append(accuracy_table(in_scenario, "forgetting"))
        pairs = [differences[group] for group in in_scenario if group in differences]
        if pairs:
            tables.append(difference_table(pairs))
    counted = [group for group in groups if any(result.parameters for result in group.results)]
    tables += [parameter_table(counted)] if counted else []
    tables += [cost_table(costly)] if (costly := [g for g in groups if g.costs()]) else []
    moving = [group for group in groups if any(result.drifts for result in group.results)]
    tables += [drift_table(moving)] if moving else []
    grid = grid_table(searches)
    return [*tables, grid] if grid.rows else tables


def accuracy_table(groups: Sequence[Group], metric: str) -> Table:
    """A metric of one scenario: one row per method, the expected number beside ours."""
    scenario = groups[0].spec.data.scenario
    streams = list(dict.fromkeys(group.stream for group in groups))
    kinds = {g.stream: number.kind for g in groups if (number := g.expected(metric))}
    head: list[str] = ["method"]
    for stream in streams:
        head += [stream, f"{stream}, {kinds[stream]}"] if stream in kinds else [stream]
    rows = []
    for title in _titles(groups):
        row: list[Cell] = [title]
        for stream in streams:
            cell = next((g for g in groups if (g.title, g.stream) == (title, stream)), None)
            row.append(Number(cell.estimate(metric)) if cell else None)
            if stream in kinds:
                row.append(_expected_cell(cell, metric))
        rows.append(tuple(row))
    known = METRICS[metric]
    unit = "points" if known.unit.startswith("difference") else "%"
    return Table(
        f"{metric}_{scenario}",
        f"{known.label} in {unit}, {scenario.upper()} ({SCENARIOS[scenario]})",
        tuple(head),
        tuple(rows),
        (f"{known.label}: {known.formula}.", _ERRORS, *_protocol_notes(groups)),
    )


def _protocol_notes(groups: Sequence[Group]) -> list[str]:
    """Differences to the recipe of expected numbers, and why some do not stand beside ours."""
    notes = []
    for group in groups:
        name = f"{group.title} on {group.stream}"
        if group.obstacles:
            notes.append(f"No expected number stands beside {name}: {'; '.join(group.obstacles)}.")
        elif group.unlike_expected:
            unlike = "; ".join(group.unlike_expected)
            notes.append(f"Not the protocol of the expected number: {name}: {unlike}.")
    return notes


_ERRORS = "Mean ± standard error over n seeds (standard deviation over n - 1, divided by √n)."


def difference_table(pairs: Sequence[Difference]) -> Table:
    """A method minus its host or the baseline, paired by seed, with what else differs."""
    metric, scenario = pairs[0].group.decisive, pairs[0].group.spec.data.scenario
    rows: list[tuple[Cell, ...]] = [
        (
            pair.title,
            pair.group.stream,
            Number(gap, signed=True) if (gap := pair.estimate(metric)) else None,
            interval_text(pair.interval(metric), mean=False),
            pair.pairing.text,
        )
        for pair in pairs
    ]
    return Table(
        f"difference_{scenario}",
        f"{METRICS[metric].label} of {_minus(pairs)[0]} in points, paired by seed, "
        f"{scenario.upper()}",
        (_minus(pairs)[1], *("benchmark", "points", "95 % interval"), _ALSO),
        tuple(rows),
        (_ERRORS, _INTERVALS),
    )


def _minus(pairs: Sequence[Difference]) -> tuple[str, str, str]:
    """What differences are taken to: in a sentence, at the head of rows, and of a column."""
    to_hosts = all(p.host.variant == "CL" != p.group.variant for p in pairs)
    if to_hosts and all(p.host.base == p.group.base for p in pairs):
        return "a variant minus its plain host", "variant minus host", "− host, points"
    hosts = list(dict.fromkeys(pair.host.title for pair in pairs))
    name = hosts[0] if len(hosts) == 1 else "baseline"
    return f"a method minus {name}", "difference", f"− {name}, points"


_INTERVALS = (
    "95 % interval: Student's t over seeds, on these test images; at least one test image each way."
)
_ALSO = "what else differs"


def grid_table(searches: Iterable[Document]) -> Table:
    """The values of λ and λ_a that searches tried and chose, beside the paper's grid."""
    rows: list[tuple[Cell, ...]] = []
    for _, content in searches:
        if content.get("protocol") != "two-stage":
            continue
        for setting, sign in SIGNS.items():
            tried = [trial for trial in content["trials"] if trial["step"] == setting]
            if not tried:
                continue
            method = tried[0]["method"]
            values = tuple(float(trial[setting]) for trial in tried)
            paper = grids(content["benchmark"]).get(method)
            rows.append(
                (
                    method_title(method),
                    content["benchmark"],
                    sign,
                    Choice(values, float(content[setting])),
                    str(content["decided_by"]),
                    Choice(paper.values, paper.chosen) if paper else None,
                )
            )
    return Table(
        "grids",
        "Values tried for λ and λ_a, the chosen one in bold",
        ("method", "benchmark", "", "tried", "decided by", "the paper's"),
        tuple(rows),
    )


def _expected_cell(group: Group | None, metric: str) -> Cell:
    number = group.expected(metric) if group else None
    return Number(Estimate(number.mean / 100, number.error / 100, number.n)) if number else None


def overview(groups: Sequence[Group], differences: Mapping[Group, Difference]) -> Table:
    """One row per group: the decisive metric first, then others."""
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        pair = differences.get(group)
        gap = pair.estimate(group.decisive) if pair else None
        rows.append(
            (
                group.stream,
                group.title,
                METRICS[group.decisive].label,
                Number(group.estimate(group.decisive)),
                Number(gap, signed=True) if gap else None,
                pair.pairing.text if pair else "",
                Number(group.estimate("forgetting")),
                Number(group.estimate("learning_accuracy")),
                _expected_cell(group, group.decisive),
            )
        )
    minus = _minus(list(differences.values()))[2]
    head = (
        *("benchmark", "method", "metric", "ours, %", minus, _ALSO),
        *("forgetting, points", "learning, %", "expected, %"),
    )
    whose = "the plain method" if minus == "− host, points" else "the baseline"
    about = (
        f"{minus.partition(',')[0]}: minus {whose}, paired by seed. Expected: the paper's number, "
        f"or the one measured for the benchmark."
    )
    return Table("overview", "All methods", head, tuple(rows), (_ERRORS, about, *_limits(groups)))


def _limits(groups: Sequence[Group]) -> list[str]:
    """Every note once, with the methods it is about."""
    noted: dict[tuple[str, str], list[str]] = {}
    for group in groups:
        for note in group.notes:
            noted.setdefault((group.stream, note), []).append(group.title)
    counts = {group.stream: sum(g.stream == group.stream for g in groups) for group in groups}
    return [
        f"{'All' if len(titles) == counts[stream] > 1 else ', '.join(titles)} on {stream}: {note}"
        for (stream, note), titles in noted.items()
    ]


def _titles(groups: Iterable[Group]) -> list[str]:
    """Row titles, with all variants of a base method together."""
    ordered = sorted(groups, key=lambda g: (*method_rank(g.spec.method), natural(g.title)))
    return list(dict.fromkeys(group.title for group in ordered))


def parameter_table(groups: Sequence[Group]) -> Table:
    """Parameters stored after every task, and changed by its training; means over seeds."""
    counted = {g: [r.parameters for r in g.results if r.parameters] for g in groups}
    tasks = max(len(counts) for by_seed in counted.values() for counts in by_seed)
    rows: list[tuple[Cell, ...]] = []
    for group, by_seed in counted.items():
        for kind in ("stored", "trained"):
            numbers = zip(*([getattr(c, kind) for c in counts] for counts in by_seed), strict=True)
            cells = [f"{round(sum(counts) / len(counts)):,}" for counts in numbers]
            cells += [""] * (tasks - len(cells))
            rows.append((group.stream, group.title, kind, *cells))
    head = ("benchmark", "method", "parameters", *(f"task {n + 1}" for n in range(tasks)))
    about = (
        "Stored: what answers after the task are computed from. Trained: the most that one of the "
        "task's trainings changed, parts included that only training uses."
    )
    return Table("parameters", "Parameters after every task", head, tuple(rows), (about,))


def cost_table(groups: Sequence[Group]) -> Table:
    """Images, backward passes, FLOPs and time of every kind of stage that trains."""
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        costs, seconds = group.costs(), group.seconds()
        for stage, cost in costs.items():
            numbers = (f"{cost.images:,.0f}", f"{cost.backward:,.0f}", f"{cost.flops:.3g}")
            time = f"{seconds[stage].mean:.3g}" if stage in seconds else ""
            rows.append((group.stream, group.title, stage, *numbers, time))
        if len(costs) > 1:
            images, backward, flops = (sum(column) for column in zip(*costs.values(), strict=True))
            time = f"{sum(seconds[stage].mean for stage in costs if stage in seconds):.3g}"
            numbers = (f"{images:,.0f}", f"{backward:,.0f}", f"{flops:.3g}")
            rows.append((group.stream, group.title, "all", *numbers, time))
    head = (*("benchmark", "method", "stage", "images", "backward passes", "FLOPs", "seconds"),)
    about = (
        "All tasks together, mean over seeds. Images: those that gradients were computed on, each "
        "as often as it came. FLOPs: of training steps, with what old and auxiliary networks "
        "answer, by torch's own counter on a training's first step; validation is not in it."
    )
    return Table("costs", "What training costs", head, tuple(rows), (about,))


def drift_table(groups: Sequence[Group]) -> Table:
    """How far the backbone moved in every task after the first; means over seeds."""
    measured = {g: [r.drifts for r in g.results if r.drifts] for g in groups}
    tasks = max(len(drifts) for by_seed in measured.values() for drifts in by_seed)
    rows: list[tuple[Cell, ...]] = []
    for group, by_seed in measured.items():
        for kind in ("moved", "residual"):
            numbers = zip(*([getattr(d, kind) for d in drifts] for drifts in by_seed), strict=True)
            cells = [f"{sum(values) / len(values):.3g}" for values in numbers]
            rows.append((group.stream, group.title, kind, *cells, *[""] * (tasks - len(cells))))
    head = ("benchmark", "method", "drift", *(f"task {n + 2}" for n in range(tasks)))
    about = (
        "Moved: ‖P − I‖ / √D of the map P from features before to features after a task, fitted on "
        "its images. Residual: the part of their movement that P does not explain. Statistics of "
        "earlier images are approximate from then on."
    )
    return Table("drift", "How far the backbone moved", head, tuple(rows), (about,))
