"""A report, its content as one JSON object, and the HTML page that shows it."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import Any, NamedTuple

from ancl.experiments.paper_check import protocol_differences
from ancl.experiments.results import spec_yaml
from ancl.metrics import METRICS, Estimate
from ancl.reporting.collect import Collected, Damaged, Document
from ancl.reporting.groups import Difference, Group, difference, group_runs
from ancl.reporting.tables import Table, all_tables, overview, paper_number

LEGEND = "R[i,j]: accuracy on task j after task i of T; n_j: test images of task j."


@dataclass(frozen=True, eq=False)
class Report:
    """Everything a report shows, before it is drawn."""

    groups: list[Group]
    searches: list[Document]
    analyses: list[Document]
    damaged: list[Damaged]

    @property
    def tables(self) -> list[Table]:
        """The overview, and the tables in the paper's layout."""
        return [overview(self.groups), *all_tables(self.groups, self.searches)]


def make_report(collected: Collected) -> Report:
    """A report from collected results."""
    groups, duplicates = group_runs(collected.runs)
    return Report(groups, collected.searches, collected.analyses, [*collected.damaged, *duplicates])


def content(report: Report) -> dict[str, Any]:
    """The report as JSON."""
    return {
        "version": version("ancl"),
        "groups": [_group(group, report.groups) for group in report.groups],
        "metrics": [
            {"name": m.name, "label": m.label, "formula": m.formula, "unit": m.unit}
            for m in METRICS.values()
        ],
        "legend": LEGEND,
        "grids": _grids(report.searches),
        "analyses": [{"name": name, **found} for name, found in report.analyses],
        "damaged": [{"name": place.name, "reason": why} for place, why in report.damaged],
        "most_points": MOST_POINTS,
    }


def _group(group: Group, groups: Sequence[Group]) -> dict[str, Any]:
    paper = paper_number(group, group.decisive)
    return {
        "stream": group.stream,
        "scenario": group.spec.data.scenario,
        "title": group.title,
        "method": group.spec.method,
        "base": group.base,
        "variant": group.variant,
        "seeds": group.seeds,
        "decisive": group.decisive,
        "metrics": {name: estimate(group.estimate(name)) for name in METRICS},
        "difference": _difference(difference(group, groups)),
        "paper": [paper.mean / 100, paper.error / 100, paper.table] if paper else None,
        "unlike_paper": protocol_differences(group.results) if paper else [],
        "notes": group.notes,
        "phases": [estimate(each) for each in group.phases()],
        "finals": [estimate(each) for each in group.finals()],
        "cells": [[each and estimate(each) for each in row] for row in group.cells()],
        "trainings": [each._asdict() for each in trainings(group)],
        "seconds": {name: _short(found.mean) for name, found in group.seconds().items()},
        "runs": [run.directory.name for run in group.runs],
        "spec": spec_yaml(group.spec),
        "environment": json.dumps(group.runs[0].environment, indent=1),
    }


def estimate(found: Estimate) -> list[float | None]:
    """Mean, standard error and n; None where there is no value."""
    return [_short(found.mean), _short(found.error), found.n]


def _difference(found: Difference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"estimate": estimate(found.estimate), "unlike": list(found.differing)}


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


_SCRIPTS = ("base.js", "chart.js", "tables.js", "curves.js", "landscape.js", "sections.js")
_ESCAPED = {
    "<": "\\u003c",
    ">": "\\u003e",
    "&": "\\u0026",
    "\u2028": "\\u2028",
    "\u2029": "\\u2029",
}


def page(report: Report) -> str:
    """The whole page. Deterministic."""
    parts = {
        "STYLE": _text("style.css"),
        "DATA": embedded(content(report)),
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
SPLITS = ("train", "val", "lambs")


class Training(NamedTuple):
    """One training's terms: ``terms["train"]["old"][k]`` at ``epochs[k]``; none if not finite.

    What a rule yielded is ``terms["lambs"]["lamb_a"]``.
    """

    task: int
    stage: str
    role: str
    epochs: list[int]
    terms: dict[str, dict[str, list[float | None]]]


def trainings(group: Group) -> list[Training]:
    """Every training of the group's first seed, in order."""
    found: dict[tuple[int, str, str], list[Mapping[str, Any]]] = {}
    for record in group.runs[0].result.log:
        key = (record["task"], record["stage"], record["role"])
        found.setdefault(key, []).append(record)
    return [_training(*key, records) for key, records in found.items()]


def _training(task: int, stage: str, role: str, records: Sequence[Mapping[str, Any]]) -> Training:
    step = math.ceil(len(records) / MOST_POINTS)
    # The last epoch is always shown: the training ended there.
    shown = [r for i, r in enumerate(records) if i % step == 0 or i == len(records) - 1]
    terms: dict[str, dict[str, list[float | None]]] = {}
    for split in SPLITS:
        found = [record.get(split, {}) for record in shown]
        names = dict.fromkeys(name for each in found for name in each)
        terms[split] = {name: [_finite(each.get(name)) for each in found] for name in names}
    return Training(task, stage, role, [r["epoch"] for r in shown], terms)


def _finite(value: object) -> float | None:
    """A number, or None: the log writes numbers that are not finite as text."""
    return float(f"{value:.5g}") if isinstance(value, int | float) else None
