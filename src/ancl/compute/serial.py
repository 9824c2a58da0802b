"""One stage computed from a spec and a key, as every executor does it; and one after the other."""

import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from ancl.compute.graph import Graph, Node, Schedule
from ancl.data.registry import load_source
from ancl.errors import AnclError, SpecError, StoreError
from ancl.recipe.build import Experiment, Reading, build, threads
from ancl.recipe.recipe import RunSpec
from ancl.stages.events import Events
from ancl.stages.runner import Runner, Storage
from ancl.stages.stage import Stage
from ancl.store.entry import StageResult
from ancl.store.store import Store
from ancl.training.loop import Epoch, epoch_of, epoch_record

Event = dict[str, Any]
"""What a worker reports, as JSON: ``say`` with a text, or ``epoch`` with an epoch's record."""

_KEPT = 4


class StageComputer:
    """Computes stages; the last few experiments stay built.

    Args:
        root: Where data is; see ``ancl.data.data_root``.
        read: What reads the data; by default it keeps the last data set it read.
    """

    def __init__(self, root: Path | None, read: Reading | None = None) -> None:
        self._root = root
        self._built: dict[str, Experiment] = {}
        self._read = read or lru_cache(maxsize=1)(load_source)  # built runs share the images

    def compute(
        self,
        spec: RunSpec,
        key: str,
        store: Storage,
        tell: Callable[[Event], None],
        lambs: Sequence[float] = (),
    ) -> StageResult:
        """The result of one stage, found in the store or computed and saved there.

        ``lambs`` are the λ of each task, where λ is decided task by task.

        Raises:
            SpecError: The same spec does not lead to this key here.
        """
        with threads(spec.threads):
            experiment = self._experiment(spec, lambs)
            if key not in {stage.key for stage in experiment.stages}:
                raise SpecError(
                    f"The worker plans other stages than the command did: {key[:12]} is not among "
                    f"them. Give all machines the same data, ancl, torch and kind of processor."
                )
            return runner_of(experiment, store, _Relay(key, tell)).obtain(key)

    def _experiment(self, spec: RunSpec, lambs: Sequence[float]) -> Experiment:
        text = f"{spec.model_dump_json()} {lambs}"
        if text not in self._built:
            while len(self._built) >= _KEPT:
                del self._built[next(iter(self._built))]
            self._built[text] = build(spec, self._root, self._read, lambs)
        return self._built[text]


def runner_of(experiment: Experiment, store: Storage, events: Events) -> Runner:
    """What computes the stages of an experiment; call it under ``threads``."""
    tasks, device = experiment.stream.tasks, experiment.setting.device
    return Runner(experiment.stages, tasks, device, store, events)


class _Relay(Events):
    """Passes on what concerns one stage; the inputs it finds are not reported."""

    def __init__(self, key: str, tell: Callable[[Event], None]) -> None:
        self._key, self._tell = key, tell

    def say(self, message: str) -> None:
        self._tell({"kind": "say", "text": message})

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        if stage.key == self._key:
            self._tell({"kind": "epoch", "epoch": epoch_record(epoch)})


def reason(error: Exception) -> str:
    """Why a stage failed: the message of an error, and the place of a bug."""
    if isinstance(error, AnclError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def pass_on(event: Event, node: Node, events: Events) -> None:
    """Report what a worker reported."""
    if event["kind"] == "say":
        events.say(event["text"])
    else:
        events.epoch_ends(node.stage, epoch_of(event["epoch"]))


class Serial:
    """Computes stages here, in the order of the plans."""

    def run(self, graph: Graph, store: Store, events: Events) -> dict[str, str]:
        """See :class:`~ancl.compute.Executor`."""
        schedule = Schedule(graph.nodes, graph.todo(store))
        workshop = StageComputer(graph.root, graph.read)
        while (key := schedule.take()) is not None:
            node = graph.nodes[key]
            events.stage_begins(node.stage)
            try:
                tell = partial(pass_on, node=node, events=events)
                entry = workshop.compute(node.spec, key, store, tell, node.lambs)
            except StoreError:
                raise
            except Exception as error:  # a method from outside may raise anything
                schedule.fail(key, reason(error))
                events.stage_fails(node.stage, schedule.failures[key])
            else:
                schedule.done(key)
                events.stage_ends(node.stage, found=False, seconds=entry.meta["seconds"])
        return schedule.failures
