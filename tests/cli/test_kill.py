"""Killed without warning, again and again: the run goes on and ends in the same bits."""

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

from ancl.store.store import Store

PROGRAM = """
import sys
import ancl.stages.runner
# After every epoch, so that kills fall between checkpoints.
ancl.stages.runner.CHECKPOINT_SECONDS = 0.0
from ancl.cli.main import main
sys.argv = ["ancl", *sys.argv[1:]]
main()
"""
# Convolutions with batch norm in channels-last memory, momentum, the fused optimizer.
SETTINGS = {
    "network.name": "resnet8",
    "network.width": 8,
    "training.epochs": 6,
    "training.batch_size": 16,
    "data.tasks": 2,
    "threads": 1,
}


def start(method: str, runs: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM, "run", method, "digits/5", "--runs", str(runs)]
    for key, value in SETTINGS.items():
        command += ["--set", f"{key}={value}"]
    return subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def outcome(runs: Path) -> tuple[Any, list[Any], dict[str, dict[str, torch.Tensor]]]:
    """Result and log without times, and every tensor of every stage."""
    (directory,) = [path.parent for path in runs.glob("*/result.json")]
    log = [json.loads(line) for line in (directory / "log.jsonl").read_text().splitlines()]
    store = Store(runs / ".store")
    tensors = {}
    for info in store.entries():
        entry = store.load(info.key)
        assert entry is not None
        tensors[info.key] = entry.tensors
    return (
        without_times(json.loads((directory / "result.json").read_text())),
        without_times(log),
        tensors,
    )


def learned_epochs(process: subprocess.Popen[str], after: float) -> None:
    """Wait until training has begun (the first line of progress), and then a little."""
    assert process.stderr is not None
    process.stderr.readline()
    time.sleep(after)


def kill_and_resume(method: str, tmp_path: Path, moments: list[float]) -> None:
    whole = start(method, tmp_path / "whole")
    _, said = whole.communicate(timeout=200)
    assert whole.returncode == 0, said
    killed = 0
    for moment in moments:
        process = start(method, tmp_path / "killed")
        learned_epochs(process, moment)
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
        assert process.stderr is not None
        process.stderr.close()
    assert killed >= len(moments) // 2, "too few kills fell into the run to show anything"
    last = start(method, tmp_path / "killed")
    _, said = last.communicate(timeout=200)
    assert last.returncode == 0, said
    expected, actual = outcome(tmp_path / "whole"), outcome(tmp_path / "killed")
    assert actual[0] == expected[0]
    assert actual[1] == expected[1]
    assert actual[2].keys() == expected[2].keys()
    for key, tensors in expected[2].items():
        assert tensors.keys() == actual[2][key].keys()
        differ = [name for name in tensors if not torch.equal(tensors[name], actual[2][key][name])]
        assert not differ, key


@pytest.mark.timeout(400)
def test_killed_twice_ends_in_the_same_bits(tmp_path: Path) -> None:
    kill_and_resume("a-lwf", tmp_path, [0.3, 0.6])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("method", ["a-lwf", "afec-ewc"])
def test_killed_ten_times_ends_in_the_same_bits(method: str, tmp_path: Path) -> None:
    kill_and_resume(method, tmp_path, [0.05 + 0.12 * number for number in range(10)])
