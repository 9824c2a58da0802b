"""What commands say of a network that moves below a computed classifier."""

from collections.abc import Callable
from pathlib import Path

import pytest

MOVING = (
    *("--set", "classifier=slda", "--set", "network.hidden=[16]", "--threads", "1"),
    *("--epochs", "2", "--scenario", "cil"),
)


def test_a_run_says_the_drift_of_every_task(ancl) -> None:
    data = ("--set", "data.classes=4,3,3", "--set", "data.per_class=20")
    ended = ancl("run", "finetune", "digits/5", *MOVING, *data, "--seeds", "0-1", "--quiet")

    assert ended.code == 0, ended.err
    lines = [line for line in ended.out.splitlines() if "The backbone moved" in line]
    assert [line.partition(" (")[0].rpartition(":")[0] for line in lines] == [
        "Seed 0: The backbone moved in tasks 2, 3",
        "Seed 1: The backbone moved in tasks 2, 3",
    ]


@pytest.fixture
def photos(tmp_path: Path, write_digits: Callable[..., str]) -> None:
    write_digits(tmp_path / "old", {"zero": 0, "one": 1})
    write_digits(tmp_path / "new", {"two": 2, "three": 3})


def test_a_learner_says_its_drift_and_forgets_a_class(ancl, photos) -> None:
    begin = ("--method", "lfl", "--network", "mlp", *MOVING)
    first = ancl("learn", "mine", "--data", "folder:old", *begin, "--json")
    second = ancl("learn", "mine", "--data", "folder:new", "--threads", "1")

    assert first.json["drift"] is None
    assert second.code == 0, second.err
    assert "\n\nThe backbone moved: the map from old to new features is " in second.out
    told = ancl("learn", "mine", "--data", "folder:new", "--threads", "1", "--json")
    assert told.json["drift"]["moved"] > 0
    assert told.json["drift"]["clipped"] == 0
    forgotten = ancl("forget", "mine", "--class", "one")
    assert forgotten.code == 0, forgotten.err
    assert "Approximate: the classifier was computed again without them" in forgotten.out
