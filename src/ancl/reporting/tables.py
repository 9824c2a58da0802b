"""Tables in the paper's layout: one row per method and variant, one column per benchmark."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ancl.experiments import Expected, expected, grids
from ancl.experiments.paper_check import protocol_differences
from ancl.experiments.results import main_metric
from ancl.experiments.study import ROWS, StudyResult
from ancl.experiments.study_results import StudyRun
from ancl.metrics import METRICS, Estimate, Interval, mean_and_error
from ancl.reporting.collect import Document
from ancl.reporting.groups import Group, difference, method_rank, method_title

_SCENARIOS = {
    "til": "the task is known at test time",
    "cil": "the task is not known at test time",
    "dil": "the domain changes",
}
_SIGNS = {"lamb": "λ", "lamb_a": "λ_a"}


@dataclass(frozen=True)
class Number:
    """An estimate in percent or, with a sign, in points."""

    estimate: Estimate
    signed: bool = False


@dataclass(frozen=True)
class Choice:
    """Values that were tried; the chosen one is marked."""

    values: tuple[float, ...]
    chosen: float


Cell = str | Number | Choice | None


@dataclass(frozen=True)
class Table:
    """One table.

    Args:
        name: The name of its files.
        title: What it shows, in one line.
        head: One heading per column.
        rows: The cells.
        notes: Lines below the table.
    """

    name: str
    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()


def all_tables(groups: Sequence[Group], searches: Sequence[Document]) -> list[Table]:
    """Every table there is data for."""
    found: list[Table] = []
    for scenario in dict.fromkeys(group.spec.data.scenario for group in groups):
        own = [group for group in groups if group.spec.data.scenario == scenario]
        found.append(accuracy_table(own, own[0].decisive))
        if scenario != "til":
            found.append(accuracy_table(own, "final_accuracy"))
        found.append(accuracy_table(own, "forgetting"))
        if any(difference(group, groups) for group in own):
            found.append(difference_table(own))
    counted = [group for group in groups if any(each.parameters for each in group.results)]
    found += [parameter_table(counted)] if counted else []
    grid = grid_table(searches)
    return [*found, grid] if grid.rows else found


def accuracy_table(groups: Sequence[Group], metric: str) -> Table:
    """A metric of one scenario: one row per method, the paper's number beside ours."""
    scenario = groups[0].spec.data.scenario
    streams = list(dict.fromkeys(group.stream for group in groups))
    with_paper = [
        stream
        for stream in streams
        if any(paper_number(g, metric) for g in groups if g.stream == stream)
    ]
    head: list[str] = ["method"]
    for stream in streams:
        head += [stream, f"{stream}, paper"] if stream in with_paper else [stream]
    rows = []
    for title in _titles(groups):
        row: list[Cell] = [title]
        for stream in streams:
            cell = next((g for g in groups if (g.title, g.stream) == (title, stream)), None)
            row.append(Number(cell.estimate(metric)) if cell else None)
            if stream in with_paper:
                row.append(_paper_cell(cell, metric))
        rows.append(tuple(row))
    known = METRICS[metric]
    unit = "points" if known.unit.startswith("difference") else "%"
    return Table(
        f"{metric}_{scenario}",
        f"{known.label} in {unit}, {scenario.upper()} ({_SCENARIOS[scenario]})",
        tuple(head),
        tuple(rows),
        (f"{known.label}: {known.formula}.", _ERRORS, *_protocol_notes(groups, metric)),
    )


def _protocol_notes(groups: Sequence[Group], metric: str) -> list[str]:
    """Differences to the paper's protocol, where the paper has a number."""
    found = {g: protocol_differences(g.results) for g in groups if paper_number(g, metric)}
    return [
        f"Not the paper's protocol: {g.title} on {g.stream}: {'; '.join(unlike)}."
        for g, unlike in found.items()
        if unlike
    ]


_ERRORS = "Mean ± standard error over n seeds (standard deviation over n - 1, divided by √n)."


def difference_table(groups: Sequence[Group]) -> Table:
    """Variant minus host, paired by seed: one row per variant, one column per benchmark."""
    streams = list(dict.fromkeys(group.stream for group in groups))
    found = {g: gap for g in groups if (gap := difference(g, groups))}
    rows = []
    for title in _titles(found):
        row: list[Cell] = [title]
        for stream in streams:
            gaps = [gap for g, gap in found.items() if (g.title, g.stream) == (title, stream)]
            row.append(Number(gaps[0].estimate, signed=True) if gaps else None)
        rows.append(tuple(row))
    notes = [
        f"{g.title} on {g.stream} and its host differ in {', '.join(gap.differing)} too."
        for g, gap in found.items()
        if gap.differing
    ]
    label = METRICS[groups[0].decisive].label
    scenario = groups[0].spec.data.scenario
    return Table(
        f"difference_{scenario}",
        f"{label} of a variant minus its plain host in points, paired by seed, {scenario.upper()}",
        ("variant minus host", *streams),
        tuple((f"{row[0]} − {_host_of(str(row[0]))}", *row[1:]) for row in rows),
        (_ERRORS, *notes),
    )


