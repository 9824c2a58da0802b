"""What happens while stages are computed, as one interface: override the methods you need."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from ancl.stages.stage import Stage
from ancl.training.loop import Epoch


class Events:
    """Receives every event of a run, a comparison, a search or an analysis; this one is silent.

    Stages may be computed at the same time, so events of several stages may alternate. All calls
    come from the process and thread that started the work.
    """

    def say(self, message: str) -> None:
        """The user must see this: a warning, a wait, a lost worker."""

    def note(self, message: str) -> None:
        """News that may be left out, such as the plan."""

    def work_begins(
        self,
        titles: Mapping[str, str],
        epochs: Mapping[str, int],
        todo: Collection[str],
        workers: int = 1,
    ) -> None:
        """Stages are about to be computed.

        Args:
            titles: What to call each stage of the plan, by key.
            epochs: The most epochs of each stage, by key; 0 where nothing is trained.
            todo: The keys of the stages to compute; the others are stored.
            workers: The number of stages computed at the same time.
        """

    def run_begins(self, directory: Path, spec: Mapping[str, Any], keys: Collection[str]) -> None:
        """A run begins.

        Args:
            directory: Where its results will be.
            spec: Its settings, as in ``spec.yaml``.
            keys: The keys of its stages. Other runs may have some of them too.
        """

    def stage_begins(self, stage: Stage) -> None:
        """A stage is being computed."""

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """A training finished an epoch."""

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """The result of a stage is available: found in the store, or computed and stored."""

    def stage_fails(self, stage: Stage, reason: str) -> None:
        """A stage failed; the stages that need it are not computed."""

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        """A run is finished and its directory is written.

        Args:
            directory: Where its results are.
            result: As in ``result.json``, and every epoch as ``log``.
        """


class Forward(Events):
    """Passes every event on to other receivers, in their order."""

    def __init__(self, *receivers: Events) -> None:
        self._receivers = receivers

    def say(self, message: str) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.say(message)

    def note(self, message: str) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.note(message)

    def work_begins(
        self,
        titles: Mapping[str, str],
        epochs: Mapping[str, int],
        todo: Collection[str],
        workers: int = 1,
    ) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.work_begins(titles, epochs, todo, workers)

    def run_begins(self, directory: Path, spec: Mapping[str, Any], keys: Collection[str]) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.run_begins(directory, spec, keys)

    def stage_begins(self, stage: Stage) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.stage_begins(stage)

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.epoch_ends(stage, epoch)

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.stage_ends(stage, found=found, seconds=seconds)

    def stage_fails(self, stage: Stage, reason: str) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.stage_fails(stage, reason)

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        """Pass it on."""
        for receiver in self._receivers:
            receiver.run_ends(directory, result)
