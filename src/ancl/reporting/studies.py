"""Studies on disk: tables, figures and the numbers to expect, from the results of finished runs."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

from ancl.errors import counted, printable
from ancl.experiments.results import main_metric
from ancl.experiments.study import StudyResult
from ancl.experiments.study_rules import RuleResult
from ancl.files import MARK, claim, replace_text
from ancl.metrics import mean_and_error
from ancl.reporting.figures import can_draw, draw_frontiers, frontier_name
from ancl.reporting.formats import markdown
from ancl.reporting.rules import draw_rules, rule_figures, rule_tables
from ancl.reporting.tables import study_tables
from ancl.reporting.write import unwritable


def write_study(
    study: StudyResult | RuleResult, out: Path, *, overwrite: bool = False
) -> list[Path]:
    """Write a study's tables, figures (where matplotlib is installed), and the numbers to expect.

    A study of rules has no numbers to expect.

    Args:
        study: What its finished runs say.
        out: Where to write it.
        overwrite: Whether files that ancl did not write are replaced.

    Raises:
        StoreError: The directory cannot be written, or holds files that ancl did not write.
    """
    tables = study_tables(study) if isinstance(study, StudyResult) else rule_tables(study)
    notes = "\n".join(f"- {note}" for note in _notes(study))
    parts = [f"<!-- a study's tables, {MARK} -->\n", *map(markdown, tables), notes]
    texts = {"tables.md": "\n".join(parts).rstrip() + "\n"}
    if isinstance(study, StudyResult):
        texts["expected.csv"] = _expected(study)
    claim_study(study, out, overwrite=overwrite)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            replace_text(out / name, text)
        return [*(out / name for name in texts), *(_draw(study, out) if can_draw() else [])]
    except OSError as error:
        raise unwritable(out, error) from error


def claim_study(study: StudyResult | RuleResult, out: Path, *, overwrite: bool = False) -> None:
    """Refuse, as ``StoreError``, to write a study over files that ancl did not write."""
    if isinstance(study, RuleResult):
        names = rule_figures(study)
    else:
        names = ["expected.csv", *(f"{frontier_name(each)}.png" for each in study.methods)]
    claim(out, ["tables.md", *names], ["tables.md"], overwrite=overwrite)


def _draw(study: StudyResult | RuleResult, out: Path) -> list[Path]:
    if isinstance(study, RuleResult):
        return draw_rules(study, out)
    return draw_frontiers(study.methods, out)


def _notes(study: StudyResult | RuleResult) -> Iterator[str]:
    """What is missing and left, equal computation's epochs, failures, time and numerics."""
    if isinstance(study, RuleResult):
        yield from study.missing
    if study.left:
        yield f"The study is not complete: {counted(study.left, 'run')} can be run now."
    if isinstance(study, StudyResult):
        for each in study.methods:
            if "epochs" in each.chosen:
                yield f"{each.method}: {each.chosen['epochs']:g} epochs at equal computation."
    for run in study.runs:
        if run.failed:
            yield f"{run.spec.method} failed: {printable(run.failed)}"
    hours = sum(run.seconds for run in study.runs) / 3600
    yield f"{counted(len(study.runs), 'run')}: {hours:.1f} h, shared stages in each."
    kinds = {json.dumps(run.numerics, sort_keys=True) for run in study.runs if run.numerics}
    yield from (f"Numerics: `{kind}`" for kind in sorted(kinds))


def _expected(study: StudyResult) -> str:
    """The table's numbers as the package ships them: percent, one line per method and metric."""
    rows = {key: own for key, own in study.references.items() if own[0].spec.method == key[1]}
    for method in study.methods:
        for row, prefix in (("cl", ""), ("ancl", "a-"), ("afec", "afec-")):
            if runs := method.rows.get(row):
                rows[method.benchmark, f"{prefix}{method.method}"] = runs
    lines = ["benchmark,method,lamb,lamb_a,metric,mean,stderr,n"]
    for (benchmark, name), runs in rows.items():
        metric, options = main_metric(runs[0].spec), runs[0].spec.options
        values = [options.get(key) for key in ("lamb", "lamb_a")]
        lambs = [str(value) if isinstance(value, int | float) else "" for value in values]
        mean, error, n = mean_and_error([run.value for run in runs])
        numbers = [f"{100 * mean:.2f}", "" if math.isnan(error) else f"{100 * error:.2f}", str(n)]
        lines.append(",".join([benchmark, name, *lambs, metric, *numbers]))
    return "\n".join(lines) + "\n"
