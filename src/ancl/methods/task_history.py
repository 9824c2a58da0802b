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


def check_exemplars(memory: Memory | None, hold_out: float, tasks: Sequence[Task]) -> None:
    """Refuse a memory that is to keep more images of a class of the last task than it has.

    Raises:
        ScenarioError: Naming the class.
    """
    task, wanted = tasks[-1], sum(kept_counts(memory, hold_out, ClassHistory.of(tasks)))
    least = task.counts.index(min(task.counts))
    if task.counts[least] < wanted:
        raise ScenarioError(
            f"The memory is to keep {wanted} images per class, but class {task.names[least]!r} "
            f"has {task.counts[least]} to train on. Lower memory.per_class or memory.total."
        )
