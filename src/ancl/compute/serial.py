"""One stage computed: of a run's objects in this process, or of names that crossed a border."""

import traceback
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ancl.compute.graph import Graph, Node, Schedule, StageEnd
from ancl.data.registry import load_source
from ancl.errors import AnclError, SpecError, StoreError
from ancl.recipe.build import Experiment, build, threads
from ancl.recipe.recipe import RunSpec
from ancl.stages.events import Events
from ancl.stages.runner import Runner, StageStorage
from ancl.stages.stage import Stage
from ancl.store.entry import StageResult
from ancl.store.store import Store
from ancl.training.loop import Epoch, epoch_of, epoch_record

# -- in this process -------------------------------------------------------------------------


class Serial:
    """Computes stages here, in the order of the plans, with the objects that planned them."""

    def run(self, graph: Graph, store: Store, events: Events) -> Generator[StageEnd, None, None]:
        """See :class:`~ancl.compute.Executor`."""
        schedule = Schedule(graph.nodes, graph.todo(store))
        while (key := schedule.take()) is not None:
            events.stage_begins(graph.nodes[key].stage)
            try:
                entry = compute_stage(graph.experiment_with(key), key, store, events)
            except StoreError:
                raise
            except Exception as error:  # a method from outside may raise anything
                schedule.fail(key)
                end = StageEnd(key, failure=reason(error))
            else:
                schedule.done(key)
                end = StageEnd(key, entry.meta["seconds"])
            yield end


def compute_stage(
    experiment: Experiment, key: str, store: StageStorage, events: Events
) -> StageResult:
    """The result of one stage, found in the store or computed and saved there.

    Raises:
        SpecError: The experiment was built again, and has no stage with this key.
    """
    if key not in {stage.key for stage in experiment.stages}:
        raise SpecError(
            f"The worker plans other stages than the command did: {key[:12]} is not among "
            f"them. Give all machines the same data, ancl, torch and kind of processor."
        )
    with threads(experiment.spec.threads):
        return runner_of(experiment, store, _OneStage(key, events)).obtain(key)


def runner_of(experiment: Experiment, store: StageStorage, events: Events) -> Runner:
    """What computes the stages of an experiment; call it under ``threads``."""
    tasks, device = experiment.stream.tasks, experiment.setting.device
    return Runner(experiment.stages, tasks, device, store, events)


class _OneStage(Events):
    """Passes on what concerns one stage; the inputs it finds are not reported."""

    def __init__(self, key: str, events: Events) -> None:
        self._key, self._events = key, events

    def say(self, message: str) -> None:
        self._events.say(message)

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        if stage.key == self._key:
            self._events.epoch_ends(stage, epoch)


def reason(error: Exception) -> str:
    """Why a stage failed: the message of an error, and the line of a bug."""
    if isinstance(error, AnclError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    line = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{line}"


# -- across the border of a process ----------------------------------------------------------

Event = dict[str, Any]
"""What a worker reports, as JSON: ``say`` with a text, or ``epoch`` with an epoch's record."""

_MOST_BUILT = 4


class StageComputer:
    """Computes stages of specs in a worker; the last few experiments stay built.

    Args:
        root: Where data is; see ``ancl.data.data_root``.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._built: dict[str, Experiment] = {}
        self._read = lru_cache(maxsize=1)(load_source)  # built runs share the images

    def compute(
        self,
        spec: RunSpec,
        key: str,
        store: StageStorage,
        tell: Callable[[Event], None],
        lambs: Sequence[float] = (),
    ) -> StageResult:
        """The result of one stage, found in the store or computed and saved there.

        ``lambs`` are the λ of each task, where λ is decided task by task.

        Raises:
            SpecError: The same spec does not lead to this key here.
        """
        return compute_stage(self._experiment(spec, lambs), key, store, _Telling(tell))

    def _experiment(self, spec: RunSpec, lambs: Sequence[float]) -> Experiment:
        text = f"{spec.model_dump_json()} {lambs}"
        if text not in self._built:
            while len(self._built) >= _MOST_BUILT:
                del self._built[next(iter(self._built))]
            with threads(spec.threads):
                self._built[text] = build(spec, self._root, self._read, lambs)
        return self._built[text]


class _Telling(Events):
    """Tells what happens as JSON."""

    def __init__(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell

    def say(self, message: str) -> None:
        self._tell({"kind": "say", "text": message})

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        self._tell({"kind": "epoch", "epoch": epoch_record(epoch)})


def pass_on(event: Event, node: Node, events: Events) -> None:
    """Report what a worker reported."""
    if event["kind"] == "say":
        events.say(event["text"])
    else:
        events.epoch_ends(node.stage, epoch_of(event["epoch"]))
