"""Studies on disk: tables, figures and the numbers to expect, from the results of finished runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ancl.errors import counted, printable
from ancl.experiments.grid import best_value
from ancl.experiments.pairing import Conditions, pairing
from ancl.experiments.study import StudyResult
from ancl.experiments.study_plan import GridValue, RowValue
from ancl.experiments.study_results import StudyRun
from ancl.experiments.study_rows import ROWS, RULE_ROWS, MethodResult, scores
from ancl.files import MARK, claim, replace_text, writing
from ancl.methods.registry import MethodRef
from ancl.metrics import METRICS, SEEDS, main_metric, mean_and_error, paired, t_interval
from ancl.reporting.figures import COLOURS, UNWRITTEN, file_name, new_figure, save
from ancl.reporting.table_formats import Cell, Number, Table, latex, markdown
from ancl.runtime import can_draw
from ancl.wording import SIGNS, interval_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RULES = {"lamb_a": "λ_a", "answers": "λ, Ω on answers", "weights": "λ, Ω on weights"}
"""What rules are for."""


def write_study(study: StudyResult, out: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a study's tables, figures (where matplotlib is installed), and the numbers to expect.

    A study of another one's methods has no numbers to expect.

    Args:
        study: What its finished runs say.
        out: Where to write it.
        overwrite: Whether files that ancl did not write are replaced.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    notes = "\n".join(f"- {note}" for note in _notes(study))
    parts = [f"<!-- a study's tables, {MARK} -->\n", *map(markdown, study_tables(study)), notes]
    texts = {"tables.md": "\n".join(parts).rstrip() + "\n"}
    if not study.plan.of:
        texts["expected.csv"] = _expected(study)
        texts["tables.tex"] = "\n".join(
            [f"% a study's tables, {MARK}", *map(latex, _printed(study))]
        )
    claim_study(study, out, overwrite=overwrite)
    with writing(out, *UNWRITTEN):
        for name, text in texts.items():
            replace_text(out / name, text)
        return [*(out / name for name in texts), *(_draw(study, out) if can_draw() else [])]


def claim_study(study: StudyResult, out: Path, *, overwrite: bool = False) -> None:
    """Refuse, as ``StoreError``, to write a study over files that ancl did not write."""
    kinds = ["frontier"] if not study.plan.of else []
    kinds += _RULES if study.plan.rules else []
    names = [f"{_figure_name(kind, method)}.png" for method in study.methods for kind in kinds]
    names += [] if study.plan.of else ["expected.csv", "tables.tex"]
    claim(out, ["tables.md", *names], ["tables.md"], overwrite=overwrite)


def _notes(study: StudyResult) -> Iterator[str]:
    """What is missing and left, equal computation's epochs, failures, time and numerics."""
    yield from study.missing
    if study.left:
        yield f"The study is not complete: {counted(study.left, 'run')} can be run now."
    for method in study.methods:
        if "epochs" in method.chosen:
            yield f"{method.method}: {method.chosen['epochs']:g} epochs at equal computation."
    for run in study.runs:
        if run.failed:
            yield f"{run.spec.method} failed: {printable(run.failed)}"
    hours = sum(run.seconds for run in study.runs) / 3600
    yield f"{counted(len(study.runs), 'run')}: {hours:.1f} h, shared stages in each."
    kinds = {json.dumps(run.numerics, sort_keys=True) for run in study.runs if run.numerics}
    yield from (f"Numerics: `{kind}`" for kind in sorted(kinds))


def _expected(study: StudyResult) -> str:
    """The table's numbers as the package ships them: percent, one line per method and metric."""
    rows = {key: runs for key, runs in study.references.items() if runs[0].spec.method == key[1]}
    for method in study.methods:
        for row, prefix in (("cl", ""), ("ancl", "a-"), ("afec", "afec-")):
            if runs := method.rows.get(row):
                rows[method.benchmark, f"{prefix}{method.method}"] = runs
    lines = ["benchmark,method,lamb,lamb_a,metric,mean,stderr,n"]
    for (benchmark, name), runs in rows.items():
        metric, options = main_metric(runs[0].spec.task_aware), runs[0].spec.options
        values = [options.get(key) for key in SIGNS]
        lambs = [str(value) if isinstance(value, int | float) else "" for value in values]
        mean, error, n = mean_and_error([run.value for run in runs])
        numbers = [f"{100 * mean:.2f}", "" if math.isnan(error) else f"{100 * error:.2f}", str(n)]
        lines.append(",".join([benchmark, name, *lambs, metric, *numbers]))
    return "\n".join(lines) + "\n"


