"""Progress on standard error: live bars on a terminal, plain lines elsewhere."""

import sys
from collections.abc import Collection, Mapping
from threading import Event, Thread
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn
from rich.progress import Progress as Bars

from ancl.errors import counted
from ancl.stages.events import Events
from ancl.stages.stage import Stage, is_own
from ancl.training.loop import Epoch
from ancl.wording import duration, percent

_WORTH_A_LINE = 1.0
"""Seconds from which on a stage without epochs gets a line."""
_TERMS = {"old": "λ·old", "auxiliary": "λ_a·auxiliary"}


class Progress(Events):
    """Says only what a user must know; enter it before the work and leave it after."""

    _titles: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def say(self, message: str) -> None:
        """A line on standard error."""
        print(message, file=sys.stderr, flush=True)

    def work_begins(
        self,
        titles: Mapping[str, str],
        epochs: Mapping[str, int],
        todo: Collection[str],
        workers: int = 1,
    ) -> None:
        """Keep the titles."""
        self._titles = titles

    def stage_fails(self, stage: Stage, reason: str) -> None:
        """Failures are shown at once, and again in a table at the end."""
        self.say(f"{self.title(stage)} failed: {reason}")

    def title(self, stage: Stage) -> str:
        """What to call a stage."""
        return self._titles.get(stage.key, f"task {stage.task + 1} {stage.name}")


