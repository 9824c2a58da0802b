"""Curves of runs: what is drawn, and the tools it goes to.

WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE hold as usual.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from ancl.errors import SpecError
from ancl.stages.events import Events
from ancl.stages.stage import Stage
from ancl.training.loop import Epoch, epoch_record


class Point(NamedTuple):
    """Scalars by tag at one step."""

    scalars: dict[str, float]
    step: int


class Writer(ABC):
    """Takes the scalars of one run somewhere."""

    @abstractmethod
    def begin(self, directory: Path, spec: Mapping[str, Any]) -> None:
        """A run begins, whose results go to this directory."""

    @abstractmethod
    def write(self, point: Point) -> None:
        """Take scalars."""

    @abstractmethod
    def end(self) -> None:
        """The run is finished or stopped."""


class _Run:
    """The writers of one run; every epoch is sent to them once."""

    def __init__(self, writers: Sequence[Writer], keys: Collection[str]) -> None:
        self._writers, self.keys = writers, frozenset(keys)
        self._sent: set[tuple[Any, ...]] = set()

    def epoch(self, record: Mapping[str, Any]) -> None:
        mark = tuple(record[key] for key in ("task", "stage", "role", "epoch"))
        if mark not in self._sent:
            self._sent.add(mark)
            self.write(epoch_point(record))

    def write(self, point: Point) -> None:
        for writer in self._writers:
            writer.write(point)

    def end(self) -> None:
        for writer in self._writers:
            writer.end()


class RunLog(Events):
    """Sends runs to writers: an epoch as it ends, or at the end if it was found in the store.

    An epoch of a stage that several runs have in common goes to each of them.

    Args:
        makers: Make the writers of a run.
    """

    def __init__(self, makers: Sequence[Callable[[], Writer]]) -> None:
        self._makers = makers
        self._runs: dict[Path, _Run] = {}

    def run_begins(self, directory: Path, spec: Mapping[str, Any], keys: Collection[str]) -> None:
        """Open the writers of a run; one that is open receives more stages."""
        if directory in self._runs:
            self._runs[directory].keys |= frozenset(keys)
            return
        writers = [make() for make in self._makers]
        self._runs[directory] = _Run(writers, keys)
        for writer in writers:
            writer.begin(directory, spec)

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Send an epoch to every run that has the stage."""
        record = {"task": stage.task, "stage": stage.name, **epoch_record(epoch)}
        for run in self._runs.values():
            if stage.key in run.keys:
                run.epoch(record)

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        """Send what was not sent yet, and the accuracy on test images."""
        run = self._runs.pop(directory)
        for record in result["log"]:
            run.epoch(record)
        for point in accuracy_points(result):
            run.write(point)
        run.end()

    def close(self) -> None:
        """Close the writers of runs that did not finish."""
        while self._runs:
            self._runs.popitem()[1].end()


def epoch_point(record: Mapping[str, Any]) -> Point:
    """One epoch of one training: terms, their sum, λ found by a rule, rate, validation accuracy.

    >>> epoch_point({"task": 1, "role": "main", "epoch": 0, "lr": 0.1, "accuracy": 0.5,
    ...              "train": {"task": 1.0, "old": 0.5}, "val": {}})
    Point(scalars={'t1/train_task': 1.0, 't1/train_old': 0.5, 't1/train_loss': 1.5, \
't1/train_lr': 0.1, 't1/valid_acc': 50.0}, step=0)
    """
    whose = "" if record["role"] == "main" else record["role"].replace(" ", "") + "_"
    start = f"t{record['task']}/{whose}"
    scalars: dict[str, float] = {}
    for group, terms in (("train", record["train"]), ("valid", record["val"])):
        # What is not finite is stored as text.
        values = {name: float(value) for name, value in terms.items()}
        if values:
            values["loss"] = sum(values.values())
        scalars |= {f"{start}{group}_{name}": value for name, value in values.items()}
    scalars |= {f"{start}{name}": value for name, value in record.get("lambs", {}).items()}
    scalars[f"{start}train_lr"] = record["lr"]
    if record["accuracy"] is not None:
        scalars[f"{start}valid_acc"] = 100 * record["accuracy"]
    return Point(scalars, record["epoch"])


def accuracy_points(result: Mapping[str, Any]) -> Iterator[Point]:
    """Accuracy on every task after every task, then the metrics; a step is a task."""
    count = len(result["images"])
    tests = [index for index, (_, _, test) in enumerate(result["images"]) if test]
    for after in range(count):
        points = {
            f"t{task}/test_acc_{name}": result["matrices"][name][after][column]
            for name in ("taw", "tag")
            for column, task in enumerate(tests)
            if task <= after
        }
        yield _percent(points, after)
    yield _percent({f"metrics/{name}": v for name, v in result["metrics"].items()}, count - 1)


def _percent(values: Mapping[str, float | None], step: int) -> Point:
    return Point({tag: 100 * v for tag, v in values.items() if v is not None}, step)


class TensorBoard(Writer):
    """Event files below ``tensorboard/`` of a run: ``tensorboard --logdir runs``.

    Raises:
        SpecError: The package is not installed.
    """

    def __init__(self) -> None:
        try:
            self._make: Any = import_module("torch.utils.tensorboard").SummaryWriter
        except ImportError as error:
            raise SpecError(
                "--log tensorboard needs a package that is not installed. "
                "Install it: pip install 'ancl[tensorboard]'"
            ) from error
        self._writer: Any = None

    def begin(self, directory: Path, spec: Mapping[str, Any]) -> None:
        """Open the run's event file."""
        self._writer = self._make(str(directory / "tensorboard"))

    def write(self, point: Point) -> None:
        """Add each scalar at its step."""
        for tag, value in point.scalars.items():
            self._writer.add_scalar(tag, value, point.step)

    def end(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class WandB(Writer):
    """One W&B run for each run, with the spec as its config and the directory's name as its id.

    The same command resumes the same W&B run.

    Raises:
        SpecError: The package is not installed.
    """

    def __init__(self) -> None:
        try:
            self._wandb: Any = import_module("wandb")
        except ImportError as error:
            raise SpecError(
                "--log wandb needs a package that is not installed. "
                "Install it: pip install 'ancl[wandb]'"
            ) from error
        self._run: Any = None

    def begin(self, directory: Path, spec: Mapping[str, Any]) -> None:
        """Open the W&B run, which wants its directory to be there."""
        directory.mkdir(parents=True, exist_ok=True)
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ancl"),
            id=directory.name,
            name=directory.name,
            dir=str(directory),
            config=dict(spec),
            resume="allow",
            reinit="create_new",  # runs that share stages are open at the same time
        )
        # Stages have epochs of their own: W&B's one running step would put them in a row.
        self._run.define_metric("*", step_metric="step")

    def write(self, point: Point) -> None:
        """Log the scalars with their step."""
        self._run.log({**point.scalars, "step": point.step})

    def end(self) -> None:
        """Send what is buffered."""
        self._run.finish()
