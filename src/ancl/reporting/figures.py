"""The paper's figures from stored results, as PNG and PDF. Deterministic."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ancl.experiments.groups import Group
from ancl.experiments.pairing import Sweep
from ancl.metrics import learned_after
from ancl.wording import term_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL = "Figures need matplotlib: pip install 'ancl[report]', then ancl report draws them."
UNWRITTEN = (
    "The report",
    "Make room, or choose a directory that you may write to with --output DIR.",
)
"""What cannot be written, and what to do."""
COLOURS = ("#1f6fd1", "#c8511b", "#0f8a66", "#8c4bb8", "#a87700", "#c22f57", "#4a7d1f", "#5b6472")
_LINES = {"CL": "--", "AFEC": ":", "ANCL": "-"}
_MARKERS = {"CL": "o", "AFEC": "s", "ANCL": "^"}
_PLANE = ("forgetting", "learning_accuracy")
_MOST_LINES = 12
_PANELS = 4
_MOST_PANELS = 12


def draw(
    groups: Sequence[Group], sweeps: Sequence[Sweep], directory: Path, *, vector: bool
) -> list[Path]:
    """Draw every figure of every stream into a directory: PNG, and with ``vector`` SVG and PDF."""
    import matplotlib as mpl

    paths: list[Path] = []
    settings: dict[Any, Any] = {"pdf.fonttype": 42, "font.size": 9, "axes.axisbelow": True}
    # The names of parts in an SVG are random without a salt; its text stays text.
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "ancl"}
    with mpl.rc_context(settings):
        for stream in dict.fromkeys(group.stream for group in groups):
            on_stream = [group for group in groups if group.stream == stream]
            along = [sweep for sweep in sweeps if sweep.groups[0] in on_stream]
            drawn = {
                "plane": _plane(on_stream, along),
                "phases": _lines(on_stream, "phases", "after task", "all tasks so far"),
                "final": _lines(on_stream, "finals", "task", "each task, at the end"),
                "matrices": _matrices(on_stream),
                "terms": _terms(on_stream),
                "time": _time(on_stream),
            }
            for name, figure in drawn.items():
                if figure:
                    paths += save(figure, directory / f"{file_name(stream)}_{name}", vector)
    return paths


def file_name(text: str) -> str:
    """A name without characters that are special to file systems and shells.

    >>> file_name("digits/5 (scenario=cil)")
    'digits-5_scenario_cil'
    """
    safe = "".join(c if c.isalnum() or c in "-." else "-" if c == "/" else " " for c in text)
    return "_".join(safe.split())


def save(figure: Figure, path: Path, vector: bool) -> list[Path]:
    """Write a figure as PNG, with ``vector`` as SVG and PDF too; the path has no ending."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image, pdf, svg = (path.parent / f"{path.name}.{end}" for end in ("png", "pdf", "svg"))
    figure.savefig(image, dpi=120, metadata={"Software": None})
    if not vector:
        return [image]
    figure.set_layout_engine("none")  # the layout is known by now; this halves the time
    figure.savefig(pdf, metadata={"CreationDate": None, "Creator": None, "Producer": None})
    figure.savefig(svg, metadata={"Date": None, "Creator": None})
    return [image, pdf, svg]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    from matplotlib.figure import Figure as New

    return New(figsize=(width, height), layout="constrained")


