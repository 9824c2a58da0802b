from pathlib import Path
from typing import Any

import pytest

from ancl.store import Store

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


@pytest.mark.parametrize(("file", "text"), [("result.json", "{"), ("result.json", "{}")])
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


def test_prune_to_a_size_removes_no_more_than_needed(ancl: Any) -> None:
    ancl("run", "lwf", "digits/5", *SHORT)
    total = sum(info.bytes for info in Store(Path("runs/.store")).entries())

    ancl("store", "prune", "--all", "--max-size", f"{total // 2000} kB")
    left = sum(info.bytes for info in Store(Path("runs/.store")).entries())

    assert 0 < left <= total // 2


def test_prune_without_runs_or_with_a_bad_size_is_refused(ancl: Any) -> None:
    assert "There is no directory runs" in ancl("store", "prune").err
    assert "'2 apples' is no size" in ancl("store", "prune", "--max-size", "2 apples").err
