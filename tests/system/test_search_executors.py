"""The same search by every executor, and after its command was killed: the same decision."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Store
from tests.lab import Progress, patch_part, program

ANCL = (sys.executable, "-c", program("from tests.lab import main; main()"))
SHORT = ("--epochs", "2", "--tasks", "2", "--threads", "1")
TWO_STAGE = ("search", "a-lwf", "digits/5", *SHORT, "--lamb-grid", "1,10", "--lamb-a-grid", "0.5,1")
PER_TASK = ("search", "lwf", "digits/5", *SHORT, "--protocol", "per-task", "--lamb", "100")
ONE_STEP = ("search", "lwf", "digits/5", *SHORT, "--lamb-grid", "1,10")
RACE = ("search", "lwf", "digits/5", "--epochs", "2", "--threads", "1", "--lamb-grid", "1,3,1000")
RACE += ("--search-seeds", "0-1", "--race")
POOL, RAY = ("--workers", "2"), ("--executor", "ray", "--workers", "2")
no_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install 'ancl[ray]'"
)


def decided(runs: Path) -> dict[str, str]:
    """Every file a search wrote."""
    [directory] = (runs / "searches").iterdir()
    return {file.name: file.read_text() for file in directory.iterdir()}


def timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: timeless(v) for key, v in value.items() if key != "seconds"}
    return [timeless(item) for item in value] if isinstance(value, list) else value


def assert_same(one: Path, other: Path) -> None:
    assert decided(one) == decided(other)
    ours, theirs = Store(one / ".store"), Store(other / ".store")
    keys = [info.key for info in ours.entries()]
    assert keys == [info.key for info in theirs.entries()]
    assert set(keys) == set(json.loads(decided(one)["stages.json"])["keys"])
    for key in keys:
        mine, other_one = ours.load(key), theirs.load(key)
        assert mine is not None
        assert other_one is not None
        assert mine.tensors.keys() == other_one.tensors.keys()
        assert all(torch.equal(mine.tensors[n], other_one.tensors[n]) for n in mine.tensors)
        assert timeless(mine.meta) == timeless(other_one.meta)


@pytest.mark.parametrize(
    ("asked", "labour"),
    [
        pytest.param(ONE_STEP, POOL, id="pool"),
        pytest.param(TWO_STAGE, POOL, id="pool two-stage", marks=pytest.mark.slow),
        pytest.param(PER_TASK, POOL, id="pool per-task", marks=pytest.mark.slow),
        pytest.param(RACE, POOL, id="pool race", marks=pytest.mark.slow),
        pytest.param(TWO_STAGE, RAY, id="ray two-stage", marks=[pytest.mark.slow, no_ray]),
        pytest.param(PER_TASK, RAY, id="ray per-task", marks=[pytest.mark.slow, no_ray]),
    ],
)
def test_every_executor_decides_by_the_same_bits(
    ancl: Any, asked: tuple[str, ...], labour: tuple[str, ...]
) -> None:
    serial = ancl(*asked, "--runs", "serial", "--json", "--quiet")
    shared = ancl(*asked, *labour, "--runs", "shared", "--json", "--quiet")

    assert (serial.code, shared.code) == (0, 0)
    assert serial.json["trials"] == shared.json["trials"]
    assert_same(Path("serial"), Path("shared"))


@no_ray
@pytest.mark.slow
def test_a_machine_lost_in_the_middle_of_a_search_changes_nothing(
    ancl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    machines = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    nodes = [machines.add_node(num_cpus=1) for _ in range(2)]

    class Losing(Progress):
        epochs = 0

        def epoch_ends(self, stage: Any, epoch: Any) -> None:
            self.epochs += 1
            if self.epochs == 3:
                machines.remove_node(nodes.pop(), allow_graceful=False)

    try:
        with monkeypatch.context() as patch:
            patch_part(patch, "make_progress", lambda quiet: Losing())
            shared = ancl(*TWO_STAGE, "--address", machines.address, "--runs", "shared", "--json")
    finally:
        machines.shutdown()
    serial = ancl(*TWO_STAGE, "--runs", "serial", "--json", "--quiet")

    assert len(nodes) == 1
    assert (serial.code, shared.code) == (0, 0)
    assert_same(Path("serial"), Path("shared"))


def killed(command: list[str]) -> None:
    """Start a search and kill its command, and nothing else, once it has trained a stage."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if " main: " in line:
                process.kill()
                break
        assert process.wait(60) == -signal.SIGKILL


def children_gone(store: Path) -> bool:
    """Whether no worker of this store is left."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().split(b"\0")
        except OSError:
            continue
        if b"ancl.executors.worker" in words and os.fsencode(store) in words:
            return False
    return True


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="there is no /proc")
@pytest.mark.parametrize(
    ("asked", "labour"),
    [
        pytest.param(TWO_STAGE, (), id="serial"),
        pytest.param(TWO_STAGE, POOL, id="pool", marks=pytest.mark.slow),
        pytest.param(RACE, (), id="race", marks=pytest.mark.slow),
    ],
)
def test_a_search_whose_command_is_killed_goes_on_at_the_next_start(
    ancl: Any, tmp_path: Path, asked: tuple[str, ...], labour: tuple[str, ...]
) -> None:
    stopped, whole = tmp_path / "stopped", tmp_path / "whole"
    there = ("--runs", str(stopped))

    killed([*ANCL, *asked, *labour, *there])
    while not children_gone(stopped / ".store"):  # without a command a worker ends by itself
        time.sleep(0.05)
    before = {info.key for info in Store(stopped / ".store").entries()}
    noted = set(json.loads(decided(stopped)["stages.json"])["keys"])
    pruned = ancl("store", "prune", *there, "--json").json
    again = ancl(*asked, *labour, *there, "--json")
    alone = ancl(*asked, "--runs", str(whole), "--json", "--quiet")

    assert before
    assert before < noted  # all of a step, before any of it is computed
    assert pruned["removed"] == 0
    assert f"{len(before)} stored" in again.err
    assert again.json["trials"] == alone.json["trials"]
    assert_same(stopped, whole)