class Lines(Progress):
    """A line for the plan, every training, every other stage that takes long, and every note.

    While it is entered there is a line at least every ``quiet_seconds``: a file or a pipe that
    says nothing for long looks as if the work had stopped.

    Args:
        quiet_seconds: The longest time without a line.
    """

    def __init__(self, quiet_seconds: float = 60.0) -> None:
        self._quiet_seconds, self._said, self._ended = quiet_seconds, monotonic(), Event()
        self._running: dict[str, str] = {}
        self._epochs: Mapping[str, int] = {}
        self._todo: frozenset[str] = frozenset()
        self._done: set[str] = set()
        self._trained: dict[str, tuple[Epoch, Epoch]] = {}

    def __enter__(self) -> Self:
        self._ended.clear()
        Thread(target=self._keep_saying, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()

    def _keep_saying(self) -> None:
        """Say how far the work is, whenever nothing was said for long."""
        while not self._ended.wait(max(self._said + self._quiet_seconds - monotonic(), 0.01)):
            if monotonic() - self._said >= self._quiet_seconds:
                running = list(self._running.values())
                self.say("; ".join(running) if running else "Still at work.")

    def say(self, message: str) -> None:
        """A line on standard error."""
        self._said = monotonic()
        super().say(message)

    def note(self, message: str) -> None:
        """A line."""
        self.say(message)

    def work_begins(
        self,
        titles: Mapping[str, str],
        epochs: Mapping[str, int],
        todo: Collection[str],
        workers: int = 1,
    ) -> None:
        """Begin to count."""
        super().work_begins(titles, epochs, todo, workers)
        self._epochs, self._todo, self._done = epochs, frozenset(todo), set()

    def stage_begins(self, stage: Stage) -> None:
        """Forget the epochs of an attempt before."""
        self._trained.pop(stage.key, None)
        self._running[stage.key] = f"{self.title(stage)} begins"

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Keep what the stage's line shows: the last epoch, and the one whose weights are kept."""
        if is_own(stage, epoch.role):
            # A fixed schedule marks no best epoch and keeps the last weights.
            before = self._trained.get(stage.key)
            best = before[1] if before and before[1].best and not epoch.best else epoch
            self._trained[stage.key] = (epoch, best)
            most = self._epochs.get(stage.key, 0)
            self._running[stage.key] = f"{self.title(stage)}: {epoch_line(epoch, most)}"
        if epoch.note:
            whose = "" if is_own(stage, epoch.role) else f"{epoch.role} "
            self.remark(f"{self.title(stage)}, {whose}epoch {epoch.epoch + 1}: {epoch.note}")

    def remark(self, text: str) -> None:
        """A line for something remarkable in an epoch."""
        self.say(text)

    def stage_fails(self, stage: Stage, reason: str) -> None:
        """A line for a failure; the stage runs no more."""
        self._running.pop(stage.key, None)
        super().stage_fails(stage, reason)

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """A line for a stage, once: it is found again by every stage that reads it."""
        self._running.pop(stage.key, None)
        if stage.key in self._done:
            return
        self._done.add(stage.key)
        trained = self._trained.pop(stage.key, None)
        if found:
            if self._epochs.get(stage.key):
                self.say(f"{self.title(stage)}: found in the store")
        elif trained:
            last, best = trained
            val = "" if best.accuracy is None else f", val {percent(best.accuracy)} %"
            text = f"{counted(last.epoch + 1, 'epoch')}{val}, {duration(seconds)}"
            self.say(f"{self._count(stage)}{self.title(stage)}: {text}")
        elif seconds >= _WORTH_A_LINE:
            self.say(f"{self._count(stage)}{self.title(stage)}: {duration(seconds)}")

    def _count(self, stage: Stage) -> str:
        if stage.key not in self._todo:
            return ""
        return f"[{len(self._done & self._todo)}/{len(self._todo)}] "


class Display(Lines):
    """The same lines above live bars: all the work, and every stage being computed."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[now]}"),
        )
        self._bars = Bars(*columns, console=console, transient=True)
        self._work = self._bars.add_task("stages", visible=False, now="")
        self._of: dict[str, TaskID] = {}
        self._time = TimeLeft({})

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def say(self, message: str) -> None:
        """A line above the bars."""
        self._bars.console.print(message, markup=False, highlight=False)

    def remark(self, text: str) -> None:
        """No-op: the stage's bar and the run's log show it."""

    def work_begins(
        self,
        titles: Mapping[str, str],
        epochs: Mapping[str, int],
        todo: Collection[str],
        workers: int = 1,
    ) -> None:
        """Begin to count and to estimate."""
        super().work_begins(titles, epochs, todo, workers)
        self._time = TimeLeft({key: epochs[key] for key in todo}, workers)
        self._bars.reset(self._work, total=len(todo) or None, visible=bool(todo), now="")

    def stage_begins(self, stage: Stage) -> None:
        """A bar for the stage."""
        super().stage_begins(stage)
        self._drop(stage)
        total = self._epochs.get(stage.key) or None
        self._of[stage.key] = self._bars.add_task(self.title(stage), total=total, now="")

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Move the stage's bar, and estimate the time left."""
        super().epoch_ends(stage, epoch)
        most, own = self._epochs.get(stage.key, 0), is_own(stage, epoch.role)
        left = most - epoch.epoch - 1 if own else None
        self._time.epoch(stage.key, epoch.seconds, left)
        if own and stage.key in self._of:
            now = epoch_line(epoch, most)
            self._bars.update(self._of[stage.key], completed=epoch.epoch + 1, now=now)
        if (seconds := self._time.seconds) is not None:
            self._bars.update(self._work, now=f"at most {duration(seconds)} left")

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """The stage's line; its bar is removed."""
        super().stage_ends(stage, found=found, seconds=seconds)
        self._time.ends(stage.key)
        self._drop(stage)
        self._bars.update(self._work, completed=len(self._done & self._todo))

    def stage_fails(self, stage: Stage, reason: str) -> None:
        """The same for a failure."""
        super().stage_fails(stage, reason)
        self._time.ends(stage.key)
        self._drop(stage)

    def _drop(self, stage: Stage) -> None:
        if (bar := self._of.pop(stage.key, None)) is not None:
            self._bars.remove_task(bar)


class TimeLeft:
    """The most time that the stages to do can still take, from the epochs done.

    Args:
        most: The most epochs of each stage, by key.
        workers: The number of stages computed at the same time.
    """

    def __init__(self, most: Mapping[str, int], workers: int = 1) -> None:
        self._left, self._workers = dict(most), workers
        self._seconds, self._done = 0.0, 0

    def epoch(self, key: str, seconds: float, left: int | None) -> None:
        """Count an epoch; how many are left is ``None`` where it is not one of the stage's own."""
        self._seconds += seconds
        if left is not None:
            self._done += 1
            self._left[key] = max(left, 0)

    def ends(self, key: str) -> None:
        """A stage is done, maybe before its last epoch."""
        self._left[key] = 0

    @property
    def seconds(self) -> float | None:
        """The estimate, once there is an epoch to judge by."""
        if not self._done:
            return None
        return sum(self._left.values()) * self._seconds / self._done / self._workers


def epoch_line(epoch: Epoch, most: int) -> str:
    """An epoch in one line: its number, its terms, its accuracy, and what is remarkable."""
    terms = " + ".join(f"{_TERMS.get(name, name)} {v:.3g}" for name, v in epoch.train.items())
    of = f"/{most}" if most else ""
    parts = [f"epoch {epoch.epoch + 1}{of}", *([terms] if terms else [])]
    if epoch.accuracy is not None:
        parts.append(f"val {percent(epoch.accuracy)} %")
    if epoch.note:
        parts.append(epoch.note)
    return " · ".join(parts)


def make_progress(quiet: bool) -> Progress:
    """The progress that suits standard error: live on a terminal, plain lines elsewhere."""
    if quiet:
        return Progress()
    console = Console(stderr=True)
    return Display(console) if console.is_terminal and not console.is_dumb_terminal else Lines()
