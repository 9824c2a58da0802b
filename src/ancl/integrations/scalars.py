"""A run as scalars with tags, ``t{task}/{group}_{name}``, for whatever draws curves.

Accuracies are in percent, as in FACIL, whose tags these are. Groups: ``train``, ``valid`` and
``test`` for the main network; those of another network or a trial begin with its name.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ancl.experiments.build import RunResult
from ancl.experiments.spec import RunSpec
from ancl.stages.stage import Stage
from ancl.training.loop import Epoch, epoch_record


class Point(NamedTuple):
    """Scalars by tag at one step."""

    scalars: dict[str, float]
    step: int


class Writer(ABC):
    """Takes a run's scalars somewhere."""

    @abstractmethod
    def begin(self, spec: RunSpec, directory: Path) -> None:
        """A run begins, whose results go to this directory."""

    @abstractmethod
    def write(self, point: Point) -> None:
        """Take scalars."""

    @abstractmethod
    def end(self) -> None:
        """Nothing follows, be the run finished or stopped."""


class RunLog:
    """Sends every epoch to writers once: as it ends, or at the end if it was found in the store."""

    def __init__(self, writers: Sequence[Writer]) -> None:
        self._writers, self._open = writers, False
        self._sent: set[tuple[Any, ...]] = set()

    def begin(self, spec: RunSpec, directory: Path) -> None:
        """A run begins."""
        self._sent = set()
        for writer in self._writers:
            writer.begin(spec, directory)
        self._open = True

    def epoch(self, stage: Stage, epoch: Epoch) -> None:
        """An epoch ended."""
        self._send({"task": stage.task, "stage": stage.name, **epoch_record(epoch)})

    def end(self, result: RunResult) -> None:
        """The run is finished: what was not sent yet, and the accuracy on test images."""
        for record in result.log:
            self._send(record)
        for point in accuracy_points(result):
            self._write(point)
        self.close()

    def close(self) -> None:
        """Nothing follows."""
        for writer in self._writers if self._open else ():
            writer.end()
        self._open = False

    def _send(self, record: Mapping[str, Any]) -> None:
        mark = tuple(record[key] for key in ("task", "stage", "role", "epoch"))
        if mark not in self._sent:
            self._sent.add(mark)
            self._write(epoch_point(record))

    def _write(self, point: Point) -> None:
        for writer in self._writers:
            writer.write(point)


def epoch_point(record: Mapping[str, Any]) -> Point:
    """One epoch of one training: terms, their sum, rate and validation accuracy.

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
    scalars[f"{start}train_lr"] = record["lr"]
    if record["accuracy"] is not None:
        scalars[f"{start}valid_acc"] = 100 * record["accuracy"]
    return Point(scalars, record["epoch"])


def accuracy_points(result: RunResult) -> Iterator[Point]:
    """Accuracy on every task after every task, then the metrics; a step is a task."""
    for after in range(len(result.sizes)):
        scalars = {
            f"t{task}/test_acc_{name}": 100 * float(result.matrices[name][after, task])
            for name in ("taw", "tag")
            for task in range(after + 1)
        }
        yield Point({tag: v for tag, v in scalars.items() if not math.isnan(v)}, after)
    metrics = {f"metrics/{name}": 100 * v for name, v in result.metrics.items()}
    last = len(result.sizes) - 1
    yield Point({tag: v for tag, v in metrics.items() if not math.isnan(v)}, last)
