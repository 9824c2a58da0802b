"""Versions, undo and the gate, by commands alone."""

import shutil
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ancl import Learner
from tests.lab import app

BEGIN = (
    *("--method", "icarl", "--network", "mlp", "--epochs", "3", "--memory-per-class", "4"),
    *("--set", "training.batch_size=16", "--set", "network.hidden=[16]", "--threads", "1"),
)


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory, write_digits: Callable[..., str]) -> Path:
    """Photos of three months and for the test, and a learner of the first month."""
    place = tmp_path_factory.mktemp("begun")
    write_digits(place / "m1", {"zero": 0, "one": 1})
    write_digits(place / "m2", {"zero": 1, "one": 0, "two": 2}, skip=20)
    write_digits(place / "m3", {"zero": 0, "one": 1, "two": 2}, skip=20)
    write_digits(place / "t", {"zero": 0, "one": 1, "two": 2}, "test")
    with chdir(place):
        words = ["learn", "L", "--data", "folder:m1", *BEGIN, "--quiet"]
        assert CliRunner().invoke(app, words).exit_code == 0
    return place


@pytest.fixture
def photos(begun: Path, tmp_path: Path) -> None:
    shutil.copytree(begun, tmp_path, dirs_exist_ok=True)


GATE = ("--test", "folder:t", "--max-drop", "0.1", "--min-recall", "zero=0.7", "--threads", "1")


def test_a_month_is_refused_listed_repaired_taken_and_undone(ancl: Any, photos: None) -> None:
    refused = ancl("learn", "L", "--data", "folder:m2", *GATE)
    as_json = ancl("learn", "L", "--data", "folder:m2", *GATE, "--json")
    listed = ancl("versions", "L")

    assert (refused.code, as_json.code, listed.code) == (3, 3, 0)
    assert "Refused: version 1 stays.\n" in refused.out
    assert "ancl undo L --to 2" in refused.out
    assert "held images of" in refused.out
    assert [row.split()[0] for row in refused.out.partition("points")[2].splitlines()[2:7]] == [
        *("one", "zero", "two", "known", "all")
    ]
    assert (as_json.json["version"], len(as_json.json["refused"])) == (2, 2)
    assert as_json.json["test"]["known_before"] > as_json.json["test"]["known_after"] + 0.1
    assert [line.split()[0] for line in listed.out.splitlines()[2:4]] == ["*1", "2"]
    assert listed.out.count("Version 2 was refused:") == 2

    taken = ancl("learn", "L", "--data", "folder:m3", *GATE, "--json")
    assert (taken.code, taken.json["version"], taken.json["refused"]) == (0, 3, [])
    assert ancl("versions", "L", "--json").json["current"] == 3
    compared = ancl("evaluate", "L", "--data", "folder:t", "--against", "2", "--json")
    assert compared.code == 0
    assert compared.json["comparison"]["known_after"] > compared.json["comparison"]["known_before"]

    assert ancl("undo", "L").out.startswith("L is now at version 1, made 20")
    assert Learner.load("L").classes == ["one", "zero"]
    assert ancl("undo", "L", "--to", "3").code == 0
    assert ancl("predict", "L", "t/two", "--version", "1", "--json").code == 0
    old = ancl("predict", "L", "t/two", "--version", "1", "--json").json["images"]
    assert {each["labels"][0]["label"] for each in old} <= {"one", "zero"}


def test_evaluate_ends_with_three_where_a_condition_does_not_hold(ancl: Any, photos: None) -> None:
    assert ancl("learn", "L", "--data", "folder:m3", "--threads", "1").code == 0
    test = ("evaluate", "L", "--data", "folder:t")

    assert ancl(*test, "--min-accuracy", "0").code == 0
    failed = ancl(*test, "--min-accuracy", "1", "--min-recall", "two=1.0")
    assert failed.code == 3
    assert "Refused:\nThe test accuracy is" in failed.out
    assert ancl(*test, "--against", "1", "--max-drop", "1").code == 0
    learned = ancl("evaluate", "L", "--data", "folder:m3", "--min-accuracy", "0.5")
    assert learned.code == 2
    assert "60 of 60 test images are images that the learner learns from:" in learned.err
    said, never = ancl("evaluate", "L", "--data", "folder:m3"), "was ever learned: this is test acc"
    assert (said.code, "60 of 60 images were learned from" in said.err) == (0, True)
    assert (never in said.out, never in failed.out) == (False, True)


def test_every_image_of_a_version_is_listed(ancl: Any, photos: None) -> None:
    found = ancl("versions", "L", "--images", "1", "--json").json["images"]

    assert {each["id"] for each in found} == {
        f"m1/{name}/{count:03}.png" for name in ("zero", "one") for count in range(20)
    }
    assert {(each["task"], each["use"]) for each in found} == {(1, "train"), (1, "validate")}
    assert all(each["label"] == each["id"].split("/")[1] for each in found)
    assert len({each["sha256"] for each in found}) == 40
    learner = Learner.load("L")
    memory = learner._exemplars()
    assert memory is not None
    assert learner._held is not None
    for part, kept in (("memory", memory.samples), ("held", learner._held.samples)):
        rows = {row.tobytes().hex() for row in kept.x.digests().astype(">u8")}
        assert {each["sha256"] for each in found if part in each["kept"]} == rows
        assert len(rows) == {"memory": 8, "held": 4}[part]
    text = ancl("versions", "L", "--images", "1").out.splitlines()
    assert len(text) == 42


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["versions", "none"], "none is not a saved learner: entry.json is missing"),
        (["versions", "m1"], "m1 is not a saved learner"),
        (["undo", "none"], "none is not a saved learner"),
        (["undo", "L"], "L has no version before the one that it is at."),
        (["undo", "L", "--to", "9"], "L has no version 9. It has: 1."),
        (["undo", "L", "--to", "0"], "greater than or equal to 1"),
        (["evaluate", "L", "--data", "folder:t", "--version", "4"], "L has no version 4"),
        (["evaluate", "L", "--data", "folder:t", "--max-drop", "0.1"], "Give the earlier one: --a"),
        (["learn", "L", "--data", "folder:m2", "--min-accuracy", "85"], "--min-accuracy: '85' is"),
        (["learn", "L", "--data", "folder:m2", "--min-recall", "0.8"], "'0.8' names no class"),
        (["learn", "L", "--data", "folder:m2", "--min-recall", "a=x"], "--min-recall: 'x' is not"),
        (["learn", "L", "--data", "folder:m2", "--max-drop", "0.1"], "--test folder:PATH"),
        (["learn", "L", "--data", "folder:m2", "--keep-versions", "0"], "--keep-versions: '0'"),
        (["learn", "L", "--data", "folder:m2", "--test", "folder:m1"], "40 of 40 test images"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(
    ancl: Any, photos: None, words: list[str], said: str
) -> None:
    before = sorted(str(path) for path in Path().rglob("*"))
    ended = ancl(*words)

    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert sorted(str(path) for path in Path().rglob("*")) == before
