"""``ancl study``: a file of searches and tables, carried out and resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ancl.cli.flags import Machines, Results, with_flags
from ancl.errors import SpecError, counted

if TYPE_CHECKING:
    from ancl.experiments.study import Forecast, StudyResult


@with_flags
def study(
    file: Path,
    methods: list[str] | None = None,
    *,
    new: bool = False,
    on: str | None = None,
    tables: bool = False,
    folder: Path | None = None,
    out: Path | None = None,
    data_root: Path | None = None,
    executor: str | None = None,
    workers: str | None = None,
    address: str | None = None,
    log: str | None = None,
    results: Results,
) -> None:
    """Run a study file: searches, then a table of every method. The same command resumes.

    With --new, write a file with comments for the METHODs.
    """
    from ancl.cli.progress import check_log, progress_and_log
    from ancl.experiments.study import Study
    from ancl.reporting.studies import claim_study, write_study

    if new:
        _write_new(file, methods or [], on, results)
        return
    if methods or on is not None:
        raise SpecError(
            "METHOD and --on are for --new; a study file names its own. Leave them out."
        )
    if tables and results.dry_run:
        raise SpecError("--tables trains nothing, and --dry-run draws nothing. Leave out one.")
    place = out or file.parent
    asked = Study(file, folder, overwrite=results.overwrite, root=data_root)
    claim_study(asked.result(), place, overwrite=results.overwrite)
    if results.dry_run:
        check_log(log)
    if tables or results.dry_run:
        for change in asked.changes:
            typer.echo(change, err=True)
    if not tables:
        machines = Machines(executor=executor, workers=workers, address=address, threads="1")
        choice = machines.choose()
        forecast = asked.forecast(data_root)
        text = plan_text(forecast, choice.workers)
        if results.dry_run:
            print(json.dumps(forecast._asdict()) if results.as_json else text)
            return
        with progress_and_log(results.quiet, log) as events:
            events.note(text)
            asked.run(results.places(data_root), choice, events)
    result = asked.result()
    files = [str(path) for path in write_study(result, place, overwrite=results.overwrite)]
    if results.as_json:
        print(json.dumps({**result.json(), "files": files}))
    else:
        print("\n".join([to_text(result), *files]))
    if any(run.failed for run in result.runs):
        from ancl.cli.text import FAILED

        raise typer.Exit(FAILED)


def _write_new(file: Path, methods: list[str], on: str | None, results: Results) -> None:
    from ancl.experiments.study_file import new_study

    new_study(file, methods, on or "digits/5", overwrite=results.overwrite)
    text = f"Wrote {file}. Edit it, then: ancl study {file} --dry-run"
    print(json.dumps({"file": str(file)}) if results.as_json else text)


def plan_text(forecast: Forecast, workers: int) -> str:
    """Runs of each method, and about how long those to do take."""
    from ancl.wording import duration, table

    rows = [[name, str(total), str(todo)] for name, (total, todo) in forecast.runs.items()]
    total, todo = (sum(counts[i] for counts in forecast.runs.values()) for i in (0, 1))
    rows.append(["all", str(total), str(todo)])
    time = duration(forecast.seconds / workers)
    return (
        f"{table(['study', 'runs', 'to do'], rows, 'lrr')}\n"
        f"About {time} with {counted(workers, 'worker')}: an estimate, from a few timed steps; a "
        f"search that ends at the edge of its grid adds runs."
    )


def to_text(result: StudyResult) -> str:
    """What is left and missing, which rules were taken, the rows, and the primary result."""
    from ancl.reporting.studies import row_tables
    from ancl.reporting.table_formats import cell_text, shared_n
    from ancl.wording import interval_text, table

    primary = result.primary()
    lines = [f"{counted(result.left, 'run')} left to do."] if result.left else []
    lines += result.missing
    lines += [f"Taken for {kind}: {rule}" for kind, rule in result.rules.items()]
    if primary:
        lines.append(
            f"ANCL − CL at equal search, mean over methods, points [95 % t-interval over "
            f"{counted(primary.n, 'seed')}, on these test images]: {interval_text(primary)}"
        )
    for shown in row_tables(result) if result.references else ():
        n = shared_n(shown)
        cells = [[cell_text(cell, n) for cell in row] for row in shown.rows]
        align = "".join("r" if right else "l" for right in shown.numeric)
        lines += ["", shown.title, table(shown.head, cells, align)]
    return "\n".join(lines or ["No row of the table is complete yet."])
