"""A store that many runs share stays quick to list, and a prune to a size knows what runs need."""

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Store
from tests.lab import StageResult, write_stages

RUNS, OWN, SHARED = 200, 8, 4


def key(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()


@pytest.fixture
def many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The keys of every run, half of which were kept as run directories."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nothing here outlives the test
    store = Store(tmp_path / "runs" / ".store")
    runs = []
    shared = [key("shared", index) for index in range(SHARED)]
    for number in range(RUNS):
        own = [key(number, index) for index in range(OWN)]
        for each in own if number else [*shared, *own]:
            store.save(
                each, StageResult({"network/w": torch.zeros(500)}, {"stage": "main", "task": 1})
            )
        runs.append([*shared, *own])
        if number % 2:
            directory = tmp_path / "runs" / f"run{number}"
            directory.mkdir()
            write_stages(directory, runs[-1])
    return runs


def test_two_hundred_runs_are_listed_within_two_seconds_and_pruned_to_a_size(
    ancl: Any, many: list[list[str]]
) -> None:
    ancl("list", "data")  # what the command imports is not the store's time
    began = time.process_time()
    listed = ancl("store", "list", "--json").json
    seconds = time.process_time() - began
    needed = {each for number, keys in enumerate(many) if number % 2 for each in keys}

    half = listed["bytes"] * 3 // 4
    pruned = ancl("store", "prune", "--max-size", f"{half // 1000} KB", "--json").json
    left = {info["key"]: info["bytes"] for info in ancl("store", "list", "--json").json["entries"]}
    all_gone = ancl("store", "prune", "--max-size", "1 KB", "--json").json
    kept = {info["key"] for info in ancl("store", "list", "--json").json["entries"]}

    assert len(listed["entries"]) == RUNS * OWN + SHARED
    assert seconds < 2
    assert 0 < pruned["removed"] < RUNS * OWN // 2
    assert sum(left.values()) <= half
    assert needed <= left.keys()
    assert kept == needed  # however small the size asked for
    assert all_gone["removed"] == RUNS * OWN // 2 - pruned["removed"]


@pytest.mark.slow
def test_ten_thousand_entries_are_listed_and_pruned_within_two_seconds(
    ancl: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    store, runs = Store(tmp_path / "runs" / ".store"), tmp_path / "runs"
    epoch = {"epoch": 1, "train": {"task": 0.123456789, "old": 0.123456789}, "lr": 0.05}
    keys = [key(number) for number in range(10_000)]
    for each in keys:
        meta = {"stage": "main", "task": 1, "log": [epoch] * 60}
        store.save(each, StageResult({"network/w": torch.zeros(500)}, meta))
    for number in range(300):
        (runs / f"run{number}").mkdir()
        write_stages(runs / f"run{number}", keys[number::300])
    time.sleep(3)  # headers that changed just now are not indexed yet
    first = ancl("store", "list", "--json").json

    seconds = {}
    for words in (("list",), ("prune", "--dry-run"), ("prune",)):
        began = time.process_time()
        assert ancl("store", *words).code == 0
        seconds[words] = time.process_time() - began

    assert len(first["entries"]) == 10_000
    assert max(seconds.values()) < 2, seconds
    assert ancl("store", "list", "--json").json == first
