"""Where stages are computed: in this process, in a pool of processes, or on Ray."""

import os
from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ancl.errors import SpecError, counted, unknown

if TYPE_CHECKING:
    from ancl.compute.graph import Graph, StageEnd
    from ancl.stages.events import Events
    from ancl.store.store import Store

EXECUTORS = ("serial", "pool", "ray")


class Executor(Protocol):
    """Computes the stages of a graph that a store lacks."""

    def run(
        self, graph: "Graph", store: "Store", events: "Events"
    ) -> Generator["StageEnd", None, None]:
        """Compute every stage that can be; each end is told once, and no stage after a failed one.

        What it starts, such as processes, stops when the generator is closed.

        Raises:
            StoreError: The store cannot be written, so nothing more can be kept.
        """
        ...


class ExecutorChoice(NamedTuple):
    """An executor and how it uses the machine.

    Args:
        executor: What computes.
        workers: The number of stages computed at the same time.
        threads: CPU threads of every stage; None for each run's own number.
        description: The same in words; empty for this process alone.
    """

    executor: Executor
    workers: int = 1
    threads: int | None = None
    description: str = ""


def choose_executor(
    name: str | None = None,
    workers: int | None = None,
    address: str | None = None,
    threads: int | None = None,
) -> ExecutorChoice:
    """The executor that was asked for; threads are part of every key, so they are fixed first.

    Args:
        name: ``serial``, ``pool`` or ``ray``; by default what the other values ask for.
        workers: The number of stages at the same time; by default the number of cores.
        address: The address of a running Ray cluster.
        threads: CPU threads of every stage.

    Raises:
        SpecError: Values that do not fit together.
    """
    asked = "ray" if address is not None else "pool" if workers is not None else "serial"
    name = name or asked
    if name not in EXECUTORS:
        raise SpecError("--executor: " + unknown("executor", name, EXECUTORS))
    if address is not None and name != "ray":
        raise SpecError(f"--address is for --executor ray, not for {name}. Leave out one.")
    if address is not None and workers is not None:
        raise SpecError(
            "--workers is for Ray on this machine; with --address, the cluster computes as many "
            "stages at the same time as it has CPUs. Leave out one."
        )
    if workers is not None and workers < 1:
        raise SpecError(f"--workers: {workers} is not a number of workers. Write 1 or more.")
    if name == "serial":
        if workers not in (None, 1):
            raise SpecError("--workers is for --executor pool or ray; serial computes alone.")
        return _serial(threads)
    count = workers or cores()
    return _pool(count, threads) if name == "pool" else _ray(count, address, threads)


def _serial(threads: int | None) -> ExecutorChoice:
    from ancl.compute.serial import Serial

    return ExecutorChoice(Serial(), threads=threads)


def _pool(count: int, threads: int | None) -> ExecutorChoice:
    from ancl.compute.pool import Pool

    share = threads or max(cores() // count, 1)
    return ExecutorChoice(Pool(count), count, share, _shares(count, share))


def _ray(count: int, address: str | None, threads: int | None) -> ExecutorChoice:
    from ancl.compute.ray import Cluster

    share = threads or 1
    if address is None:
        text = f"Ray on this machine: {_shares(count, share)}"
    else:
        text = f"Ray on the cluster at {address}, {counted(share, 'thread')} per stage."
    return ExecutorChoice(Cluster(address, count * share), count, share, text)


def _shares(count: int, threads: int) -> str:
    text = (
        f"{counted(count, 'worker')}, each with {counted(threads, 'thread')}, on "
        f"{counted(cores(), 'core')}."
    )
    if count * threads > cores():
        text += " More threads than cores are slow: lower --workers or --threads."
    return text


def cores() -> int:
    """The processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
