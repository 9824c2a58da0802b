"""``ancl.analyze`` from values, and what it refuses before any training."""

from pathlib import Path
from typing import Any

import pytest

import ancl
from ancl import Events, MethodError, RunSpec, SpecError
from tests.lab import AnalysisContext, AnalysisResult, Layer, patch_part, plan_analysis, resolve
from tests.lab import make_analysis_request as make_request

SETTINGS = {"training.epochs": 1, "network.hidden": [8]}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take longer than everything else."""
    patch_part(monkeypatch, "analysis_can_draw", lambda: False)


class Notes(Events):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.todo: list[int] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def work_begins(self, titles: Any, epochs: Any, todo: Any, workers: int = 1) -> None:
        assert set(todo) <= set(titles) == set(epochs)
        self.todo.append(len(todo))


def analyse(runs: Path, events: Events | None = None, **more: Any) -> AnalysisResult:
    given: dict[str, Any] = {"lamb_a": [10, 1], "grid": 0, "images": 40, "threads": 1}
    given |= {"settings": SETTINGS, **more}
    return ancl.analyze("ewc", "digits/5", runs=runs, events=events, **given)


def specs_of(name: str, lamb_a: float) -> list[RunSpec]:
    layer = Layer("test", {**SETTINGS, "threads": 1, "lamb_a": lamb_a})
    return [resolve(name, "digits/5", [layer]).spec]


def test_an_analysis_from_values_is_written_and_found_again(tmp_path: Path) -> None:
    first, second = Notes(), Notes()

    result = analyse(tmp_path, first, lamb=50.0)
    again = analyse(tmp_path, second, lamb=50.0)

    assert result.directory == tmp_path / "analyses" / result.name
    assert result.specs[0].method == "a-ewc"
    assert result.specs[0].options["lamb"] == 50.0
    assert result.options.lamb_as == (1.0, 10.0)
    assert [row["lamb_a"] for row in result.rows("distance", network="ancl")] == [1.0, 10.0]
    assert again.tables == result.tables
    assert first.notes[:2] == ["a-ewc on digits/5, seed 0", "first task"]
    assert first.todo[0] > 0
    assert second.todo == [0]


def test_lamb_is_chosen_among_values_for_all_seeds(tmp_path: Path) -> None:
    result = analyse(tmp_path, search_lamb=[1.0, 1000.0], seeds=(0, 1), lamb_a=[1.0])
    tried = result.tables["lamb"]
    means = {
        lamb: sum(row["validation"] for row in tried if row["lamb"] == lamb) / 2
        for lamb in (1.0, 1000.0)
    }

    assert [(row["lamb"], row["seed"]) for row in tried] == [
        *((1.0, 0), (1.0, 1), (1000.0, 0), (1000.0, 1))
    ]
    best = max(sorted(means), key=lambda lamb: means[lamb])
    assert [spec.options["lamb"] for spec in result.specs] == [best, best]
    assert result.seeds == [0, 1]


def test_a_table_of_ones_own_has_a_file(tmp_path: Path) -> None:
    def heads(context: AnalysisContext) -> list[dict[str, Any]]:
        return [{"heads": sum("head" in name for name in context.names)}]

    result = analyse(tmp_path, lamb_a=[1.0], more_tables={"heads": heads})

    assert result.directory is not None
    # Two tasks, each with weights and biases.
    assert (result.directory / "heads.csv").read_text() == "seed,heads\n0,4\n"


def test_a_plan_counts_stages_epochs_and_points(tmp_path: Path) -> None:
    request = make_request("ewc", specs_of, lamb_a=[1.0, 10.0], grid=2, images=40)

    plan = plan_analysis(request, store=tmp_path)

    assert plan.points == 4 + 6 + 1 + 44  # landscape, networks, connector, 4 paths
    assert plan.most_epochs_to_do == 6  # main 0; auxiliary, CL, ANCL twice, multitask
    assert plan.stages_to_do == plan.stages
    assert plan.seconds_per_point > 0
    assert plan.json()["seeds"] == (0,)


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("ewc", {"lamb_a": []}, "lamb_a: nothing is not a list of positive numbers"),
        ("ewc", {"lamb_a": [1, -2.5]}, "lamb_a: 1, -2.5 is not a list of positive numbers"),
        ("ewc", {"lamb_a": [1], "grid": 1}, "grid 1 is not a landscape"),
        ("ewc", {"lamb_a": [1], "images": 0}, "images is 0"),
        ("ewc", {"lamb_a": [1], "split": "tests"}, "Did you mean 'test'"),
        ("ewc", {"lamb_a": [1], "estimator": "bias"}, "Did you mean 'biased'"),
        ("ewc", {"lamb_a": [1], "lamb": 1.0, "search_lamb": [1.0]}, "Leave out one"),
    ],
)
def test_values_that_do_not_fit_are_refused(
    method: str, values: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        make_request(method, specs_of, **values)


def test_a_method_whose_auxiliary_network_moves_is_refused() -> None:
    with pytest.raises(MethodError, match="Use ewc or a-ewc"):
        make_request("afec-ewc", specs_of, lamb_a=[1.0])
