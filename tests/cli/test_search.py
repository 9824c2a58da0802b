import csv
import errno
import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from ancl import Store
from tests.lab import patch_part, write_entry

SHORT = ("--epochs", "1", "--tasks", "2", "--threads", "1")
GRIDS = ("--lamb-grid", "0.1,1,3,10,100", "--lamb-a-grid", "0.1,0.5,1,5,10")
UNVALIDATED = ("--set", "data.val_fraction=0", "--set", "training.schedule=cosine")
SEARCH = ("search", "a-lwf", "digits/5", *SHORT)


def trained() -> set[str]:
    return {info.key for info in Store(Path("runs/.store")).entries()}


def test_five_and_five_values_train_every_unique_stage_once(ancl: Any) -> None:
    ended = ancl(*SEARCH, *GRIDS, "--json")
    found = ended.json
    again = ancl(*SEARCH, *GRIDS, "--json")
    wanted: set[str] = set()
    for trial in found["trials"]:
        flags = {"--lamb": str(trial["lamb"]), "--epochs": "1", "--tasks": "2", "--threads": "1"}
        if trial["lamb_a"] is not None:
            flags["--lamb-a"] = str(trial["lamb_a"])
        asked = [text for pair in flags.items() for text in pair]
        shown = ancl("run", trial["method"], "digits/5", *asked, "--dry-run", "--json").json
        wanted |= {stage["key"] for stage in shown["runs"][0]["stages"]}

    assert trained() == wanted
    assert ended.err.count(" main: 1 epoch") == 1 + 5 + 5  # one first task for all ten
    assert ended.err.count(" auxiliary: 1 epoch") == 1  # it knows no λ_a
    assert "epoch, val" not in again.err
    assert again.json["trials"] == found["trials"]


def test_the_decision_is_the_best_on_validation_images_and_shows_no_test_number(ancl: Any) -> None:
    ended = ancl(*SEARCH, "--lamb-grid", "1,10", "--lamb-a-grid", "0.5,1", "--search-seeds", "0-1")
    [directory] = Path("runs/searches").iterdir()
    trials = json.loads((directory / "trials.json").read_text())
    decision = json.loads((directory / "decision.json").read_text())
    rows = list(csv.DictReader((directory / "trials.csv").read_text().splitlines()))
    command = shlex.split(decision["command"])

    for step in ("lamb", "lamb_a"):
        of_step = [trial for trial in trials if trial["step"] == step]
        best = max(of_step, key=lambda trial: trial["mean"])
        assert decision[step] == best[step]
        assert [trial["chosen"] for trial in of_step] == [trial is best for trial in of_step]
    assert {trial["lamb"] for trial in trials if trial["step"] == "lamb_a"} == {decision["lamb"]}
    assert [row["mean"] for row in rows] == [str(trial["mean"]) for trial in trials]
    assert not list(Path("runs").glob("*/result.json"))

    ran = ancl(*command[1:-2], "--seed", "0", "--json", "--quiet").json["runs"][0]
    val = ran["matrices"]["taw_val"][-1]
    winner = next(t for t in trials if t["step"] == "lamb_a" and t["chosen"])
    assert winner["scores"]["0"] == pytest.approx(sum(val) / 2)
    assert command[-2:] == ["--seeds", "2-4"]  # apart from the seeds that decided
    assert "validation AAC, %" in ended.out
    assert decision["command"] in ended.out


def test_class_incremental_search_decides_by_the_incremental_accuracy(ancl: Any) -> None:
    found = ancl(
        "search", "lwf", "digits/5", *SHORT, "--scenario", "cil", "--lamb-grid", "1,10", "--json"
    ).json
    run = ancl(
        "run", "lwf", "digits/5", *SHORT, "--scenario", "cil", "--lamb", "1", "--json", "--quiet"
    ).json["runs"][0]
    shown = ancl("run", "lwf", "digits/5", *SHORT, "--dry-run", "--json").json["runs"][0]
    n = [task["val"] for task in shown["tasks"]]
    first, second = run["matrices"]["tag_val"]

    assert found["decided_by"] == "validation AIAC"
    pooled = (n[0] * second[0] + n[1] * second[1]) / sum(n)
    assert found["trials"][0]["mean"] == pytest.approx((first[0] + pooled) / 2)


def test_what_a_search_says_of_its_limits(ancl: Any) -> None:
    grids = ("--lamb-grid", "1,10", "--lamb-a-grid", "1")
    found = ancl(*SEARCH, *grids, "--seeds", "0-2", "--json", "--quiet").json

    assert any("is at the edge of its grid" in note for note in found["notes"])
    assert any("Seeds that decided are reported too (0)" in note for note in found["notes"])
    assert found["command"].endswith("--seeds 0-2")


def test_the_plan_comes_first_with_its_cost_and_trains_nothing(ancl: Any) -> None:
    plan = ancl(*SEARCH, *GRIDS, "--dry-run", "--json").json

    # 5 runs of 6 stages and 5 of 7; the first task and the second one's head are all alike.
    assert (plan["runs"], plan["stages"]) == (10, 65)
    assert plan["unique_stages"] == 4 + 5 * 2 + 1 + 5 * 2
    assert plan["stages_to_do"] == plan["unique_stages"]
    assert 0 < plan["most_seconds"] < 60
    assert not Path("runs").exists()


