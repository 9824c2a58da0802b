"""The page beside other libraries says what was measured, and its programs are those of users."""

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "peers.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "benchmarks" / "peers.py"))


@pytest.fixture(scope="module")
def found(script) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(script["RESULTS"].read_text(encoding="utf-8"))
    return loaded


def test_the_table_is_that_of_the_results(script) -> None:
    assert script["with_table"](PAGE) == PAGE, "run: python benchmarks/peers.py --table"


def test_lines_are_those_of_the_programs(script, found) -> None:
    assert {side: script["count_lines"](side) for side in script["SIDES"]} == found["lines"]


def test_what_is_said_of_mistakes_is_what_happened(found) -> None:
    ours, theirs = (
        {name: found["mistakes"][name][side] for name in found["mistakes"]}
        for side in ("ancl", "avalanche")
    )
    assert [ours[name]["code"] for name in ("misspelt", "impossible")] == [1, 1]
    assert "Did you mean 'epochs'?" in ours["misspelt"]["said"]
    assert theirs["misspelt"]["code"] == 1
    assert "train_epoch" in theirs["misspelt"]["said"]
    assert (theirs["impossible"]["code"], theirs["impossible"]["trained"]) == (0, 5)


def test_what_is_said_of_photos_and_checkpoints_is_what_happened(found) -> None:
    ours, theirs = (found["photos"][side]["damaged"] for side in ("ancl", "avalanche"))
    assert "damaged.png" in ours["said"]
    assert theirs["said"] == "OSError: image file is truncated"
    assert theirs["trained"] > 0
    assert found["checkpoint"]["code"] == 1
    assert "PicklingError" in found["checkpoint"]["said"]
    assert found["killed"]["ancl"]["the_same_accuracy"]


def test_both_sides_have_the_same_settings(script) -> None:
    def numbers(side: str, pattern: str) -> set[str]:
        texts = [script["program"](side, name) for name in ("lwf", "icarl", "photos")]
        return {value for text in texts for value in re.findall(pattern, text)}

    for pattern in (r"\bepochs=(\d+)", r"\blr=([\d.]+)", r"(?:batch_size|train_mb_size)=(\d+)"):
        ours, theirs = (
            numbers(side, pattern.replace(r"\bepochs", r"epochs")) for side in script["SIDES"]
        )
        assert ours == theirs
        assert len(ours) == 1


def test_lines_for_resuming_are_left_out_and_counted(script) -> None:
    whole = script["program"]("avalanche", "lwf", resume=True)

    assert "save_checkpoint" in whole
    assert "checkpoint" not in script["program"]("avalanche", "lwf")
    compile(script["program"]("avalanche", "icarl"), "program", "exec")
