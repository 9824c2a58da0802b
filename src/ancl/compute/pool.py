"""A pool of processes on this machine, which share the store."""

import json
import os
import selectors
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from ancl.compute.graph import Graph, Node, Schedule, StageEnd
from ancl.compute.serial import Event, pass_on
from ancl.errors import StoreError
from ancl.runtime import one_device
from ancl.stages.events import Events
from ancl.store.store import Store

ATTEMPTS = 3
"""Attempts at a stage whose worker is killed: a signal is not an error of the stage."""
_PATIENCE = 20.0
"""Seconds a worker has to write a checkpoint when it must stop."""


class Pool:
    """Computes stages in long-lived processes, each with its own interpreter.

    Args:
        workers: Number of processes.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def run(self, graph: Graph, store: Store, events: Events) -> Generator[StageEnd, None, None]:
        """See :class:`~ancl.compute.Executor`."""
        graph.release()  # every worker reads its own images
        schedule = Schedule(graph.nodes, graph.todo(store))
        count = min(self.workers, len(graph.todo(store)))
        spec = next((plan.spec for plan in graph.plans), None)
        threads, device = (spec.threads, spec.device) if spec else (1, "cpu")
        places = [store.root, *([graph.root] if graph.root else [])]
        with _crew(count, places, threads, device) as crew:
            yield from _Shift(graph, schedule, events, crew).work()


class _Worker:
    """One process, the stage it computes, and the line it is writing."""

    def __init__(self, places: Sequence[Path], threads: int, device: dict[str, str]) -> None:
        # -P: the path is that of this process, so that a worker loads the same code.
        self._command = [sys.executable, "-P", "-m", "ancl.compute.worker", *map(str, places)]
        self._environment = {
            **os.environ,
            **device,
            "OMP_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(os.path.abspath(path) for path in sys.path),
        }
        self.node: Node | None = None
        self.start()

    def start(self) -> None:
        """A new process; only the command receives Ctrl-C, and then stops its workers."""
        self._begun = b""
        self.process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
            start_new_session=True,
        )

    def give(self, node: Node) -> None:
        """Hand out a stage."""
        assert self.process.stdin is not None
        self.node = node
        spec = node.spec.plain()
        job = {"spec": spec, "key": node.stage.key, "lambs": node.lambs}
        with suppress(BrokenPipeError):  # it died just now; the end of its output will show it
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()

    def read_events(self) -> list[Event] | None:
        """Its events since the last call; None if it ended."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 1 << 16)
        *lines, self._begun = (self._begun + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None

    def close(self) -> None:
        """Free its pipes, once it has ended."""
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # a job it did not live to read
                pipe.close()


@contextmanager
def _crew(count: int, places: Sequence[Path], threads: int, device: str) -> Iterator[list[_Worker]]:
    """Workers, which are stopped on exit, also after an error."""
    workers: list[_Worker] = []
    try:
        for number in range(count):
            workers.append(_Worker(places, threads, one_device(device, number)))
        yield workers
    finally:
        for worker in workers:
            worker.process.send_signal(signal.SIGTERM)
        for worker in workers:
            try:
                worker.process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            worker.close()


class _Shift:
    """Hands out stages and reads events, until nothing is left."""

    def __init__(
        self, graph: Graph, schedule: Schedule, events: Events, crew: list[_Worker]
    ) -> None:
        self._graph, self._schedule, self._events = graph, schedule, events
        self._crew, self._begun = crew, Counter[str]()

    def work(self) -> Iterator[StageEnd]:
        """Compute everything that can be."""
        with selectors.DefaultSelector() as ears:
            for worker in self._crew:
                ears.register(self._pipe(worker), selectors.EVENT_READ, worker)
            while self._hand_out():
                for ready, _ in ears.select():
                    yield from self._listen(ready.data, ears)

    def _pipe(self, worker: _Worker) -> int:
        assert worker.process.stdout is not None
        return worker.process.stdout.fileno()

    def _hand_out(self) -> bool:
        """Give a stage to each free worker; whether any worker is busy."""
        for worker in self._crew:
            if worker.node is None and (key := self._schedule.take()) is not None:
                self._begun[key] += 1
                worker.give(self._graph.nodes[key])
                self._events.stage_begins(self._graph.nodes[key].stage)
        return any(worker.node for worker in self._crew)

    def _listen(self, worker: _Worker, ears: selectors.BaseSelector) -> Iterator[StageEnd]:
        events = worker.read_events()
        if events is None:
            ears.unregister(self._pipe(worker))
            yield from self._lost(worker)
            ears.register(self._pipe(worker), selectors.EVENT_READ, worker)
            return
        for event in events:
            yield from self._heard(worker, event)

    def _heard(self, worker: _Worker, event: Event) -> Iterator[StageEnd]:
        node = worker.node
        assert node is not None
        if event["kind"] == "store failed":
            raise StoreError(event["reason"])
        if event["kind"] == "done":
            worker.node = None
            self._schedule.done(node.stage.key)
            yield StageEnd(node.stage.key, event["seconds"])
        elif event["kind"] == "failed":
            worker.node = None
            yield self._failed(node, event["reason"])
        else:
            pass_on(event, node, self._events)

    def _lost(self, worker: _Worker) -> Iterator[StageEnd]:
        """A worker died: another takes its place, and its stage is started again."""
        code, node = worker.process.wait(), worker.node
        worker.close()
        worker.node = None
        worker.start()
        if node is None:
            return
        how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
        if self._begun[node.stage.key] < ATTEMPTS:
            self._events.say(f"The worker of {node.title} {how}; another resumes it.")
            self._schedule.again(node.stage.key)
        else:
            why = f"Its worker {how}, {ATTEMPTS} times. Is there enough memory?"
            yield self._failed(node, why)

    def _failed(self, node: Node, why: str) -> StageEnd:
        self._schedule.fail(node.stage.key)
        return StageEnd(node.stage.key, failure=why)
