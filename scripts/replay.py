"""Replay methods on small images, in tasks and in one pass: the runs of docs/evidence/replay.md.

Run:  python scripts/replay.py --data-root DIR   # in a fixed order; the same command resumes
      python scripts/replay.py --dry-run         # runs to do, and about how long they take
      python scripts/replay.py --tables          # tables from the results alone

Every finished run is a small file in docs/evidence/replay/results. A study file cannot say this
protocol: it has no streams that come once, and no rows of inner steps.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from protocol_runs import (
    ResultFiles,
    Stored,
    best_value,
    carry_out,
    compute,
    matrices,
    parser_of,
    passes,
    publish,
)

import ancl
from ancl.experiments.results import spec_hash
from ancl.metrics import mean_and_error, t_interval
from ancl.recipe.build import equal_epochs

SEARCH_SEEDS, TABLE_SEEDS = (10, 11), (20, 21, 22)
BALANCE = "balance:0.1"
LAMBS, RATES = (0.03, 0.1, 0.3, 1.0), (0.01, 0.03, 0.1)
OFFLINE_IMAGES = [(2000, 1000, 2000)] + [(1000, 500, 1000)] * 3
"""To train, validate and test on in each task of ``cifar100-small/4``."""
EVERY, BATCH = 50, 10
METRICS = {
    "aiac": "AIAC",
    "final_accuracy": "final",
    "forgetting": "forgetting",
    "worst_case": "worst case",
}
WORDS = {"lamb": "λ", "training.lr": "rate"}


@dataclass(frozen=True)
class Row:
    """A row of a table.

    Args:
        method: Its method.
        settings: What differs from the table's settings.
        equal_to: The row whose backward passes it has, by more epochs.
        seconds: About how long a run takes with 200 and with 1,000 images, or in one pass.
    """

    method: str
    settings: Mapping[str, Any]
    seconds: tuple[int, ...]
    equal_to: str = ""


RESERVOIR = {"memory.selection": "reservoir", "memory.batch": 50}
EVERY_BATCH = {"memory.renewed": "batch"}
OFFLINE = {
    "er": Row("er", RESERVOIR, (80, 80)),
    "er-ace": Row("er-ace", RESERVOIR, (80, 80)),
    "dark-er-pp": Row("dark-er-pp", RESERVOIR, (80, 80)),
    "a-dark-er-pp": Row("a-dark-er-pp", {**RESERVOIR, "lamb_a": BALANCE}, (110, 110)),
    "dark-er-pp, equal": Row("dark-er-pp", RESERVOIR, (110, 110), "a-dark-er-pp"),
    "icarl": Row("icarl", {}, (60, 80)),
    "a-icarl": Row("a-icarl", {"lamb_a": BALANCE}, (90, 110)),
    "icarl, equal": Row("icarl", {}, (90, 110), "a-icarl"),
    "bic": Row("bic", {}, (70, 90)),
    "a-bic": Row("a-bic", {"lamb_a": BALANCE}, (100, 120)),
    "bic, equal": Row("bic", {}, (100, 120), "a-bic"),
    "er, every batch": Row("er", {**RESERVOIR, **EVERY_BATCH}, (80, 80)),
    "er-ace, every batch": Row("er-ace", {**RESERVOIR, **EVERY_BATCH}, (80, 80)),
    "dark-er-pp, beta 1": Row("dark-er-pp", {**RESERVOIR, "beta": 1.0}, (80, 80)),
    "gdumb": Row("gdumb", {"memory.selection": "greedy"}, (150, 700)),
}
ONLINE = {
    "er": Row("er", {}, (40,)),
    "er-ace": Row("er-ace", {}, (40,)),
    "dark-er-pp": Row("dark-er-pp", {}, (40,)),
    "a-dark-er-pp": Row("a-dark-er-pp", {"lamb_a": BALANCE, "auxiliary.weight_decay": 0.0}, (65,)),
    "er, two steps": Row("er", {"training.inner": 2}, (65,)),
    "dark-er-pp, two steps": Row("dark-er-pp", {"training.inner": 2}, (65,)),
    "mir": Row("mir", {}, (75,)),
}
TABLES = {"200": OFFLINE, "1000": OFFLINE, "online": ONLINE}
SEARCHED = {
    **{(size, "dark-er-pp"): ("lamb", LAMBS) for size in ("200", "1000")},
    **{("online", name): ("training.lr", RATES) for name in ("er", "er-ace", "dark-er-pp", "mir")},
}
"""What is searched on other seeds, of which method."""
BENCHMARK = "cifar100-small/4"
IN_ONE_PASS: dict[str, Any] = {
    "data.scenario": "cir",
    "data.tasks": 5,
    "data.first": None,
    "data.per_class": None,
    "data.every": EVERY,
    "memory.total": 1000,
    "memory.selection": "reservoir",
    "memory.batch": BATCH,
    "training.batch_size": BATCH,
    "training.epochs": 1,
    "training.epochs_first": None,
    "training.lr_first": None,
    "training.momentum": 0.0,
    "training.weight_decay": 0.0,
    "training.schedule": "constant",
    "training.warmup": 0.0,
}


# -- runs ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Run:
    """One run to do: its table, its row or what it tries, and everything that decides it."""

    table: str
    row: str
    spec: ancl.RunSpec

    @cached_property
    def plain(self) -> dict[str, Any]:
        """The spec as JSON values."""
        return self.spec.plain()

    @cached_property
    def file(self) -> str:
        """The name of its result."""
        mark, row = spec_hash(self.spec)[:8], self.row.replace(", ", "-").replace(" ", "-")
        return f"{self.table}_{row}_s{self.spec.seed}_{mark}.json"


@cache
def make_run(table: str, name: str, seed: int, value: float | None, row: str = "") -> Run:
    """A run of a row with what was chosen, or of a trial with what is tried."""
    of = TABLES[table][name]
    own: dict[str, Any] = {"device": "cpu", "threads": 1}
    own |= IN_ONE_PASS if table == "online" else {"memory.total": int(table)}
    plain = of.method.removeprefix("a-")
    if value is not None:
        own[SEARCHED[table, plain][0]] = value
    if plain in ("icarl", "bic"):
        own["lamb"] = {"icarl": 0.3, "bic": 3.0}[plain]
    own |= of.settings
    if of.equal_to:
        other = make_run(table, of.equal_to, seed, value).spec
        own["training.epochs"] = equal_epochs(other, OFFLINE_IMAGES)
    return Run(table, row or name, ancl.spec(of.method, BENCHMARK, seed=seed, settings=own))


class Results(ResultFiles):
    """Finished runs, and what they decide."""

    def trials(self, table: str, method: str) -> dict[float, list[float]]:
        """Validation accuracies of every value that is tried; failed runs have NaN."""
        return {
            value: self.scores(trial(table, method, seed, value) for seed in SEARCH_SEEDS)
            for value in SEARCHED[table, method][1]
        }

    def chosen(self, table: str, method: str) -> float | None:
        """The best value by validation, the smallest of equals; nothing while runs are missing."""
        return best_value(self.trials(table, method), len(SEARCH_SEEDS))

    def run(self, table: str, name: str, seed: int) -> Run | None:
        """A run of a table; nothing where what it needs is not chosen yet."""
        plain = TABLES[table][name].method.removeprefix("a-")
        value = self.chosen(table, plain) if (table, plain) in SEARCHED else None
        if (table, plain) in SEARCHED and value is None:
            return None
        return make_run(table, name, seed, value)


def trial(table: str, method: str, seed: int, value: float) -> Run:
    """A run that tries a value."""
    return make_run(table, method, seed, value, f"search-{method}")


def steps(results: Results) -> Iterator[tuple[str, list[Run]]]:
    """Runs of one table and seed at a time, the cheapest first; GDumb at the end.

    Whoever asks for the next list has finished the one before.
    """
    for table, rows in TABLES.items():
        searched = {method: grid for (of, method), (_, grid) in SEARCHED.items() if of == table}
        for seed in SEARCH_SEEDS:
            trials = [trial(table, m, seed, v) for m, g in searched.items() for v in g]
            yield f"{table}-s{seed}", trials
        for seed in TABLE_SEEDS:
            runs = [results.run(table, name, seed) for name in rows if name != "gdumb"]
            yield f"{table}-s{seed}", [run for run in runs if run]
    for table in ("200", "1000"):
        for seed in TABLE_SEEDS:
            run = results.run(table, "gdumb", seed)
            yield f"{table}-s{seed}", [run] if run else []


def counted_passes(run: Run, result: ancl.RunResult) -> dict[str, int]:
    """Backward passes of images by network, where an epoch is not one of the task's images."""
    if run.spec.method == "gdumb":  # every task fills the memory
        return {"main": 256 * int(run.table) * len(result.images), "auxiliary": 0}
    per_epoch = []
    for part, (train, _, _) in enumerate(result.images):
        replayed = math.ceil(train / BATCH) * BATCH if part else 0
        per_epoch.append((run.spec.training.inner * (train + replayed), train))
    return passes(result.log, per_epoch)


