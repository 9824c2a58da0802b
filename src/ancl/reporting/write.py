"""A report on disk: tables, figures and the page."""

from collections.abc import Callable
from pathlib import Path

from ancl.errors import StoreError
from ancl.reporting.figures import can_draw, draw
from ancl.reporting.formats import comma_separated, latex, markdown
from ancl.reporting.page import Report, page
from ancl.reporting.tables import Table

_FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "tex": latex,
    "csv": comma_separated,
}


def write_report(report: Report, out: Path) -> list[Path]:
    """Write tables, figures (where matplotlib is installed) and the page.

    Returns:
        What was written, the page first.

    Raises:
        StoreError: The directory cannot be written.
    """
    written = write_page(report, out, vector=True)
    try:
        (out / "tables").mkdir(parents=True, exist_ok=True)
        for table in report.tables:
            for ending, render in _FORMATS.items():
                path = out / "tables" / f"{table.name}.{ending}"
                path.write_text(render(table), encoding="utf-8")
                written.append(path)
    except OSError as error:
        raise _unwritable(out, error) from error
    return written


def write_page(report: Report, out: Path, *, vector: bool = False) -> list[Path]:
    """Write the page and, where matplotlib is installed, the figures.

    Args:
        report: What to write.
        out: Where to.
        vector: Whether figures are written as PDF too, which takes as long again.

    Raises:
        StoreError: The directory cannot be written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        place = out / "report.html"
        place.write_text(page(report), encoding="utf-8")
        figures = draw(report.groups, out / "figures", vector=vector) if can_draw() else []
    except OSError as error:
        raise _unwritable(out, error) from error
    return [place, *figures]


def _unwritable(out: Path, error: OSError) -> StoreError:
    return StoreError(
        f"The report cannot be written to {out} ({error.strerror}). Make room, or choose a "
        f"directory that you may write to with --out DIR."
    )
