"""How long ``ancl store list``, ``prune`` and ``verify`` take on a store of many entries.

    python benchmarks/store.py [--entries 10000] [--runs 300] [--kilobytes 20] [--repeats 3]

The entries have the sizes of real ones: every second is a training with its log of 60 epochs. They
are written without fsync, since they are thrown away. A line is the time of the whole command with
the start of Python, which ``ancl store --help`` shows for comparison, or of the call from Python
alone; the first listing has no index yet. ``verify`` is compared with reading the same files and
hashing them. The two columns are seconds of the clock, and seconds of the processor, which a busy
machine does not stretch.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import torch
from timing import median

from ancl.files import write_stages
from ancl.store.places import HEADER, TENSORS
from ancl.store.prune import prune
from ancl.store.store import StageResult, Store

LOG = [
    {
        "role": "main",
        "epoch": epoch,
        "train": {"task": 0.123456789 / (epoch + 1), "old": 0.0123456789 / (epoch + 1)},
        "val": {"task": 0.234567891 / (epoch + 1), "old": 0.0234567891 / (epoch + 1)},
        "accuracy": 0.987654321 - 1 / (epoch + 2),
        "lr": 0.05,
        "best": epoch % 2 == 0,
        "seconds": 0.123456789,
    }
    for epoch in range(60)
]
ANCL = (sys.executable, "-m", "ancl", "store")


def fill(runs: Path, entries: int, count: int, kilobytes: int) -> None:
    """A store of entries, all of which runs need."""
    store = Store(runs / ".store")
    keys = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(entries)]
    weights = torch.zeros(kilobytes * 250)
    store.check()
    with patch("os.fsync", lambda descriptor: None):
        for number, key in enumerate(keys):
            meta = {"stage": "main", "task": number % 10, "seconds": 12.3, "log": LOG}
            if number % 2:
                meta = {"stage": "evaluate", "task": number % 10, "taw": [0.9] * 10}
            store.save(key, StageResult({"network/weight": weights}, meta))
            (store.root / "locks" / f"{key}.lock").touch()  # as every computed stage leaves one
    for number in range(count):
        directory = runs / f"run{number}"
        directory.mkdir()
        write_stages(directory, keys[number::count])


def command(*words: str) -> Callable[[], object]:
    """A call of ``ancl store``."""
    return lambda: subprocess.run([*ANCL, *words], stdout=subprocess.DEVNULL, check=True)


def hashed(root: Path) -> None:
    """Read every file of the entries and hash it: the least that a check of checksums costs."""
    for shard in os.scandir(root / "entries"):
        for entry in os.scandir(shard):
            for name in (HEADER, TENSORS):
                with open(f"{entry.path}/{name}", "rb") as file:
                    hashlib.sha256(file.read()).digest()


def show(name: str, call: Callable[[], object], repeats: int) -> None:
    """Print the seconds of a call, of the clock and of the processor."""
    clock, processor = [], []
    for _ in range(repeats):
        began, used = time.perf_counter(), sum(os.times()[:4])
        call()
        clock.append(time.perf_counter() - began)
        processor.append(sum(os.times()[:4]) - used)
    print(f"  {name:28} {median(clock):7.2f} {median(processor):7.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--kilobytes", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder) / "runs"
        fill(runs, given.entries, given.runs, given.kilobytes)
        where = ("--runs", str(runs))
        store = Store(runs / ".store")
        print(f"{given.entries} entries of {given.runs} runs; medians of {given.repeats} calls")
        time.sleep(3)  # headers that changed just now are not indexed yet
        show("first ancl store list", command("list", *where), 1)
        timed = {
            "ancl store --help": command("--help"),
            "ancl store list": command("list", *where),
            "ancl store prune --dry-run": command("prune", "--dry-run", *where),
            "ancl store prune": command("prune", *where),
            "ancl store verify": command("verify", *where),
            "Store.entries()": lambda: list(store.entries()),
            "prune()": lambda: prune(runs),
            "Store.verify()": store.verify,
            "every file read and hashed": lambda: hashed(store.root),
        }
        for name, call in timed.items():
            show(name, call, given.repeats)
        for number in range(given.runs // 10):
            shutil.rmtree(runs / f"run{number}")
        show("a tenth of them removed", lambda: prune(runs), 1)


if __name__ == "__main__":
    main()
