"""One stage computed from a spec and a key: the same work for every executor."""

import traceback
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from ancl.data.registry import load_source
from ancl.errors import AnclError, SpecError
from ancl.executors.graph import Node, Observer
from ancl.experiments.build import Experiment, build, threads
from ancl.experiments.spec import RunSpec
from ancl.stages.runner import Reporter, Runner, Storage
from ancl.stages.stage import Stage
from ancl.store.entry import StageResult
from ancl.training.loop import Epoch, epoch_record

Event = dict[str, Any]
"""What a worker tells, as JSON: ``say`` with a text, or ``epoch`` with an epoch's record."""

_KEPT = 4


class Workshop:
    """Computes stages; the last few runs it worked for stay built.

    Args:
        root: Where data lies; see ``ancl.data.data_root``.
    """

    def __init__(self, root: Path | None) -> None:
        self._root = root
        self._built: dict[str, Experiment] = {}
        self._read = lru_cache(maxsize=1)(load_source)  # built runs hold the same images

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
            tasks, device = experiment.stream.tasks, experiment.setting.device
            relay = _Relay(key, tell)
            return Runner(experiment.stages, tasks, device, store, relay).obtain(key)

    def _experiment(self, spec: RunSpec, lambs: Sequence[float]) -> Experiment:
        text = f"{spec.model_dump_json()} {lambs}"
        if text not in self._built:
            while len(self._built) >= _KEPT:
                del self._built[next(iter(self._built))]
            self._built[text] = build(spec, self._root, self._read, lambs)
        return self._built[text]


class _Relay(Reporter):
    """Passes on what concerns one stage; the inputs it finds are not told."""

    def __init__(self, key: str, tell: Callable[[Event], None]) -> None:
        self._key, self._tell = key, tell

    def say(self, message: str) -> None:
        self._tell({"kind": "say", "text": message})

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        if stage.key == self._key:
            self._tell({"kind": "epoch", "epoch": epoch_record(epoch)})


def reason(error: Exception) -> str:
    """Why a stage failed: the message of what a user can mend, and where a bug is."""
    if isinstance(error, AnclError):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{place}"


def retell(observer: Observer, node: Node, event: Event) -> None:
    """Tell an observer what a worker told."""
    if event["kind"] == "say":
        observer.say(event["text"])
    else:
        observer.epoch(node, event["epoch"])
