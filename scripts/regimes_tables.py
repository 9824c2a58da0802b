"""Tables and figure of docs/evidence/regimes.md, from results: scripts/regimes.py --tables."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from protocol_runs import show
from regimes import FOLDER, PRIMARY, REGIMES, ROWS, TABLE_SEEDS, WITH_AUXILIARY, Results

import ancl
from ancl.metrics import Interval, main_metric, mean_and_error, t_interval


class Table:
    """The finished runs of a regime's table, by method, row and seed."""

    def __init__(self, name: str, results: Results) -> None:
        self.name, self.regime, self.results = name, REGIMES[name], results
        self.lambs = {method: results.chosen(name, method) for method in self.regime.grids}

    @cached_property
    def runs(self) -> dict[tuple[str, str], dict[int, dict[str, Any]]]:
        """What is stored of every run that did not fail."""
        found: dict[tuple[str, str], dict[int, dict[str, Any]]] = {}
        for method, lamb in self.lambs.items():
            for row in self.regime.rows if lamb is not None else ():
                tasks = [self.results.task(self.name, row, method, s, lamb) for s in TABLE_SEEDS]
                stored = {task.spec.seed: self.results.get(task) for task in tasks}
                done = {seed: r for seed, r in stored.items() if r and not r["failed"]}
                if done:
                    found[method, row] = done
        return found

    def value(self, method: str, row: str, seed: int) -> float | None:
        """AAC or AIAC in points."""
        run = self.runs.get((method, row), {}).get(seed)
        return (
            100 * run["metrics"][main_metric(ancl.RunSpec(**run["spec"]).task_aware)]
            if run
            else None
        )

    def passes(self, method: str, row: str) -> float | None:
        """Backward passes of images, the mean over seeds, as passes of whole networks.

        One of the last stage alone counts as its share of the FLOPs of a whole one, which the ANCL
        row of the same seed has.
        """
        counts = []
        for seed, run in self.runs[method, row].items():
            count = run["passes"]["main"] + run["passes"]["auxiliary"]
            if row == "last":
                whole = self.runs.get((method, "ancl"), {}).get(seed)
                if whole is None:
                    continue
                each = [r["flops"]["auxiliary"] / r["passes"]["auxiliary"] for r in (run, whole)]
                count -= (1 - each[0] / each[1]) * run["passes"]["auxiliary"]
            counts.append(count)
        return float(np.mean(counts)) if counts else None

    def gaps(self, method: str, row: str, other: str) -> dict[int, float]:
        """A row minus another, in points, by seed."""
        pairs = {
            seed: (self.value(method, row, seed), self.value(method, other, seed))
            for seed in TABLE_SEEDS
        }
        return {s: a - b for s, (a, b) in pairs.items() if a is not None and b is not None}

    def mean_gap(self, row: str, other: str) -> Interval | None:
        """The mean over all methods, with the seed and its class order as the unit."""
        gaps = [self.gaps(method, row, other) for method in self.regime.grids]
        seeds = [seed for seed in TABLE_SEEDS if all(seed in each for each in gaps)]
        means = [float(np.mean([each[seed] for each in gaps])) for seed in seeds]
        return t_interval(means) if means else None


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
    yield "\nValidation accuracy of every λ tried, %, seeds 10 and 11:\n"
    for method in table.regime.grids:
        if len(table.regime.grids[method]) > 1:
            tried = table.results.trials(table.name, method)
            texts = [f"{k:g}: {', '.join(f'{100 * s:.2f}' for s in v)}" for k, v in tried.items()]
            yield f"- {method}: {'; '.join(texts)}"


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
    yield "\nDifferences in points, seed by seed, with 95 % intervals:\n"
    yield f"| method | {' | '.join(f'{ROWS[a]} − {ROWS[b]}' for a, b in pairs)} |"
    yield "|---" + "|---:" * len(pairs) + "|"
    for method in table.regime.grids:
        gaps = [list(table.gaps(method, *pair).values()) for pair in pairs]
        shown = [show(t_interval(each) if each else None) for each in gaps]
        yield f"| {method} | {' | '.join(shown)} |"
    yield f"| mean | {' | '.join(show(table.mean_gap(*pair)) for pair in pairs)} |"


def tables(results: Results) -> None:
    """Write tables.md and the figure."""
    found = {name: Table(name, results) for name in REGIMES}
    found = {name: table for name, table in found.items() if table.runs or started(table)}
    primary = Table(PRIMARY, results).mean_gap("ancl", "equal")
    count = len(list(results.folder.glob("*.json")))
    told = f"{show(primary)} points" if primary else "no seed is whole yet"
    lines = [
        "<!-- Written by scripts/regimes.py --tables -->",
        "\n# The map of regimes: tables\n",
        f"{count} runs are finished. The primary number, ANCL − equal-compute CL in {PRIMARY}, "
        f"the mean over four methods: {told}.",
    ]
    for table in found.values():
        lines += table_lines(table)
    (FOLDER / "tables.md").write_text("\n".join(lines) + "\n")
    if any(table.runs for table in found.values()):
        figure(list(found.values()))


def started(table: Table) -> bool:
    """Whether a trial of λ is done."""
    return any(v for m in table.regime.grids for v in table.results.trials(table.name, m).values())


def figure(found: Sequence[Table]) -> None:
    """Differences by regime, and accuracy against backward passes."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    canvas, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    for place, other in ((-0.12, "cl"), (0.12, "equal")):
        color = "C0" if other == "cl" else "C3"
        label: str | None = f"ANCL − {ROWS[other]}"
        for index, table in enumerate(found):
            gap = table.mean_gap("ancl", other)
            if gap is not None:
                reach = 0.0 if gap.n == 1 else gap.high - gap.mean
                left.errorbar(index + place, gap.mean, reach, fmt="o", color=color, label=label)
                label = None
    left.axhline(0, color="grey", linewidth=0.8)
    left.set_xticks(range(len(found)), [table.name for table in found], rotation=20)
    left.set_ylabel("points, mean over methods, 95 % interval")
    if left.get_legend_handles_labels()[0]:
        left.legend()
    markers = {"cl": "o", "ancl": "^", "equal": "s", "third": "v", "last": "D"}
    for index, table in enumerate(found):
        for (method, row), runs in table.runs.items():
            count = table.passes(method, row)
            values = [v for s in runs if (v := table.value(method, row, s)) is not None]
            if count is None:
                continue
            right.plot(count, np.mean(values), markers[row], color=f"C{index}", label=None)
    for row, marker in markers.items():
        right.plot([], [], marker, color="grey", label=ROWS[row])
    for index, table in enumerate(found):
        right.plot([], [], "-", color=f"C{index}", label=table.name)
    right.set_xscale("log")
    right.set_xlabel("backward passes of images, as passes of whole networks")
    right.set_ylabel("AAC or AIAC, %")
    right.legend(fontsize=7)
    canvas.savefig(FOLDER / "regimes.png", dpi=120)
    pyplot.close(canvas)