def test_a_race_says_what_it_can_save_and_why_a_value_stopped(ancl: Any) -> None:
    asked = ("search", "lwf", "digits/5", "--epochs", "1", "--threads", "1", "--race")
    asked += ("--lamb-grid", "1,1000", "--search-seeds", "0-1")
    plan = ancl(*asked, "--dry-run", "--json").json
    ended = ancl(*asked)
    stored = ancl(*asked, "--dry-run")
    [directory] = Path("runs/searches").iterdir()
    first, last = json.loads((directory / "trials.json").read_text())

    # Per seed one first task, then 2 values on 4 tasks, or on 2 until the earliest stop.
    assert plan["most_epochs_to_do"] == 2 * (1 + 2 * 4)
    assert (plan["earliest_stop"], plan["least_epochs_to_do"]) == (3, 2 * (1 + 2 * 2))
    assert "after task 3 at the earliest" in ended.err
    assert "It saves nothing where no value stops, and at most 8 of 18 epochs (44%)." in ended.err
    assert " at most 8 of 8 epochs (100%)." in stored.out  # a race is over after three tasks
    assert (first["chosen"], first["tasks_learned"], first["stopped"]) == (True, 3, {})
    assert (last["stopped"]["after"], last["stopped"]["best"]) == (3, 1.0)
    [line] = [line for line in ended.out.splitlines() if "1000" in line]
    gap = 100 * (sum(first["scores"].values()) - sum(last["scores"].values())) / 2
    assert f"stopped after task 3, {gap:.1f} points below λ=1 (95 % interval" in line
    assert ended.err.count("λ=1000 stopped after task 3") == 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("search", "lwf", "digits/5", "--protocol", "per-task", "--race"), "so no values race"),
        (("search", "a-lwf", "digits/5"), "has no grid for λ of a-lwf. Give one: --lamb-grid"),
        (("search", "lwf", "digits/5", "--lamb-grid", "1,x"), "'1,x' is not a list of numbers ≥ 0"),
        (("search", "joint", "digits/5"), "joint has neither λ nor λ_a"),
        (("search", "lwf", "digits/5", "--protocol", "x"), "There is no protocol 'x'"),
        (
            ("search", "lwf", "digits/5", "--protocol", "per-task", "--lamb-grid", "1,10"),
            "so it has no grid",
        ),
        (
            ("search", "lwf", "digits/5", "--lamb-grid", "1", *UNVALIDATED),
            "A search decides by validation images",
        ),
    ],
)
def test_a_search_that_cannot_be(ancl: Any, given: tuple[str, ...], message: str) -> None:
    ended = ancl(*given)

    assert ended.code == 2
    assert message in ended.err


@pytest.mark.parametrize("protocol", ["two-stage", "per-task"])
def test_a_full_disk_is_said_and_a_later_search_trains_only_what_is_missing(
    ancl: Any, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    given = ("--lamb", "100") if protocol == "per-task" else ("--lamb-grid", "1,10")
    asked = ("search", "lwf", "digits/5", *SHORT, "--protocol", protocol, *given, "--json")
    written: list[str] = []
    room = 6

    def full(directory: Path, entry: Any) -> None:
        if len(written) == room:
            raise OSError(errno.ENOSPC, "No space left on device", str(directory))
        written.append(directory.name)
        write_entry(directory, entry)

    patch_part(monkeypatch, "store_write_entry", full)
    stopped = ancl(*asked)
    first, room = set(written), -1  # now there is room for all
    again = ancl(*asked)

    assert stopped.code == 2
    assert stopped.err.count("No space left on device") == 1
    assert "ancl store prune" in stopped.err
    assert "Traceback" not in stopped.err
    assert len(first) == 6
    assert again.code == 0
    assert len(written) == len(set(written))  # nothing was trained twice
    assert first < trained() == set(written)


def test_task_by_task_lambda_is_halved_until_the_task_is_learned(ancl: Any) -> None:
    asked = ("search", "lwf", "digits/5", "--tasks", "2", "--epochs", "2", "--threads", "1")
    found = ancl(*asked, "--protocol", "per-task", "--lamb", "1000", "--json", "--quiet").json
    again = ancl(*asked, "--protocol", "per-task", "--lamb", "1000", "--json")
    second = [trial for trial in found["trials"] if trial["task"] == 1]

    assert [trial["lamb"] for trial in second] == [1000 / 2**i for i in range(len(second))]
    assert len(second) > 1
    for trial in second:
        near = trial["accuracy"] >= 0.8 * trial["reachable"]
        assert trial["taken"] == (near or trial is second[-1])
    assert found["lamb_by_task"]["0"] == [None, second[-1]["lamb"]]
    assert "epochs, val" not in again.err  # all of it is in the store
    results = json.loads((Path(found["directory"]) / "result.json").read_text())
    assert results["0"]["metrics"]["aac"] == pytest.approx(
        sum(results["0"]["matrices"]["taw"][-1]) / 2
    )
