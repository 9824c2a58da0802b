"""A dry run says what to expect, what it costs, what is done already, and what is missing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ancl import Events, SpecError
from tests.lab import WRITERS, Epoch, Stage, expected, patch_part

SHORT = ("--tasks", "2", "--threads", "1")


def test_the_expected_number_and_a_measured_time_are_shown(
    ancl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = expected("cifar100/10", "a-lwf")
    patch_part(monkeypatch, "groups_expected", lambda benchmark, method: number)
    asked = ("run", "a-lwf", "digits/5", "--threads", "1", "--dry-run")
    text, found = ancl(*asked).out, ancl(*asked, "--json").json
    short = ancl(*asked, "--epochs", "1", "--json").json
    changed = ancl(*asked, "--epochs", "1").out

    assert found["runs"][0]["expected"] == [number[0]._asdict()]
    assert "Expected: AAC 79.42 ± 0.57 % (the paper's table 2, n = 3 seeds)" in text
    assert "That number belongs to another protocol" not in text
    assert "training.epochs is 1 instead of" in changed
    assert re.search(
        r"Time: at most about .+ on this machine; the start takes .+ of it\. This is an est", text
    )
    assert 0 < short["most_seconds"] < found["most_seconds"]
    assert not Path("runs").exists()


def test_a_comparison_that_is_not_started_says_how_long_it_takes(ancl: Any) -> None:
    asked = ("compare", "lwf", "a-lwf", "--on", "digits/5", *SHORT, "--dry-run")

    assert "Time: at most about" in ancl(*asked).out
    assert ancl(*asked, "--json").json["most_seconds"] > 0


class Stop(Events):
    """Ends the work after some epochs, as Ctrl-C does."""

    def __init__(self, epochs: int) -> None:
        self._left = epochs

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


def test_the_epochs_of_a_checkpoint_are_counted(ancl: Any) -> None:
    import ancl as library

    asked = ("run", "lwf", "digits/5", *SHORT, "--epochs", "9")
    settings = {"training.epochs": 9, "training.epochs_first": None, "data.tasks": 2}
    before = ancl(*asked, "--dry-run", "--json").json
    with pytest.raises(KeyboardInterrupt):
        library.run("lwf", "digits/5", settings=settings, threads=1, events=Stop(4))

    after = ancl(*asked, "--dry-run", "--json").json
    stages = {(s["task"], s["stage"]): s["epochs_done"] for s in after["runs"][0]["stages"]}
    assert stages[0, "main"] == 3  # the fourth was not checkpointed
    assert sum(stages.values()) == 3
    assert "3 of at most 9 epochs done" in ancl(*asked, "--dry-run").out
    assert "(at most 18 epochs, 3 of them done)" in ancl(*asked).err
    assert before["runs"][0]["directory"] == after["runs"][0]["directory"]


@pytest.mark.parametrize(
    "command",
    [
        ("run", "lwf", "digits/5"),
        ("compare", "lwf", "--on", "digits/5"),
        ("search", "lwf", "digits/5", "--lamb-grid", "1,2"),
        ("analyze", "lwf", "digits/5", "--lamb-a", "1"),
    ],
)
def test_a_logger_that_is_not_installed_is_refused_before_training(
    ancl: Any, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    def missing() -> Any:
        raise SpecError("--log: wandb is not installed.")

    monkeypatch.setitem(WRITERS, "wandb", missing)

    ended = ancl(*command, "--dry-run", "--log", "wandb")

    assert (ended.code, ended.err.strip()) == (2, "--log: wandb is not installed.")
    assert json.dumps(ended.out) == '""'
