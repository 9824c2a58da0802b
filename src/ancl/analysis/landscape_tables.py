"""The landscape's tables: positions of networks, scores over the plane and along paths."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from time import monotonic
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ancl.analysis.context import REFERENCES, AnalysisContext, Row, Score
from ancl.analysis.interpolation import vector
from ancl.analysis.landscape import Plane, PointEvaluator, grid
from ancl.hashing import digest
from ancl.runtime import numerics
from ancl.stages.runner import CHECKPOINT_SECONDS, Storage
from ancl.store.entry import StageResult

PATHS = (("old", "auxiliary"), ("old", "multi"), ("auxiliary", "multi"), ("cl", "multi"))
STEPS = 11


class Terrain:
    """Measures the plane of old, auxiliary and multitask network.

    Args:
        scene: The networks.
        store: Where what is measured is kept.
        announce: Told of what takes time.
    """

    def __init__(
        self, scene: AnalysisContext, store: Storage, announce: Callable[[str], None]
    ) -> None:
        self._scene, self._store, self._announce = scene, store, announce
        self._split = scene.wishes.split or "test"
        self.keys: list[str] = []

    @cached_property
    def plane(self) -> Plane:
        """The plane of old, auxiliary and multitask network."""
        return Plane.through(
            *(vector(each, self._scene.names) for each in self._scene.references.values())
        )

    @cached_property
    def surveyor(self) -> PointEvaluator:
        """What measures points, on the landscape's images."""
        return PointEvaluator(
            self._scene.network(),
            self._scene.images("train"),
            self._scene.images(self._split),
            [task.classes for task in self._scene.tasks],
            self._scene.setting,
        )

    def positions(self) -> Iterator[Row]:
        """Where every network lies, and its scores after the same estimate of batch norms."""
        if not self._scene.wishes.grid:
            return
        named = self._scene.regime.named
        points = {key: vector(trained.tensors, self._scene.names) for key, trained in named.items()}
        identity = {"networks": [trained.key for trained in named.values()]}
        scores = self._measured("networks", identity, [partial(_same, p) for p in points.values()])
        across, up = self.plane.lengths
        for (name, lamb_a), found in zip(named, scores, strict=True):
            place = self.plane.locate(points[name, lamb_a])
            row = {"network": name, "lamb_a": lamb_a, **place._asdict()}
            row |= {"x_length": place.x * across, "y_length": place.y * up}
            yield from self._scored(row, found)

    def landscape(self) -> Iterator[Row]:
        """Scores over the plane, coordinates in units of u and v and in Euclidean ones."""
        coordinates = grid(self._scene.wishes.grid) if self._scene.wishes.grid else []
        named = self._scene.regime.named
        identity = {
            "networks": [named[name, None].key for name in REFERENCES],
            "points": coordinates,
        }
        points = [partial(self.plane.point, x, y) for x, y in coordinates]
        across, up = self.plane.lengths if points else (0.0, 0.0)
        for (x, y), found in zip(
            coordinates, self._measured("landscape", identity, points), strict=True
        ):
            row = {"x": x, "y": y, "x_length": x * across, "y_length": y * up}
            yield from self._scored(row, found)

    def paths(self) -> Iterator[Row]:
        """Scores on straight lines between networks."""
        named = self._scene.regime.named
        for names in PATHS if self._scene.wishes.grid else ():
            ends = [named[name, None] for name in names]
            start, end = (vector(each.tensors, self._scene.names) for each in ends)
            steps = [index / (STEPS - 1) for index in range(STEPS)]
            identity = {"networks": [each.key for each in ends], "points": steps}
            points = [partial(_between, start, end, step) for step in steps]
            title = f"path from {names[0]} to {names[1]}"
            for step, found in zip(steps, self._measured(title, identity, points), strict=True):
                yield from self._scored({"from": names[0], "to": names[1], "step": step}, found)

    def _measured(
        self, title: str, identity: Row, points: Sequence[Callable[[], Tensor]]
    ) -> list[list[Score]]:
        if not points:
            return []
        whole = {
            **identity,
            "data": [[task.key, task.test_key] for task in self._scene.tasks],
            "split": self._split,
            "images": self._scene.wishes.images,
            "seed": self._scene.setting.seed,
            "told": self._scene.setting.task_aware,
            "numerics": numerics(self._scene.setting.device),
        }
        survey = Survey(title, self._scene.tasks[-1].index, whole, points)
        self.keys.append(survey.key)
        return measured(survey, self.surveyor, self._store, self._announce)

    def _scored(self, row: Row, found: list[Score]) -> Iterator[Row]:
        """A row for every task measured, and one for their mean."""
        label = {**row, "split": self._split}
        for index, score in enumerate(found):
            yield {**label, "task": index, **score._asdict()}
        mean = Score(*(sum(values) / len(found) for values in zip(*found, strict=True)))
        yield {**label, "task": "mean", **mean._asdict()}


def _same(point: Tensor) -> Tensor:
    return point


def _between(start: Tensor, end: Tensor, step: float) -> Tensor:
    return start + step * (end - start)


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
    survey: Survey, surveyor: PointEvaluator, store: Storage, announce: Callable[[str], None]
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
    survey: Survey, surveyor: PointEvaluator, store: Storage, announce: Callable[[str], None]
) -> StageResult:
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


def _entry(survey: Survey, scores: list[Any], seconds: float) -> StageResult:
    meta = {"stage": "landscape", "task": survey.task, "inputs": {}, "seconds": seconds}
    return StageResult({"scores": torch.tensor(scores, dtype=torch.float64)}, meta)


def _estimate(survey: Survey, seconds: float, done: int) -> str:
    left = len(survey.points) - done
    return (
        f"{survey.title}: {left} more points at {seconds:.2f} s each, about {left * seconds:.0f} s"
    )
