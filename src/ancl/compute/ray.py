"""Stages as tasks of a Ray cluster, whose machines need not share a disk.

A task gets the entries it reads as object references and returns its own, which the command puts
into its store. Ray starts a stage again if its worker or machine is lost, not if the stage fails.
"""

import os
import sys
from collections.abc import Generator, Iterator
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from ancl.compute.connection import AUTO, Watch, check_address, connected, load_ray, try_address
from ancl.compute.graph import Graph, Node, StageEnd
from ancl.compute.serial import Event, StageComputer, pass_on, reason
from ancl.data.registry import names_code
from ancl.errors import SpecError
from ancl.methods.registry import MethodRef
from ancl.outside import is_outside, load
from ancl.recipe.recipe import RunSpec
from ancl.stages.events import Events
from ancl.stages.runner import MemoryStore
from ancl.store.entry import StageResult
from ancl.store.store import Store

RETRIES = 3
"""How often Ray starts a task again whose worker or machine is lost."""
_POLL_SECONDS = 0.5
_NEWS_SECONDS = 5.0


class RemoteResult(NamedTuple):
    """A stage's entry, or why there is none; a missing input is not counted as a failure."""

    entry: StageResult | None
    failed: str = ""
    lacking: bool = False


class Code(NamedTuple):
    """Source files of a user's code as they are sent.

    Args:
        setting: What it is in a run: ``method``, ``network`` or ``data``.
        before: The start of the setting, before the file's path: ``a-``.
        folder: The folder it comes from, as a name: code of one folder stays together.
        entry: The file that is named, relative to the folder; empty for a module by name.
        files: Every file's path and text.
    """

    setting: str
    before: str
    folder: str
    entry: str
    files: tuple[tuple[str, bytes], ...]


class Shipped(NamedTuple):
    """A run as it is sent: spec as JSON, the user's own code, where data is, λ by task."""

    spec: str
    code: tuple[Code, ...]
    root: str | None
    lambs: tuple[float, ...] = ()


class Cluster:
    """Computes stages on Ray.

    Args:
        address: Of a running cluster; by default one is started on this machine.
        cpus: The CPUs of a cluster that is started.
    """

    def __init__(self, address: str | None, cpus: int) -> None:
        self._address = address if address is None else check_address(address)
        self.cpus, self._tried = cpus, False

    def run(self, graph: Graph, store: Store, events: Events) -> Generator[StageEnd, None, None]:
        """See :class:`~ancl.compute.Executor`.

        Raises:
            AnclError: The cluster cannot be used, or is gone. What was finished is stored.
        """
        graph.release()  # every machine reads its own images
        todo = graph.todo(store)
        if todo:
            with connected(self._reached(), self.cpus) as ray:
                yield from _Shift(ray, graph, store, events).work(todo)

    def _reached(self) -> str | None:
        """The address, tried once: a search connects many times."""
        load_ray()
        address = self._address
        if address == AUTO and os.environ.get("RAY_ADDRESS"):
            address = check_address(os.environ["RAY_ADDRESS"], "RAY_ADDRESS")
        if address and not self._tried:
            try_address(address)
            self._tried = True
        return address


class _Board:
    """Where tasks leave their events until the command reads them."""

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
        threads = next(plan.spec.threads for plan in graph.plans)
        self._watch = Watch(ray, threads, events.say)
        self._board = _beside(ray, _Board)
        self._gone: set[str] = set()

    def work(self, todo: list[str]) -> Iterator[StageEnd]:
        """Compute everything that can be."""
        keys = self._submit(todo)
        while keys:
            ready, _ = self._ray.wait(list(keys), num_returns=1, timeout=_POLL_SECONDS)
            if ready:  # all of them, in the order of the plan: inputs before what reads them
                ready, _ = self._ray.wait(list(keys), num_returns=len(keys), timeout=0)
            self._tell()
            self._watch.look()
            for reference in ready:
                yield from self._receive(keys.pop(reference), reference)

    def _submit(self, todo: list[str]) -> dict[Any, str]:
        """A reference for each key; inputs are references too, so Ray orders the tasks."""
        references: dict[str, Any] = {}
        task = self._ray.remote(_compute)
        for key in todo:
            node = self._graph.nodes[key]
            parts = list(dict.fromkeys(node.stage.inputs.values()))
            for part in parts:
                if part not in references:
                    references[part] = self._ray.put(RemoteResult(self._store.load(part)))
            options = {
                "num_cpus": node.spec.threads,
                **({"num_gpus": 1} if node.spec.device == "cuda" else {}),
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
        try:
            news = self._ray.get(self._board.take.remote(), timeout=_NEWS_SECONDS)
        except self._ray.exceptions.RayError:
            return  # Ray starts the board again; events were lost with it, and no result
        for key, event in news:
            node = self._graph.nodes[key]
            if event["kind"] == "begins":
                self._events.stage_begins(node.stage)
            else:
                pass_on(event, node, self._events)

    def _receive(self, key: str, reference: Any) -> Iterator[StageEnd]:
        node = self._graph.nodes[key]
        try:
            outcome: RemoteResult = self._ray.get(reference)
        except self._ray.exceptions.LocalRayletDiedError as error:
            raise self._watch.alone() from error
        except self._ray.exceptions.RayError as error:
            first = str(error).strip().split("\n")[0]
            why = f"It was lost {RETRIES + 1} times with its worker: {first}"
            lacking = not self._gone.isdisjoint(node.stage.inputs.values())
            outcome = RemoteResult(None, why, lacking)
        if outcome.entry is not None:
            with self._store.lock(key):
                self._store.save(key, outcome.entry)
            yield StageEnd(key, outcome.entry.meta["seconds"])
            return
        self._gone.add(key)
        if not outcome.lacking:
            yield StageEnd(key, failure=outcome.failed)


def _beside(ray: Any, kind: type) -> Any:
    """An actor on this machine, so that it is lost with this process or starts again."""
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        ray.get_runtime_context().get_node_id(), soft=False
    )
    return ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(kind).remote()


