"""A report in words: its overview, what was left out, and where its files are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ancl.cli.session import Finished
from ancl.cli.table import counted, table
from ancl.errors import StoreError
from ancl.hashing import digest
from ancl.reporting import INSTALL, Report, can_draw, make_report, of_results, write_page
from ancl.reporting.formats import cell_text, shared_n
from ancl.reporting.page import content


def reported_text(report: Report, written: Sequence[Path]) -> str:
    """The overview, then what was left out and what was written."""
    shown = report.tables[0]
    shared = shared_n(shown)
    rows = [[cell_text(cell, shared) for cell in row] for row in shown.rows]
    kept = [
        index for index in range(len(shown.head)) if index < 2 or any(row[index] for row in rows)
    ]
    parts = []
    if rows:
        align = "".join("l" if index < 3 else "r" for index in kept)
        head = [shown.head[index] for index in kept]
        body = table(head, [[row[index] for index in kept] for row in rows], align)
        n = [f"n = {shared} seeds."] if shared else []
        parts.append("\n".join([body, *shown.notes, *n]))
    if report.damaged:
        left = table(
            ["directory", "why"], [[place.name, why] for place, why in report.damaged], "lw"
        )
        parts.append(f"Not reported, or not wholly:\n{left}")
    parts.append(_written_text(written))
    return "\n\n".join(parts)


def _written_text(written: Sequence[Path]) -> str:
    page, *others = written
    folders = dict.fromkeys(path.parent for path in others)
    lines = [f"Report: {page}"]
    for folder in folders:
        count = sum(path.parent == folder for path in others)
        lines.append(f"  {folder}: {counted(count, 'file')}")
    return "\n".join([*lines, *([] if can_draw() else [INSTALL])])


def reported_json(report: Report, written: Sequence[Path]) -> dict[str, Any]:
    """Every number of the overview, what was left out, and what was written."""
    kept = (
        *("stream", "scenario", "title", "method", "seeds", "decisive", "metrics", "difference"),
        *("paper", "unlike_paper", "runs"),
    )
    found = content(report)
    return {
        "groups": [{key: group[key] for key in kept} for group in found["groups"]],
        "damaged": found["damaged"],
        "files": [str(path) for path in written],
    }


class Page(NamedTuple):
    """Where the page of a command is (nothing if there is none), and the lines that say so."""

    path: Path | None
    text: str

    @property
    def json(self) -> dict[str, Any]:
        """The same as JSON."""
        return {"report": self.path and str(self.path)}


def page_of(finished: Sequence[Finished], runs: Path, place: Path | None = None) -> Page:
    """Write the page of runs that just ended.

    Args:
        finished: The runs.
        runs: Where results go.
        place: Where the page goes; else a single run's directory, or a comparison's.
    """
    if not finished:
        return Page(None, "There is no report: no run finished.")
    if place is None and len(finished) == 1:
        place = finished[0].directory
    if place is None:
        mark = digest(sorted(each.directory.name for each in finished))[:8]
        benchmark = finished[0].result.spec.benchmark.replace("/", "-")
        place = runs / "comparisons" / f"{benchmark}_{mark}"
    try:
        page = write_page(make_report(of_results(finished)), place)[0]
    except StoreError as error:
        return Page(None, str(error))  # the results themselves are written
    return Page(page, "\n".join([f"Report: {page}", *([] if can_draw() else [INSTALL])]))
