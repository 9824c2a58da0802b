"""A report: what it shows, its HTML page, and the tables, figures and page on disk."""

import json
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ancl.errors import SpecError, StoreError, unknown
from ancl.experiments.groups import Group, group_runs
from ancl.experiments.pairing import (
    Difference,
    Sweep,
    baseline_differences,
    differences,
    sweeps,
)
from ancl.experiments.results import Damaged, Finished, spec_yaml
from ancl.files import STAGES, check_place, claim, replace_text, writing
from ancl.hashing import digest
from ancl.metrics import METRICS, Estimate
from ancl.recipe.method_rows import MethodRow
from ancl.reporting.collect import Collected, Document, collect, from_results, searches_on
from ancl.reporting.figures import INSTALL, UNWRITTEN, draw, most_points, trainings
from ancl.reporting.headline import Finding, findings
from ancl.reporting.table_formats import Table, comma_separated, latex, markdown
from ancl.reporting.tables import all_tables, overview
from ancl.runtime import can_draw
from ancl.wording import LEGEND, term_text

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


@dataclass(frozen=True, eq=False)
class Report:
    """Everything a report shows, before it is drawn.

    Args:
        groups: The runs, those together that differ only by seed.
        searches: Searches.
        analyses: Analyses.
        damaged: What is not shown, or only in part.
        baselines: What all differences are taken to, at most one for each stream.
    """

    groups: list[Group]
    searches: list[Document]
    analyses: list[Document]
    damaged: list[Damaged]
    baselines: tuple[Group, ...] = ()

    @cached_property
    def differences(self) -> dict[Group, Difference]:
        """Every variant minus its host."""
        return differences(self.groups, [search.content for search in self.searches])

    @cached_property
    def compared(self) -> dict[Group, Difference]:
        """What tables and the page show: every method minus the baseline, or variants minus hosts.

        Streams without a baseline have variants minus hosts.
        """
        searches = [search.content for search in self.searches]
        streams = {baseline.stream for baseline in self.baselines}
        hosts = {g: pair for g, pair in self.differences.items() if g.stream not in streams}
        return hosts | baseline_differences(self.groups, self.baselines, searches)

    @cached_property
    def sweeps(self) -> list[Sweep]:
        """Groups along λ or λ_a."""
        return sweeps(self.groups, self.differences)

    @cached_property
    def findings(self) -> dict[str, list[Finding]]:
        """What the numbers of each stream say."""
        streams = dict.fromkeys(group.stream for group in self.groups)
        return {stream: self._findings(stream) for stream in streams}

    def _findings(self, stream: str) -> list[Finding]:
        on_stream = [group for group in self.groups if group.stream == stream]
        along = [sweep for sweep in self.sweeps if sweep.groups[0] in on_stream]
        return findings(on_stream, self.differences, along)

    @cached_property
    def tables(self) -> list[Table]:
        """The overview, and the tables in the paper's layout."""
        pairs = self.compared
        return [overview(self.groups, pairs), *all_tables(self.groups, pairs, self.searches)]


def make_report(collected: Collected, baseline: str | None = None) -> Report:
    """A report from collected results.

    Args:
        collected: The results.
        baseline: What differences are taken to, as ``--baseline`` names it; by default what a
            comparison among the results says.

    Raises:
        SpecError: No run is of such a method, or runs with several settings are.
    """
    groups, duplicates = group_runs(collected.runs)
    if baseline is not None:
        baselines = named_baselines(groups, baseline)
    else:
        baseline_paths = {path.resolve() for path in collected.baseline}
        baselines = [
            g for g in groups if any(run.directory.resolve() in baseline_paths for run in g.runs)
        ]
        # Two comparisons on one stream with two baselines name none.
        streams = [group.stream for group in baselines]
        baselines = [group for group in baselines if streams.count(group.stream) == 1]
    damaged = [*collected.damaged, *duplicates]
    return Report(groups, collected.searches, collected.analyses, damaged, tuple(baselines))


def named_baselines(groups: Sequence[Group], text: str) -> list[Group]:
    """The groups that ``lwf`` or ``lwf@lamb=3`` stands for, one for each stream that has it.

    No code of a method is loaded: results of other people's methods are only read.

    Raises:
        SpecError: There is none, or there are several on a stream.
    """
    row = MethodRow.read(text)
    like = [
        group
        for group in groups
        if group.spec.method == row.method
        and all(group.settings.get(key) == value for key, value in row.values.items())
    ]
    several = [g for g in like if sum(other.stream == g.stream for other in like) > 1]
    if several:
        titles = ", ".join(f"{g.title} on {g.stream}" for g in several)
        raise SpecError(
            f"--baseline: {text} stands for {titles}. Add a value, as in {row.method}@lamb=3."
        )
    if not like:
        methods = dict.fromkeys(group.spec.method for group in groups)
        raise SpecError("--baseline: " + unknown("reported method", text, methods))
    return like


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
        shown = content(self.report)
        return {
            "findings": shown["findings"],
            "groups": [{key: group[key] for key in _OVERVIEW} for group in shown["groups"]],
            "damaged": shown["damaged"],
            "files": [str(path) for path in self.files],
        }