# -- tables ----------------------------------------------------------------------------------


def study_tables(study: StudyResult) -> list[Table]:
    """The tables of a study, from its finished runs."""
    made: list[Table] = []
    if not study.plan.of:
        made += row_tables(study)
        pairs = [(row, "cl") for row in ("ancl", "afec", "equal_search", "equal_compute")]
        made += [_differences("study_differences", study, ROWS, pairs)]
        made += [_fairness(study), _trials(study)]
    if study.plan.rules:
        pairs = [(row, host) for row in ("balance", "both") for host in ("cl", "ancl")]
        notes = ("Mean ± standard error over seeds; in the last row over methods.",)
        made += [_rule_rows(study), _differences("rules_gaps", study, RULE_ROWS, pairs, notes)]
        made += [_rule_trials(study)]
    return [table for table in made if table.rows]


def _rows(study: StudyResult, benchmark: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    names: tuple[str, ...] = ()
    shown: list[tuple[str, str, Sequence[StudyRun]]] = [
        (method, "reference", runs)
        for (where, method), runs in study.references.items()
        if where == benchmark
    ]
    shown += [
        (method_result.method, ROWS[row], method_result.rows[row])
        for method_result in study.methods
        for row in ROWS
        if method_result.benchmark == benchmark and method_result.rows.get(row)
    ]
    costly = all(run.parameters for _, _, runs in shown for run in runs)
    for method, row, runs in shown:
        metric, options = main_metric(runs[0].spec.task_aware), runs[0].spec.options
        final = ("final_accuracy",) if metric == "aiac" else ()
        names = (metric, *final, "learning_accuracy", "forgetting")
        lambs = [f"{v:g}" if isinstance(v := options.get(k), int | float) else "" for k in SIGNS]
        numbers = [Number(mean_and_error([run.metrics[name] for run in runs])) for name in names]
        rows.append((method, row, *lambs, *numbers, *(_costs(runs) if costly else ())))
    units = {"forgetting": "points"}
    labels = [f"{METRICS[name].label}, {units.get(name, '%')}" for name in names]
    name = f"study_{benchmark.replace('/', '-')}"
    head = ("method", "row", *SIGNS.values(), *labels, *(_COSTS if costly else ()))
    titled = shown[0][2][0].spec.stream if shown else benchmark
    title = f"{titled}: test, mean ± standard error over seeds"
    return Table(name, title, head, tuple(rows), (_ABOUT_COSTS,) if costly else ())


def row_tables(study: StudyResult) -> list[Table]:
    """The rows of every benchmark, and their differences to its baseline, if it has one."""
    made: list[Table] = []
    for benchmark, entry in study.plan.benchmarks.items():
        made += [_rows(study, benchmark)]
        made += [_to_baseline(study, benchmark)] if entry.baseline else []
    return [table for table in made if table.rows]


def _printed(study: StudyResult) -> list[Table]:
    """The tables for a paper: all but what was tried."""
    return [table for table in study_tables(study) if not table.name.endswith(("trials", "tries"))]


def _to_baseline(study: StudyResult, benchmark: str) -> Table:
    """Every row minus the baseline, seed by seed, with what else differs."""
    name = study.plan.benchmarks[benchmark].baseline
    base = study.references.get((benchmark, name), ())
    shown = {row: runs for (on, row), runs in study.references.items() if on == benchmark}
    for method in (candidate for candidate in study.methods if candidate.benchmark == benchmark):
        shown |= {f"{method.method}, {ROWS[row]}": method.rows[row] for row in method.rows}
    rows: list[tuple[Cell, ...]] = []
    for row, runs in shown.items():
        if not base or not runs or row == name:
            continue
        pair = pairing(
            _conditions(study, benchmark, row, runs), _conditions(study, benchmark, name, base)
        )
        gaps = paired(*({run.spec.seed: run.value for run in side} for side in (runs, base)))
        gaps = {} if pair.refused else gaps
        interval = t_interval(list(gaps.values()), base[0].test_image) if gaps else None
        texts = (interval_text(interval, mean=False), pair.text)
        rows.append((f"{row} − {name}", _gap(list(gaps.values())), *texts))
    head = ("difference", "points", "95 % interval", "what else differs")
    notes = (
        "Mean ± standard error over seeds; Student's t over seeds, on these test images, at least "
        "one of them each way.",
    )
    title = f"{benchmark}: rows minus {name} in the metric that counts, seed by seed"
    return Table(f"study_minus_{benchmark.replace('/', '-')}", title, head, tuple(rows), notes)


def _conditions(
    study: StudyResult, benchmark: str, row: str, runs: Sequence[StudyRun]
) -> Conditions:
    """What decided a row, with the number of values that were tried for it."""
    spec, size = runs[0].spec, runs[0].parameters[-1] if runs[0].parameters else None
    return Conditions(spec.settings(), runs[0].images, (), size, _tried(study, benchmark, row))


def _tried(study: StudyResult, benchmark: str, row: str) -> int | None:
    """How many values were tried for a row, with those of rows it takes values from."""
    references = study.plan.benchmarks[benchmark].references
    if row not in references or not {"lamb", "lamb_a"} & references[row].keys():
        return None
    above = {value.row for value in references[row].values() if isinstance(value, RowValue)}
    counts = [len(study.trials.get((benchmark, name), ())) for name in (row, *sorted(above))]
    return sum(counts)


_COSTS = ("parameters stored", "images stored", "seconds")
_ABOUT_COSTS = (
    "Parameters: what answers after the last task are computed from. Images: exemplars after the "
    "last task, or all training images where a method learns from those of all tasks. Seconds: by "
    "the clock, the sum over a run's stages, stored ones as long as they took when computed; a "
    "stage that runs share counts in each."
)


def _costs(runs: Sequence[StudyRun]) -> tuple[str, str, str]:
    """What a row stores after the last task, and how long a run of it takes."""
    parameters = sum(run.parameters[-1].stored for run in runs) / len(runs)
    images = runs[0].parameters[-1].images
    if MethodRef(runs[0].spec.method).make(runs[0].spec.options).data == "all":
        images = sum(train for train, _, _ in runs[0].images)
    seconds, error, _ = mean_and_error([run.seconds for run in runs])
    time = f"{seconds:.0f}" + ("" if math.isnan(error) else f" ± {error:.0f}")
    return f"{round(parameters):,}", f"{images:,}", time


def _differences(
    name: str,
    study: StudyResult,
    labels: Mapping[str, str],
    pairs: Sequence[tuple[str, str]],
    notes: tuple[str, ...] = (),
) -> Table:
    """Rows minus rows of every method; with notes on it, the mean over methods too."""
    rows: list[tuple[Cell, ...]] = []
    means: dict[tuple[str, str], list[float]] = {}
    for method in study.methods:
        gaps = {pair: list(method.gaps(*pair).values()) for pair in pairs}
        for pair in (pair for pair in pairs if gaps[pair]):
            means.setdefault(pair, []).append(float(np.mean(gaps[pair])))
        if any(gaps.values()):
            rows.append((method.method, *(_gap(gaps[pair]) for pair in pairs)))
    if notes and len(rows) > 1:
        overall = [_gap(means.get(pair, [])) for pair in pairs]
        rows.append((f"mean of {len(rows)} methods", *overall))
    head = ("method", *(f"{labels[a]} − {labels[b]}" for a, b in pairs))
    title = "Differences in the metric that counts, seed by seed, in points"
    return Table(name, title, head, tuple(rows), notes)


def _gap(values: Sequence[float]) -> Number | None:
    return Number(mean_and_error(values), signed=True) if values else None


def _fairness(study: StudyResult) -> Table:
    """ANCL against CL with as many trials, with as much computation, and on the frontier."""
    adjusted = study.adjusted()
    rows: list[tuple[Cell, ...]] = []
    for method in study.methods:
        search, compute = (
            method.difference("ancl", f"equal_{kind}") for kind in ("search", "compute")
        )
        if search or compute:
            p = adjusted.get(method.method)
            frontier = method.frontier_gaps()
            numbers = [f"{'none' if g is None else f'{100 * g:+.2f}'}" for g in frontier.values()]
            texts = (interval_text(search), "" if p is None else f"{p:.3f}", interval_text(compute))
            rows.append((method.method, *texts, ", ".join(numbers)))
    primary = study.primary()
    if primary:
        count = sum(bool(method.gaps("ancl", "equal_search")) for method in study.methods)
        text = f"mean of {count} of {len(study.methods)} methods"
        alone = "" if primary.n < SEEDS else f"{primary.p:.3f} (one test)"
        rows.append((text, interval_text(primary), alone, "", ""))
    head = (
        *("method", "ANCL − CL, equal search", "p (Holm)", "ANCL − CL, equal compute"),
        "frontier, by search seed",
    )
    notes = (
        "Points, mean [95 % t-interval over seeds, on these test images; at least one test image "
        "each way]. The last row averages methods seed by seed.",
        "Frontier: ANCL's learning accuracy over λ_a > 0 minus CL's over λ at equal forgetting.",
    )
    return Table("study_fairness", "ANCL against CL on equal terms", head, tuple(rows), notes)


def _trials(study: StudyResult) -> Table:
    kinds = {"lamb": "λ", "more": "λ, equal search", "lamb_a": "λ_a", "afec": "λ_a of AFEC"}
    rows: list[tuple[Cell, ...]] = []
    for method in study.methods:
        for kind, label in kinds.items():
            chosen = method.chosen.get("equal_search" if kind == "more" else kind)
            means = {v: _mean_score(runs) for v, runs in method.trials.get(kind, {}).items()}
            if means:
                rows.append((method.method, label, _scores(means, chosen)))
    for (benchmark, name), tried in study.trials.items():
        row = study.plan.benchmarks[benchmark].references[name]
        label = ", ".join(key for key, value in row.items() if isinstance(value, GridValue))
        chosen = best_value(scores(tried)) if (benchmark, name) in study.references else None
        if tried:
            combined = {values: _mean_score(runs) for values, runs in tried.items()}
            rows.append((name, label, _scores(combined, chosen)))
    head = ("method", "searched", "value: validation accuracy, %")
    return Table("study_trials", "What was tried on the search seeds", head, tuple(rows))


def _mean_score(runs: Sequence[StudyRun]) -> float:
    return float(np.mean([run.score for run in runs]))


def _scores(means: Mapping[Any, float], chosen: object) -> str:
    """Every value with its score, the chosen one in bold."""
    texts = {value: _text(value) for value in means}
    return ", ".join(
        f"{f'**{texts[value]}**' if value == chosen else texts[value]}: {100 * mean:.2f}"
        for value, mean in means.items()
    )


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return " and ".join(map(_text, value))
    return f"{value:g}" if isinstance(value, int | float) else str(value or "")


def _rule_rows(study: StudyResult) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for method in study.methods:
        for row, label in RULE_ROWS.items():
            if runs := method.rows.get(row):
                options = runs[0].spec.options
                values = [_text(options.get(key)) for key in SIGNS]
                metric = METRICS[main_metric(runs[0].spec.task_aware)].label
                number = Number(mean_and_error([run.value for run in runs]))
                epochs = str(method.epochs[row])
                rows.append((method.method, label, *values, metric, number, epochs))
    head = ("method", "row", "λ", "λ_a", "metric", "test, %", "epochs")
    notes = (
        "Epochs: of all runs that found the row's values, and of one run with them; nothing "
        "shared, auxiliary networks included. What found the rules themselves is not in it.",
    )
    title = "Rules against grids: mean ± standard error over seeds"
    return Table("rules_rows", title, head, tuple(rows), notes)


def _rule_trials(study: StudyResult) -> Table:
    assert study.plan.rules is not None, "the study has rules"
    rows: list[tuple[Cell, ...]] = []
    for kind, sign in _RULES.items():
        rules, taken = study.plan.rules.of(kind), study.rules.get(kind)
        deciding = [method for method in study.methods if kind in method.tries]
        for method in deciding:
            means = {r: method.rule_score(kind, r) for r in rules if r in method.tries[kind]}
            rows.append((method.method, sign, _scores(means, taken)))
        if taken and len(rules) > 1:
            means = {r: float(np.mean([e.rule_score(kind, r) for e in deciding])) for r in rules}
            rows.append(("mean", sign, _scores(means, taken)))
    head = ("method", "rule for", "rule: validation accuracy, %")
    return Table("rules_tries", "What was tried on the search seeds", head, tuple(rows))


# -- figures ---------------------------------------------------------------------------------


def _figure_name(kind: str, method: MethodResult) -> str:
    """What a figure of a method is called, without an ending."""
    return file_name(f"{kind}_{method.benchmark}_{method.method}")


def _draw(study: StudyResult, out: Path) -> list[Path]:
    """One figure per method: its frontiers; and one per deciding method and kind of rule."""
    paths: list[Path] = []
    for method in study.methods if not study.plan.of else ():
        curves = {
            "CL over λ": method.frontier("lamb", "more"),
            "ANCL over λ_a": method.frontier("lamb_a"),
        }
        if all(curves.values()):
            name = out / _figure_name("frontier", method)
            paths += save(_frontier(method, curves), name, vector=False)
    for method in study.methods:
        for kind in _RULES:
            tried = {_number(rule): runs for rule, runs in method.tries.get(kind, {}).items()}
            points = {x: [r.score for r in runs] for x, runs in tried.items() if x is not None}
            if len(points) > 1:
                name = out / _figure_name(kind, method)
                paths += save(_rule_curve(method, kind, points), name, vector=False)
    return paths


def _frontier(
    method: MethodResult, curves: Mapping[str, Mapping[int, Sequence[tuple[float, float]]]]
) -> Figure:
    """Learning accuracy against forgetting, by search seed."""
    figure = new_figure(5.2, 3.8)
    axes = figure.subplots()
    for (label, by_seed), colour, line in zip(curves.items(), COLOURS, ("--", "-"), strict=False):
        for number, points in enumerate(by_seed.values()):
            x, y = 100 * np.array(sorted(points)).T
            marker, shown = "os^Dv"[number % 5], label if number == 0 else None
            axes.plot(x, y, line, color=colour, marker=marker, markersize=4, label=shown)
    axes.set_xlabel("forgetting, points")
    axes.set_ylabel("learning accuracy, %")
    seeds = ", ".join(str(seed) for seed in curves["CL over λ"])
    lamb = method.chosen["lamb"]
    axes.set_title(f"{method.method} on {method.benchmark}, λ = {lamb:g}, seeds {seeds}", size=9)
    axes.grid(color="0.9")
    axes.legend(fontsize=8, frameon=False)
    return figure


def _number(rule: str) -> float | None:
    """What stands behind the colon of a rule."""
    try:
        return float(rule.partition(":")[2])
    except ValueError:
        return None


def _rule_curve(method: MethodResult, kind: str, points: dict[float, list[float]]) -> Figure:
    """Validation accuracy of every seed and their mean, and the grid's best value as a line."""
    figure = new_figure(5.2, 3.8)
    axes = figure.subplots()
    x = sorted(points)
    y = 100 * np.array([points[value] for value in x])
    for seed in y.T:
        axes.plot(x, seed, "-", color="0.8", linewidth=1)
    axes.plot(x, y.mean(axis=1), "o-", color=COLOURS[0], label="rule, mean over seeds")
    step = "lamb_a" if kind == "lamb_a" else "lamb"
    grid = method.trials.get(step, {}).get(method.chosen.get(step, np.nan), ())
    if grid:
        label = f"grid's best, {len(grid)} seeds"
        axes.axhline(100 * _mean_score(grid), color=COLOURS[1], linestyle="--", label=label)
    axes.set_xscale("log")
    axes.set_xlabel(f"the number of the rule for {_RULES[kind]}")
    axes.set_ylabel("validation accuracy, %")
    axes.set_title(f"{method.method} on {method.benchmark}", size=9)
    axes.grid(color="0.9")
    axes.legend(fontsize=8, frameon=False)
    return figure
