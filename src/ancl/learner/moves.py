"""What learning each task did to a network whose classifier is computed from statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from ancl.checks import checked
from ancl.methods.method import Method
from ancl.state import DRIFT, NETWORK
from ancl.statistics import Drift, drift_text
from ancl.store.entry import StageResult


class TaskMove(NamedTuple):
    """What learning a task did to the network.

    Args:
        weights: Whether any weight changed, of the head too: it then learned from these images.
        drift: How far features moved, where statistics of earlier images followed.
    """

    weights: bool
    drift: Drift | None = None

    @classmethod
    def of(cls, start: StageResult, results: Mapping[str, StageResult]) -> TaskMove:
        """What a task did.

        Args:
            start: The network that it began with.
            results: What its stages made, by name; the network that it ended with among them.
        """
        before, after = start.tensors, results[NETWORK].tensors
        same = before.keys() == after.keys()
        still = same and all(torch.equal(before[name], after[name]) for name in before)
        drifts = [r.meta[DRIFT] for r in results.values() if DRIFT in r.meta]
        return cls(not still, checked(Drift, drifts[0]) if drifts else None)

    def json(self) -> dict[str, Any]:
        """What is stored."""
        return {"weights": self.weights, "drift": self.drift and self.drift.json()}


def tracks_moves(method: Method) -> bool:
    """Whether a method trains its network, and computes its classifier from statistics."""
    return method.infer.holds is not None and not method.trains_nothing


def drift_line(drifts: Sequence[Drift | None]) -> str:
    """How far a network moved, task by task; empty where no statistics follow it."""
    measured = {task: drift for task, drift in enumerate(drifts) if drift}
    return drift_text(measured) if measured else ""


def moves_of_run(drifts: Sequence[Drift]) -> tuple[TaskMove, ...]:
    """What the tasks of a run did, by the drift of all but the first."""
    return (TaskMove(True), *(TaskMove(drift.moved > 0, drift) for drift in drifts))


def read_moves(values: Sequence[Any], method: Method, tasks: int) -> tuple[TaskMove, ...]:
    """What was saved of every task; earlier versions saved nothing, and the method tells.

    Args:
        values: What was saved.
        method: The learner's.
        tasks: Their number.

    Raises:
        ValueError: It does not fit the tasks.
    """
    if not tracks_moves(method):
        return ()
    moves: tuple[TaskMove, ...] = checked(tuple[TaskMove, ...], list(values))
    if not moves:
        moves = tuple(TaskMove(method.main != "first" or index == 0) for index in range(tasks))
    if len(moves) != tasks:
        raise ValueError("what is known of the network's moves does not fit the tasks")
    return moves