def ship(node: Node, root: Path | None) -> Shipped:
    """A node's run with the source of the user's own method, network, data and augmentation."""
    spec, method = node.spec, MethodRef(node.spec.method)
    before = f"{method.variant}-" if method.variant else ""
    network, data = str(spec.network["name"]), spec.data.source
    named = [("method", before, method.base)] if is_outside(method.base) else []
    named += [("network", "", network)] if is_outside(network) else []
    named += [("data", "", data)] if names_code(data) else []
    augment = spec.data.augment
    named += [("augment", "", augment)] if is_outside(augment) else []
    code = tuple(code for part in named for code in _code(*part))
    return Shipped(spec.model_dump_json(), code, str(root) if root else None, node.lambs)


def _code(setting: str, before: str, name: str) -> Iterator[Code]:
    """What must be sent; nothing of a package that is installed here, and must be there too."""
    sources = load(name, "code", SpecError, also=object).sources
    origin = sources.place
    if sources.files and not sources.installed:
        entry = origin.entry if name.rpartition(":")[0].endswith(".py") else ""
        yield Code(setting, before, str(origin.folder), entry, tuple(sources.files.items()))


@lru_cache(maxsize=64)
def unpack(shipped: Shipped) -> RunSpec:
    """The spec on another machine, its code in a directory that goes with the process."""
    spec = RunSpec.model_validate_json(shipped.spec)
    for code in shipped.code:
        folder = Path(_directory(code.folder).name)
        for name, text in code.files:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(text)
        if code.entry:
            spec = _renamed(spec, code, folder / code.entry)
        elif str(folder) not in sys.path:
            sys.path.append(str(folder))  # last: a package that is installed here comes first
    return spec


def _renamed(spec: RunSpec, code: Code, file: Path) -> RunSpec:
    """The spec with the file's new place, which no key holds."""

    def moved(name: str) -> str:
        return f"{code.before}{file}:{name.rpartition(':')[2]}"

    if code.setting == "method":
        return spec.model_copy(update={"method": moved(spec.method)})
    if code.setting == "network":
        name = moved(str(spec.network["name"]))
        return spec.model_copy(update={"network": {**spec.network, "name": name}})
    if code.setting == "augment":
        augment = moved(spec.data.augment)
        return spec.model_copy(update={"data": replace(spec.data, augment=augment)})
    return spec.model_copy(update={"data": replace(spec.data, source=moved(spec.data.source))})


@cache
def _directory(folder: str) -> TemporaryDirectory[str]:
    """One for each folder of the command's machine: modules of one folder stay in one folder."""
    return TemporaryDirectory(prefix="ancl-")


@lru_cache(maxsize=1)
def _computer(root: str | None) -> StageComputer:
    return StageComputer(Path(root) if root else None)


def _compute(
    shipped: Shipped, key: str, parts: list[str], board: Any, *inputs: RemoteResult
) -> RemoteResult:
    """One stage, on whatever machine Ray chose."""
    store = MemoryStore()
    for part, outcome in zip(parts, inputs, strict=True):
        if outcome.entry is None:
            return RemoteResult(None, lacking=True)
        store.save(part, packed(outcome.entry))
    board.put.remote(key, {"kind": "begins"})
    try:
        entry = _computer(shipped.root).compute(
            unpack(shipped), key, store, lambda event: board.put.remote(key, event), shipped.lambs
        )
    except Exception as error:  # a method from outside may raise anything
        return RemoteResult(None, reason(error))
    return RemoteResult(packed(entry))


def packed(entry: StageResult) -> StageResult:
    """An entry as the store would give it back: contiguous, in memory of torch's own."""
    return StageResult(
        {n: t.detach().cpu().contiguous().clone() for n, t in entry.tensors.items()}, entry.meta
    )
