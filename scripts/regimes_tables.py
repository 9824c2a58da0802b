"""Tables and figure of docs/evidence/regimes.md, from results: scripts/regimes.py --tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from protocol_runs import Stored, show
from regimes import (
    FRONTIER,
    PRIMARY,
    REGIMES,
    ROWS,
    TABLE_SEEDS,
    TASK_AWARE,
    WITH_AUXILIARY,
    Results,
    steps,
)

import ancl
from ancl.metrics import main_metric, mean_and_error, t_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WORDS = (
    f"AAC, of `{' '.join(TASK_AWARE)}`: the mean accuracy on all tasks after the last one, the "
    "task known. AIAC, of the other methods: the accuracy among all classes so far, the mean over "
    "tasks. ± is the standard error over seeds, brackets hold the 95 % t-interval over seeds. A "
    "chosen λ is bold. Passes are backward passes of images, in whole networks."
)


class Table:
    """The runs of a regime's table, by method, row and seed."""

    def __init__(self, name: str, results: Results) -> None:
        self.name, self.regime, self.results = name, REGIMES[name], results
        self.lambs = {method: results.chosen(name, method) for method in self.regime.grids}

    @cached_property
    def stored(self) -> dict[tuple[str, str], dict[int, Stored]]:
        """What is stored of every run that was made, failed ones too."""
        made: dict[tuple[str, str], dict[int, Stored]] = {}
        for method, lamb in self.lambs.items():
            if lamb is None:
                continue
            for row in self.regime.rows:
                tasks = [self.results.task(self.name, row, method, s, lamb) for s in TABLE_SEEDS]
                by_seed = {task.spec.seed: self.results.get(task) for task in tasks}
                made[method, row] = {seed: stored for seed, stored in by_seed.items() if stored}
        return made

    @cached_property
    def runs(self) -> dict[tuple[str, str], dict[int, Stored]]:
        """What is stored of every run that did not fail."""
        done = {
            key: {seed: stored for seed, stored in by_seed.items() if not stored["failed"]}
            for key, by_seed in self.stored.items()
        }
        return {key: by_seed for key, by_seed in done.items() if by_seed}

    def value(self, method: str, row: str, seed: int) -> float | None:
        """AAC or AIAC in points."""
        run = self.runs.get((method, row), {}).get(seed)
        return (
            100 * run["metrics"][main_metric(ancl.RunSpec(**run["spec"]).task_aware)]
            if run
            else None
        )

    def passes_of(self, method: str, row: str, seed: int) -> float | None:
        """Backward passes of images, as passes of whole networks.

        One of the last stage alone counts as its share of the FLOPs of a whole one, which the ANCL
        row of the same seed has.
        """
        run = self.runs.get((method, row), {}).get(seed)
        if run is None:
            return None
        count: float = run["passes"]["main"] + run["passes"]["auxiliary"]
        if row == "last":
            whole = self.runs.get((method, "ancl"), {}).get(seed)
            if whole is None:
                return None
            costs = [r["flops"]["auxiliary"] / r["passes"]["auxiliary"] for r in (run, whole)]
            count -= (1 - costs[0] / costs[1]) * run["passes"]["auxiliary"]
        return count

    def passes(self, method: str, row: str) -> float | None:
        """The mean of the passes over seeds."""
        counts = [self.passes_of(method, row, seed) for seed in TABLE_SEEDS]
        known = [count for count in counts if count is not None]
        return float(np.mean(known)) if known else None

    def gaps(self, method: str, row: str, other: str) -> dict[int, float]:
        """A row minus another, in points, by seed."""
        pairs = {
            seed: (self.value(method, row, seed), self.value(method, other, seed))
            for seed in TABLE_SEEDS
        }
        return {s: a - b for s, (a, b) in pairs.items() if a is not None and b is not None}

    def mean_gaps(self, row: str, other: str) -> dict[int, float]:
        """The mean over all methods, by seed: a seed and its class order are the unit."""
        gaps = [self.gaps(method, row, other) for method in self.regime.grids]
        seeds = [seed for seed in TABLE_SEEDS if all(seed in of_method for of_method in gaps)]
        return {seed: float(np.mean([of_method[seed] for of_method in gaps])) for seed in seeds}

    def lost(self, *rows: str) -> list[int]:
        """The seeds that a failed run, or a search that failed, keeps from being whole."""
        methods = self.regime.grids
        if any(self.results.given_up(self.name, method) for method in methods):
            return list(TABLE_SEEDS)
        runs = [self.stored.get((method, row), {}) for method in methods for row in rows]
        return [s for s in TABLE_SEEDS if any(s in run and run[s]["failed"] for run in runs)]

    def points(self) -> tuple[list[int], dict[str, tuple[float, float]]]:
        """Mean passes and mean accuracy of the rows, over all methods and the seeds they share."""
        by_row: dict[str, dict[int, tuple[float, float]]] = {}
        for row in self.regime.rows:
            for seed in TABLE_SEEDS:
                pairs = [
                    (self.passes_of(method, row, seed), self.value(method, row, seed))
                    for method in self.regime.grids
                ]
                known = [(a, b) for a, b in pairs if a is not None and b is not None]
                if len(known) == len(pairs):
                    count, accuracy = np.mean(known, axis=0)
                    by_row.setdefault(row, {})[seed] = (float(count), float(accuracy))
        seeds = [s for s in TABLE_SEEDS if all(s in of_row for of_row in by_row.values())]
        if not by_row or not seeds:
            return [], {}
        means = {
            row: np.mean([of_row[seed] for seed in seeds], axis=0) for row, of_row in by_row.items()
        }
        return seeds, {row: (float(mean[0]), float(mean[1])) for row, mean in means.items()}


