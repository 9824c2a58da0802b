"""A report as one JSON object: all that the page shows."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from ancl.experiment import spec_yaml
from ancl.metrics import METRICS, Estimate
from ancl.protocol import protocol_differences
from ancl.report.collect import Collected, Damaged, Document
from ancl.report.curves import MOST_POINTS, trainings
from ancl.report.groups import Difference, Group, difference, group_runs
from ancl.report.tables import Table, all_tables, overview, paper_number

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
    """Group what was found."""
    groups, doubles = group_runs(collected.runs)
    return Report(groups, collected.searches, collected.analyses, [*collected.damaged, *doubles])


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
    """Mean, standard error and n; what does not exist is null."""
    return [_short(found.mean), _short(found.error), found.n]


def _difference(found: Difference | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {"estimate": estimate(found.estimate), "unlike": list(found.differing)}


def _grids(searches: Sequence[Document]) -> list[dict[str, Any]]:
    """Every trial of two-stage searches, in the order they were tried."""
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
