import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ancl.reporting import collect, make_report, write_report
from ancl.reporting.groups import group_runs
from ancl.reporting.page import MOST_POINTS, trainings

Make = Callable[..., Path]


def test_figures_and_tables_have_the_same_bytes_twice(make: Make, runs: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra report")
    for method in ("lwf", "a-lwf"):
        make(method)
    found = make_report(collect([runs]))

    first, second = (write_report(found, runs.parent / name) for name in ("one", "two"))

    names = {path.name for path in first}
    for name in ("phases", "final", "matrices", "terms", "time"):
        assert {f"digits-5_{name}.png", f"digits-5_{name}.pdf"} <= names
    assert {f"aac_til.{ending}" for ending in ("md", "tex", "csv")} <= names
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes(), left.name


def test_without_matplotlib_there_are_tables_and_the_page(
    make: Make, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    monkeypatch.setattr("ancl.reporting.write.can_draw", lambda: False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)

    written = write_report(make_report(collect([runs])), runs.parent / "out")

    assert written[0].name == "report.html"
    assert {path.suffix for path in written} == {".html", ".md", ".tex", ".csv"}


def test_long_trainings_are_thinned_and_keep_their_end(make: Make, runs: Path) -> None:
    make(epochs=200)
    (group,), _ = group_runs(collect([runs]).runs)

    first, second = trainings(group)

    assert len(first.epochs) <= MOST_POINTS + 1
    assert first.epochs[-1] == 199
    assert list(second.terms["train"]) == ["task", "old"]


def test_what_is_not_finite_is_left_out_of_a_curve(make: Make, runs: Path) -> None:
    make(epochs=3)
    (group,), _ = group_runs(collect([runs]).runs)

    assert trainings(group)[0].terms["val"]["task"] == [1.0, None, 0.33333]


def test_two_hundred_runs_are_reported_within_ten_seconds(make: Make, runs: Path) -> None:
    rows = [[0.8 - 0.01 * (i - j) for j in range(i + 1)] for i in range(10)]
    for seed in range(20):
        for base in ("ewc", "mas", "lwf", "lfl"):
            make(base, seed=seed, rows=rows, epochs=20)
            make(f"a-{base}", seed=seed, rows=rows, epochs=20)
        make("finetune", seed=seed, rows=rows, epochs=20)
        make("joint", seed=seed, rows=rows, epochs=20)

    began = time.process_time()  # other processes are not counted
    found = make_report(collect([runs]))
    written = write_report(found, runs.parent / "out")
    spent = time.process_time() - began

    assert sum(len(group.runs) for group in found.groups) == 200
    assert written[0].stat().st_size < 6e6
    assert spent < 10
