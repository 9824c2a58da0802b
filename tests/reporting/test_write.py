import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ancl import StoreError, report
from tests.lab import (
    MOST_POINTS,
    Finished,
    collect,
    content,
    group_runs,
    make_report,
    most_points,
    page_of,
    patch_part,
    read_run,
    trainings,
    write_report,
)

Make = Callable[..., Path]


def test_figures_and_tables_have_the_same_bytes_twice(make: Make, runs: Path) -> None:
    pytest.importorskip("matplotlib", reason="figures need the extra report")
    for method in ("lwf", "a-lwf"):
        make(method)
    found = make_report(collect([runs]))

    first, second = (write_report(found, runs.parent / name) for name in ("one", "two"))

    names = {path.name for path in first}
    for name in ("plane", "phases", "final", "matrices", "terms", "time"):
        assert {f"digits-5_{name}.{end}" for end in ("png", "pdf", "svg")} <= names
    assert {f"aac_til.{ending}" for ending in ("md", "tex", "csv")} <= names
    for left, right in zip(first, second, strict=True):
        assert left.read_bytes() == right.read_bytes(), left.name


def test_without_matplotlib_there_are_tables_and_the_page(
    make: Make, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make()
    patch_part(monkeypatch, "report_can_draw", lambda: False)
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


def test_a_page_of_many_trainings_shows_fewer_epochs_of_each(
    make: Make, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lamb in (1.0, 2.0):
        make(lamb=lamb, epochs=100)
    found = make_report(collect([runs]))
    # 2 groups with 2 trainings of 8 + 1 numbers: 720 numbers are 20 points
    monkeypatch.setitem(most_points.__globals__, "MOST_NUMBERS", 720)

    data = content(found)

    assert data["most_points"] == 20
    assert [len(t["epochs"]) for g in data["groups"] for t in g["trainings"]] == [21] * 4


def test_what_is_not_finite_is_left_out_of_a_curve(make: Make, runs: Path) -> None:
    make(epochs=3)
    (group,), _ = group_runs(collect([runs]).runs)

    assert trainings(group)[0].terms["val"]["task"] == [1.0, None, 0.3333]


def test_what_a_rule_yielded_is_a_curve_of_its_own(make: Make, runs: Path) -> None:
    make(epochs=3)
    (group,), _ = group_runs(collect([runs]).runs)

    first, second = trainings(group)

    assert first.terms["lambs"] == {}
    assert second.terms["lambs"] == {"lamb_a": [0.0, 0.5, 1.0]}


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


def test_a_training_has_its_learning_rate_and_every_seeds_accuracy(make: Make, runs: Path) -> None:
    make(seed=0, epochs=2)
    make(seed=1, epochs=4)
    (group,), _ = group_runs(collect([runs]).runs)

    first = trainings(group)[0]

    # The second seed trained longer; the first one has nothing there.
    assert first.epochs == [0, 1, 2, 3]
    assert first.rates == [0.1, 0.05, None, None]
    assert first.accuracies == [[0.5, 0.55, None, None], [0.5, 0.55, 0.5667, 0.575]]


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    patch_part(monkeypatch, "report_can_draw", lambda: False)


@pytest.mark.usefixtures("undrawn")
def test_report_reads_what_is_stored_and_writes_its_files(make: Make, runs: Path) -> None:
    first, _ = make(seed=0), make(seed=1)

    everything = report(runs=runs)
    one = report([first], runs=runs, out=runs.parent / "one")

    assert everything.page == runs / "report" / "report.html"
    assert [group.seeds for group in everything.report.groups] == [[0, 1]]
    assert [group.seeds for group in one.report.groups] == [[0]]
    assert one.json()["groups"][0]["metrics"]["aac"] == [0.75, None, 1]
    assert one.json()["files"] == [str(path) for path in one.files]
    assert all(path.is_file() for path in (*everything.files, *one.files))


def test_a_directory_without_results_is_refused(runs: Path) -> None:
    runs.mkdir()

    with pytest.raises(StoreError, match="There is no finished run in"):
        report(runs=runs)


@pytest.mark.usefixtures("undrawn")
def test_the_page_of_finished_runs_lies_with_them(make: Make, runs: Path) -> None:
    finished = [Finished(place, read_run(place)) for place in (make(seed=0), make(seed=1))]

    alone, both = page_of(finished[:1], runs), page_of(finished, runs)
    none = page_of([], runs)

    assert alone.path == finished[0][0] / "report.html"
    assert both.path is not None
    assert both.path.parent.parent == runs / "comparisons"
    assert both.path.parent.name.startswith("digits-5_")
    assert both.json == {"report": str(both.path)}
    assert (none.path, none.text) == (None, "There is no report: no run finished.")


@pytest.mark.usefixtures("undrawn")
def test_a_page_that_cannot_be_written_is_said_not_raised(make: Make, runs: Path) -> None:
    place = make()
    (runs / "comparisons").write_text("a file")

    found = page_of([Finished(place, read_run(place))], runs, runs / "comparisons" / "x")

    assert found.path is None
    assert "The report cannot be written to" in found.text
