"""Progress that also goes to the writers ``--log`` names."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from ancl.cli.progress import Progress
from ancl.experiments.build import Experiment, RunResult, run_directory
from ancl.integrations import RunLog
from ancl.stages.stage import Stage
from ancl.training.loop import Epoch


class Logged(Progress):
    """Passes everything on to a progress, and every epoch and result to a log too."""

    def __init__(self, progress: Progress, log: RunLog, runs: Path) -> None:
        self._progress, self._log, self._runs = progress, log, runs

    def __enter__(self) -> Self:
        self._progress.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._log.close()
        self._progress.__exit__(kind, error, trace)

    def say(self, message: str) -> None:
        """A warning."""
        self._progress.say(message)

    def begin(self, experiment: Experiment, todo: Sequence[Stage]) -> None:
        """A run begins."""
        self._progress.begin(experiment, todo)
        self._log.begin(experiment.spec, run_directory(self._runs, experiment.spec))

    def end(self, result: RunResult) -> None:
        """A run is finished."""
        self._log.end(result)

    def stage_begins(self, stage: Stage) -> None:
        """A stage begins."""
        self._progress.stage_begins(stage)

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """An epoch of a training."""
        self._progress.epoch_ends(stage, epoch)
        self._log.epoch(stage, epoch)

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """A stage is there."""
        self._progress.stage_ends(stage, found=found, seconds=seconds)