def carry_out_run(run: Run, work: Path, data_root: str | None) -> Stored:
    """What is stored of a run, after it was carried out."""
    named, online = {"table": run.table, "row": run.row}, run.table == "online"
    images = None if online else OFFLINE_IMAGES
    stored, result = compute(run, work, data_root, named, images)
    if result is None:
        return stored
    if online or run.spec.method == "gdumb":
        stored["passes"] = counted_passes(run, result)
    return {**stored, "matrices": matrices(result, run.spec.accuracy)}


# -- what is left, and tables ----------------------------------------------------------------


def forecast(results: Results) -> None:
    """Print the runs to do and about how long they take on one quiet thread."""
    total = 0.0
    for table, rows in TABLES.items():
        column = 1 if table == "1000" else 0
        left, seconds = 0, 0.0
        searched = {method: grid for (of, method), (_, grid) in SEARCHED.items() if of == table}
        for method, grid in searched.items():
            tried = [trial(table, method, s, v) for s in SEARCH_SEEDS for v in grid]
            todo = [run for run in tried if results.get(run) is None]
            left, seconds = left + len(todo), seconds + len(todo) * rows[method].seconds[column]
        for name, row in rows.items():
            runs = [results.run(table, name, seed) for seed in TABLE_SEEDS]
            todo_runs = [run for run in runs if run is None or results.get(run) is None]
            left, seconds = left + len(todo_runs), seconds + len(todo_runs) * row.seconds[column]
        total += seconds
        print(f"{table:7} {left:3} runs, {seconds / 3600:5.1f} h; {total / 3600:5.1f} h so far")


