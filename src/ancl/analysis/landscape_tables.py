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
from ancl.stages.runner import CheckpointWriter, Storage, obtained
from ancl.store.entry import StageResult

PATHS = (("old", "auxiliary"), ("old", "multi"), ("auxiliary", "multi"), ("cl", "multi"))
STEPS = 11
_TIMED = 2
"""Points after which the time for the others is estimated."""


def number_of_points(side: int, networks: int) -> int:
    """Points of all landscape tables of one seed; none where there is no landscape."""
    return side**2 + networks + len(PATHS) * STEPS if side else 0


class LandscapeTables:
    """Measures the plane of old, auxiliary and multitask network.

    Args:
        context: The networks.
    """

    def __init__(self, context: AnalysisContext) -> None:
        self._context = context
        self._split = context.options.split or "test"

    @cached_property
    def plane(self) -> Plane:
        """The plane of old, auxiliary and multitask network."""
        names = self._context.names
        return Plane.through(*(vector(each, names) for each in self._context.references.values()))

    @cached_property
    def evaluator(self) -> PointEvaluator:
        """Scores points on the landscape's images."""
        context = self._context
        return PointEvaluator(
            context.build_network(),
            context.images("train"),
            context.images(self._split),
            [task.classes for task in context.tasks],
            context.setting,
        )

    def positions(self) -> Iterator[Row]:
        """Where every network is, and its scores after the same estimate of batch norms."""
        if not self._context.options.grid:
            return
        named, names = self._context.networks.named, self._context.names
        vectors = {key: vector(trained.tensors, names) for key, trained in named.items()}
        identity = {"networks": [trained.key for trained in named.values()]}
        scores = self._scores("networks", identity, [partial(_same, v) for v in vectors.values()])
        across, up = self.plane.lengths
        for (name, lamb_a), found in zip(named, scores, strict=True):
            place = self.plane.locate(vectors[name, lamb_a])
            row = {"network": name, "lamb_a": lamb_a, **place._asdict()}
            row |= {"x_length": place.x * across, "y_length": place.y * up}
            yield from self._rows(row, found)

    def landscape(self) -> Iterator[Row]:
        """Scores over the plane, with coordinates in units of u and v and in Euclidean units."""
        side = self._context.options.grid
        if not side:
            return
        coordinates, named = grid(side), self._context.networks.named
        networks = [named[name, None].key for name in REFERENCES]
        identity = {"networks": networks, "points": coordinates}
        points = [partial(self.plane.point, x, y) for x, y in coordinates]
        scores = self._scores("landscape", identity, points)
        across, up = self.plane.lengths
        for (x, y), found in zip(coordinates, scores, strict=True):
            row = {"x": x, "y": y, "x_length": x * across, "y_length": y * up}
            yield from self._rows(row, found)

    def paths(self) -> Iterator[Row]:
        """Scores on straight lines between networks."""
        named = self._context.networks.named
        for names in PATHS if self._context.options.grid else ():
            ends = [named[name, None] for name in names]
            start, end = (vector(each.tensors, self._context.names) for each in ends)
            steps = [index / (STEPS - 1) for index in range(STEPS)]
            identity = {"networks": [each.key for each in ends], "points": steps}
            points = [partial(_between, start, end, step) for step in steps]
            title = f"path from {names[0]} to {names[1]}"
            for step, found in zip(steps, self._scores(title, identity, points), strict=True):
                yield from self._rows({"from": names[0], "to": names[1], "step": step}, found)

    def _scores(
        self, title: str, identity: Row, points: Sequence[Callable[[], Tensor]]
    ) -> list[list[Score]]:
        context = self._context
        whole = {
            **identity,
            "data": [[task.key, task.test_key] for task in context.tasks],
            "split": self._split,
            "images": context.options.images,
            "seed": context.setting.seed,
            "task_aware": context.setting.task_aware,
            "numerics": numerics(context.setting.device),
        }
        given = Points(title, context.tasks[-1].index, whole, points)
        context.keys.append(given.key)
        return evaluate_points(given, self.evaluator, context.store, context.events.note)

    def _rows(self, row: Row, found: list[Score]) -> Iterator[Row]:
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


class Points(NamedTuple):
    """Points to evaluate, and all that decides their scores.

    Args:
        title: What messages call them.
        task: The task they belong to.
        identity: As JSON: the networks' keys, coordinates, images, numerics.
        weights: Makes each point's weights.
    """

    title: str
    task: int
    identity: dict[str, Any]
    weights: Sequence[Callable[[], Tensor]]

    @property
    def key(self) -> str:
        """The key of their scores in the store."""
        return digest({"stage": "landscape", "task": self.task, **self.identity})


def evaluate_points(
    points: Points, evaluator: PointEvaluator, store: Storage, note: Callable[[str], None]
) -> list[list[Score]]:
    """Every point's scores on every task measured, from the store or computed."""
    entry = obtained(store, points.key, lambda: _compute(points, evaluator, store, note))
    return [[Score(*each) for each in point] for point in entry.tensors["scores"].tolist()]


def _compute(
    points: Points, evaluator: PointEvaluator, store: Storage, note: Callable[[str], None]
) -> StageResult:
    found = store.load_checkpoint(points.key)
    scores: list[Any] = found.tensors["scores"].tolist() if found else []
    began, first = monotonic(), len(scores)
    with CheckpointWriter(store, points.key) as checkpoint:
        for make in points.weights[first:]:
            scores.append([list(score) for score in evaluator.at(make())])
            checkpoint.offer(_entry(points, scores, 0.0))
            if len(scores) - first == _TIMED:
                note(_estimate(points, (monotonic() - began) / _TIMED, len(scores)))
    return _entry(points, scores, monotonic() - began)


def _entry(points: Points, scores: list[Any], seconds: float) -> StageResult:
    meta = {"stage": "landscape", "task": points.task, "inputs": {}, "seconds": seconds}
    return StageResult({"scores": torch.tensor(scores, dtype=torch.float64)}, meta)


def _estimate(points: Points, seconds: float, done: int) -> str:
    left = len(points.weights) - done
    return (
        f"{points.title}: {left} more points at {seconds:.2f} s each, about {left * seconds:.0f} s"
    )