def on_frontier(points: dict[str, tuple[float, float]]) -> list[str]:
    """The rows of which no other has at least the accuracy with at most the passes."""
    # Means of equal counts may differ in their last bit.
    exact = {row: (round(a, 3), round(b, 9)) for row, (a, b) in points.items()}
    return [
        row
        for row, (count, accuracy) in exact.items()
        if not any(
            other != row and better >= accuracy and cheaper <= count
            for other, (cheaper, better) in exact.items()
        )
    ]


def estimate(values: Sequence[float]) -> str:
    """Mean ± standard error."""
    mean, error, n = mean_and_error(values)
    return f"{mean:.2f} ± {error:.2f} (n={n})" if n > 1 else f"{mean:.2f} (n=1)"


def table_lines(table: Table) -> Iterator[str]:
    """The rows, the differences and the searches of a regime."""
    yield f"\n## {table.name}\n"
    if table.runs:
        yield from row_lines(table)
        yield from gap_lines(table)
        if table.name == FRONTIER:
            yield from frontier_lines(table)
    yield "\nValidation accuracy of every λ tried, %, seeds 10 and 11:\n"
    for method, grid in table.regime.grids.items():
        if len(grid) > 1:
            yield f"- {method}: {trial_text(table, method)}"


def trial_text(table: Table, method: str) -> str:
    """Validation accuracies of every value that was tried, with the chosen one bold."""
    texts = []
    for value, scores in table.results.trials(table.name, method).items():
        name = f"**{value:g}**" if value == table.lambs[method] else f"{value:g}"
        told = ["failed" if np.isnan(score) else f"{100 * score:.2f}" for score in scores]
        texts.append(f"{name}: {', '.join(told) or 'not run yet'}")
    lost = table.results.given_up(table.name, method)
    return "; ".join(texts) + (". No λ is left, so its rows are not run" if lost else "")


def row_lines(table: Table) -> Iterator[str]:
    """Accuracy, forgetting and passes of every row."""
    names = ("AAC or AIAC, %", "learning accuracy, %", "forgetting, points", "passes")
    yield f"| method | row | λ | {' | '.join(names)} |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for (method, row), runs in table.runs.items():
        main = [v for s in runs if (v := table.value(method, row, s)) is not None]
        learned, forgotten = (
            estimate([100 * run["metrics"][key] for run in runs.values()])
            for key in ("learning_accuracy", "forgetting")
        )
        count = table.passes(method, row)
        cells = (method, ROWS[row], f"{table.lambs[method]:g}", estimate(main), learned, forgotten)
        yield f"| {' | '.join(cells)} | {'–' if count is None else f'{count:,.0f}'} |"


