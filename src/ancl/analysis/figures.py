"""The paper's figures, drawn from an analysis: distance and CKA over λ_a, and the landscape."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ancl.analysis.context import REFERENCES
from ancl.analysis.results import AnalysisResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INSTALL = "Figures need matplotlib: pip install 'ancl[report]', then the same command draws them."
_COLOURS = {"old": "#1b6ca8", "auxiliary": "#c8553d", "multi": "#3a7d44"}
_LABELS = {"old": "old", "auxiliary": "auxiliary", "multi": "multitask"}
_MARKS = {"old": "o", "auxiliary": "s", "multi": "^"}
_BOX = {"boxstyle": "round,pad=0.15", "facecolor": "white", "alpha": 0.75, "linewidth": 0}


def draw(result: AnalysisResult, directory: Path) -> list[Path]:
    """Draw every figure as PNG and SVG. Deterministic."""
    import matplotlib as mpl

    files: list[Path] = []
    with mpl.rc_context({"svg.hashsalt": "ancl", "font.size": 9, "axes.axisbelow": True}):
        figures = {"distance": _distance(result), "cka": _cka(result)}
        for seed in result.seeds if result.options.grid else ():
            figures[f"landscape_s{seed}"] = _landscape(result, seed)
        for name, figure in figures.items():
            files += _save(figure, directory / name)
    return files


def _save(figure: Figure, path: Path) -> list[Path]:
    image, drawing = path.with_suffix(".png"), path.with_suffix(".svg")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(image, dpi=160, metadata={"Software": None})
    figure.savefig(drawing, metadata={"Date": None, "Creator": None})
    return [image, drawing]


def _figure(columns: int, width: float, height: float = 3.5) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure as New

    figure = New(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, columns)))


def _distance(result: AnalysisResult) -> Figure:
    figure, (axes,) = _figure(1, 5.0)
    _curves(axes, result, "distance", {"network": "ancl"}, {"network": "cl"})
    axes.set_ylabel("weight distance ‖θ − θ_ref‖")
    _finish(figure, axes, result, "")
    return figure


def _cka(result: AnalysisResult) -> Figure:
    figure, (axes,) = _figure(1, 5.0)
    mean = {"layer": "mean"}
    _curves(axes, result, "cka", {"network": "ancl", **mean}, {"network": "cl", **mean})
    row = result.tables["cka"][0]
    axes.set_ylabel(f"CKA ({row['estimator']}, mean of layers)")
    _finish(figure, axes, result, f", {row['images']} {row['split']} images")
    return figure


def _curves(
    axes: Axes,
    result: AnalysisResult,
    table: str,
    ancl: Mapping[str, Any],
    cl: Mapping[str, Any],
) -> None:
    """A line over λ_a for each reference, and CL's value as a level."""
    for name in REFERENCES:
        curve = result.curve(table, name, **ancl)
        errors = [0.0 if np.isnan(estimate.error) else estimate.error for estimate in curve]
        axes.errorbar(
            result.options.lamb_as,
            [estimate.mean for estimate in curve],
            errors,
            color=_COLOURS[name],
            marker=_MARKS[name],
            linestyle="--",
            capsize=2,
            label=f"to {_LABELS[name]}",
        )
        level = float(np.mean([row[name] for row in result.rows(table, **cl)]))
        axes.axhline(level, color=_COLOURS[name], linewidth=0.8, linestyle=":")
    axes.plot([], [], color="0.4", linewidth=0.8, linestyle=":", label="the same of CL")


def _finish(figure: Figure, axes: Axes, result: AnalysisResult, note: str) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("λ_a")
    axes.grid(color="0.9")
    spec, count = result.specs[0], len(result.seeds)
    seeds = f"mean ± standard error of {count} seeds" if count > 1 else f"seed {spec.seed}"
    axes.set_title(f"{spec.method} on {spec.stream}, {seeds}{note}", fontsize=8)
    figure.legend(loc="outside lower center", ncols=4, fontsize=8, frameon=False)


def _landscape(result: AnalysisResult, seed: int) -> Figure:
    tasks = [row["task"] for row in result.rows("landscape", seed=seed)]
    shown = list(dict.fromkeys(tasks))
    figure, axes = _figure(len(shown), 3.9 * len(shown), 3.9)
    column = result.specs[0].accuracy
    for place, task in zip(axes, shown, strict=True):
        _contours(figure, place, result, {"seed": seed, "task": task}, column)
        _networks(place, result, seed)
        place.set_title("mean of tasks" if task == "mean" else f"task {int(task) + 1}", fontsize=9)
        place.set_xlabel("x · ‖u‖ (old → auxiliary)")
    axes[0].set_ylabel("y · ‖v‖ (→ multitask)")
    spec, split = result.specs[0], result.rows("landscape", seed=seed)[0]["split"]
    title = f"Accuracy on {split} images, %: {spec.method} on {spec.stream}, seed {seed}"
    figure.suptitle(title, fontsize=9)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, fontsize=8, frameon=False)
    return figure


def _contours(
    figure: Figure, axes: Axes, result: AnalysisResult, wanted: Mapping[str, Any], column: str
) -> None:
    rows = result.rows("landscape", **wanted)
    side = result.options.grid
    x, y, z = (
        np.array([row[name] for row in rows], dtype=np.float64).reshape(side, side)
        for name in ("x_length", "y_length", column)
    )
    low, high = 100 * float(z.min()), 100 * float(z.max())
    levels = np.linspace(low, max(high, low + 1), 13)  # a flat landscape has levels too
    filled = axes.contourf(x, y, 100 * z, levels=levels, cmap="viridis", alpha=0.75)
    figure.colorbar(filled, ax=axes, shrink=0.8, format="%.1f")
    axes.set_aspect("equal")


def _networks(axes: Axes, result: AnalysisResult, seed: int) -> None:
    """Dots for old, auxiliary and multitask network, marks for CL and connector, ANCL's path."""

    def places(name: str) -> tuple[list[float], list[float]]:
        rows = result.rows("positions", seed=seed, network=name, task="mean")
        return [row["x_length"] for row in rows], [row["y_length"] for row in rows]

    for name in REFERENCES:
        axes.plot(*places(name), "ko", markersize=5)
        ((across,), (up,)) = places(name)
        inner = across < sum(axes.get_xlim()) / 2
        axes.annotate(
            _LABELS[name],
            (across, up),
            (6 if inner else -6, 6 if name == "multi" else -14),  # CL and ANCL are above the others
            textcoords="offset points",
            ha="left" if inner else "right",
            fontsize=8,
            bbox=_BOX,
        )
    axes.plot(*places("cl"), "x", color="#0b3fd6", markersize=8, mew=2, linestyle="", label="CL")
    axes.plot(*places("connector"), "D", color="#5b2a86", mfc="white", label="connector")
    x, y = places("ancl")
    axes.plot(x, y, "--", color="#d01c1c", linewidth=1.2, label="ANCL, λ_a ascending")
    axes.plot(x[1:-1], y[1:-1], ".", color="#d01c1c", markersize=5)
    axes.plot(x[:1], y[:1], "o", color="#6b2d0c", markersize=6, label="smallest λ_a")
    axes.plot(x[-1:], y[-1:], "*", color="#6b2d0c", markersize=10, label="largest λ_a")
