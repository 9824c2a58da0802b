"""Tables in the paper's layout: one row per method and variant, one column per benchmark."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ancl.experiments import Expected, expected, grids
from ancl.experiments.paper import RUNS
from ancl.experiments.paper_check import protocol_differences
from ancl.metrics import METRICS, Estimate
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
    return Number(Estimate(number.mean / 100, number.error / 100, RUNS)) if number else None


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
                Number(Estimate(paper.mean / 100, paper.error / 100, RUNS)) if paper else None,
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
