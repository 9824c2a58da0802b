"""Many points measured once: kept in the store like a stage, and gone on with after a stop."""

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ancl.analysis.images import Score
from ancl.analysis.landscape import Surveyor
from ancl.files import Entry
from ancl.identity import digest
from ancl.runner import CHECKPOINT_SECONDS, Storage

_TIMED = 2
"""So many points tell how long all of them take."""


class Survey(NamedTuple):
    """Points, and all that decides their numbers.

    Args:
        title: What is told of it.
        task: The task it belongs to.
        identity: As JSON: the networks' keys, coordinates, images, numerics.
        points: Makes each point's weights.
    """

    title: str
    task: int
    identity: dict[str, Any]
    points: Sequence[Callable[[], Tensor]]

    @property
    def key(self) -> str:
        """What it is stored under."""
        return digest({"stage": "landscape", "task": self.task, **self.identity})


def measured(
    survey: Survey, surveyor: Surveyor, store: Storage, announce: Callable[[str], None]
) -> list[list[Score]]:
    """Every point's scores on every task measured, found in the store or computed."""
    entry = store.load(survey.key)
    if entry is None:
        with store.lock(survey.key):
            entry = store.load(survey.key)  # another process may have finished it meanwhile
            if entry is None:
                entry = _compute(survey, surveyor, store, announce)
    return [[Score(*each) for each in point] for point in entry.tensors["scores"].tolist()]


def _compute(
    survey: Survey, surveyor: Surveyor, store: Storage, announce: Callable[[str], None]
) -> Entry:
    found = store.load_checkpoint(survey.key)
    scores: list[Any] = found.tensors["scores"].tolist() if found else []
    began, first, written = monotonic(), len(scores), monotonic()
    try:
        for make in survey.points[first:]:
            scores.append([list(score) for score in surveyor.at(make())])
            if len(scores) - first == _TIMED:
                announce(_estimate(survey, (monotonic() - began) / _TIMED, len(scores)))
            if monotonic() - written >= CHECKPOINT_SECONDS:
                store.save_checkpoint(survey.key, _entry(survey, scores, 0.0))
                written = monotonic()
    except KeyboardInterrupt:
        if scores:
            store.save_checkpoint(survey.key, _entry(survey, scores, 0.0))
        raise
    entry = _entry(survey, scores, monotonic() - began)
    store.save(survey.key, entry)
    store.drop_checkpoint(survey.key)
    return entry


def _entry(survey: Survey, scores: list[Any], seconds: float) -> Entry:
    meta = {"stage": "landscape", "task": survey.task, "inputs": {}, "seconds": seconds}
    return Entry({"scores": torch.tensor(scores, dtype=torch.float64)}, meta)


def _estimate(survey: Survey, seconds: float, done: int) -> str:
    left = len(survey.points) - done
    return (
        f"{survey.title}: {left} more points at {seconds:.2f} s each, about {left * seconds:.0f} s"
    )