def _host_of(title: str) -> str:
    return title.partition(" (")[0].removeprefix("AFEC-").removeprefix("A-")


def grid_table(searches: Iterable[Document]) -> Table:
    """The values of λ and λ_a that searches tried and chose, beside the paper's grid."""
    rows: list[tuple[Cell, ...]] = []
    for _, content in searches:
        if content.get("protocol") != "two-stage":
            continue
        for setting, sign in _SIGNS.items():
            tried = [each for each in content["trials"] if each["step"] == setting]
            if not tried:
                continue
            method = tried[0]["method"]
            values = tuple(float(each[setting]) for each in tried)
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


def paper_number(group: Group, metric: str) -> Expected | None:
    """What the paper reports for this method, benchmark and metric."""
    spec = group.spec
    return next((e for e in expected(spec.benchmark, spec.method) if e.metric == metric), None)


def _paper_cell(group: Group | None, metric: str) -> Cell:
    number = paper_number(group, metric) if group else None
    return Number(Estimate(number.mean / 100, number.error / 100, number.n)) if number else None


def overview(groups: Sequence[Group]) -> Table:
    """One row per group: the decisive metric first, then others."""
    rows: list[tuple[Cell, ...]] = []
    for group in groups:
        gap = difference(group, groups)
        paper = paper_number(group, group.decisive)
        rows.append(
            (
                group.stream,
                group.title,
                METRICS[group.decisive].label,
                Number(group.estimate(group.decisive)),
                Number(gap.estimate, signed=True) if gap else None,
                Number(group.estimate("forgetting")),
                Number(Estimate(paper.mean / 100, paper.error / 100, paper.n)) if paper else None,
            )
        )
    head = ("benchmark", "method", "metric", "ours, %", "− host, points", "forgetting", "paper, %")
    limits = [f"{g.title} on {g.stream}: {note}" for g in groups for note in g.notes]
    notes = (_ERRORS, "− host: minus the plain method, paired by seed.", *limits)
    return Table("overview", "All methods", head, tuple(rows), notes)


def _titles(groups: Iterable[Group]) -> list[str]:
    """Row titles, with all variants of a base method together."""
    ordered = sorted(groups, key=lambda g: (*method_rank(g.spec.method), g.title))
    return list(dict.fromkeys(group.title for group in ordered))


# -- studies ---------------------------------------------------------------------------------


def study_tables(study: StudyResult) -> list[Table]:
    """The tables of a study, as far as its runs are done."""
    made = [_study_rows(study, benchmark) for benchmark in study.plan.benchmarks]
    made += [_study_differences(study), _study_fairness(study), _study_trials(study)]
    return [table for table in made if table.rows]


def _study_rows(study: StudyResult, benchmark: str) -> Table:
    names = ("learning_accuracy", "forgetting")
    rows: list[tuple[Cell, ...]] = []
    metric = "aac"
    found: list[tuple[str, str, Sequence[StudyRun]]] = [
        (method, "reference", runs)
        for (where, method), runs in study.references.items()
        if where == benchmark
    ]
    found += [
        (each.method, ROWS[row], each.rows[row])
        for each in study.methods
        for row in ROWS
        if each.benchmark == benchmark and each.rows.get(row)
    ]
    for method, row, runs in found:
        metric, options = main_metric(runs[0].spec), runs[0].spec.options
        lambs = [f"{v:g}" if isinstance(v := options.get(k), int | float) else "" for k in _SIGNS]
        numbers = [Number(_mean(runs, name)) for name in (metric, *names)]
        rows.append((method, row, *lambs, *numbers))
    labels = [f"{METRICS[name].label}, %" for name in (metric, *names)]
    name = f"study_{benchmark.replace('/', '-')}"
    head = ("method", "row", *_SIGNS.values(), *labels)
    return Table(name, f"{benchmark}: test, mean ± standard error over seeds", head, tuple(rows))


def _mean(runs: Sequence[StudyRun], metric: str) -> Estimate:
    return mean_and_error([run.metrics[metric] for run in runs])


