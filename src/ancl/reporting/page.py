"""A report, its content as one JSON object, and the HTML page that shows it."""

import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ancl.experiments.groups import Difference, Group, Sweep, differences, group_runs, sweeps
from ancl.experiments.results import Damaged, spec_yaml
from ancl.metrics import METRICS, Estimate
from ancl.reporting.collect import Collected, Document
from ancl.reporting.headline import Finding, findings
from ancl.reporting.tables import Table, all_tables, overview
from ancl.wording import LEGEND


@dataclass(frozen=True, eq=False)
class Report:
    """Everything a report shows, before it is drawn."""

    groups: list[Group]
    searches: list[Document]
    analyses: list[Document]
    damaged: list[Damaged]

    @cached_property
    def differences(self) -> dict[Group, Difference]:
        """Every variant minus its host."""
        return differences(self.groups)

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
        own = [group for group in self.groups if group.stream == stream]
        along = [sweep for sweep in self.sweeps if sweep.groups[0] in own]
        return findings(own, self.differences, along)

    @cached_property
    def tables(self) -> list[Table]:
        """The overview, and the tables in the paper's layout."""
        pairs = self.differences
        return [overview(self.groups, pairs), *all_tables(self.groups, pairs, self.searches)]


def make_report(collected: Collected) -> Report:
    """A report from collected results."""
    groups, duplicates = group_runs(collected.runs)
    return Report(groups, collected.searches, collected.analyses, [*collected.damaged, *duplicates])


def content(report: Report, out: Path | None = None) -> dict[str, Any]:
    """The report as JSON, with links to the runs as they are seen from ``out``."""
    places = {group: index for index, group in enumerate(report.groups)}
    points = most_points(report.groups)
    return {
        "version": version("ancl"),
        "findings": {
            stream: [each._asdict() for each in found] for stream, found in report.findings.items()
        },
        "classes": {group.stream: group.class_names() for group in report.groups},
        "groups": [
            {
                **_group(group),
                "trainings": [each._asdict() for each in trainings(group, points)],
                "difference": _difference(report.differences.get(group), places),
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
        "analyses": [{"name": name, **found} for name, found in report.analyses],
        "damaged": [{"name": place.name, "reason": why} for place, why in report.damaged],
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
                "mean": [estimate(each) for each in group.curve(name)],
                "seeds": [_numbers(line) for line in lines],
            }
            for name, lines in curves.items()
        },
        "cells": [[each and estimate(each) for each in row] for row in group.cells()],
        "parameters": group.parameters(),
        "seconds": {name: _short(found.mean) for name, found in group.seconds().items()},
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


def estimate(found: Estimate) -> list[float | None]:
    """Mean, standard error and n; None where there is no value."""
    return [_short(found.mean), _short(found.error), found.n]


def _difference(found: Difference | None, places: Mapping[Group, int]) -> dict[str, Any] | None:
    if found is None:
        return None
    metric = found.group.decisive
    mean, interval, gaps = found.estimate(metric), found.interval(metric), found.gaps(metric)
    return {
        "host": places[found.host],
        "title": found.title,
        "estimate": estimate(mean) if mean else None,
        "interval": _numbers(interval[1:3]) if interval else None,
        "side": interval.side if interval else 0,
        "cells": [[_short(each) for each in row] for row in found.cells()],
        "seeds": list(gaps),
        "gaps": _numbers(gaps.values()),
        "refused": bool(found.pairing.refused),
        "also": found.pairing.text,
    }


def _grids(searches: Sequence[Document]) -> list[dict[str, Any]]:
    """Every trial of two-stage searches, in order."""
    return [
        {
            "name": name,
            **{key: found[key] for key in ("method", "benchmark", "decided_by")},
            "trials": [
                {key: trial[key] for key in ("step", "method", "lamb", "lamb_a", "mean", "chosen")}
                for trial in found["trials"]
            ],
        }
        for name, found in searches
        if found.get("protocol") == "two-stage"
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


def embedded(found: dict[str, Any]) -> str:
    r"""JSON without characters that a browser could read as markup.

    >>> embedded({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(found, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for letter, code in _ESCAPED.items():
        text = text.replace(letter, code)
    return text


def _text(name: str) -> str:
    return (files("ancl.reporting") / "page_files" / name).read_text(encoding="utf-8")


MOST_POINTS = 60
FEWEST_POINTS = 8
MOST_NUMBERS = 400_000
"""Of all trainings together: about 3 MB of a page."""
SPLITS = ("train", "val", "lambs")


class Training(NamedTuple):
    """One training: ``terms["train"]["old"][k]`` at ``epochs[k]``; none if not finite.

    What a rule yielded is ``terms["lambs"]["lamb_a"]``. Terms and learning rates are those of the
    first seed; ``accuracies`` are on validation images, one list per seed.
    """

    task: int
    stage: str
    role: str
    epochs: list[int]
    terms: dict[str, dict[str, list[float | None]]]
    rates: list[float | None]
    accuracies: list[list[float | None]]


Key = tuple[int, str, str]
Records = dict[int, Mapping[str, Any]]


def most_points(groups: Sequence[Group]) -> int:
    """How many epochs of a training are shown, such that the page of many groups stays small."""
    # A point has about 8 numbers of the first seed, and an accuracy of each.
    each = sum(
        len({(r["task"], r["stage"], r["role"]) for r in group.results[0].log})
        * (8 + len(group.seeds))
        for group in groups
    )
    return max(FEWEST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(each, 1)))


def trainings(group: Group, most: int = MOST_POINTS) -> list[Training]:
    """Every training of the group in the order of its first seed, about ``most`` epochs of each."""
    by_seed = [_records(result.log) for result in group.results]
    return [_training(key, [each.get(key, {}) for each in by_seed], most) for key in by_seed[0]]


def _records(log: Sequence[Mapping[str, Any]]) -> dict[Key, Records]:
    """What was logged by training and epoch."""
    found: dict[Key, Records] = {}
    for record in log:
        key = (record["task"], record["stage"], record["role"])
        found.setdefault(key, {})[record["epoch"]] = record
    return found


def _training(key: Key, by_seed: Sequence[Records], most: int) -> Training:
    longest = max(by_seed, key=len)
    every = math.ceil(len(longest) / most)
    # The last epoch is always shown: the training ended there.
    ends = {max(records) for records in by_seed if records}
    shown = sorted({epoch for i, epoch in enumerate(longest) if i % every == 0} | ends)
    first = [by_seed[0].get(epoch, {}) for epoch in shown]
    terms: dict[str, dict[str, list[float | None]]] = {}
    for split in SPLITS:
        found = [record.get(split, {}) for record in first]
        names = dict.fromkeys(name for each in found for name in each)
        terms[split] = {name: [_finite(each.get(name)) for each in found] for name in names}
    accuracies = [
        [_finite(records.get(epoch, {}).get("accuracy")) for epoch in shown] for records in by_seed
    ]
    rates = [_finite(record.get("lr")) for record in first]
    return Training(*key, shown, terms, rates, accuracies)


def _finite(value: object) -> float | None:
    """A number, or None: the log writes numbers that are not finite as text."""
    return float(f"{value:.4g}") if isinstance(value, int | float) else None
