"""A table, and how it is written: Markdown, LaTeX (booktabs), CSV and plain text."""

import csv
import io
import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from ancl.files import csv_cell
from ancl.metrics import Estimate
from ancl.wording import number_text

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

    A sign before a number is one of mathematics: a hyphen is shorter than a minus.

    >>> tex("50% of a_b & λ"), tex("[-0.5, +1.0]")
    ('50\\% of a\\_b \\& $\\lambda$', '[$-$0.5, $+$1.0]')
    """
    escaped = "".join(_LATEX.get(letter, letter) for letter in text)
    return _SIGN.sub(r"$\g<0>$", escaped)


_SIGN = re.compile(r"(?<![^\s\[(])[-+](?=\d)|(?<= )-(?= )")


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