def gap_lines(table: Table) -> Iterator[str]:
    """Rows with an auxiliary network minus rows without."""
    others = [r for r in table.regime.rows if r not in WITH_AUXILIARY]
    ours = [r for r in table.regime.rows if r in WITH_AUXILIARY]
    pairs = [(row, other) for row in ours for other in others]
    yield "\nDifferences in points, seed by seed:\n"
    yield f"| method | {' | '.join(f'{ROWS[a]} − {ROWS[b]}' for a, b in pairs)} |"
    yield "|---" + "|---:" * len(pairs) + "|"
    for method in table.regime.grids:
        gaps = [list(table.gaps(method, *pair).values()) for pair in pairs]
        shown = [show(t_interval(values) if values else None) for values in gaps]
        yield f"| {method} | {' | '.join(shown)} |"
    means = [list(table.mean_gaps(*pair).values()) for pair in pairs]
    shown = [show(t_interval(values) if values else None) for values in means]
    yield f"| mean | {' | '.join(shown)} |"
    yield "\nThe mean over methods:\n"
    for a, b in pairs:
        yield f"- {ROWS[a]} − {ROWS[b]}: {mean_text(table, a, b)}"


def mean_text(table: Table, row: str, other: str) -> str:
    """The mean difference over methods, its seeds, and whether it is the result."""
    gaps = table.mean_gaps(row, other)
    if not gaps:
        if len(table.lost(row, other)) == len(TABLE_SEEDS):
            return "no seed can become whole, since runs of every seed failed."
        return "no seed is whole yet."
    told = ", ".join(f"{gap:+.2f} (seed {seed})" for seed, gap in gaps.items())
    text = f"{show(t_interval([*gaps.values()]))} points; {told}."
    if len(gaps) == len(TABLE_SEEDS):
        return text
    return f"{text} These are {len(gaps)} of {len(TABLE_SEEDS)} seeds: not the result."


def frontier_lines(table: Table) -> Iterator[str]:
    """Accuracy against passes, the mean over methods, and which rows are on the frontier."""
    seeds, points = table.points()
    if not points:
        return
    yield f"\nThe mean over all methods and seeds {', '.join(map(str, seeds))}. A row is on the "
    yield "frontier if no other row has at least its accuracy with at most its passes.\n"
    yield "| row | AAC or AIAC, % | passes | on the frontier |"
    yield "|---|---:|---:|---|"
    best = on_frontier(points)
    for row, (count, accuracy) in points.items():
        yield f"| {ROWS[row]} | {accuracy:.2f} | {count:,.0f} | {'yes' if row in best else 'no'} |"
    missing = [ROWS[row] for row in table.regime.rows if row not in points]
    if missing or len(seeds) < len(TABLE_SEEDS):
        names = f", without the rows {'; '.join(missing)}" if missing else ""
        yield f"\nThese are {len(seeds)} of {len(TABLE_SEEDS)} seeds{names}: not the result."


def count_lines(results: Results) -> Iterator[str]:
    """How many runs are finished, which failed, and which files are of no run."""
    tasks = {task.file: task for _, step in steps(results) for task in step}
    stored = {name: run for name, task in tasks.items() if (run := results.get(task))}
    failed = {name: run["failed"] for name, run in stored.items() if run["failed"]}
    yield f"{len(stored) - len(failed)} runs are finished."
    if failed:
        yield f"\nRuns that failed, and are left out ({len(failed)}):\n"
        yield from (f"- `{name}`: {' '.join(why.split())}" for name, why in failed.items())
    others = sorted({file.name for file in results.folder.glob("*.json")} - set(tasks))
    if others:
        yield f"\nFiles that belong to no run of the protocol, not counted ({len(others)}):\n"
        yield from (f"- `{name}`" for name in others)


def tables(results: Results) -> None:
    """Write tables.md and the figure beside the folder of the results."""
    place = results.folder.resolve().parent
    all_tables = [Table(name, results) for name in REGIMES]
    begun = [table for table in all_tables if table.runs or started(table)]
    primary = next(table for table in all_tables if table.name == PRIMARY)
    lines = [
        "<!-- Written by scripts/regimes.py --tables -->",
        "\n# The map of regimes: tables\n",
        *count_lines(results),
        f"\nThe primary number, ANCL − equal-compute CL in {PRIMARY}, the mean over four methods: "
        f"{mean_text(primary, 'ancl', 'equal')}",
        f"\n{WORDS}",
    ]
    if any(table.runs for table in begun):
        save(figure(begun), place / "regimes.png")
        lines.append("\n![Differences by regime, and accuracy against passes](regimes.png)")
    for table in begun:
        lines += table_lines(table)
    (place / "tables.md").write_text("\n".join(lines) + "\n")


def started(table: Table) -> bool:
    """Whether a trial of λ is done."""
    return any(
        values
        for method in table.regime.grids
        for values in table.results.trials(table.name, method).values()
    )


