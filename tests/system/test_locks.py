"""A stage is computed by one process, and another one waits for it."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from ancl import Store
from tests.lab import StageResult, program

PAIR = program("""
import os, sys, time
from pathlib import Path
import torch
from tests.lab import StageResult; from ancl import Store

def learn(root, log):
    store = Store(root, say=log.write)
    with store.lock("abc"):
        entry = store.load("abc")
        if entry is None:
            log.write("computed ")
            time.sleep(0.3)
            entry = StageResult({"x": torch.tensor(3.0)}, {})
            store.save("abc", entry)
    log.write(f" {entry.tensors['x'].item()}")

for name in ("first", "second"):
    if os.fork() == 0:
        with (Path(sys.argv[1]) / name).open("w") as log:
            learn(Path(sys.argv[1]) / "store", log)
        os._exit(0)
assert [os.wait()[1], os.wait()[1]] == [0, 0]
""")

HOLDER = """
import sys, time
from filelock import FileLock
with FileLock(sys.argv[1]):
    print("held", flush=True)
    time.sleep(60)
"""


def entry(value: float = 1.0, size: int = 100, **meta: object) -> StageResult:
    return StageResult({"x": torch.full((size,), value)}, dict(meta))


def files_below(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def hold(root: Path, key: str) -> subprocess.Popen[str]:
    path = root / "locks" / f"{key}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate()


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def store(tmp_path: Path, said: list[str]) -> Store:
    return Store(tmp_path / "store", said.append)


def test_two_processes_compute_a_key_once_and_one_says_that_it_waits(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", PAIR, str(tmp_path)], check=True)
    computed, waited = sorted((tmp_path / name).read_text() for name in ("first", "second"))[::-1]
    assert computed == "computed  3.0"
    assert waited == f"Waiting for another process that computes abc ({tmp_path / 'store'}). 3.0"


def test_a_lock_is_waited_for_and_survives_the_death_of_its_holder(
    store: Store, said: list[str]
) -> None:
    holder = hold(store.root, "abc")
    with store.lock("abd"):
        assert said == []
    killer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            f"""
import os, signal, time
time.sleep(0.3)
os.kill({holder.pid}, signal.SIGKILL)
""",
        ]
    )
    with store.lock("abc"):
        holder.communicate(timeout=1)
        assert holder.returncode == -signal.SIGKILL
    killer.wait()
    assert len(said) == 1
    assert "Waiting for another process that computes abc" in said[0]


def test_prune_leaves_what_is_locked_and_removes_unused_locks(store: Store) -> None:
    for key in ("aaa", "bbb"):
        with store.lock(key):
            store.save(key, entry())
    store.save_checkpoint("ccc", entry())
    holders = [hold(store.root, "aaa"), hold(store.root, "ccc")]
    try:
        assert store.prune([])[0] == 1
        assert store.has("aaa")
        assert store.load_checkpoint("ccc") is not None
        locks = sorted(path.name for path in (store.root / "locks").iterdir())
        assert locks == ["aaa.lock", "ccc.lock"]
    finally:
        for holder in holders:
            end(holder)
    assert store.prune([])[0] == 1
    assert files_below(store.root) == set()
