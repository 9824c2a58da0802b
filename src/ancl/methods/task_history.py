"""Which classes came when, and what a memory keeps of them."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import ceil
from typing import Any, Self

from ancl.data import Task
from ancl.errors import ScenarioError
from ancl.memory import Memory


@dataclass(frozen=True)
class ClassHistory:
    """Which classes came with which task, as global positions.

    Args:
        tasks: The classes that every task was the first to bring, the current one last; all
            classes again where the task is another domain.
        present: The classes whose images the current task brings, where known ones come again.
        rows: The number of classes of a head that has all of them from the start; none if it grows.
    """

    tasks: tuple[slice, ...]
    present: tuple[int, ...] | None = None
    rows: int | None = None

    @classmethod
    def of(cls, tasks: Sequence[Task], rows: int | None = None) -> Self:
        """The history that ends with the last of ``tasks``."""
        last, present = tasks[-1], None
        if last.returning:
            present = last.present
        return cls(tuple(task.classes for task in tasks), present, rows)

    def up_to(self, task: int) -> Self:
        """The history that ended with an earlier task; which classes came again is left out."""
        return replace(self, tasks=self.tasks[: task + 1], present=None)

    def key_description(self) -> dict[str, Any]:
        """What it puts into keys: nothing of repetition or a whole head where there is none."""
        description: dict[str, Any] = {
            "is": type(self).__name__,
            "tasks": [[classes.start, classes.stop] for classes in self.tasks],
        }
        description |= {} if self.present is None else {"present": list(self.present)}
        return description if self.rows is None else {**description, "rows": self.rows}

    @property
    def current(self) -> slice:
        """The classes that the task being learned is the first to bring."""
        return self.tasks[-1]

    @property
    def returning(self) -> tuple[int, ...]:
        """The classes that the current task brings again."""
        return tuple(label for label in self.present or () if label < self.current.start)

    @property
    def adds_classes(self) -> bool:
        """Whether the current task has classes that none had before."""
        return _adds_classes(len(self.tasks) - 1, self.current)

    @property
    def adds_block(self) -> bool:
        """Whether the head grows with the current task."""
        return self.adds_classes and (self.rows is None or len(self.tasks) == 1)

    @property
    def blocks(self) -> tuple[int, ...]:
        """The number of classes of every block of the head."""
        return self._new_classes if self.rows is None else (self.rows,)

    @property
    def _new_classes(self) -> tuple[int, ...]:
        """The number of new classes of every task that has some."""
        added = (c for index, c in enumerate(self.tasks) if _adds_classes(index, c))
        return tuple(classes.stop - classes.start for classes in added)

    @property
    def blocks_before(self) -> tuple[int, ...]:
        """The same before the current task."""
        return self.blocks[:-1] if self.adds_block else self.blocks

    @property
    def earlier_blocks(self) -> int:
        """The number of the head's blocks before the current task's own, if it has one."""
        if self.rows is not None:
            return 0
        return len(self.blocks) - int(self.current.stop > self.current.start)

    @property
    def absent_blocks(self) -> tuple[int, ...]:
        """Which of them have no class that comes again: all of them without repetition."""
        ends = list(accumulate(self.blocks))
        again = {bisect_right(ends, label) for label in self.returning}
        return tuple(block for block in range(self.earlier_blocks) if block not in again)

    @property
    def old_classes(self) -> slice:
        """The classes the old network knows: those before, or all where none is new."""
        return slice(0, self.current.start or self.current.stop)

    @property
    def stored_classes(self) -> slice:
        """The classes for which answers may have been stored: all rows of a head that has them."""
        return self.old_classes if self.rows is None else slice(0, self.rows)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of classes the old network knows, and of those the task adds."""
        new = self.current.stop - self.current.start if self.adds_classes else 0
        return self.old_classes.stop, new

    @property
    def groups(self) -> int:
        """The number of groups that share a memory: classes, times domains where there are any."""
        domains = 1 + sum(int(classes.start == 0) for classes in self.tasks[1:])
        return sum(self._new_classes) * domains


def adds_classes(task: Task) -> bool:
    """Whether a task has classes that none had before.

    A new domain does not, nor does a task in which known classes come again alone.
    """
    return _adds_classes(task.index, task.classes)


def _adds_classes(index: int, classes: slice) -> bool:
    return bool(index == 0 or 0 < classes.start < classes.stop)


def kept_counts(memory: Memory | None, hold_out: float, history: ClassHistory) -> tuple[int, int]:
    """The number of images per class that a memory keeps to train on, and to validate on alone."""
    if memory is None:
        return 0, 0
    quota = memory.quota(history.groups)
    held = ceil(hold_out * quota)
    return quota - held, held


def check_hold_out(memory: Memory | None, hold_out: float, tasks: Sequence[Task]) -> None:
    """Refuse a class of the last task with one image, where some are to be held out of training.

    Raises:
        ScenarioError: Naming the class.
    """
    if memory is None or hold_out == 0:
        return
    counts = tasks[-1].counts
    least = counts.index(min(counts))
    if counts[least] < 2:
        names = [name for task in tasks if adds_classes(task) for name in task.names]
        name = names[tasks[-1].present[least]]
        raise ScenarioError(
            f"Class {name!r} has 1 image to train on, but this method holds images of "
            f"every class out of training, so it needs 2. Give more images, a smaller "
            f"val_fraction, or a method that holds none out, such as wa."
        )
