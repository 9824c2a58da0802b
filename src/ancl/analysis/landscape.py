"""The plane through the old, auxiliary and multitask network: geometry, points, tables."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from time import monotonic
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from ancl.analysis.context import REFERENCES, AnalysisContext, Row, Score, SplitImages, score
from ancl.analysis.interpolation import parameter_names, vector
from ancl.data import Batches, even_size, interleaved
from ancl.errors import AnclError
from ancl.hashing import digest
from ancl.methods.growing.connector import between, estimate_statistics
from ancl.networks import Network
from ancl.runtime import numerics
from ancl.stages.runner import CheckpointWriter, StageStorage, obtained
from ancl.stages.setting import Setting
from ancl.store.entry import StageResult
from ancl.types import Params

RANGE = (-0.3, 1.3)
"""The range of both coordinates, in units of u and v, as in the paper."""

_BATCH = 256


class Position(NamedTuple):
    """Coordinates in units of u and v, and the distance from the plane."""

    x: float
    y: float
    residual: float


@dataclass(frozen=True, eq=False)
class Plane:
    """p(x, y) = w₁ + x u + y v, with u = w₂ − w₁ and v the part of w₃ − w₁ across u.

    Equation: [plane]. The old network is at (0, 0), the auxiliary one at (1, 0), the multitask
    one at y = 1.
    """

    origin: Tensor
    u: Tensor
    v: Tensor

    @classmethod
    def through(cls, first: Tensor, second: Tensor, third: Tensor) -> Self:
        """The plane of three networks.

        Raises:
            AnclError: They are on one line.
        """
        u, way = second - first, third - first
        squared = u @ u
        v = way - (way @ u) / squared * u if squared else way
        if not squared or v.norm() <= 1e-9 * way.norm() or not way.norm():
            raise AnclError(
                "The old, auxiliary and multitask networks are on one line, so they span no plane. "
                "Train for more epochs, or leave the landscape out with --grid 0."
            )
        return cls(first, u, v)

    @property
    def lengths(self) -> tuple[float, float]:
        """‖u‖ and ‖v‖: a coordinate times its length is Euclidean."""
        return float(self.u.norm()), float(self.v.norm())

    def point(self, x: float, y: float) -> Tensor:
        """A point of the plane as a vector of weights."""
        return self.origin + x * self.u + y * self.v

    def locate(self, network: Tensor) -> Position:
        """The nearest point of the plane, signed, and the distance to it."""
        way = network - self.origin
        x, y = float(way @ self.u / (self.u @ self.u)), float(way @ self.v / (self.v @ self.v))
        return Position(x, y, float((way - x * self.u - y * self.v).norm()))


def grid(count: int) -> list[tuple[float, float]]:
    """A square of count × count coordinates over the range, x fastest."""
    axis = torch.linspace(*RANGE, count, dtype=torch.float64).tolist()
    return [(x, y) for y in axis for x in axis]


class PointEvaluator:
    """Scores networks given as vectors of weights; batch norms are estimated for each.

    Interpolated weights have no running statistics of their own. They are estimated at every
    point, as the plain mean over training images of all tasks so far.

    Args:
        network: Any network of the right shape; it is overwritten.
        training: Training images of all tasks so far.
        measured: The images to score on.
        tasks: The classes of every task so far.
        setting: The run's setting.
    """

    def __init__(
        self,
        network: Network,
        training: Sequence[SplitImages],
        measured: Sequence[SplitImages],
        tasks: Sequence[slice],
        setting: Setting,
    ) -> None:
        self._network, self._setting, self._tasks = network, setting, tasks
        self._names = parameter_names(network)
        self._training = interleaved([part.samples for part in training])
        self._measured = measured

    def at(self, weights: Tensor) -> list[Score]:
        """Loss and accuracies on every task that is measured."""
        self._write(weights)
        self.reestimate_batch_norms()
        answers = self._setting.images.answering(self._network, self._setting.device)
        return [
            score(answers(samples).logits, samples.y, self._tasks, self._setting.task_aware)
            for _, samples in self._measured
        ]

    def reestimate_batch_norms(self) -> None:
        """Running statistics as the mean over batches of equal size."""
        estimate_statistics(self._network, (batch.x for batch in self._batches().in_order()))

    def _batches(self) -> Batches:
        size, setting = even_size(len(self._training), _BATCH), self._setting
        return Batches(self._training, size, setting.normalization, device=setting.device)

    @torch.no_grad()
    def _write(self, weights: Tensor) -> None:
        parameters: Params = dict[str, Tensor](self._network.named_parameters())
        sizes = [parameters[name].numel() for name in self._names]
        for name, piece in zip(self._names, torch.split(weights, sizes), strict=True):
            parameters[name].copy_(piece.view(parameters[name].shape))


PATHS = (("old", "auxiliary"), ("old", "multi"), ("auxiliary", "multi"), ("cl", "multi"))
STEPS = 11
_TIMED = 2
"""Points after which the time for the others is estimated."""


def number_of_points(side: int, networks: int) -> int:
    """Points of all landscape tables of one seed; none where there is no landscape."""
    return side**2 + networks + 1 + len(PATHS) * STEPS if side else 0  # 1: the connector


class LandscapeTables:
    """Measures the plane of the old, the auxiliary and the multitask network.

    Args:
        context: The networks.
    """

    def __init__(self, context: AnalysisContext) -> None:
        self._context = context
        self._split = context.options.split or "test"

    @cached_property
    def plane(self) -> Plane:
        """The plane of the old, the auxiliary and the multitask network."""
        names = self._context.names
        return Plane.through(
            *(vector(tensors, names) for tensors in self._context.references.values())
        )

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
        """Where every network is, and its scores after the same estimate of batch norms.

        Besides: the connector, the point 1/t of the way from the old to the auxiliary network in
            task t, counted from 1. Nothing is trained for it.
        """
        if not self._context.options.grid:
            return
        named, names = self._context.networks.named, self._context.names
        vectors = {key: vector(trained.tensors, names) for key, trained in named.items()}
        identity = {"networks": [trained.key for trained in named.values()]}
        scores = self._scores("networks", identity, [partial(_same, v) for v in vectors.values()])
        share = 1 / (self._context.options.task + 1)
        old, auxiliary = ("old", None), ("auxiliary", None)
        ends: Row = {"networks": [named[old].key, named[auxiliary].key], "points": [share]}
        merged = between(vectors[old], vectors[auxiliary], share)
        scores += self._scores("connector", ends, [partial(_same, merged)])
        vectors["connector", None] = merged
        across, up = self.plane.lengths
        for (name, lamb_a), point_scores in zip(vectors, scores, strict=True):
            place = self.plane.locate(vectors[name, lamb_a])
            row = {"network": name, "lamb_a": lamb_a, **place._asdict()}
            row |= {"x_length": place.x * across, "y_length": place.y * up}
            yield from self._rows(row, point_scores)

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
        for (x, y), point_scores in zip(coordinates, scores, strict=True):
            row = {"x": x, "y": y, "x_length": x * across, "y_length": y * up}
            yield from self._rows(row, point_scores)

    def paths(self) -> Iterator[Row]:
        """Scores on straight lines between networks."""
        named = self._context.networks.named
        for names in PATHS if self._context.options.grid else ():
            ends = [named[name, None] for name in names]
            start, end = (vector(network.tensors, self._context.names) for network in ends)
            steps = [index / (STEPS - 1) for index in range(STEPS)]
            identity = {"networks": [network.key for network in ends], "points": steps}
            points = [partial(_between, start, end, step) for step in steps]
            title = f"path from {names[0]} to {names[1]}"
            for step, point_scores in zip(
                steps, self._scores(title, identity, points), strict=True
            ):
                yield from self._rows(
                    {"from": names[0], "to": names[1], "step": step}, point_scores
                )

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

    def _rows(self, row: Row, scores: list[Score]) -> Iterator[Row]:
        """A row for every task measured, and one for their mean."""
        label = {**row, "split": self._split}
        for index, task_score in enumerate(scores):
            yield {**label, "task": index, **task_score._asdict()}
        mean = Score(*(sum(values) / len(scores) for values in zip(*scores, strict=True)))
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
    points: Points, evaluator: PointEvaluator, store: StageStorage, note: Callable[[str], None]
) -> list[list[Score]]:
    """Every point's scores on every task measured, from the store or computed."""
    entry = obtained(store, points.key, lambda: _compute(points, evaluator, store, note))
    return [[Score(*numbers) for numbers in point] for point in entry.tensors["scores"].tolist()]


def _compute(
    points: Points, evaluator: PointEvaluator, store: StageStorage, note: Callable[[str], None]
) -> StageResult:
    saved = store.load_checkpoint(points.key)
    scores: list[Any] = saved.tensors["scores"].tolist() if saved else []
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
