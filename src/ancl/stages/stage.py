"""A stage: one pure step of learning a task, whose fields are its key and all that it reads.

``run`` may read the stage's own fields, the results of its inputs, and a ``StageContext``. The key
is the hash of exactly those fields, so what decides a result and what names it cannot differ.
"""

import dataclasses
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch

from ancl.data import Split
from ancl.hashing import UnstorableError, describe, digest
from ancl.store.entry import StageResult
from ancl.training.loop import Drive

KEY_VERSION = 2
"""Raised when keys change their form: every stored result is then computed again."""

Inputs = Mapping[str, StageResult]
"""The results a stage reads, by the part they play."""


class StageContext(NamedTuple):
    """All that ``run`` sees besides the stage and its inputs; none of it decides a number.

    Args:
        device: Where to compute. Its kind is part of the stage's numerics.
        drive: Runs a training to its end, from a checkpoint if there is one.
        say: Takes a message for the user.
        images: Gives a task's images by the key that a stage holds.
    """

    device: torch.device
    drive: Drive
    say: Callable[[str], None]
    images: Callable[[str], Split]


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(ABC):
    """One step of learning a task.

    Args:
        task: The task's index.
        seed: Where all randomness comes from.
        numerics: What else decides bits: threads, device kind, versions.
        inputs: The keys of the results it reads, by the part they play.
        unstored: Why its result must not be stored; empty where it may be. Not part of the key.
    """

    task: int
    seed: int
    numerics: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    unstored: str = ""

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
        """The hash of the name and of every field."""
        fields = {
            each.name: describe(getattr(self, each.name), unknown=_by_object)
            for each in dataclasses.fields(self)
            if each.name != "unstored"
        }
        return digest({"version": KEY_VERSION, "stage": self.name, **fields})


_PROCESS = uuid.uuid4().hex
"""Stands for code that cannot be described: such a key is found by no other process."""

_UNKNOWN: dict[int, object] = {}
"""Such code by its id, kept alive so that no later object gets the same id, and with it the key."""


def _by_object(part: object, error: UnstorableError) -> Any:
    if error.known is not None:
        return [_PROCESS, error.known]
    _UNKNOWN[id(part)] = part
    return [_PROCESS, repr(type(part)), id(part)]
