"""A study of rules as tables and figures: rules against grids, and accuracy against each rule."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ancl.experiments.results import main_metric
from ancl.experiments.study_rules import RULE_ROWS, RuleMethod, RuleResult, mean_score
from ancl.metrics import METRICS, mean_and_error
from ancl.reporting.figures import file_name
from ancl.reporting.tables import Cell, Number, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SIGNS = {"lamb_a": "λ_a", "answers": "λ, Ω on answers", "weights": "λ, Ω on weights"}
_GAPS = (("balance", "cl"), ("balance", "ancl"), ("both", "cl"), ("both", "ancl"))


def rule_tables(study: RuleResult) -> list[Table]:
    """The tables of a study of rules, from its finished runs."""
    made = [_rows(study), _gaps(study), _tries(study)]
    return [table for table in made if table.rows]


def _rows(study: RuleResult) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for each in study.methods:
        for row, label in RULE_ROWS.items():
            if runs := each.rows.get(row):
                options = runs[0].spec.options
                values = [_text(options.get(key)) for key in ("lamb", "lamb_a")]
                metric = METRICS[main_metric(runs[0].spec)].label
                found = Number(mean_and_error([run.value for run in runs]))
                rows.append((each.method, label, *values, metric, found, str(each.epochs[row])))
    head = ("method", "row", "λ", "λ_a", "metric", "test, %", "epochs")
    notes = (
        "Epochs: of all runs that found the row's values, and of one run with them; nothing "
        "shared, auxiliary networks included. What found the rules themselves is not in it.",
    )
    title = "Rules against grids: mean ± standard error over seeds"
    return Table("rules_rows", title, head, tuple(rows), notes)


def _gaps(study: RuleResult) -> Table:
    rows: list[tuple[Cell, ...]] = []
    means: dict[tuple[str, str], list[float]] = {}
    for each in study.methods:
        cells: list[Cell] = []
        for pair in _GAPS:
            gaps = list(each.gaps(*pair).values())
            cells.append(Number(mean_and_error(gaps), signed=True) if gaps else None)
            if gaps:
                means.setdefault(pair, []).append(float(np.mean(gaps)))
        if any(cells):
            rows.append((each.method, *cells))
    if len(rows) > 1:
        whole = (means.get(pair) for pair in _GAPS)
        cells = [Number(mean_and_error(m), signed=True) if m else None for m in whole]
        rows.append((f"mean of {len(rows)} methods", *cells))
    head = ("method", *(f"{RULE_ROWS[a]} − {RULE_ROWS[b]}" for a, b in _GAPS))
    notes = ("Mean ± standard error over seeds; in the last row over methods.",)
    title = "Differences in the metric that counts, seed by seed, in points"
    return Table("rules_gaps", title, head, tuple(rows), notes)


def _tries(study: RuleResult) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for kind, sign in _SIGNS.items():
        rules = study.plan.rules(kind)
        deciding = [each for each in study.methods if kind in each.tries]
        for each in deciding:
            scores = {rule: _score([each], kind, rule) for rule in rules}
            if any(value is not None for value in scores.values()):
                rows.append((each.method, sign, _scores(scores, study.chosen.get(kind))))
        if kind in study.chosen and len(rules) > 1:
            scores = {rule: _score(deciding, kind, rule) for rule in rules}
            rows.append(("mean", sign, _scores(scores, study.chosen[kind])))
    head = ("method", "rule for", "rule: validation accuracy, %")
    return Table("rules_tries", "What was tried on the search seeds", head, tuple(rows))


def _score(methods: Sequence[RuleMethod], kind: str, rule: str) -> float | None:
    there = all(rule in each.tries.get(kind, {}) for each in methods)
    return mean_score(methods, kind, rule) if there else None


def _scores(scores: dict[str, float | None], chosen: str | None) -> str:
    return ", ".join(
        f"{f'**{rule}**' if rule == chosen else rule}: {100 * score:.2f}"
        for rule, score in scores.items()
        if score is not None
    )


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, int | float) else str(value or "")


# -- figures ---------------------------------------------------------------------------------


def rule_figures(study: RuleResult) -> list[str]:
    """The names of all files that figures of a study of rules may have."""
    return [f"{_name(each, kind)}.png" for each in study.methods for kind in _SIGNS]


def _name(method: RuleMethod, kind: str) -> str:
    return file_name(f"{kind}_{method.benchmark}_{method.method}")


def draw_rules(study: RuleResult, out: Path) -> list[Path]:
    """One figure of every deciding method and kind of rule: accuracy against its number."""
    found: list[Path] = []
    for each in study.methods:
        for kind, sign in _SIGNS.items():
            tried = {_number(rule): runs for rule, runs in each.tries.get(kind, {}).items()}
            points = {x: [r.score for r in runs] for x, runs in tried.items() if x is not None}
            if len(points) > 1:
                figure = _curve(each, kind, sign, points)
                path = out / f"{_name(each, kind)}.png"
                figure.savefig(path, dpi=120, metadata={"Software": None})
                found.append(path)
    return found


def _number(rule: str) -> float | None:
    """What stands behind the colon of a rule."""
    try:
        return float(rule.partition(":")[2])
    except ValueError:
        return None


def _curve(method: RuleMethod, kind: str, sign: str, points: dict[float, list[float]]) -> Figure:
    """Validation accuracy of every seed and their mean, and the grid's best value as a line."""
    from matplotlib.figure import Figure as New

    figure = New(figsize=(5.2, 3.8), layout="constrained")
    axes = figure.subplots()
    x = sorted(points)
    y = 100 * np.array([points[value] for value in x])
    for seed in y.T:
        axes.plot(x, seed, "-", color="0.8", linewidth=1)
    axes.plot(x, y.mean(axis=1), "o-", color="#1f6fd1", label="rule, mean over seeds")
    step = "lamb_a" if kind == "lamb_a" else "lamb"
    grid = method.trials.get(step, {}).get(method.chosen.get(step, np.nan), ())
    if grid:
        best = 100 * float(np.mean([run.score for run in grid]))
        label = f"grid's best, {len(grid)} seeds"
        axes.axhline(best, color="#c8511b", linestyle="--", label=label)
    axes.set_xscale("log")
    axes.set_xlabel(f"the number of the rule for {sign}")
    axes.set_ylabel("validation accuracy, %")
    axes.set_title(f"{method.method} on {method.benchmark}", size=9)
    axes.grid(color="0.9")
    axes.legend(fontsize=8, frameon=False)
    return figure
