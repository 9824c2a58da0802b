from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.lab import _plane, collect, group_runs

Make = Callable[..., Path]


def test_the_plane_has_a_mean_and_seeds_per_method_on_lines_of_equal_accuracy(
    make: Make, runs: Path
) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra report")
    for seed, last in enumerate((0.5, 0.7)):
        make("lwf", seed=seed, rows=[[0.9], [last, 0.8]])
        make("a-lwf", seed=seed, rows=[[0.9], [0.8, 0.8]])
    groups, _ = group_runs(collect([runs]).runs)

    figure = _plane(groups)

    assert figure is not None
    (axes,) = figure.axes
    means = {box.get_label(): box[0].get_xydata()[0] for box in axes.containers}
    # Forgetting 0.9 - 0.6 and 0.9 - 0.8; learning accuracy (0.9 + 0.8) / 2 of both.
    assert means["LwF"] == pytest.approx([30, 85])
    assert means["A-LwF"] == pytest.approx([10, 85])
    seeds = [line.get_xydata() for line in axes.lines if len(line.get_xydata()) == 2]
    assert any(np.allclose(points, [[40, 85], [20, 85]]) for points in seeds)
    # LwF ends at (0.6 + 0.8) / 2: its point lies on the line of 70 %, which is drawn.
    slope = 0.5
    lines = [p for p in seeds if np.isclose(p[1, 1] - p[0, 1], slope * (p[1, 0] - p[0, 0]))]
    assert any(np.isclose(p[0, 1] - slope * p[0, 0], 70) for p in lines)


def test_one_task_has_no_plane(make: Make, runs: Path) -> None:
    make(rows=[[0.9]])
    groups, _ = group_runs(collect([runs]).runs)
    assert _plane(groups) is None