# -- the figure ------------------------------------------------------------------------------


def save(canvas: Figure, file: Path) -> None:
    """Write a figure, and let its memory go."""
    from matplotlib import pyplot

    canvas.savefig(file, dpi=120)
    pyplot.close(canvas)


def figure(tables: Sequence[Table]) -> Figure:
    """Differences by regime, and accuracy against backward passes; legends are below both."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, (left, right) = pyplot.subplots(1, 2, figsize=(12, 6), layout="constrained")
    draw_gaps(left, [table for table in tables if table.runs])
    draw_passes(right, tables)
    gaps, passes = (axes.get_legend_handles_labels() for axes in (left, right))
    if gaps[0]:
        canvas.legend(*gaps, loc="outside lower left", fontsize=8)
    if passes[0]:
        canvas.legend(*passes, loc="outside lower right", fontsize=8, ncols=3)
    return canvas


def draw_gaps(axes: Axes, tables: Sequence[Table]) -> None:
    """The mean difference over methods of every regime, with its interval."""
    counts: dict[str, set[int]] = {table.name: set() for table in tables}
    for place, other, color in ((-0.12, "cl", "C0"), (0.12, "equal", "C3")):
        label = f"ANCL − {ROWS[other]}; 95 % interval where n ≥ 2"
        for index, table in enumerate(tables):
            gaps = [*table.mean_gaps("ancl", other).values()]
            if not gaps:
                continue
            gap = t_interval(gaps)
            reach = gap.high - gap.mean if gap.n > 1 else None
            axes.errorbar(index + place, gap.mean, reach, fmt="o", color=color, label=label)
            label = "_"  # one line in the legend
            counts[table.name].add(gap.n)
    if not any(counts.values()):
        say_nothing_finished(axes, "No seed is whole yet.")
        return
    axes.axhline(0, color="grey", linewidth=0.8)
    names = [f"{k}\nn = {' and '.join(map(str, sorted(n))) or '0'}" for k, n in counts.items()]
    axes.set_xticks(range(len(names)), names, rotation=0 if len(names) < 5 else 20)
    axes.set_xlim(-1, len(names))
    axes.set_ylabel("points, mean over methods")


MARKERS = {"cl": "o", "ancl": "^", "equal": "s", "third": "v", "last": "D"}
LINES: tuple[Any, ...] = ("-", "--", ":", "-.", (0, (6, 2, 1, 2, 1, 2)), (0, (1, 4)))


def draw_passes(axes: Axes, tables: Sequence[Table]) -> None:
    """Accuracy against passes: a colour is a method, a marker a row, a line a regime."""
    import matplotlib

    pairs = [matplotlib.colormaps["tab20"](index) for index in range(20)]
    palette = pairs[::2] + pairs[1::2]  # the light ones last
    methods = sorted({method for table in tables for method, _ in table.runs})
    colors = dict(zip(methods, palette, strict=False))
    rows, regimes, drawn = set(), {}, set()
    for table, line in zip(tables, LINES, strict=False):
        for method in table.regime.grids:
            points = {}
            for row in table.regime.rows:
                runs, count = table.runs.get((method, row), {}), table.passes(method, row)
                values = [v for s in runs if (v := table.value(method, row, s)) is not None]
                if count is not None and values:
                    points[row] = (count, float(np.mean(values)))
            if points:
                xs, ys = zip(*sorted(points.values()), strict=True)
                axes.plot(xs, ys, linestyle=line, color=colors[method], linewidth=0.8)
            for row, (count, accuracy) in points.items():
                axes.plot(count, accuracy, MARKERS[row], color=colors[method])
                rows.add(row)
                regimes[table.name] = line
                drawn.add(method)
    if not drawn:
        say_nothing_finished(axes, "No run of a table is finished.")
        return
    for method in (name for name in methods if name in drawn):
        axes.plot([], [], "-", linewidth=4, color=colors[method], label=method)
    for row in (row for row in MARKERS if row in rows):
        axes.plot([], [], MARKERS[row], color="grey", label=ROWS[row])
    for name, line in regimes.items():
        axes.plot([], [], linestyle=line, color="grey", label=name)
    axes.set_xscale("log")
    axes.set_xlabel("backward passes of images, as passes of whole networks")
    axes.set_ylabel("AAC or AIAC, %, mean over seeds")


def say_nothing_finished(axes: Axes, text: str) -> None:
    """In place of an empty box."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
