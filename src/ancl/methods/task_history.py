"""Which classes came when, and what a memory keeps of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Self

from ancl.data import Task
from ancl.errors import ScenarioError
from ancl.memory import Memory


@dataclass(frozen=True)
class ClassHistory:
    """The classes of every task so far, the current one last, as slices of global positions."""

    tasks: tuple[slice, ...]

    @classmethod
    def of(cls, tasks: Sequence[Task]) -> Self:
        """The history that ends with the last of ``tasks``."""
        return cls(tuple(task.classes for task in tasks))

    @property
    def current(self) -> slice:
        """The classes of the task being learned."""
        return self.tasks[-1]

    @property
    def adds_classes(self) -> bool:
        """Whether the current task has classes that none had before (a new domain does not)."""
        return _adds_classes(len(self.tasks) - 1, self.current)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The number of classes of every block of the head."""
        added = (c for index, c in enumerate(self.tasks) if _adds_classes(index, c))
        return tuple(classes.stop - classes.start for classes in added)

    @property
    def blocks_before(self) -> tuple[int, ...]:
        """The same before the current task."""
        return self.blocks[:-1] if self.adds_classes else self.blocks

    @property
    def old_classes(self) -> slice:
        """The classes the old network speaks for: those before, or all where none is new."""
        return slice(0, self.current.start or self.current.stop)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of classes the old network speaks for, and of those the task adds."""
        new = self.current.stop - self.current.start if self.adds_classes else 0
        return self.old_classes.stop, new

    @property
    def groups(self) -> int:
        """The number of groups that share a memory: classes, times domains where there are any."""
        domains = 1 + sum(not _adds_classes(index, c) for index, c in enumerate(self.tasks))
        return sum(self.blocks) * domains


def adds_classes(task: Task) -> bool:
    """Whether a task has classes that none had before (a new domain does not)."""
    return _adds_classes(task.index, task.classes)


def _adds_classes(index: int, classes: slice) -> bool:
    return bool(index == 0 or classes.start > 0)


def kept_counts(memory: Memory | None, hold_out: float, history: ClassHistory) -> tuple[int, int]:
    """The number of images per class that a memory keeps to train on, and to validate on alone."""
    if memory is None:
        return 0, 0
    quota = memory.quota(history.groups)
    held = ceil(hold_out * quota)
    return quota - held, held


def check_hold_out(memory: Memory | None, hold_out: float, task: Task) -> None:
    """Refuse a class of a task with one image, where images are to be held out of training.

    Raises:
        ScenarioError: Naming the class.
    """
    if memory is None or hold_out == 0:
        return
    least = task.counts.index(min(task.counts))
    if task.counts[least] < 2:
        raise ScenarioError(
            f"Class {task.names[least]!r} has 1 image to train on, but this method holds images of "
            f"every class out of training, so it needs 2. Give more images, a smaller "
            f"val_fraction, or a method that holds none out, such as wa."
        )
