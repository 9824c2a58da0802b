"""Results and stores that may not be read: one message, and nothing is removed."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

NOBODY = 65534
UNREADABLE = {
    "entry": ("runs/.store/entries/*/*/entry.json", ("store", "verify"), 1, "Permission denied"),
    "tensors": ("runs/.store/entries/*/*/tensors*", ("store", "verify"), 1, "Permission denied"),
    "entry's folder": ("runs/.store/entries/*/*", ("store", "verify"), 1, "Permission denied"),
    "listed entry": ("runs/.store/entries/*/*", ("store", "list"), 0, "Permission denied"),
    "shard": ("runs/.store/entries/*", ("store", "list"), 2, "cannot be read"),
    "entries": ("runs/.store/entries", ("store", "prune", "--dry-run"), 2, "Permission denied"),
    "run's result": ("runs/digits*/result.json", ("report", "--output", "out"), 2, "Permission"),
    "pruned run": ("runs/digits*", ("store", "prune"), 2, "Nothing was removed"),
}


@pytest.mark.parametrize(("place", "words", "code", "phrase"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_may_not_be_read_is_one_message(
    place: str,
    words: tuple[str, ...],
    code: int,
    phrase: str,
    ancl: Any,
    finished: Path,
    no_figures: None,
) -> None:
    shutil.copytree(finished, "runs")
    Path().absolute().chmod(0o777)
    ancl(*words)  # what it imports must be there before rights are given up
    shutil.rmtree("out", ignore_errors=True)
    locked = sorted(Path().glob(place))[0]
    before = locked.stat().st_mode
    locked.chmod(0)

    try:
        if os.geteuid() == 0:
            os.seteuid(NOBODY)
        ended = ancl(*words)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        locked.chmod(before)

    said = ended.out + ended.err
    assert ended.code == code, said
    assert phrase in said
    assert "Traceback" not in said
