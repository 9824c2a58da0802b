"""Searches called from Python: values in, trials and a decision out."""

import json
from pathlib import Path
from typing import Any

import pytest

from ancl import Events, SpecError, Store, search
from tests.lab import TrainingError, run_command, seeds_to_report
from tests.lab import make_run_request as make_request

SHORT: dict[str, Any] = {"training.epochs": 1, "data.tasks": 2, "threads": 1}


class Heard(Events):
    """Keeps the news."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_a_search_decides_by_values_and_gives_the_runs_that_follow(tmp_path: Path) -> None:
    found = search(
        "a-lwf",
        "digits/5",
        lamb_grid=[1, 0.1234567],
        lamb_a_grid=[0.5],
        report_seeds=[3, 4],
        settings=SHORT,
        runs=tmp_path,
    )
    best = max((t for t in found.trials if t["step"] == "lamb"), key=lambda trial: trial["mean"])
    written = json.loads((found.directory / "decision.json").read_text())

    assert found.chosen == {"lamb": best["lamb"], "lamb_a": 0.5}
    assert [trial["method"] for trial in found.trials] == ["lwf", "lwf", "a-lwf"]
    assert [trial["lamb"] for trial in found.trials] == [1.0, 0.1234567, best["lamb"]]
    assert written == found.decision()
    assert json.loads((found.directory / "trials.json").read_text()) == list(found.trials)
    keys = {info.key for info in Store(tmp_path / ".store").entries()}
    assert keys == set(json.loads((found.directory / "stages.json").read_text())["keys"])

    follow = found.specs()
    assert [(each.seed, each.options["lamb"], each.options["lamb_a"]) for each in follow] == [
        (seed, best["lamb"], 0.5) for seed in (3, 4)
    ]
    assert {each.training.epochs for each in follow} == {1}
    assert found.command.endswith("--lamb-a 0.5 --seeds 3-4")
    assert f"--lamb {best['lamb']!r}".removesuffix(".0") in found.command


def test_per_task_decisions_are_noted_and_carried_out(tmp_path: Path) -> None:
    heard = Heard()
    found = search(
        "lwf",
        "digits/5",
        protocol="per-task",
        settings=SHORT,
        lamb=100,
        runs=tmp_path,
        events=heard,
    )
    second = [trial for trial in found.trials if trial["task"] == 1]

    assert [trial["lamb"] for trial in second] == [100 / 2**i for i in range(len(second))]
    assert found.chosen == {"lamb_by_task": {"0": [None, second[-1]["lamb"]]}}
    assert (found.specs(), found.command) == ([], "")
    assert found.details["decay"]["factor"] == 0.5
    assert sum("fine-tuning" in note for note in heard.notes) == len(second)
    assert (found.directory / "result.json").is_file()


def test_what_fails_is_left_out_of_the_decision(tmp_path: Path) -> None:
    given = {**SHORT, "training.schedule": "constant"}
    found = search("ewc", "digits/5", lamb_grid=[1.0, 1e38], settings=given, runs=tmp_path)

    assert found.chosen == {"lamb": 1.0}
    assert [bool(trial["failed"]) for trial in found.trials] == [False, True]
    assert len(found.failures) == 1
    assert found.decision()["failures"][0]["stage"].startswith("ewc λ=1e+38")
    with pytest.raises(TrainingError, match="Every value of λ failed"):
        search("ewc", "digits/5", lamb_grid=[1e38], settings=given, runs=tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lamb_grid": [-1.0]}, "-1 is not a list of numbers ≥ 0"),
        ({"lamb_grid": []}, "nothing is not a list of numbers ≥ 0"),
        ({}, "digits/5 has no grid for λ of lwf"),
        ({"protocol": "grid"}, "There is no protocol 'grid'"),
        ({"protocol": "per-task", "lamb_grid": [1.0]}, "so it has no grid"),
        ({"lamb_grid": [1.0], "tempo": 3}, "settings: lwf has no setting 'tempo'"),
    ],
)
def test_a_search_that_cannot_be(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        search("lwf", "digits/5", runs=tmp_path / "runs", **given)
    assert not (tmp_path / "runs").exists()


def test_report_seeds_follow_those_that_decided() -> None:
    assert seeds_to_report(None, [0, 4]) == ((5, 6, 7), ())
    assert seeds_to_report([8, 9], [0]) == ((8, 9), ())
    seeds, [note] = seeds_to_report([0, 1, 2], [0, 1])
    assert seeds == (0, 1, 2)
    assert note.startswith("Seeds that decided are reported too (0, 1)")


def test_a_command_writes_values_as_they_are_read() -> None:
    request = make_request(
        "lwf",
        "digits/5",
        {"data.order": [1, 0], "training.reset_momentum": True, "data.first": None, "lamb": 2.0},
        (0, 2, 3),
        "official",
        True,
        "a file.yaml",
    ).with_values("--lamb", {"lamb": 1e-07})

    assert run_command(request, Path("images")) == (
        "ancl run lwf digits/5 --set 'data.order=[1, 0]' --set training.reset_momentum=true --set "
        "data.first=null --lamb 1e-07 --config 'a file.yaml' --preset official --quick --data-root "
        "images --seeds 0,2-3"
    )
