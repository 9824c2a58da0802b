"""What a run or a learner leaves behind besides stored entries: written as JSON, checked when read.

What is read back is data: every field is checked, and no code that it names is imported.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Self

from annotated_types import Ge, Len
from pydantic import BaseModel, ConfigDict, StringConstraints, model_validator

from ancl.data import Augment, Normalization, Split, Task
from ancl.errors import MethodError
from ancl.hashing import UnstorableError, describe, digest
from ancl.methods.method import Method
from ancl.stages.setting import Setting
from ancl.state import StateKeys

Key = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_CHECKED = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class TaskState(BaseModel):
    """A learned task without its images; see ``ancl.data.Task``."""

    model_config = _CHECKED

    names: tuple[int | str, ...]
    start: Annotated[int, Ge(0)]
    key: Key
    test_key: Key
    sizes: tuple[Annotated[int, Ge(0)], Annotated[int, Ge(0)], Annotated[int, Ge(0)]]
    counts: tuple[Annotated[int, Ge(0)], ...]
    returning: tuple[Annotated[int, Ge(0)], ...] = ()

    @model_validator(mode="after")
    def _check(self) -> Self:
        if len(set(self.names)) < len(self.names):
            raise ValueError("a task names a class twice")
        known = sorted({label for label in self.returning if label < self.start})
        if tuple(known) != self.returning or not self.present:
            raise ValueError("the classes that come again are not classes before the task")
        if len(self.counts) != len(self.present) or sum(self.counts) != self.sizes[0]:
            raise ValueError("the images per class do not fit the classes and images of a task")
        return self

    @property
    def present(self) -> tuple[int, ...]:
        """The positions of all classes whose images it brought."""
        return (*self.returning, *range(self.start, self.start + len(self.names)))

    @classmethod
    def of(cls, task: Task) -> Self:
        """What is kept of a task."""
        return cls(
            names=task.names,
            start=task.classes.start,
            key=task.key,
            test_key=task.test_key,
            sizes=task.sizes,
            counts=task.counts,
            returning=task.returning,
        )

    def task(self, index: int) -> Task:
        """The task again; its images are gone."""

        def gone() -> Split:
            raise MethodError(
                f"Neither a run nor a saved learner keeps the images of task {index + 1}, and this "
                f"method learns from the images of all tasks. Learn all tasks at once, or use "
                f"another method."
            )

        return Task(
            index=index,
            classes=slice(self.start, self.start + len(self.names)),
            names=self.names,
            key=self.key,
            test_key=self.test_key,
            sizes=self.sizes,
            counts=self.counts,
            load=gone,
            present=self.present,
        )


class FinalState(BaseModel):
    """What is needed, besides stored entries, to answer and to learn more after the last task.

    Args:
        keys: The keys of the entries that the next task starts from, by name.
        tasks: The tasks learned.
        input_shape: The shape of one sample, channels first.
        normalization: Mean and standard deviation of each channel; none for other inputs.
        method: The hash of the method's description.
        network: The hash of the network's source code, where it comes from outside.
        pretrained: The hash of the file of weights that the network began with, if there is one.
        augment: The hash of the augmentation's source code, where it comes from outside and all
            of it is known.
    """

    model_config = _CHECKED

    keys: dict[str, Key]
    tasks: Annotated[tuple[TaskState, ...], Len(1)]
    input_shape: Annotated[tuple[Annotated[int, Ge(1)], ...], Len(1)]
    normalization: dict[str, tuple[float, ...]] | None
    method: Key
    network: Key | None
    pretrained: Key | None = None
    augment: Key | None = None
    floats: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if "network" not in self.keys:
            raise ValueError("the state has no network")
        if self.normalization is not None:
            _check_moments(self.normalization, self.input_shape)
        first, end, learned = self.tasks[0], 0, set[int | str]()
        domains = len(self.tasks) > 1 and self.tasks[1].start == 0
        for task in self.tasks:
            again = learned & set(task.names)
            fits = task.names == first.names if domains else not again
            if task.start != (0 if domains else end) or not fits or not first.names:
                raise ValueError("the classes of the tasks do not follow each other")
            end, learned = end + len(task.names), learned | set(task.names)
        return self

    @classmethod
    def of(cls, method: Method, tasks: Sequence[Task], setting: Setting, keys: StateKeys) -> Self:
        """The state after the last of ``tasks``.

        Raises:
            UnstorableError: The method has no description.
        """
        moments = setting.normalization
        code = setting.architecture.maker and setting.architecture.maker.code
        return cls(
            keys=dict(keys),
            tasks=tuple(map(TaskState.of, tasks)),
            input_shape=setting.architecture.input_shape,
            normalization={"mean": moments.mean, "std": moments.std} if moments else None,
            floats=moments is not None and moments.floats,
            method=digest(describe(method, complete=False)),
            network=code.sources.digest if code else None,
            pretrained=setting.architecture.pretrained,
            augment=augment_digest(setting.augment),
        )

    @classmethod
    def read(cls, values: object) -> Self:
        """From JSON.

        Raises:
            ValueError: A field is missing, unknown, or out of its range.
        """
        return cls.model_validate_json(json.dumps(values))

    @property
    def columns(self) -> tuple[int, ...]:
        """The number of tasks with classes of their own after each task."""
        return tuple(accumulate(int(bool(task.names)) for task in self.tasks))

    @property
    def moments(self) -> Normalization | None:
        """The normalization of images."""
        normalization = self.normalization
        return (
            Normalization(normalization["mean"], normalization["std"], self.floats)
            if normalization
            else None
        )

    @property
    def pixels(self) -> bool:
        """Whether images are bytes: they always have a normalization."""
        return self.normalization is not None and not self.floats

    def learned(self, scenario: str) -> tuple[Task, ...]:
        """The tasks again, without their images.

        Raises:
            ValueError: They are not tasks of this scenario.
        """
        if len(self.tasks) > 1 and (scenario == "dil") != (self.tasks[1].start == 0):
            raise ValueError(f"the classes of the tasks are not those of the scenario {scenario}")
        return tuple(task.task(index) for index, task in enumerate(self.tasks))


def augment_digest(augment: Augment) -> str | None:
    """The hash of an augmentation from outside; None for ours, and where not all is known."""
    if isinstance(augment, str):
        return None
    try:
        return digest(describe(augment, complete=False))
    except UnstorableError:
        return None


def _check_moments(moments: Mapping[str, tuple[float, ...]], shape: Sequence[int]) -> None:
    if moments.keys() != {"mean", "std"} or {len(values) for values in moments.values()} != {
        shape[0]
    }:
        raise ValueError("the normalization has not one mean and one std for each channel")
    if min(moments["std"]) <= 0:
        raise ValueError("the normalization has a std that is not above 0")
