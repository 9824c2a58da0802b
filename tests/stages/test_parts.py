"""Parts of stages: what a stage does not hold is not in its key, and cannot be read."""

from dataclasses import dataclass
from typing import Any

import pytest

from ancl import MethodError, Training
from tests.lab import Stage, TaskParts


@dataclass(frozen=True, eq=False, kw_only=True)
class Read(Stage):
    """A stage that reads one part."""

    name = "read"

    def run(self, inputs: Any, context: Any) -> Any:
        return self.parts.training


def stage(**parts: Any) -> Read:
    return Read(task=0, seed=0, numerics={}, parts=TaskParts(**parts))


def test_a_part_that_a_stage_does_not_hold_cannot_be_read() -> None:
    assert stage(training=Training()).run({}, None) == Training()

    with pytest.raises(MethodError, match="reads 'training', which it does not hold"):
        stage(task_aware=True).run({}, None)


def test_parts_that_are_held_decide_the_key_and_no_others() -> None:
    keys = [
        stage(),
        stage(constrain=None),  # held, though it is nothing
        stage(task_aware=False),
        stage(task_aware=True),
        stage(frozen_backbone=False),
    ]

    assert len({each.key for each in keys}) == 5
    assert stage(outer=None).key == stage().key  # added later: at its default not in keys
    assert set(stage(task_aware=True, constrain=None).parts.held) == {"task_aware", "constrain"}
