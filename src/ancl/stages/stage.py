"""A stage: one pure step of learning a task, whose fields are its key and all that it reads.

``run`` may read the stage's own fields, among them its parts, the results of its inputs, and a
``StageContext``. The key is the hash of exactly those fields and parts, so what decides a result
and what names it cannot differ.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from ancl.hashing import PROCESS, UnstorableError, describe, described_fields, digest
from ancl.methods.parts import Inputs, StageContext, TaskParts
from ancl.methods.work import TaskWork
from ancl.store.entry import StageResult

KEY_VERSION = 2
"""Raised when keys change their form: every stored result is then computed again."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(ABC):
    """One step of learning a task.

    Args:
        task: The task's index.
        seed: Where all randomness comes from.
        numerics: What else decides bits: threads, device kind, versions.
        inputs: The keys of the results it reads, by the part they play.
        unstored: Why its result must not be stored; empty where it may be. Not part of the key.
        parts: What it reads besides: each part is in the key as a field of its own.
    """

    task: int
    seed: int
    numerics: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    unstored: str = field(default="", compare=False)
    parts: TaskParts = field(default_factory=TaskParts, compare=False)
    shared: ClassVar[bool] = False
    """Whether a process keeps the result, so that all stages read the same tensors."""

    @property
    @abstractmethod
    def name(self) -> str:
        """What the stage is called in plans and logs; part of the key."""

    @abstractmethod
    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Compute the result."""

    @property
    def epochs(self) -> int:
        """The largest number of epochs it trains; 0 where it trains nothing."""
        return 0

    @cached_property
    def key(self) -> str:
        """The hash of the name, of every field and of every part."""
        read = {**described_fields(self), **self.parts.held}
        described = {name: describe(value, unknown=_by_object) for name, value in read.items()}
        return digest({"version": KEY_VERSION, "stage": self.name, **described})

    def work(self, inputs: Inputs, context: StageContext, lamb: float | None = None) -> TaskWork:
        """What the stage works with."""
        return TaskWork(self.task, self.seed, self.parts, inputs, context, lamb)


def is_own(stage: Stage, role: str) -> bool:
    """Whether an epoch is one of the stage's own, and not of the network that AFEC trains too."""
    return role == stage.name or stage.name not in ("main", "auxiliary")


_UNKNOWN: dict[int, object] = {}
"""Such code by its id, kept alive so that no later object gets the same id, and with it the key."""


def _by_object(part: object, error: UnstorableError) -> Any:
    if error.known is not None:
        return [PROCESS, error.known]
    _UNKNOWN[id(part)] = part
    return [PROCESS, repr(type(part)), id(part)]
