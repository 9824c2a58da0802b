"""Tables in the paper's layout: one row per method and variant, one column per benchmark."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ancl.experiments.groups import Group
from ancl.experiments.pairing import Difference
from ancl.files import csv_cell
from ancl.metrics import METRICS, Estimate
from ancl.recipe.paper import grids
from ancl.reporting.collect import Document
from ancl.wording import (
    SCENARIOS,
    SIGNS,
    interval_text,
    method_rank,
    method_title,
    natural,
    number_text,
)

EXPECTED = ("expected, %", ", paper", ", expected")
"""How the headings of numbers end that are not ours."""


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

    @property
    def numeric(self) -> list[bool]:
        """Which columns hold numbers."""
        return [any(isinstance(row[i], Number) for row in self.rows) for i in range(len(self.head))]


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
    """Variant minus host, paired by seed, with what else differs beside it."""
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
        f"{METRICS[metric].label} of a variant minus its plain host in points, paired by seed, "
        f"{scenario.upper()}",
        (*("variant minus host", "benchmark", "points", "95 % interval"), _ALSO),
        tuple(rows),
        (_ERRORS, _INTERVALS),
    )


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
    head = (
        *("benchmark", "method", "metric", "ours, %", "− host, points", _ALSO),
        *("forgetting, points", "learning, %", "expected, %"),
    )
    about = (
        "− host: minus the plain method, paired by seed. Expected: the paper's number, or the one "
        "measured for the benchmark."
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


# -- as Markdown, as LaTeX (booktabs) and as CSV ----------------------------------------------

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "λ": r"$\lambda$",
    "−": "$-$",
    "±": r"$\pm$",
    "√": r"$\surd$",
    "–": "--",
    "…": r"\dots{}",
}


def markdown(table: Table) -> str:
    """Title, table and notes."""
    shared = shared_n(table)

    def cell(content: Cell) -> str:
        return _escaped(_plain(content, shared, lambda text: f"**{text}**"))

    numeric = table.numeric
    lines = [
        "| " + " | ".join(_escaped(name) for name in table.head) + " |",
        "|" + "|".join("---:" if right else "---" for right in numeric) + "|",
        *("| " + " | ".join(map(cell, row)) + " |" for row in table.rows),
    ]
    notes = "".join(f"\n{_escaped(note)}  " for note in _notes(table, shared))
    return f"## {table.title}\n\n" + "\n".join(lines) + f"\n{notes.rstrip()}\n"


def latex(table: Table) -> str:
    """A table environment; it needs the packages booktabs and amsmath."""
    shared = shared_n(table)
    columns = "".join("r" if right else "l" for right in table.numeric)
    rows = [" & ".join(_latex_cell(cell, shared) for cell in row) + r" \\" for row in table.rows]
    notes = " ".join(tex(note) for note in _notes(table, shared))
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{tex(table.title)}. {notes}}}",
            rf"\label{{tab:{table.name.replace('_', '-')}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            " & ".join(tex(name) for name in table.head) + r" \\",
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def comma_separated(table: Table) -> str:
    """Every number at full precision, with columns for its standard error and n."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    wide = table.numeric
    picks = [any(isinstance(row[i], Choice) for row in table.rows) for i in range(len(table.head))]
    head: list[str] = []
    for name, number, pick in zip(table.head, wide, picks, strict=True):
        head += [name, f"{name}: standard error", f"{name}: n"] if number else [name]
        head += [f"{name}: chosen"] if pick else []
    writer.writerow(map(csv_cell, head))
    for row in table.rows:
        cells: list[str] = []
        for content, number, pick in zip(row, wide, picks, strict=True):
            cells += _csv_cells(content, 3 if number else 2 if pick else 1)
        writer.writerow(map(csv_cell, cells))
    return text.getvalue()


def tex(text: str) -> str:
    r"""Text with LaTeX's special characters escaped.

    >>> tex("50% of a_b & λ")
    '50\\% of a\\_b \\& $\\lambda$'
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)


def shared_n(table: Table) -> int | None:
    """The number of seeds, where all numbers but the expected ones have the same; else None."""
    counts = {
        cell.estimate.n
        for row in table.rows
        for name, cell in zip(table.head, row, strict=True)
        if isinstance(cell, Number) and not name.endswith(EXPECTED)
    }
    return counts.pop() if len(counts) == 1 else None


def cell_text(content: Cell, shared: int | None) -> str:
    """A cell as plain text, with a chosen value in brackets."""
    return _plain(content, shared, lambda text: f"[{text}]")


def _plain(content: Cell, shared: int | None, bold: Callable[[str], str]) -> str:
    if content is None:
        return ""
    if isinstance(content, Number):
        return number_text(content.estimate, signed=content.signed, n=shared is None)
    if isinstance(content, Choice):
        return ", ".join(
            bold(f"{value:g}") if value == content.chosen else f"{value:g}"
            for value in content.values
        )
    return content


def _latex_cell(content: Cell, shared: int | None) -> str:
    if isinstance(content, Choice):
        return _plain(content, shared, lambda text: rf"\textbf{{{text}}}")
    text = tex(_plain(content, shared, str))
    return text.replace(" $\\pm$ ", r" $\pm$ ") if isinstance(content, Number) else text


def _csv_cells(content: Cell, width: int) -> list[str]:
    if isinstance(content, Number):
        mean, error, n = content.estimate
        return [_number(mean), _number(error), str(n)]
    if isinstance(content, Choice):
        return [" ".join(f"{value:g}" for value in content.values), f"{content.chosen:g}"]
    return [content or "", *("" for _ in range(width - 1))]


def _number(fraction: float) -> str:
    return "" if math.isnan(fraction) else f"{100 * fraction:.6f}"


def _notes(table: Table, shared: int | None) -> list[str]:
    return [*table.notes, *([f"n = {shared}."] if shared else [])]


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
