"""``ancl results``: finished runs in a table, or every number of them as one tidy table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ancl.cli.flags import RUNS, with_flags
from ancl.errors import SpecError

if TYPE_CHECKING:
    from ancl.experiments.results import Finished


@with_flags
def results(
    stored: list[Path] | None = None,
    *,
    runs: Path = RUNS,
    tidy: bool = False,
    output: Path | None = None,
    overwrite: bool = False,
    as_json: bool = False,
) -> None:
    """Finished runs in a table; with --tidy every number of them in one table, as CSV."""
    from ancl.files import replace_text
    from ancl.reporting.tidy import finished_runs, tidy_csv
    from ancl.reporting.tidy import results as rows_of

    if not tidy:
        if output is not None:
            raise SpecError("--output is for --tidy. Add it, or leave --output out.")
        finished = finished_runs(stored, runs)
        directories = {"runs": [str(run.directory) for run in finished]}
        print(json.dumps(directories) if as_json else runs_text(finished))
        return
    if output is not None and output.exists() and not overwrite:
        raise SpecError(f"{output} is there. Give another name, or --overwrite to replace it.")
    rows = rows_of(stored, runs=runs)
    text = json.dumps(rows) if as_json else tidy_csv(rows)
    if output is None:
        print(text, end="" if not as_json else "\n")
    else:
        output.parent.mkdir(parents=True, exist_ok=True)
        replace_text(output, text)
        print(f"{len(rows)} numbers: {output}")


def runs_text(finished: Sequence[Finished]) -> str:
    """One row per run: its method, its values, and the metrics that count."""
    from ancl.metrics import METRICS, main_metric
    from ancl.wording import percent, table, value_text

    rows = []
    for run in sorted(finished, key=lambda run: run.directory.name):
        spec, metrics = run.result.spec, run.result.metrics
        metric = main_metric(spec.task_aware)
        values = [value_text(spec.options.get(key, "")) for key in ("lamb", "lamb_a")]
        numbers = [percent(metrics[n]) for n in (metric, "forgetting", "learning_accuracy")]
        label = METRICS[metric].label
        rows.append(
            [spec.stream, spec.method, str(spec.seed), *values, label, *numbers, str(run.directory)]
        )
    head = [
        *("benchmark", "method", "seed", "λ", "λ_a", "metric", "%", "forgetting, points"),
        *("learning, %", "directory"),
    ]
    return table(head, rows, "llrrrlrrrl")
