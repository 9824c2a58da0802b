"""Reports on disk: from stored results to tables, figures and one HTML page."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ancl.errors import StoreError
from ancl.experiments.results import Finished
from ancl.files import STAGES, check_place, claim, replace_text
from ancl.hashing import digest
from ancl.reporting.collect import collect, from_results
from ancl.reporting.figures import INSTALL, draw
from ancl.reporting.page import Report, content, make_report, page
from ancl.reporting.tables import Table, comma_separated, latex, markdown
from ancl.runtime import can_draw

_PAGE = "report.html"
_FORMATS: dict[str, Callable[[Table], str]] = {
    "md": markdown,
    "tex": latex,
    "csv": comma_separated,
}
_OVERVIEW = (
    *("stream", "scenario", "title", "method", "seeds", "decisive", "metrics", "difference"),
    *("expected", "unlike_expected", "not_beside", "notes", "runs"),
)


class ReportResult(NamedTuple):
    """A report and its files, the page first."""

    report: Report
    files: tuple[Path, ...]

    @property
    def page(self) -> Path:
        """The HTML page."""
        return self.files[0]

    def json(self) -> dict[str, Any]:
        """Every number of the overview, what was left out, and the files."""
        found = content(self.report)
        return {
            "findings": found["findings"],
            "groups": [{key: group[key] for key in _OVERVIEW} for group in found["groups"]],
            "damaged": found["damaged"],
            "files": [str(path) for path in self.files],
        }


def report(
    stored: Sequence[str | Path] | None = None,
    *,
    runs: str | Path = "runs",
    out: str | Path | None = None,
    overwrite: bool = False,
) -> ReportResult:
    """Write tables (Markdown, LaTeX, CSV), figures and one HTML page from stored results.

    Nothing is trained. Figures need matplotlib; without it there are none.

    Args:
        stored: Directories of runs, searches and analyses, or ``runs/comparisons/NAME.json``; the
            default is everything below ``runs``.
        runs: Where results are.
        out: Where the report is written; the default is ``RUNS/report``.
        overwrite: Whether files there that are not of an earlier report are replaced.

    Raises:
        StoreError: There is no result, the report cannot be written, or files that ancl did not
            write are in its place.
    """
    place = check_place(Path(runs) / "report" if out is None else out, "a report")
    paths = [Path(each) for each in stored or [runs]]
    found = make_report(collect(paths))
    if not (found.groups or found.analyses or found.searches):
        damaged = "".join(f"\n  {place}: {reason}" for place, reason in found.damaged)
        raise StoreError(
            f"There is no finished run in {', '.join(map(str, paths))}. Make one, such as ancl "
            f"demo, or say where they are: --runs DIR.{damaged}"
        )
    return ReportResult(found, tuple(write_report(found, place, overwrite=overwrite)))


class Page(NamedTuple):
    """The page of finished runs (None if there is none), and a line or two that say so."""

    path: Path | None
    text: str

    @property
    def json(self) -> dict[str, Any]:
        """The path as JSON."""
        return {"report": self.path and str(self.path)}


def page_of(
    finished: Sequence[Finished],
    runs: Path,
    place: Path | None = None,
    *,
    overwrite: bool = False,
) -> Page:
    """Write the page of finished runs, with its figures as PNG.

    A page that cannot be written is not an error: the results themselves are written.

    Args:
        finished: The runs.
        runs: Where results are.
        place: Where the page is written; the default is the directory of a single run, or one
            below ``runs/comparisons`` for several runs.
        overwrite: Whether files that ancl did not write are replaced.
    """
    if not finished:
        return Page(None, "There is no report: no run finished.")
    directories = [run.directory for run in finished]
    if place is None and len(finished) == 1:
        place = directories[0]
    if place is None:
        mark = digest(sorted(directory.name for directory in directories))[:8]
        benchmark = finished[0].result.spec.benchmark.replace("/", "-")
        place = runs / "comparisons" / f"{benchmark}_{mark}"
    try:
        path = write_page(make_report(from_results(finished)), place, overwrite=overwrite)[0]
    except StoreError as error:
        return Page(None, str(error))
    return Page(path, "\n".join([f"Report: {path}", *([] if can_draw() else [INSTALL])]))


def write_report(report: Report, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write the page, the tables, and figures (where matplotlib is installed).

    Args:
        report: What to write.
        out: Where to write it.
        overwrite: Whether files that ancl did not write are replaced.

    Returns:
        The files, the page first.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    written = write_page(report, out, vector=True, overwrite=overwrite)
    try:
        (out / "tables").mkdir(parents=True, exist_ok=True)
        for table in report.tables:
            for ending, render in _FORMATS.items():
                path = out / "tables" / f"{table.name}.{ending}"
                replace_text(path, render(table))
                written.append(path)
    except OSError as error:
        raise unwritable(out, error) from error
    return written


def write_page(
    report: Report, out: Path, *, vector: bool = False, overwrite: bool = False
) -> list[Path]:
    """Write the page and, where matplotlib is installed, the figures.

    Args:
        report: What to write.
        out: Where to write it.
        vector: Whether figures are written as PDF too, which doubles the time.
        overwrite: Whether files that ancl did not write are replaced.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    claim(out, [_PAGE, "tables", "figures"], [_PAGE, STAGES], overwrite=overwrite)
    try:
        out.mkdir(parents=True, exist_ok=True)
        place = out / _PAGE
        replace_text(place, page(report, out))
        drawn = (report.groups, report.sweeps, out / "figures")
        figures = draw(*drawn, vector=vector) if can_draw() else []
    except OSError as error:
        raise unwritable(out, error) from error
    return [place, *figures]


def unwritable(out: Path, error: OSError) -> StoreError:
    """That a report cannot be written, and what to do."""
    return StoreError(
        f"The report cannot be written to {out} ({error.strerror}). Make room, or choose a "
        f"directory that you may write to with --output DIR."
    )
