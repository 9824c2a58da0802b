"""Interleaved timing: ratios with an interval are all that a shared machine can tell."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np


class Ratio(NamedTuple):
    """The median of paired ratios and its 95 % interval (bootstrap over pairs)."""

    median: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


def interleaved(
    runs: dict[str, Callable[[], object]],
    pairs: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every run, taken in turn; the order rotates so that none is always first.

    Args:
        runs: What is measured, by name.
        pairs: How often.
        clock: ``time.process_time`` where others keep all cores busy.
    """
    names = list(runs)
    times: dict[str, list[float]] = {name: [] for name in names}
    for run in runs.values():
        run()
    for turn in range(pairs):
        for position in range(len(names)):
            name = names[(turn + position) % len(names)]
            began = clock()
            runs[name]()
            times[name].append(clock() - began)
    return times


def ratio(ours: list[float], theirs: list[float]) -> Ratio:
    """Ours over theirs, pair by pair."""
    values = np.array(ours) / np.array(theirs)
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (2000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Ratio(float(np.median(values)), float(low), float(high), len(values))


def difference(ours: list[float], theirs: list[float]) -> Ratio:
    """Ours minus theirs in milliseconds, pair by pair, with the same interval."""
    values = 1000 * (np.array(ours) - np.array(theirs))
    rng = np.random.default_rng(0)
    medians = np.median(rng.choice(values, (2000, len(values))), axis=1)
    low, high = np.percentile(medians, [2.5, 97.5])
    return Ratio(float(np.median(values)), float(low), float(high), len(values))


def median(values: list[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def peak_memory() -> int:
    """The largest memory of this process so far, in bytes (Linux).

    Not that of ``getrusage``, which a process has from the one that started it.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(peak)