def report(
    stored: Sequence[str | Path] | None = None,
    *,
    runs: str | Path = "runs",
    out: str | Path | None = None,
    baseline: str | None = None,
    overwrite: bool = False,
) -> ReportResult:
    """Write tables (Markdown, LaTeX, CSV), figures and one HTML page from stored results.

    Nothing is trained. Figures need matplotlib; without it there are none.

    Args:
        stored: Directories of runs, searches and analyses, or ``runs/comparisons/NAME.json``; the
            default is everything below ``runs``.
        runs: Where results are.
        out: Where the report is written; the default is ``RUNS/report``.
        baseline: The method that all differences are taken to, such as ``lwf`` or ``lwf@lamb=3``;
            by default a comparison's own, and else each variant's host.
        overwrite: Whether files there that are not of an earlier report are replaced.

    Raises:
        SpecError: There is no such baseline.
        StoreError: There is no result, the report cannot be written, or files that ancl did not
            write are in its place.
    """
    directory = check_place(Path(runs) / "report" if out is None else out, "a report")
    paths = [Path(path) for path in stored or [runs]]
    made = make_report(collect(paths), baseline)
    if not (made.groups or made.analyses or made.searches):
        damaged = "".join(f"\n  {directory}: {reason}" for directory, reason in made.damaged)
        raise StoreError(
            f"There is no finished run in {', '.join(map(str, paths))}. Make one, such as ancl "
            f"demo, or say where they are: --runs DIR.{damaged}"
        )
    return ReportResult(made, tuple(write_report(made, directory, overwrite=overwrite)))


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
    baseline: Sequence[Path] = (),
) -> Page:
    """Write the page of finished runs, with its figures as PNG.

    A page that cannot be written is not an error: the results themselves are written.

    Args:
        finished: The runs.
        runs: Where results are.
        place: Where the page is written; the default is the directory of a single run, or one
            below ``runs/comparisons`` for several runs.
        overwrite: Whether files that ancl did not write are replaced.
        baseline: The directories of the runs that differences are taken to.
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
    collected = from_results(finished, baseline)
    if baseline:  # a comparison says who has had a larger search
        collected.searches = searches_on(runs, finished[0].result.spec.stream)
    made = make_report(collected)
    try:
        path = write_page(made, place, overwrite=overwrite)[0]
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
    with writing(out, *UNWRITTEN):
        (out / "tables").mkdir(exist_ok=True)
        for table in report.tables:
            for ending, render in _FORMATS.items():
                path = out / "tables" / f"{table.name}.{ending}"
                replace_text(path, render(table))
                written.append(path)
    return written


def write_page(
    report: Report, out: Path, *, vector: bool = False, overwrite: bool = False
) -> list[Path]:
    """Write the page and, where matplotlib is installed, the figures.

    Args:
        report: What to write.
        out: Where to write it.
        vector: Whether figures are written as PDF and SVG too, which takes more time.
        overwrite: Whether files that ancl did not write are replaced.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    claim(out, [_PAGE, "tables", "figures"], [_PAGE, STAGES], overwrite=overwrite)
    with writing(out, *UNWRITTEN):
        replace_text(out / _PAGE, page(report, out))
        drawn = (report.groups, report.sweeps, out / "figures")
        figures = draw(*drawn, vector=vector) if can_draw() else []
    return [out / _PAGE, *figures]


# -- the page --------------------------------------------------------------------------------


def content(report: Report, out: Path | None = None) -> dict[str, Any]:
    """The report as JSON, with links to the runs as they are seen from ``out``."""
    places = {group: index for index, group in enumerate(report.groups)}
    points = most_points(report.groups)
    return {
        "version": version("ancl"),
        "findings": {
            stream: [item._asdict() for item in items] for stream, items in report.findings.items()
        },
        "baselines": {group.stream: group.title for group in report.baselines},
        "classes": {group.stream: group.class_names() for group in report.groups},
        "groups": [
            {
                **_group(group),
                "trainings": [item._asdict() for item in trainings(group, points)],
                "difference": _difference(report.compared.get(group), places),
                "links": [_link(run.directory, out) for run in group.runs],
            }
            for group in report.groups
        ],
        "sweeps": [
            {
                "setting": sweep.setting,
                "values": list(sweep.values),
                "groups": [places[group] for group in sweep.groups],
            }
            for sweep in report.sweeps
        ],
        "metrics": [
            {"name": m.name, "label": m.label, "formula": m.formula, "unit": m.unit}
            for m in METRICS.values()
        ],
        "legend": LEGEND,
        "grids": _grids(report.searches),
        "analyses": [{"name": name, **analysis} for name, analysis in report.analyses],
        "damaged": [{"name": directory.name, "reason": why} for directory, why in report.damaged],
        "most_points": points,
    }