def _styles(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """One colour per base method, one line style per variant; else one colour per group."""
    kinds = [(group.base, group.variant) for group in groups]
    bases = list(dict.fromkeys(group.base for group in groups))
    unique = len(set(kinds)) == len(kinds)
    return [
        (COLOURS[(bases.index(g.base) if unique else i) % len(COLOURS)], _LINES[g.variant])
        for i, g in enumerate(groups)
    ]


def _lines(groups: Sequence[Group], curve: str, xlabel: str, what: str) -> Figure:
    """One line per group with a band of one standard error."""
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    values = [group.curve(curve) for group in groups]
    for group, estimates, (colour, line) in zip(groups, values, _styles(groups), strict=True):
        x = np.arange(1, len(estimates) + 1)
        mean = 100 * np.array([estimate.mean for estimate in estimates])
        error = 100 * np.nan_to_num([estimate.error for estimate in estimates])
        axes.plot(x, mean, line, color=colour, marker="o", markersize=3, label=group.title)
        axes.fill_between(x, mean - error, mean + error, color=colour, alpha=0.15, linewidth=0)
    axes.set_xticks(np.arange(1, max(map(len, values)) + 1))
    axes.set_xlabel(xlabel)
    axes.set_ylabel("test accuracy, %")
    axes.set_title(f"{groups[0].stream}: accuracy on {what}, {_seeds_text(groups)}", size=9)
    axes.grid(color="0.9")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def _plane(groups: Sequence[Group], sweeps: Sequence[Sweep] = ()) -> Figure | None:
    """Learning accuracy against forgetting: small dots are seeds, large ones their means.

    On a dotted line AAC is the same, where every task is at its best when it is new. A thin line
    joins the means along λ or λ_a.
    """
    tasks = groups[0].tasks
    if tasks < 2:
        return None
    figure = new_figure(6.4, 4.4)
    axes = figure.subplots()
    styles = dict(zip(groups, _styles(groups), strict=True))
    for sweep in sweeps:
        means = [[100 * g.estimate(m).mean for g in sweep.groups] for m in _PLANE]
        axes.plot(*means, color=styles[sweep.groups[-1]][0], linewidth=0.8, zorder=1)
    for group, (colour, _) in styles.items():
        estimates = [group.estimate(metric) for metric in _PLANE]
        x, y = (100 * estimate.mean for estimate in estimates)
        errors = [100 * estimate.error for estimate in estimates]
        seeds = [[100 * run.metrics[metric] for run in group.results] for metric in _PLANE]
        marker = _MARKERS[group.variant]
        axes.plot(*seeds, marker, color=colour, markersize=3, alpha=0.5)
        xerr, yerr = (None if np.isnan(error) else error for error in errors)
        axes.errorbar(x, y, yerr, xerr, marker, color=colour, markersize=8, label=group.title)
    _equal_accuracy(axes, (tasks - 1) / tasks)
    axes.set_xlabel("forgetting, points (left: stable)")
    axes.set_ylabel("learning accuracy, % (up: plastic)")
    axes.set_title(
        f"{groups[0].stream}: learning and forgetting, {_seeds_text(groups)}", size=9, wrap=True
    )
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return figure


def _equal_accuracy(axes: Axes, slope: float) -> None:
    """Dotted lines of equal AAC = learning accuracy - slope * forgetting, within the limits."""
    (left, right), (low, high) = axes.get_xlim(), axes.get_ylim()
    lowest, highest = low - slope * right, high - slope * left
    step = next(s for s in (1, 2, 5, 10, 20) if (highest - lowest) / s <= _MOST_LINES or s == 20)
    for value in range(int(np.ceil(lowest / step)) * step, int(highest) + 1, step):
        ends = np.array([left, right])
        axes.plot(ends, value + slope * ends, ":", color="0.75", linewidth=0.8, zorder=0)
        at = min(right, (high - value) / slope)
        # No room for the text in the corners.
        if at > left + 0.1 * (right - left) and value + slope * at > low:
            axes.annotate(
                f"AAC {value} %",
                (at, value + slope * at),
                (-3, -3),
                textcoords="offset points",
                ha="right",
                va="top",
                size=7,
                color="0.5",
            )
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)


def _seeds_text(groups: Sequence[Group]) -> str:
    counts = sorted({len(group.runs) for group in groups})
    n = " to ".join(str(count) for count in dict.fromkeys((counts[0], counts[-1])))
    return f"mean ± standard error, n = {n}"