def _study_differences(study: StudyResult) -> Table:
    pairs = [("ancl", "cl"), ("afec", "cl"), ("equal_search", "cl"), ("equal_compute", "cl")]
    rows = []
    for each in study.methods:
        gaps = [list(each.gaps(*pair).values()) for pair in pairs]
        cells = [Number(mean_and_error(gap), signed=True) if gap else None for gap in gaps]
        if any(cells):
            rows.append((each.method, *cells))
    head = ("method", *(f"{ROWS[a]} − {ROWS[b]}" for a, b in pairs))
    title = "Differences in the metric that counts, seed by seed, in points"
    return Table("study_differences", title, head, tuple(rows))


def _study_fairness(study: StudyResult) -> Table:
    """ANCL against CL with as many trials, with as much computation, and on the frontier."""
    adjusted = study.adjusted()
    rows: list[tuple[Cell, ...]] = []
    for each in study.methods:
        search, compute = (
            each.difference("ancl", f"equal_{kind}") for kind in ("search", "compute")
        )
        if search or compute:
            p = adjusted.get(each.method)
            frontier = each.frontier_gaps()
            numbers = [f"{'none' if g is None else f'{100 * g:+.2f}'}" for g in frontier.values()]
            texts = (interval_text(search), "" if p is None else f"{p:.3f}", interval_text(compute))
            rows.append((each.method, *texts, ", ".join(numbers)))
    primary = study.primary()
    if primary:
        count = sum(bool(each.gaps("ancl", "equal_search")) for each in study.methods)
        text = f"mean of {count} of {len(study.methods)} methods"
        alone = "" if math.isnan(primary.p) else f"{primary.p:.3f} (one test)"
        rows.append((text, interval_text(primary), alone, "", ""))
    head = (
        *("method", "ANCL − CL, equal search", "p (Holm)", "ANCL − CL, equal compute"),
        "frontier, by search seed",
    )
    notes = (
        "Points, mean [95 % t-interval over seeds]. The last row averages methods seed by seed.",
        "Frontier: ANCL's learning accuracy over λ_a > 0 minus CL's over λ at equal forgetting.",
    )
    return Table("study_fairness", "ANCL against CL on equal terms", head, tuple(rows), notes)


def interval_text(interval: Interval | None) -> str:
    """A difference of fractions in points with its interval.

    >>> interval_text(Interval(0.012, 0.005, 0.019, 0.01, 5))
    '+1.20 [+0.50, +1.90]'
    """
    if interval is None:
        return ""
    mean, low, high = (round(100 * each, 2) + 0.0 for each in interval[:3])
    return f"{mean:+.2f}" if math.isnan(low) else f"{mean:+.2f} [{low:+.2f}, {high:+.2f}]"


def _study_trials(study: StudyResult) -> Table:
    kinds = {"lamb": "λ", "more": "λ, equal search", "lamb_a": "λ_a", "afec": "λ_a of AFEC"}
    rows: list[tuple[Cell, ...]] = []
    for each in study.methods:
        for kind, label in kinds.items():
            chosen = each.chosen.get("equal_search" if kind == "more" else kind)
            scores = [
                (f"**{value:g}**" if value == chosen else f"{value:g}", [run.score for run in runs])
                for value, runs in each.trials.get(kind, {}).items()
            ]
            if scores:
                text = ", ".join(f"{v}: {100 * float(np.mean(found)):.2f}" for v, found in scores)
                rows.append((each.method, label, text))
    head = ("method", "searched", "value: validation accuracy, %")
    return Table("study_trials", "What was tried on the search seeds", head, tuple(rows))


def parameter_table(groups: Sequence[Group]) -> Table:
    """Parameters stored after every task, and changed by its training; means over seeds."""
    counted = {g: [r.parameters for r in g.results if r.parameters] for g in groups}
    tasks = max(len(each) for found in counted.values() for each in found)
    rows: list[tuple[Cell, ...]] = []
    for group, found in counted.items():
        for kind in ("stored", "trained"):
            numbers = zip(*([getattr(c, kind) for c in each] for each in found), strict=True)
            cells = [f"{round(sum(each) / len(each)):,}" for each in numbers]
            cells += [""] * (tasks - len(cells))
            rows.append((group.stream, group.title, kind, *cells))
    head = ("benchmark", "method", "parameters", *(f"task {n + 1}" for n in range(tasks)))
    about = (
        "Stored: what answers after the task are computed from. Trained: the most that one of the "
        "task's trainings changed, parts included that only training uses."
    )
    return Table("parameters", "Parameters after every task", head, tuple(rows), (about,))
