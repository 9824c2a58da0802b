"""Killed without warning, again and again: the work goes on and ends in the same bits.

The long test is marked slow. Its length and its moments are set from outside:
``ANCL_KILL_MINUTES=30 ANCL_KILL_SEED=7 pytest -m slow -s tests/system/test_kill.py``.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from ancl import Store
from tests.lab import patching, program

MINUTES = float(os.environ.get("ANCL_KILL_MINUTES", "30"))
KILLS_PER_MINUTE = 2
ANCL = (sys.executable, "-c", program("from tests.lab import start; start()"))
# Read by every process at its start, also by the workers of a pool: a checkpoint after every
# epoch, so that kills fall between checkpoints.
EVERY_EPOCH = patching("CHECKPOINT_SECONDS", "0.0")
# Convolutions with batch norm in channels-last memory, momentum, the fused optimizer.
CONVOLUTIONS = ("--set", "network.name=resnet8", "--set", "network.width=8", "--tasks", "2")
CONVOLUTIONS += ("--epochs", "6", "--set", "training.batch_size=16", "--threads", "1")
SMALL = ("--tasks", "2", "--epochs", "4", "--threads", "1", "--set", "network.hidden=[16]")
GRIDS = ("--lamb-grid", "1,10", "--lamb-a-grid", "0.5,1")
STUDY = """
search_seeds: [10]
table_seeds: [20]
reference_seeds: [20]
benchmarks:
  digits/5:
    settings:
      {data.tasks: 2, training.epochs: 2, training.schedule: cosine, network.hidden: [16]}
    methods:
      lwf: {lamb: [1, 3, 10], lamb_a: [0.1, 1, 10]}
"""
POOL = ("--workers", "2")


class Job(NamedTuple):
    """A command, and the flags of who computes it."""

    words: tuple[str, ...]
    labour: tuple[str, ...] = ()


RUN = ("run", "a-lwf", "digits/5", *CONVOLUTIONS)
GROWING = ("run", "der", "digits/5", "--scenario", "cil", *CONVOLUTIONS)
GROWING += ("--set", "balanced_epochs=6", "--set", "sparsity=0.5")
BRANCHES = ("run", "aanets-lucir", "digits/5", "--scenario", "cil", *CONVOLUTIONS)
COMMANDS = {
    "run": RUN,
    "run of a network that grows": GROWING,
    "run of two branches": BRANCHES,
    "compare": ("compare", "ewc", "a-lwf", "afec-ewc", "--on", "digits/5", *SMALL),
    "search": ("search", "a-lwf", "digits/5", *SMALL, *GRIDS),
    "per-task search": ("search", "lwf", "digits/5", *SMALL, "--protocol", "per-task"),
    "study": ("study", "study.yaml"),
    "analyze": ("analyze", "ewc", "digits/5", *SMALL, "--lamb-a", "1,10", "--grid", "3"),
}
JOBS = {f"{name}, serial": Job(words) for name, words in COMMANDS.items()}
JOBS |= {  # analyze has no pool
    f"{name}, pool": Job(words, POOL) for name, words in COMMANDS.items() if name != "analyze"
}


def start(job: Job, folder: Path) -> subprocess.Popen[bytes]:
    """Start a command in a folder, in which it also writes what it says."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(EVERY_EPOCH)
    (folder / "study.yaml").write_text(STUDY)
    paths = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (folder / "said").open("wb") as said:
        return subprocess.Popen(
            [*ANCL, *job.words, *job.labour],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )


def spoke(process: subprocess.Popen[bytes], folder: Path) -> float:
    """Wait until the work begins, which is its first line, or the process has ended."""
    while process.poll() is None and not (folder / "said").stat().st_size:
        time.sleep(0.01)
    return time.monotonic()


def finish(job: Job, folder: Path) -> float:
    """Let a command work to its end; the seconds from its first line on."""
    process = start(job, folder)
    began = spoke(process, folder)
    code = process.wait(600)
    assert code == 0, (folder / "said").read_text()
    return time.monotonic() - began


def workers_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(entry.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(entry.parent.name))
    return found


def kill(process: subprocess.Popen[bytes], *, workers: bool) -> bool:
    """Kill -9 the command, and its workers too or not; whether it was still at work."""
    if process.poll() is not None:
        return False
    for pid in [process.pid, *(workers_of(process.pid) if workers else [])]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k != "seconds"}
    return [without_times(item) for item in value] if isinstance(value, list) else value