def _panels(count: int, size: float) -> tuple[Figure, list[Axes]]:
    columns = min(count, _PANELS)
    rows = -(-count // columns)
    figure = new_figure(size * columns, size * rows)
    axes: list[Axes] = list(np.atleast_1d(figure.subplots(rows, columns)).ravel())
    for unused in axes[count:]:
        unused.set_axis_off()
    return figure, axes


def _matrices(groups: Sequence[Group]) -> Figure:
    """One heat map per group: rows are tasks learned, columns are tasks tested."""
    shown = groups[:_MOST_PANELS]
    figure, axes = _panels(len(shown), 2.5)
    for panel, group in zip(axes, shown, strict=False):
        matrix = 100 * np.mean(group.matrices, axis=0)
        image = panel.imshow(matrix, vmin=0, vmax=100, cmap="viridis")
        panel.set_title(group.title, size=8)
        rows, columns = ([0, count - 1] for count in matrix.shape)
        begins = learned_after(group.matrices[0])
        panel.set_xticks(columns, [str(begins[end] + 1) for end in columns])
        panel.set_yticks(rows, [str(end + 1) for end in rows])
    axes[0].set_xlabel("on task")
    axes[0].set_ylabel("after task")
    figure.colorbar(image, ax=axes, shrink=0.7, label="test accuracy, %")
    return figure


def _terms(groups: Sequence[Group]) -> Figure | None:
    """Loss terms of the main network over epochs in the second task, first seed."""
    by_group = {group: _main(trainings(group)) for group in groups}
    shown = [(group, main) for group, main in by_group.items() if main][:_MOST_PANELS]
    if not shown:
        return None
    figure, axes = _panels(len(shown), 2.6)
    names = dict.fromkeys(name for _, main in shown for name in main.terms["train"])
    colours = dict(zip(names, COLOURS, strict=False))
    for panel, (group, training) in zip(axes, shown, strict=False):
        for name, values in training.terms["train"].items():
            finite = [np.nan if value is None else value for value in values]
            label = term_text(group.spec.method, name)
            panel.plot(np.array(training.epochs) + 1, finite, color=colours.get(name), label=label)
        panel.set_title(f"{group.title}, task {training.task + 1}", size=8)
        panel.set_xlabel("epoch", size=8)
        panel.locator_params(nbins=4)
        panel.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("loss term (training)")
    return figure


def _main(all_trainings: Sequence[TrainingCurve]) -> TrainingCurve | None:
    main = [training for training in all_trainings if training.role == "main"]
    return main[min(1, len(main) - 1)] if main else None


def _time(groups: Sequence[Group]) -> Figure:
    """Seconds of one run by stage, stacked."""
    spent = [group.seconds() for group in groups]
    names = list(
        dict.fromkeys(name for seconds in sorted(spent, key=len, reverse=True) for name in seconds)
    )
    figure = new_figure(6.4, 1.2 + 0.28 * len(groups))
    axes = figure.subplots()
    left = np.zeros(len(groups))
    for index, name in enumerate(names):
        width = np.array([seconds[name].mean if name in seconds else 0.0 for seconds in spent])
        colour = COLOURS[index % len(COLOURS)]
        axes.barh([group.title for group in groups], width, left=left, color=colour, label=name)
        left += width
    axes.invert_yaxis()
    axes.set_xlabel("seconds of one run, nothing shared")
    figure.legend(loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    return figure


# -- trainings, which figures and the page show ----------------------------------------------

MOST_POINTS = 60
FEWEST_POINTS = 8
MOST_NUMBERS = 400_000
"""Of all trainings together: about 3 MB of a page."""
SPLITS = ("train", "val", "lambs")


class TrainingCurve(NamedTuple):
    """One training: ``terms["train"]["old"][k]`` at ``epochs[k]``; none if not finite.

    What a rule yielded is ``terms["lambs"]["lamb_a"]``. Terms and learning rates are those of the
    first seed; ``accuracies`` are on validation images, one list per seed.
    """

    task: int
    stage: str
    role: str
    epochs: list[int]
    terms: dict[str, dict[str, list[float | None]]]
    rates: list[float | None]
    accuracies: list[list[float | None]]


Key = tuple[int, str, str]
Records = dict[int, Mapping[str, Any]]


def most_points(groups: Sequence[Group]) -> int:
    """How many epochs of a training are shown, such that the page of many groups stays small."""
    # A point has about 8 numbers of the first seed, and an accuracy of each.
    numbers = sum(
        len({(r["task"], r["stage"], r["role"]) for r in group.results[0].log})
        * (8 + len(group.seeds))
        for group in groups
    )
    return max(FEWEST_POINTS, min(MOST_POINTS, MOST_NUMBERS // max(numbers, 1)))


def trainings(group: Group, most: int = MOST_POINTS) -> list[TrainingCurve]:
    """Every training of the group in the order of its first seed, about ``most`` epochs of each."""
    by_seed = [_records(result.log) for result in group.results]
    return [_training(key, [seed.get(key, {}) for seed in by_seed], most) for key in by_seed[0]]


def _records(log: Sequence[Mapping[str, Any]]) -> dict[Key, Records]:
    """What was logged by training and epoch."""
    by_training: dict[Key, Records] = {}
    for record in log:
        key = (record["task"], record["stage"], record["role"])
        by_training.setdefault(key, {})[record["epoch"]] = record
    return by_training


def _training(key: Key, by_seed: Sequence[Records], most: int) -> TrainingCurve:
    longest = max(by_seed, key=len)
    every = math.ceil(len(longest) / most)
    # The last epoch is always shown: the training ended there.
    ends = {max(records) for records in by_seed if records}
    shown = sorted({epoch for i, epoch in enumerate(longest) if i % every == 0} | ends)
    first = [by_seed[0].get(epoch, {}) for epoch in shown]
    terms: dict[str, dict[str, list[float | None]]] = {}
    for split in SPLITS:
        logged = [record.get(split, {}) for record in first]
        names = dict.fromkeys(name for values in logged for name in values)
        terms[split] = {name: [_finite(values.get(name)) for values in logged] for name in names}
    accuracies = [
        [_finite(records.get(epoch, {}).get("accuracy")) for epoch in shown] for records in by_seed
    ]
    rates = [_finite(record.get("lr")) for record in first]
    return TrainingCurve(*key, shown, terms, rates, accuracies)


def _finite(value: object) -> float | None:
    """A number, or None: the log writes numbers that are not finite as text."""
    return float(f"{value:.4g}") if isinstance(value, int | float) else None