def finished(results: Results, table: str, name: str) -> dict[int, dict[str, Any]]:
    """What is stored of a row, by seed, without failed runs."""
    runs = {seed: results.run(table, name, seed) for seed in TABLE_SEEDS}
    stored = {seed: results.get(run) for seed, run in runs.items() if run}
    return {seed: result for seed, result in stored.items() if result and not result["failed"]}


def table_text(results: Results, table: str) -> str:
    """A table in Markdown: mean ± standard error over seeds, in points."""
    head = ["row", "λ or rate", *METRICS.values(), "million passes", "minutes", "n"]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for name in TABLES[table]:
        done = finished(results, table, name)
        if not done:
            continue
        plain = TABLES[table][name].method.removeprefix("a-")
        value = results.chosen(table, plain) if (table, plain) in SEARCHED else None
        cells = [name, "" if value is None else f"{value:g}"]
        for metric in METRICS:
            mean, error, _ = mean_and_error([100 * r["metrics"][metric] for r in done.values()])
            cells.append(f"{mean:.1f} ± {error:.1f}" if len(done) > 1 else f"{mean:.1f}")
        cells.append(f"{np.mean([sum(r['passes'].values()) for r in done.values()]) / 1e6:.2f}")
        cells.append(f"{np.mean([r['seconds'] for r in done.values()]) / 60:.1f}")
        lines.append(f"| {' | '.join([*cells, str(len(done))])} |")
    return "\n".join(lines)


def gap_cells(results: Results, table: str, row: str, other: str) -> list[str]:
    """A paired difference of AIAC in points, with its 95 % interval over seeds."""
    ours, theirs = (finished(results, table, name) for name in (row, other))
    seeds = [seed for seed in TABLE_SEEDS if seed in ours and seed in theirs]
    gaps = [100 * (ours[s]["metrics"]["aiac"] - theirs[s]["metrics"]["aiac"]) for s in seeds]
    if len(gaps) < 2:
        return []
    interval = t_interval(gaps)
    span = f"{interval.low:+.2f} to {interval.high:+.2f}"
    return [f"{row} − {other}", f"{np.mean(gaps):+.2f}", span, str(len(gaps))]


def gap_text(results: Results, table: str) -> str:
    """Every `a-` row minus its host, plain and with as much computation, in Markdown."""
    head = ["difference of AIAC, paired by seed", "points", "95 % interval", "n"]
    lines = [f"| {' | '.join(head)} |", "|---|--:|--:|--:|"]
    rows = TABLES[table]
    for name in (name for name in rows if name.startswith("a-")):
        plain = name.removeprefix("a-")
        others = [plain, f"{plain}, equal", f"{plain}, two steps"]
        for cells in (gap_cells(results, table, name, o) for o in others if o in rows):
            lines += [f"| {' | '.join(cells)} |"] if cells else []
    return "\n".join(lines) if len(lines) > 2 else ""


def trial_text(results: Results, table: str) -> str:
    """Validation accuracies of every value that was tried, the mean over the search seeds."""
    lines = []
    for (of, method), (what, _) in SEARCHED.items():
        tried = results.trials(table, method) if of == table else {}
        done = {v: 100 * np.mean(s) for v, s in tried.items() if len(s) == len(SEARCH_SEEDS)}
        if done:
            shown = ", ".join(f"{value:g}: {mean:.1f}" for value, mean in done.items())
            lines.append(f"`{method}`, {WORDS[what]}: {shown}.")
    return "Validation accuracy (AIAC, %) of what was tried. " + " ".join(lines) if lines else ""


def tables(results: Results) -> dict[str, str]:
    """Every table of the page, by its name there."""
    made = {}
    for table in TABLES:
        parts = [make(results, table) for make in (table_text, gap_text, trial_text)]
        done = any(finished(results, table, name) for name in TABLES[table])
        made[f"replay-{table}"] = "\n\n".join(filter(None, parts)) if done else ""
    return made


def main() -> None:
    """Read the command line and do what it says."""
    parser = parser_of(__doc__, "replay")
    given = parser.parse_args()
    results = Results(given.results)
    if given.tables:
        publish("replay", results, tables(results))
    elif given.dry_run:
        forecast(results)
    else:
        computing = partial(carry_out_run, data_root=given.data_root)
        carry_out(results, given.work, steps(results), computing)


if __name__ == "__main__":
    main()