def outcome(folder: Path) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Every file that is data, without times; and what each stage stored: numbers and tensors."""
    files: dict[str, Any] = {}
    for file in sorted(folder.rglob("*")):
        name = str(file.relative_to(folder))
        if ".store" in file.parts or file.suffix not in {".json", ".jsonl", ".csv", ".yaml", ".md"}:
            continue
        text = file.read_text()
        if file.suffix == ".json":
            files[name] = without_times(json.loads(text))
        elif file.suffix == ".jsonl":
            files[name] = without_times([json.loads(line) for line in text.splitlines()])
        else:
            files[name] = text
    store, metas, tensors = Store(folder / "runs" / ".store"), {}, {}
    for info in store.entries():
        entry = store.load(info.key)
        assert entry is not None
        metas[info.key], tensors[info.key] = without_times(entry.meta), entry.tensors
    return files, metas, tensors


def assert_same(whole: Path, killed: Path) -> None:
    expected, actual = outcome(whole), outcome(killed)
    assert actual[0] == expected[0]
    assert actual[1] == expected[1]
    for key, tensors in expected[2].items():
        assert tensors.keys() == actual[2][key].keys()
        differ = [name for name in tensors if not torch.equal(tensors[name], actual[2][key][name])]
        assert not differ, key


SLOW = [pytest.param(words, marks=pytest.mark.slow) for words in (GROWING, BRANCHES)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("words", [RUN, *SLOW])
def test_killed_twice_ends_in_the_same_bits(words: tuple[str, ...], tmp_path: Path) -> None:
    whole, killed, job = tmp_path / "whole", tmp_path / "killed", Job(words)
    finish(job, whole)
    landed = 0
    for moment in (0.3, 0.6):
        process = start(job, killed)
        spoke(process, killed)
        time.sleep(moment)
        landed += kill(process, workers=False)
    assert landed >= 1, "no kill fell into the run"
    finish(job, killed)
    assert_same(whole, killed)


class Loop:
    """Kills jobs at random moments; every job ends as it does undisturbed."""

    def __init__(self, place: Path, randomness: random.Random) -> None:
        self.place, self.random, self.kills = place, randomness, Counter[str]()
        self.seconds: dict[tuple[str, ...], float] = {}
        self.rounds = 0

    def whole(self, job: Job) -> Path:
        """The folder of the command undisturbed and serial, which is computed once."""
        folder = self.place / f"whole-{list(COMMANDS.values()).index(job.words)}"
        if job.words not in self.seconds:
            self.seconds[job.words] = finish(Job(job.words), folder)
        return folder

    def disturb(self, name: str) -> None:
        """Kill one job several times, and let it end."""
        job, folder = JOBS[name], self.place / f"round-{self.rounds}"
        self.rounds += 1
        whole, began, before = self.whole(job), time.monotonic(), self.kills[name]
        for _ in range(self.random.randint(2, 5)):
            process = start(job, folder)
            if self.random.random() < 0.8:  # else while the libraries load
                spoke(process, folder)
            # Half of the time is enough: each start begins where the one before was killed.
            time.sleep(self.random.uniform(0, self.seconds[job.words] / 2))
            if not kill(process, workers=self.random.random() < 0.5):
                break  # it came to its end
            self.kills[name] += 1
        finish(job, folder)
        assert_same(whole, folder)
        landed, seconds = self.kills[name] - before, time.monotonic() - began
        print(f"{name}: {landed} kills, the same bits, {seconds:.0f} s", flush=True)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc")
@pytest.mark.timeout(max(600.0, MINUTES * 60 * 3))
def test_every_command_killed_at_random_moments_ends_in_the_same_bits(tmp_path: Path) -> None:
    seed = int(os.environ.get("ANCL_KILL_SEED", random.randrange(1_000_000)))
    print(f"ANCL_KILL_SEED={seed} ANCL_KILL_MINUTES={MINUTES:g}", flush=True)
    loop, wanted = Loop(tmp_path, random.Random(seed)), MINUTES * KILLS_PER_MINUTE
    end = time.monotonic() + MINUTES * 60
    names = cycle(loop.random.sample(list(JOBS), len(JOBS)))

    while time.monotonic() < end or loop.kills.total() < wanted:
        loop.disturb(next(names))

    rows = [f"  {name}: {loop.kills[name]}" for name in JOBS]
    print("\n".join([f"{loop.kills.total()} kills in {loop.rounds} jobs:", *rows]), flush=True)
    assert loop.kills.total() >= wanted
    if loop.rounds >= 2 * len(JOBS):
        assert set(loop.kills) == set(JOBS), "a command was never killed"
