"""What a study keeps of its runs: read back with doubt, and never written over others' files."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import StoreError
from tests.lab import NUMERICS, ResultFolder, StudyRun, study_specs

Forge = Callable[..., StudyRun | None]
ROWS = [[0.5, None], [0.25, 1.0]]
METRICS = {"aac": 0.625, "aiac": 0.5625, "forgetting": 0.25, "learning_accuracy": 0.75}
DONE: dict[str, Any] = {
    "failed": "",
    "seconds": 1.0,
    "metrics": METRICS,
    "images": [[8, 2, 2]] * 2,
    "matrices": dict.fromkeys(("taw", "tag", "taw_val", "tag_val"), ROWS),
    "numerics": {"ancl": NUMERICS},
}


@pytest.fixture(params=["til", "cil"])
def forge(request: pytest.FixtureRequest, tmp_path: Path) -> Forge:
    """Writes the file of a run with some fields changed, and reads it."""
    [spec] = study_specs("lwf", "digits/5", {"data.scenario": request.param}, [0])
    ResultFolder(tmp_path).fail(spec, "it diverged", {})
    [place] = tmp_path.iterdir()
    stored = {**json.loads(place.read_text()), **DONE}

    def read(**changes: Any) -> StudyRun | None:
        place.write_text(json.dumps({**stored, **changes}))
        return ResultFolder(tmp_path).get(spec)

    return read


def test_a_whole_file_is_read(forge: Forge) -> None:
    run = forge()

    assert run is not None
    # AAC: the last row's mean. AIAC: (0.5 + that) / 2, as all tasks weigh the same.
    assert run.score == (0.625 if run.spec.task_aware else 0.5625)
    assert (run.value, run.seconds, run.failed) == (run.score, 1.0, "")


MATRICES = [
    [],
    [[]],
    [[0.5]],
    [[0.5], [0.5], [0.5]],
    [[5, None], [7, 8]],
    [[-1, None], [0.5, 0.5]],
    [[0.5, None], [float("nan"), 0.5]],
    [[0.5, None], [float("inf"), 0.5]],
    [[0.5, None], [10**400, 0.5]],
    [[0.5, None], [None, None]],
    [[0.5, None], ["x", 0.5]],
    [[0.5, None], [[1], 0.5]],
    [[True, None], [True, True]],
    "ab",
    {"a": 1},
]


@pytest.mark.parametrize(
    "changes",
    [
        *({"images": value} for value in ([], [[0, 0, 0]] * 2, [[8, 2, 2]], [[8, 2, 2]] * 3)),
        *({"images": value} for value in ([[-8, -2, -2]] * 2, [[10**400, 2, 2]] * 2, "x", None)),
        *({"matrices": DONE["matrices"] | {"taw_val": v, "tag_val": v}} for v in MATRICES),
        *({"matrices": DONE["matrices"] | {"taw": v, "tag": v}} for v in MATRICES),
        *({"matrices": value} for value in ({}, [], None)),
        *({"seconds": value} for value in (-1, float("nan"), 10**400, None, True, "x")),
        *({"metrics": value} for value in ([], None)),
        *({"metrics": METRICS | {"aac": v, "aiac": v}} for v in (5, -1, None, 10**400, "x")),
        *({"metrics": {**METRICS, name: value + 0.01}} for name, value in METRICS.items()),
        *({"numerics": value} for value in ([], {}, 3)),
        *({"parameters": value} for value in ("x", [[1]], [[1, 2.5]], None)),
        *({"failed": value} for value in (True, ["x"])),
    ],
    ids=lambda changes: str(changes)[:60],
)
def test_damage_is_one_message(forge: Forge, changes: dict[str, Any]) -> None:
    with pytest.raises(StoreError, match=r"json is damaged \(.*\)\. Delete it to run it again\."):
        forge(**changes)


def test_results_of_another_spec_or_arithmetic_are_none(forge: Forge) -> None:
    assert forge(hash="another") is None
    assert forge(numerics={"ancl": NUMERICS - 1}) is None


def test_failures_are_kept_and_damage_is_told(tmp_path: Path) -> None:
    [one] = study_specs("lwf", "digits/5", {}, [0])
    ResultFolder(tmp_path).fail(one, "it diverged", {})
    found = ResultFolder(tmp_path).get(one)
    assert found is not None
    assert (found.failed, np.isnan(found.score)) == ("it diverged", True)

    [place] = tmp_path.iterdir()
    for text in ("{", "[1]"):
        place.write_text(text)
        with pytest.raises(StoreError, match="is damaged"):
            ResultFolder(tmp_path).get(one)
    with pytest.raises(StoreError, match=place.name):  # a file that is not ours stays
        ResultFolder(tmp_path).fail(one, "again", {})
    assert place.read_text() == "[1]"
    place.unlink()
    os.mkfifo(place)
    with pytest.raises(StoreError, match="not a plain file"):
        ResultFolder(tmp_path).get(one)