def _group(group: Group) -> dict[str, Any]:
    known = group.expected(group.decisive)
    curves = group.curves()
    return {
        "stream": group.stream,
        "scenario": group.spec.data.scenario,
        "title": group.title,
        "method": group.spec.method,
        "base": group.base,
        "variant": group.variant,
        "seeds": group.seeds,
        "tasks": group.tasks,
        "decisive": group.decisive,
        "metrics": {name: estimate(group.estimate(name)) for name in METRICS},
        "by_seed": {name: _numbers(group.values(name).values()) for name in _BY_SEED},
        "expected": [known.mean / 100, known.error / 100, known.n, known.table] if known else None,
        "unlike_expected": group.unlike_expected,
        "not_beside": group.obstacles,
        "notes": group.notes,
        "curves": {
            name: {
                "mean": [estimate(point) for point in group.curve(name)],
                "seeds": [_numbers(line) for line in lines],
            }
            for name, lines in curves.items()
        },
        "cells": [[cell and estimate(cell) for cell in row] for row in group.cells()],
        "terms": {t: term_text(group.spec.method, t) for t in ("old", "auxiliary")},
        "parameters": group.parameters(),
        "costs": {stage: cost._asdict() for stage, cost in group.costs().items()},
        "seconds": {name: _short(spent.mean) for name, spent in group.seconds().items()},
        "runs": [run.directory.name for run in group.runs],
        "spec": spec_yaml(group.spec),
        "environment": json.dumps(group.runs[0].environment, indent=1),
    }


_BY_SEED = ("aac", "aiac", "forgetting", "learning_accuracy")


def _numbers(values: Iterable[float]) -> list[float | None]:
    return [_short(value) for value in values]


def _link(directory: Path, out: Path | None) -> str | None:
    """The address of a run's directory as seen from the page."""
    if out is None:
        return None
    try:
        seen = os.path.relpath(directory.resolve(), out.resolve())
    except ValueError:  # another drive
        return None
    return f"./{quote(Path(seen).as_posix())}/"


def estimate(number: Estimate) -> list[float | None]:
    """Mean, standard error and n; None where there is no value."""
    return [_short(number.mean), _short(number.error), number.n]


def _difference(pair: Difference | None, places: Mapping[Group, int]) -> dict[str, Any] | None:
    if pair is None:
        return None
    metric = pair.group.decisive
    mean, interval, gaps = pair.estimate(metric), pair.interval(metric), pair.gaps(metric)
    return {
        "host": places[pair.host],
        "title": pair.title,
        "estimate": estimate(mean) if mean else None,
        "interval": _numbers(interval[1:3]) if interval else None,
        "side": interval.side if interval else 0,
        "cells": [[_short(gap) for gap in row] for row in pair.cells()],
        "seeds": list(gaps),
        "gaps": _numbers(gaps.values()),
        "refused": bool(pair.pairing.refused),
        "also": pair.pairing.text,
    }


def _grids(searches: Sequence[Document]) -> list[dict[str, Any]]:
    """Every trial of two-stage searches, in order."""
    return [
        {
            "name": name,
            **{key: decision[key] for key in ("method", "benchmark", "decided_by")},
            "trials": [
                {key: trial[key] for key in ("step", "method", "lamb", "lamb_a", "mean", "chosen")}
                for trial in decision["trials"]
            ],
        }
        for name, decision in searches
        if decision.get("protocol") == "two-stage"
    ]


def _short(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.6g}")


_SCRIPTS = (
    *("base.js", "save.js", "chart.js", "headline.js", "plane.js", "tables.js", "matrices.js"),
    *("curves.js", "landscape.js", "sections.js"),
)
_ESCAPED = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def page(report: Report, out: Path | None = None) -> str:
    """The whole page. Deterministic.

    Args:
        report: What it shows.
        out: The directory it is for, from which it links to the runs; without one it does not.
    """
    parts = {
        "STYLE": _text("style.css"),
        "DATA": embedded(content(report, out)),
        "SCRIPT": "\n".join(_text(name) for name in _SCRIPTS),
    }
    html = _text("page.html")
    for name, text in parts.items():
        html = html.replace(f"<!--{name}-->", text)
    return html


def embedded(values: dict[str, Any]) -> str:
    r"""JSON without characters that a browser could read as markup.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(values, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, code in _ESCAPED.items():
        text = text.replace(letter, code)
    return text


def _text(name: str) -> str:
    return (files("ancl.reporting") / "page_files" / name).read_text(encoding="utf-8")
