"""Who computes the stages of a sweep: executor, workers and the threads of each."""

from typing import NamedTuple

from ancl.cli.table import counted
from ancl.errors import SpecError, unknown
from ancl.executors import EXECUTORS, Executor, cores


class ExecutorChoice(NamedTuple):
    """An executor, the threads each of its stages gets (as a flag's value), and how to say so."""

    executor: Executor
    threads: str | None
    workers: int
    said: str


def choose_labour(
    name: str | None, workers: str | None, address: str | None, threads: str | None
) -> ExecutorChoice:
    """The executor that flags ask for; threads are part of every key, so they are fixed first.

    Raises:
        SpecError: Flags that do not fit together.
    """
    name = name or ("ray" if address else "pool" if workers else "serial")
    if name not in EXECUTORS:
        raise SpecError("--executor: " + unknown("executor", name, EXECUTORS))
    if address and name != "ray":
        raise SpecError(f"--address is for --executor ray, not for {name}. Leave out one.")
    if name == "serial":
        if workers not in (None, "1"):
            raise SpecError("--workers is for --executor pool or ray; serial computes alone.")
        return _serial(threads)
    if workers is not None and not (workers.isdecimal() and int(workers)):
        raise SpecError(f"--workers: {workers!r} is no number of workers. Write 1 or more.")
    count = int(workers) if workers else cores()
    return _pool(count, threads) if name == "pool" else _ray(count, address, threads)


def _serial(threads: str | None) -> ExecutorChoice:
    from ancl.executors.serial import Serial

    return ExecutorChoice(Serial(), threads, 1, "")


def _pool(count: int, threads: str | None) -> ExecutorChoice:
    from ancl.executors.pool import Pool

    each = threads or str(max(cores() // count, 1))
    said = f"{counted(count, 'worker')}, each with {_threads(each)}, on {counted(cores(), 'core')}."
    if each.isdecimal() and count * int(each) > cores():
        said += " More threads than cores are slow: lower --workers or --threads."
    return ExecutorChoice(Pool(count), each, count, said)


def _threads(text: str) -> str:
    return counted(int(text), "thread") if text.isdecimal() else f"{text} threads"


def _ray(count: int, address: str | None, threads: str | None) -> ExecutorChoice:
    from ancl.executors.ray import Cluster

    each = threads or "1"
    where = f"the cluster at {address}" if address else f"{count} CPUs of this machine"
    return ExecutorChoice(
        Cluster(address, count), each, count, f"Ray on {where}, {_threads(each)} a stage."
    )
