"""What progress of one run and of a sweep have in common: messages, live bars, the time left."""

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self, TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from ancl.cli.table import counted, percent
from ancl.stages.stage import Stage

T = TypeVar("T")


class Told:
    """Messages on standard error."""

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
        """A warning."""
        print(message, file=sys.stderr, flush=True)


class Live(Told):
    """The same above live bars, which are there from entering to leaving."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        columns = (
            TextColumn("{task.description}"),
            BarColumn(20),
            TextColumn("{task.fields[now]}"),
        )
        self._bars = Progress(*columns, console=console, transient=True)

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


class TimeLeft:
    """The most time that stages to do can still take, from the epochs done.

    Args:
        most: At most so many epochs has each stage, by key.
        workers: So many stages are computed at once.
    """

    def __init__(self, most: Mapping[str, int], workers: int = 1) -> None:
        self._left, self._workers = dict(most), workers
        self._seconds, self._done = 0.0, 0

    def epoch(self, key: str, seconds: float, left: int | None) -> None:
        """Count an epoch: so many are left, or nothing is known where it is not the stage's own."""
        self._seconds += seconds
        if left is not None:
            self._done += 1
            self._left[key] = max(left, 0)

    def ends(self, key: str) -> None:
        """A stage is there, maybe before its last epoch."""
        self._left[key] = 0

    @property
    def seconds(self) -> float | None:
        """The estimate, once there is an epoch to judge by."""
        if not self._done:
            return None
        return sum(self._left.values()) * self._seconds / self._done / self._workers


def is_own(stage: Stage, role: str) -> bool:
    """Whether an epoch is one of the stage's own, and not of AFEC's network ahead of it."""
    return role == stage.name or stage.name not in ("main", "auxiliary")


def trained_text(epochs: int, accuracy: float | None) -> str:
    """How long a training was, and how good the weights are that it keeps."""
    val = "" if accuracy is None else f", val {percent(accuracy)} %"
    return f"{counted(epochs, 'epoch')}{val}"


def suited(
    quiet: bool, silent: Callable[[], T], lines: Callable[[], T], live: Callable[[Console], T]
) -> T:
    """The progress that suits standard error: live on a terminal, plain lines elsewhere."""
    if quiet:
        return silent()
    console = Console(stderr=True)
    return live(console) if console.is_terminal and not console.is_dumb_terminal else lines()
