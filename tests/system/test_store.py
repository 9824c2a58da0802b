"""A store that several processes read and write at once, and some of them are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from ancl import Store
from tests.lab import (
    INDEX,
    StageResult,
    entry_names,
    patch_part,
    patching,
    program,
    read_entry,
    write_entry,
)

WRITERS = program("""
import os, sys
from pathlib import Path
import safetensors.torch  # before the fork, so that no writer spends its short life on it
import torch
from tests.lab import StageResult, write_entry

def write_for_ever(place, size):
    for number in range(1_000_000):
        tensors = {"x": torch.full((size,), float(number))}
        write_entry(place, StageResult(tensors, {"number": number}))

torch.set_num_threads(1)
for size in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        write_for_ever(Path(sys.argv[1]), int(size))
    print(child, flush=True)
    os.waitpid(child, 0)
""")


def consistent_number(place: Path) -> int:
    entry = read_entry(place, place.name)
    number = int(entry.meta["number"])
    assert entry.tensors["x"].eq(number).all()
    return number


def test_a_reader_never_gets_a_wrong_entry_while_writers_are_killed(tmp_path: Path) -> None:
    place, moments = tmp_path / "key", random.Random(0)
    write_entry(place, StageResult({"x": torch.full((9,), -1.0)}, {"number": -1}))
    sizes = ["1000", "10000", "300000", "1000000", "3000000"]
    command = [sys.executable, "-c", WRITERS, str(place), *sizes]
    seen: set[tuple[str, int]] = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        for size in sizes:
            writer = int(parent.stdout.readline())
            end = time.monotonic() + moments.uniform(0.1, 0.4)
            while time.monotonic() < end:
                seen.add((size, consistent_number(place)))
            os.kill(writer, signal.SIGKILL)
            seen.add((size, consistent_number(place)))
    assert parent.returncode == 0
    assert len(seen) > 10
    assert entry_names(tmp_path) == ["key"]


LISTERS = patching("SETTLED_NS", "-1") + program("""
import os, sys
from pathlib import Path
from tests.lab import StageResult; from ancl import Store
import torch

root, number = Path(sys.argv[1]), int(sys.argv[2])
store = Store(root)
for turn in range(30):
    if number < 2:
        key = f"{number}{turn:02d}"
        store.save(key, StageResult({"x": torch.ones(9)}, {"stage": f"w{number}", "task": turn}))
    for info in store.entries():
        assert info.state == "ok", info
        assert (info.stage, info.task) == (f"w{info.key[0]}", int(info.key[1:])), info
""")


def test_writers_and_listers_at_once_leave_a_whole_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_part(monkeypatch, "SETTLED_NS", -1)
    command = [sys.executable, "-c", LISTERS, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]

    found = list(Store(tmp_path).entries())

    assert len(found) == 60
    assert {info.state for info in found} == {"ok"}
    assert len(json.loads((tmp_path / INDEX).read_text())["lines"]) == 60
