"""A second level of a training: an outer step moves some parameters between its epochs.

It sees other images than the training, with all other weights fixed. First-order: nothing is
differentiated through the training's own steps.
"""

import math
from dataclasses import dataclass, field

import torch
from torch.nn import functional as F

from ancl.data import Batches
from ancl.errors import TrainingError
from ancl.memory import Memory
from ancl.networks import Network
from ancl.seeding import generator
from ancl.training.optimizers import load_state, moments
from ancl.types import Params


@dataclass(frozen=True)
class Outer:
    """What an outer step moves, and how.  Equation: [aanets].

    It is one pass over equally many images of every class, by cross-entropy over all classes seen,
    with the network in eval mode.

    Args:
        parameters: Their names in the network; the training itself leaves them alone.
        lr: The rate of plain SGD.
        momentum: Its momentum.
        bounds: What every value is held within.
        memory: How images of new classes are chosen: as the run's memory does.
    """

    parameters: tuple[str, ...]
    lr: float
    momentum: float = 0.0
    bounds: tuple[float, float] = (-math.inf, math.inf)
    memory: Memory = field(default_factory=Memory)


class OuterStep:
    """The outer step of one training.

    Args:
        outer: What it moves, and how.
        network: The network that is trained.
        batches: Equally many images of every class.
        path: (seed, task, role): where the order of images comes from.
    """

    def __init__(
        self, outer: Outer, network: Network, batches: Batches, path: tuple[int, int, str]
    ) -> None:
        named = dict(network.named_parameters())
        self.outer, self.network, self.batches, self._path = outer, network, batches, path
        self.parameters = {name: named[name] for name in outer.parameters}
        self._optimizer = self._fresh()

    def __call__(self, epoch: int) -> dict[str, float]:
        """One pass; the values of all parameters after it, by name.

        Raises:
            TrainingError: One of them is not finite.
        """
        parameters = list(self.parameters.values())
        self.network.eval()
        for batch in self.batches.shuffled(generator(*self._path, "outer", epoch)):
            for parameter in parameters:
                parameter.requires_grad_(True)
            loss = F.cross_entropy(self.network(batch.x).logits, batch.y)
            # Gradients of these alone, and of this batch alone: nothing is left from other steps.
            for parameter, gradient in zip(
                parameters, torch.autograd.grad(loss, parameters), strict=True
            ):
                parameter.grad = gradient
            self._optimizer.step()
            for parameter in parameters:
                parameter.requires_grad_(False).clamp_(*self.outer.bounds)
                parameter.grad = None
        return self._values()

    def state(self) -> Params:
        """What the optimizer knows; the parameters are part of the network."""
        return moments(self._optimizer, self.parameters)

    def restore(self, tensors: Params) -> None:
        """Resume from a saved state."""
        self._optimizer = self._fresh()
        load_state(self._optimizer, self.parameters, tensors, {})

    def _fresh(self) -> torch.optim.Optimizer:
        parameters = list(self.parameters.values())
        return torch.optim.SGD(parameters, self.outer.lr, momentum=self.outer.momentum)

    def _values(self) -> dict[str, float]:
        values = {}
        for name, parameter in self.parameters.items():
            for number, value in enumerate(parameter.flatten().tolist(), start=1):
                values[f"{name.rpartition('.')[2]}_{number}"] = value
        if not all(map(math.isfinite, values.values())):
            raise TrainingError(
                f"The outer step of task {self._path[1] + 1} left values that are not finite: "
                f"{', '.join(n for n, v in values.items() if not math.isfinite(v))}. "
                "Lower its rate."
            )
        return values
