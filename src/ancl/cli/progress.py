"""Progress on standard error: a live line on a terminal, plain lines elsewhere."""

from collections.abc import Sequence

from rich.console import Console

from ancl.cli.live import Live, TimeLeft, Told, is_own, suited, trained_text
from ancl.cli.table import counted, duration, percent
from ancl.experiments.build import Experiment, RunResult, most_epochs
from ancl.experiments.spec import RunSpec
from ancl.stages.runner import Reporter
from ancl.stages.stage import Stage
from ancl.training.loop import Epoch

_WORTH_A_LINE = 1.0
"""Seconds from which on a stage without epochs is mentioned."""

_TERMS = {"old": "λ·old", "auxiliary": "λ_a·auxiliary"}


class Progress(Told, Reporter):
    """Says only what a user must know."""

    def begin(self, experiment: Experiment, todo: Sequence[Stage]) -> None:
        """A run begins, of which these stages are not in the store."""

    def end(self, result: RunResult) -> None:
        """A run is finished and its results are written."""


class Lines(Progress):
    """A line for every training, every other stage that takes long, and every note."""

    def __init__(self) -> None:
        self._spec: RunSpec | None = None
        self._tasks = 0
        self._told: set[str] = set()
        self._epochs: list[Epoch] = []

    def begin(self, experiment: Experiment, todo: Sequence[Stage]) -> None:
        """Name the run."""
        spec = self._spec = experiment.spec
        self._tasks, self._told = len(experiment.stream.tasks), set()
        found = len(experiment.stages) - len(todo)
        stored = f" ({found} of {counted(len(experiment.stages), 'stage')} stored)" if found else ""
        self.say(f"{spec.method} on {spec.benchmark}, seed {spec.seed}{stored}")

    def stage_begins(self, stage: Stage) -> None:
        """Forget the epochs of the stage before."""
        self._epochs = []

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Keep what the stage's line tells."""
        if is_own(stage, epoch.role):
            self._epochs.append(epoch)
        if epoch.note:
            whose = "" if is_own(stage, epoch.role) else f"{epoch.role} "
            self.note(f"{self.title(stage)}, {whose}epoch {epoch.epoch + 1}: {epoch.note}")

    def note(self, text: str) -> None:
        """Something remarkable in an epoch."""
        self.say(text)

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """Tell of a stage once; it is found again by every stage that reads it."""
        if stage.key in self._told:
            return
        self._told.add(stage.key)
        assert self._spec is not None
        if found and most_epochs(self._spec, stage):
            self.say(f"{self.title(stage)}: found in the store")
        elif self._epochs and not found:
            self.say(f"{self.title(stage)}: {self._trained()}, {duration(seconds)}")
        elif not found and seconds >= _WORTH_A_LINE:
            self.say(f"{self.title(stage)}: {duration(seconds)}")
        self._epochs = []

    def title(self, stage: Stage) -> str:
        """Which stage of which task."""
        return f"task {stage.task + 1}/{self._tasks} {stage.name}"

    def _trained(self) -> str:
        last = self._epochs[-1]
        # The best weights are the ones kept; a fixed schedule marks none and keeps the last.
        kept = next((epoch for epoch in reversed(self._epochs) if epoch.best), last)
        return trained_text(last.epoch + 1, kept.accuracy)


class Display(Live, Lines):
    """The same lines above a live one: the stage at work, its terms, and the time left."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._bar = self._bars.add_task("", visible=False, now="")

    def note(self, text: str) -> None:
        """Notes pass by on the live line; all of them are in the run's log."""

    def begin(self, experiment: Experiment, todo: Sequence[Stage]) -> None:
        """Name the run and begin to estimate."""
        super().begin(experiment, todo)
        spec = experiment.spec
        self._time = TimeLeft({stage.key: most_epochs(spec, stage) for stage in todo})

    def stage_begins(self, stage: Stage) -> None:
        """Show the stage."""
        super().stage_begins(stage)
        assert self._spec is not None
        total = most_epochs(self._spec, stage) or None
        self._bars.reset(
            self._bar, total=total, description=self.title(stage), visible=True, now=""
        )

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Show what the epoch did."""
        super().epoch_ends(stage, epoch)
        assert self._spec is not None
        most = most_epochs(self._spec, stage)
        own = is_own(stage, epoch.role)
        self._time.epoch(stage.key, epoch.seconds, most - epoch.epoch - 1 if own else None)
        if own:
            now = epoch_line(epoch, most, self._time.seconds)
            self._bars.update(self._bar, completed=epoch.epoch + 1, now=now)

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """Its line, and no live one until the next stage."""
        super().stage_ends(stage, found=found, seconds=seconds)
        self._time.ends(stage.key)
        self._bars.update(self._bar, visible=False)


def epoch_line(epoch: Epoch, most: int, left: float | None) -> str:
    """An epoch in one line: its number, its terms, its accuracy, and the time left."""
    terms = " + ".join(f"{_TERMS.get(name, name)} {v:.3g}" for name, v in epoch.train.items())
    parts = [f"epoch {epoch.epoch + 1}/{most}", terms]
    if epoch.accuracy is not None:
        parts.append(f"val {percent(epoch.accuracy)} %")
    if left is not None:
        parts.append(f"at most {duration(left)} left")
    if epoch.note:
        parts.append(epoch.note)
    return " · ".join(parts)


def make_progress(quiet: bool) -> Progress:
    """The progress that suits standard error."""
    return suited(quiet, Progress, Lines, Display)
