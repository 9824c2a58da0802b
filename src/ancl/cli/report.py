"""``ancl report``: tables, figures and one HTML page from stored results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ancl.cli.flags import RUNS, with_flags
from ancl.errors import counted
from ancl.wording import table

if TYPE_CHECKING:
    from ancl.reporting.report import ReportResult
    from ancl.reporting.table_formats import Table


@with_flags
def report(
    stored: list[Path] | None = None,
    *,
    runs: Path = RUNS,
    out: Path | None = None,
    baseline: str | None = None,
    overwrite: bool = False,
    as_json: bool = False,
) -> None:
    """Tables (Markdown, LaTeX, CSV), figures and one HTML page, from stored results alone."""
    from ancl.reporting.report import report as write

    result = write(stored, runs=runs, out=out, baseline=baseline, overwrite=overwrite)
    print(json.dumps(result.json()) if as_json else result_text(result))


def result_text(result: ReportResult) -> str:
    """What was found, the overview, then what was left out and what was written."""
    said = result.report.findings
    parts = [
        f"{stream}\n" + "\n".join(sentence.text for sentence in said[stream]) for stream in said
    ]
    parts += [_overview_text(result.report.tables[0])] if result.report.tables[0].rows else []
    if result.report.damaged:
        left_out = [[directory.name, reason] for directory, reason in result.report.damaged]
        parts.append(
            f"Not reported, or only in part:\n{table(['directory', 'why'], left_out, 'lw')}"
        )
    return "\n\n".join([*parts, _files_text(result.files)])


def _overview_text(shown: Table) -> str:
    from ancl.reporting.table_formats import cell_text, shared_n

    n = shared_n(shown)
    rows = [[cell_text(cell, n) for cell in row] for row in shown.rows]
    columns = [i for i in range(len(shown.head)) if i < 2 or any(row[i] for row in rows)]
    numeric = shown.numeric
    align = "".join("r" if numeric[index] else "l" for index in columns)
    head = [shown.head[index] for index in columns]
    body = table(head, [[row[index] for index in columns] for row in rows], align)
    return "\n".join([body, *shown.notes, *([f"n = {counted(n, 'seed')}."] if n else [])])


def _files_text(files: Sequence[Path]) -> str:
    from ancl.reporting.figures import INSTALL
    from ancl.runtime import can_draw

    page, *others = files
    lines = [f"Report: {page}"]
    for folder in dict.fromkeys(path.parent for path in others):
        count = sum(path.parent == folder for path in others)
        lines.append(f"  {folder}: {counted(count, 'file')}")
    return "\n".join([*lines, *([] if can_draw() else [INSTALL])])
