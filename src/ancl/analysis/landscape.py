"""The plane through old, auxiliary and multitask network: its geometry, and points on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from ancl.analysis.context import Score, SplitImages, score
from ancl.analysis.interpolation import parameter_names
from ancl.data import Batches, Samples
from ancl.errors import AnclError
from ancl.networks import Network
from ancl.stages.plan import Setting
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
                "Old, auxiliary and multitask network are on one line, so they span no plane. "
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
        self._training = interleaved([each.samples for each in training])
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

    @torch.no_grad()
    def reestimate_batch_norms(self) -> None:
        """Running statistics as the mean over batches of equal size."""
        norms = [
            m for m in self._network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
        ]
        norms = [norm for norm in norms if norm.track_running_stats]
        if not norms:
            return
        before = [norm.momentum for norm in norms]
        self._network.eval()
        for norm in norms:
            norm.reset_running_stats()
            norm.momentum = None  # a cumulative mean, which forgets the reset values at once
            norm.train()
        for batch in self._batches().in_order():
            self._network(batch.x)
        for norm, momentum in zip(norms, before, strict=True):
            norm.momentum = momentum
        self._network.eval()

    def _batches(self) -> Batches:
        count = -(-len(self._training) // _BATCH)
        size = -(-len(self._training) // count)
        setting = self._setting
        return Batches(self._training, size, setting.normalization, device=setting.device)

    @torch.no_grad()
    def _write(self, weights: Tensor) -> None:
        own: Params = dict[str, Tensor](self._network.named_parameters())
        sizes = [own[name].numel() for name in self._names]
        for name, piece in zip(self._names, torch.split(weights, sizes), strict=True):
            own[name].copy_(piece.view(own[name].shape))


def interleaved(samples: Sequence[Samples]) -> Samples:
    """The images of several tasks, interleaved so that every batch has some of each."""
    joined = Samples.concatenate(samples)
    places = torch.cat([torch.linspace(0, 1, len(part)) for part in samples])
    return joined.take(places.argsort(stable=True))
