import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Store
from tests.lab import StageResult

SHORT = ("--epochs", "1", "--tasks", "2", "--quiet")


def keys() -> set[str]:
    return {info.key for info in Store(Path("runs/.store")).entries()}


def test_list_shows_every_entry_and_the_total(ancl: Any) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)

    found = ancl("store", "list", "--json").json
    text = ancl("store", "list").out

    assert {entry["key"] for entry in found["entries"]} == keys()
    assert found["bytes"] == sum(entry["bytes"] for entry in found["entries"])
    assert f"{len(keys())} entries" in text
    assert all(key[:12] in text for key in keys())


def test_verify_exits_with_1_where_something_is_damaged(ancl: Any) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    assert ancl("store", "verify").code == 0

    file = next(Path("runs/.store/entries").rglob("tensors.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    ended = ancl("store", "verify", "--json")

    assert ended.code == 1
    assert [fault["key"] for fault in ended.json["damaged"]] == [file.parent.name]


def test_prune_keeps_what_runs_need_and_removes_the_rest(ancl: Any) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    needed = keys()
    ancl("run", "ewc", "digits/5", *SHORT, "--runs", "other", "--store", "runs/.store")
    extra = keys() - needed
    assert extra

    told = ancl("store", "prune", "--dry-run", "--json").json
    assert keys() == needed | extra
    ended = ancl("store", "prune", "--json").json

    assert told["removed"] == ended["removed"] == len(extra)
    assert keys() == needed
    assert ancl("run", "lwf", "digits/5", *SHORT, "--dry-run").out.count("to do") == 1  # "0 of … "


def test_prune_keeps_what_a_stopped_run_will_need(ancl: Any) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    needed = keys()
    next(Path("runs").glob("digits*/result.json")).unlink()

    assert ancl("store", "prune", "--json").json["removed"] == 0
    assert keys() == needed


@pytest.mark.parametrize(("file", "text"), [("stages.json", "{"), ("stages.json", "{}")])
def test_prune_stops_where_it_cannot_tell_what_a_run_needs(ancl: Any, file: str, text: str) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    before = keys()
    directory = next(Path("runs").glob("digits*"))
    (directory / file).write_text(text)

    ended = ancl("store", "prune")

    assert ended.code == 2
    assert str(directory) in ended.err
    assert keys() == before
    assert ancl("store", "prune", "--all", "--json").json["removed"] == len(before)
    assert keys() == set()


SEARCHES = {
    "two-stage": ("search", "lwf", "digits/5", "--lamb-grid", "1,10", *SHORT),
    "per-task": ("search", "lwf", "digits/5", "--protocol", "per-task", "--lamb", "10", *SHORT),
}


@pytest.mark.parametrize("protocol", SEARCHES)
def test_prune_keeps_what_a_search_tried_until_it_is_dropped(ancl: Any, protocol: str) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    of_the_run = keys()
    ancl(*SEARCHES[protocol])
    everything = keys()
    assert len(everything) > len(of_the_run)

    kept = ancl("store", "prune", "--json").json
    told = ancl("store", "prune", "--drop-searches", "--dry-run", "--json").json
    [listed] = ancl("store", "list", "--json").json["searches"]
    [directory] = Path("runs/searches").iterdir()
    text = ancl("store", "list").out
    shutil.rmtree(directory)
    dropped = ancl("store", "prune", "--json").json

    assert kept["removed"] == 0
    assert told["removed"] == dropped["removed"] == len(everything - of_the_run)
    assert keys() == of_the_run
    assert (listed["name"], listed["state"]) == (directory.name, "")
    assert len(everything - of_the_run) <= listed["entries"] <= len(everything)
    assert directory.name in text


def test_a_search_done_again_keeps_what_it_needs_now_and_a_damaged_one_stops_the_prune(
    ancl: Any,
) -> None:
    ancl(*SEARCHES["two-stage"])
    [file] = Path("runs/searches").glob("*/stages.json")
    noted = json.loads(file.read_text())
    needed = set(noted["keys"])
    # as another version would have left it
    file.write_text(json.dumps({**noted, "keys": [*needed, "0" * 64]}))

    ancl(*SEARCHES["two-stage"])
    assert set(json.loads(file.read_text())["keys"]) == needed == keys()
    file.write_text("[")
    ended = ancl("store", "prune")

    assert ended.code == 2
    assert str(file.parent) in ended.err
    assert keys() == needed
    assert "stages.json is damaged" in ancl("store", "list").out
    assert ancl("store", "prune", "--drop-searches", "--json").json["removed"] == len(needed)


def test_prune_to_a_size_removes_no_more_than_needed(ancl: Any) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    total = sum(info.bytes for info in Store(Path("runs/.store")).entries())

    ancl("store", "prune", "--all", "--max-size", f"{total // 2000} kB")
    left = sum(info.bytes for info in Store(Path("runs/.store")).entries())

    assert 0 < left <= total // 2


def stopped_in_training(ancl: Any, method: str) -> str:
    """A run stopped within the last task's training: its checkpoint lies in the store."""
    ancl("run", method, "digits/5", *SHORT)
    store = Store(Path("runs/.store"))
    key = next(info.key for info in store.entries() if (info.stage, info.task) == ("main", 1))
    store.save_checkpoint(key, StageResult({"state": torch.zeros(20_000)}, {}))
    for info in list(store.entries()):
        if info.task == 1:
            shutil.rmtree(store.root / "entries" / info.key[:2] / info.key)
    next(Path("runs").glob("digits*/result.json")).unlink()
    return key


def unneeded(count: int) -> int:
    """Put entries into the store that no run needs; how many bytes all entries then have."""
    store = Store(Path("runs/.store"))
    for index in range(count):
        store.save(f"{index}" * 64, StageResult({"weights": torch.zeros(1_000)}, {}))
    return sum(info.bytes for info in store.entries())


def test_a_dry_run_counts_the_checkpoints_that_a_prune_to_a_size_counts(ancl: Any) -> None:
    # The rule is written down twice: of what the store uses, the dry run sees the entries alone,
    # so that all of it seems to fit, while the prune adds the checkpoints that runs still need.
    key = stopped_in_training(ancl, "lwf")
    size = unneeded(3)
    before = keys()

    told = ancl("store", "prune", "--max-size", str(size), "--dry-run", "--json").json
    assert keys() == before
    ended = ancl("store", "prune", "--max-size", str(size), "--json").json

    assert ended["removed"] == 3
    assert (told["removed"], told["bytes"]) == (ended["removed"], ended["bytes"])
    assert len(before - keys()) == 3
    assert Store(Path("runs/.store")).load_checkpoint(key) is not None


def test_a_dry_run_counts_the_leftovers_that_a_prune_frees(ancl: Any) -> None:
    # A checkpoint of a finished stage is of no use: the prune frees its bytes, and so makes room.
    ancl("run", "lwf", "digits/5", *SHORT)
    store = Store(Path("runs/.store"))
    store.save_checkpoint(next(iter(keys())), StageResult({"state": torch.zeros(20_000)}, {}))
    size = unneeded(3)

    told = ancl("store", "prune", "--max-size", str(size), "--dry-run", "--json").json
    ended = ancl("store", "prune", "--max-size", str(size), "--json").json

    assert (ended["removed"], ended["bytes"] > 80_000) == (0, True)
    assert (told["removed"], told["bytes"]) == (ended["removed"], ended["bytes"])


def test_a_dry_run_leaves_out_what_a_prune_does_not_touch(ancl: Any) -> None:
    # A directory with a file of somebody else, and an entry that a process computes right now.
    ancl("run", "lwf", "digits/5", *SHORT)
    unneeded(3)
    store = Store(Path("runs/.store"))
    (store.root / "entries" / "00" / ("0" * 64) / "notes.txt").write_text("mine")

    with store.lock("1" * 64):
        told = ancl("store", "prune", "--dry-run", "--json").json
        ended = ancl("store", "prune", "--json").json

    assert ended["removed"] == 1
    assert (told["removed"], told["bytes"]) == (ended["removed"], ended["bytes"])


def test_prune_without_runs_or_with_a_bad_size_is_refused(ancl: Any) -> None:
    assert "There is no directory runs" in ancl("store", "prune").err
    assert "'2 apples' is not a size" in ancl("store", "prune", "--max-size", "2 apples").err
