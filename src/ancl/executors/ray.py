"""Stages as tasks of a Ray cluster, whose machines need not share a disk.

A task gets the entries it reads as object references and returns its own, which the command puts
into its store. A worker or machine that is lost is begun again by Ray; a stage that fails is not.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ancl.errors import SpecError
from ancl.executors.compute import Event, Workshop, pass_on, reason
from ancl.executors.graph import Graph, Node
from ancl.experiments.spec import RunSpec
from ancl.methods.registry import MethodRef
from ancl.stages.events import Events
from ancl.stages.runner import MemoryStore
from ancl.store.entry import StageResult
from ancl.store.store import Store

RETRIES = 3
"""How often Ray starts a task again whose worker or machine is lost."""
_POLL_SECONDS = 0.5
_DIRECTORIES: list[TemporaryDirectory[str]] = []


class Outcome(NamedTuple):
    """A stage's entry, or why there is none; a lacking input is no reason of its own."""

    entry: StageResult | None
    failed: str = ""
    lacking: bool = False


class Shipped(NamedTuple):
    """A run as it travels: spec as JSON, the user's own method file, where data lies, λ by task."""

    spec: str
    file: tuple[str, str, str] | None
    """What stands before the file's path in the method's name, the file's own name, its text."""
    root: str | None
    lambs: tuple[float, ...] = ()


class Cluster:
    """Computes stages on Ray.

    Args:
        address: Of a cluster that runs; one is started on this machine where left out.
        cpus: The CPUs of a cluster that is started.
    """

    def __init__(self, address: str | None, cpus: int) -> None:
        self._address, self._cpus = address, cpus

    def run(self, graph: Graph, store: Store, events: Events) -> dict[str, str]:
        """See :class:`~ancl.executors.Executor`."""
        graph.read.cache_clear()  # every machine reads its own images
        todo = graph.todo(store)
        if not todo:
            return {}
        with _connected(self._address, self._cpus) as ray:
            return _Shift(ray, graph, store, events).work(todo)


@contextmanager
def _connected(address: str | None, cpus: int) -> Iterator[Any]:
    """Ray, shut down again however this is left: SIGTERM reaches us as an exception."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    try:
        ray = import_module("ray")
    except ImportError as error:
        raise SpecError(
            "--executor ray needs Ray, which is not installed: pip install 'ancl[ray]'. Or use "
            "--executor pool."
        ) from error
    here = {} if address else {"num_cpus": cpus}
    before = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, log_to_driver=False, **here)
    except ConnectionError as error:
        raise SpecError(
            f"--address: there is no Ray cluster at {address} ({error}). Start one with 'ray start "
            f"--head', or leave out --address."
        ) from error
    try:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray puts its own there
        yield ray
    finally:
        ray.shutdown()


class _Board:
    """Where tasks leave what they tell until the command asks for it."""

    def __init__(self) -> None:
        self._events: list[tuple[str, Event]] = []

    def put(self, key: str, event: Event) -> None:
        self._events.append((key, event))

    def take(self) -> list[tuple[str, Event]]:
        events, self._events = self._events, []
        return events


class _Shift:
    """Submits every stage at once and collects what comes back."""

    def __init__(self, ray: Any, graph: Graph, store: Store, events: Events) -> None:
        self._ray, self._graph, self._store, self._events = ray, graph, store, events
        self._board = ray.remote(num_cpus=0)(_Board).remote()
        self._failures: dict[str, str] = {}

    def work(self, todo: list[str]) -> dict[str, str]:
        """Compute everything that can be."""
        keys = self._submit(todo)
        while keys:
            ready, _ = self._ray.wait(list(keys), num_returns=1, timeout=_POLL_SECONDS)
            self._tell()
            for reference in ready:
                self._receive(keys.pop(reference), reference)
        return self._failures

    def _submit(self, todo: list[str]) -> dict[Any, str]:
        """A reference for each key; inputs are references too, so Ray orders the tasks."""
        references: dict[str, Any] = {}
        task = self._ray.remote(_compute)
        for key in todo:
            node = self._graph.nodes[key]
            parts = list(dict.fromkeys(node.stage.inputs.values()))
            for part in parts:
                if part not in references:
                    references[part] = self._ray.put(Outcome(self._store.load(part)))
            options = {
                "num_cpus": node.spec.threads,
                "max_retries": RETRIES,
                "retry_exceptions": False,
                "name": node.title,
            }
            references[key] = task.options(**options).remote(
                ship(node, self._graph.root),
                key,
                parts,
                self._board,
                *(references[part] for part in parts),
            )
        return {references[key]: key for key in todo}

    def _tell(self) -> None:
        for key, event in self._ray.get(self._board.take.remote()):
            node = self._graph.nodes[key]
            if event["kind"] == "begins":
                self._events.stage_begins(node.stage)
            else:
                pass_on(event, node, self._events)

    def _receive(self, key: str, reference: Any) -> None:
        node = self._graph.nodes[key]
        try:
            outcome = self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().split("\n")[0]
            why = f"It was lost {RETRIES + 1} times with its worker: {first}"
            outcome = Outcome(None, why)
        if outcome.entry is not None:
            with self._store.lock(key):
                self._store.save(key, outcome.entry)
            self._events.stage_ends(node.stage, found=False, seconds=outcome.entry.meta["seconds"])
        elif not outcome.lacking:
            self._failures[key] = outcome.failed
            self._events.stage_fails(node.stage, outcome.failed)


def ship(node: Node, root: Path | None) -> Shipped:
    """A node's run with the text of a method file of the user's own."""
    method, file = MethodRef(node.spec.method), None
    path = Path(method.base.rpartition(":")[0])
    if path.suffix == ".py":
        before = f"{method.variant}-" if method.variant else ""
        file = (before, path.name, path.read_text(encoding="utf-8"))
    place = str(root) if root else None
    return Shipped(node.spec.model_dump_json(), file, place, node.lambs)


@lru_cache(maxsize=64)
def unpack(shipped: Shipped) -> RunSpec:
    """The spec on another machine, its method file in a directory that goes with the process."""
    spec = RunSpec.model_validate_json(shipped.spec)
    if shipped.file is None:
        return spec
    before, name, text = shipped.file
    _DIRECTORIES.append(TemporaryDirectory(prefix="ancl-"))
    path = Path(_DIRECTORIES[-1].name) / name
    path.write_text(text, encoding="utf-8")
    # Keys hold the hash of the file, not its place.
    function = spec.method.rpartition(":")[2]
    return spec.model_copy(update={"method": f"{before}{path}:{function}"})


@lru_cache(maxsize=1)
def _workshop(root: str | None) -> Workshop:
    return Workshop(Path(root) if root else None)


def _compute(shipped: Shipped, key: str, parts: list[str], board: Any, *inputs: Outcome) -> Outcome:
    """One stage, on whatever machine Ray chose."""
    store = MemoryStore()
    for part, outcome in zip(parts, inputs, strict=True):
        if outcome.entry is None:
            return Outcome(None, lacking=True)
        store.save(part, packed(outcome.entry))
    board.put.remote(key, {"kind": "begins"})
    try:
        entry = _workshop(shipped.root).compute(
            unpack(shipped), key, store, lambda event: board.put.remote(key, event), shipped.lambs
        )
    except Exception as error:  # a method from outside may raise anything
        return Outcome(None, reason(error))
    return Outcome(packed(entry))


def packed(entry: StageResult) -> StageResult:
    """An entry as the store would give it back: contiguous, in memory of torch's own."""
    return StageResult(
        {n: t.detach().cpu().contiguous().clone() for n, t in entry.tensors.items()}, entry.meta
    )
