"""Where the stages of a sweep are computed: in this process, in a pool of processes, or on Ray."""

import os
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ancl.executors.graph import Graph, Observer
    from ancl.store.store import Store

EXECUTORS = ("serial", "pool", "ray")


class Executor(Protocol):
    """Computes what a store lacks of a graph."""

    def run(self, graph: "Graph", store: "Store", observer: "Observer") -> dict[str, str]:
        """Compute every stage that can be; the reason of each that failed by itself, by key.

        Raises:
            StoreError: The store cannot be written, so nothing more can be kept.
        """
        ...


def cores() -> int:
    """The processor cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
