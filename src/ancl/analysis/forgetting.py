"""The bound on forgetting, ½ λ_max ‖θ₂ − θ₁‖², beside the measured forgetting."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.analysis.context import SplitImages
from ancl.analysis.interpolation import distance
from ancl.data import Batches
from ancl.networks import Network
from ancl.seeding import generator
from ancl.stages.plan import Setting
from ancl.types import Params


class OldLoss:
    """The loss of earlier tasks on their own training images.  Equation: [forgetting-bound].

    Args:
        network: Any network of the right shape; it is overwritten.
        old: The old network's tensors.
        names: The old network's parameters.
        images: Training images of earlier tasks.
        classes: The classes that compete in each task.
        setting: The run's setting.
    """

    def __init__(
        self,
        network: Network,
        old: Params,
        names: Sequence[str],
        images: Sequence[SplitImages],
        classes: Mapping[int, slice],
        setting: Setting,
    ) -> None:
        self._network, self._old, self._names = network, old, list(names)
        self._images, self._classes, self._setting = images, classes, setting
        self._total = sum(len(part.samples) for part in images)

    def value(self, tensors: Params) -> float:
        """The mean loss of a network with its own batch norms."""
        self._network.load(tensors)
        answers = self._setting.images.answering(self._network, self._setting.device)
        losses = [
            len(samples) * self._loss(answers(samples).logits, samples.y, task)
            for task, samples in self._images
        ]
        return float(sum(losses)) / self._total

    def row(self, tensors: Params, sharpness: float) -> dict[str, float]:
        """Distance, bound and increase of the loss, with own and with old running statistics."""
        learned = {name for name, _ in self._network.named_parameters()}
        fixed = {n: t if n in learned else self._old.get(n, t) for n, t in tensors.items()}
        away, before = distance(tensors, self._old, self._names), self.value(self._old)
        return {
            "distance": away,
            "sharpness": sharpness,
            "bound": 0.5 * sharpness * away**2,
            "loss_before": before,
            "increase": self.value(tensors) - before,
            "increase_old_statistics": self.value(fixed) - before,
        }

    def sharpness(self, *, double: bool = False) -> float:
        """λ_max of the loss's Hessian at the old network, its batch norms fixed."""
        network = self._network
        network.load(self._old)
        network.eval().to(torch.float64 if double else torch.float32)
        parameters = dict(network.named_parameters())
        eigenvalue = top_eigenvalue(self._losses, [parameters[name] for name in self._names])
        network.to(torch.float32)
        return eigenvalue

    def _losses(self) -> Iterator[Tensor]:
        dtype = next(self._network.parameters()).dtype
        setting = self._setting
        size, device = setting.training.batch_size, setting.device
        for task, samples in self._images:
            batches = Batches(samples, size, setting.normalization, device=device)
            for batch in batches.in_order():
                logits = self._network(batch.x.to(dtype)).logits
                loss = self._loss(logits, batch.y, task)
                yield len(batch.y) / self._total * loss

    def _loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        competing = self._classes[task]
        return F.cross_entropy(logits[:, competing], y - competing.start)


Losses = Callable[[], Iterable[Tensor]]
"""Differentiable parts of one loss, computed again at every call; their sum is the loss."""


def hessian_product(losses: Losses, weights: Sequence[Tensor], direction: Tensor) -> Tensor:
    """H v, by differentiating the gradient's product with v, part by part."""
    pieces = _split(direction, weights)
    total = torch.zeros_like(direction)
    for loss in losses():
        slope = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
        along = torch.stack([(s * p).sum() for s, p in zip(slope, pieces, strict=True)]).sum()
        gradients = torch.autograd.grad(along, weights, materialize_grads=True)
        total += torch.cat([gradient.flatten() for gradient in gradients])
    return total


def top_eigenvalue(
    losses: Losses,
    weights: Sequence[Tensor],
    *,
    iterations: int = 30,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> float:
    """The largest eigenvalue of the Hessian.  Equation: [sharpness].

    Power iteration finds the eigenvalue of largest magnitude. Where it is negative, the Hessian
    is shifted by it, which makes the largest eigenvalue dominant.

    Args:
        losses: The loss, of a network in eval mode: its batch norms are fixed.
        weights: The weights it is differentiated by.
        iterations: Most products to compute.
        tolerance: Stop when the relative change of the estimate is smaller.
        seed: The seed of the first direction.
    """

    def product(direction: Tensor) -> Tensor:
        return hessian_product(losses, weights, direction)

    first = torch.randn(sum(w.numel() for w in weights), generator=generator(seed, "sharpness"))
    start = (first / first.norm()).to(weights[0])
    eigenvalue = _dominant(product, start, iterations, tolerance)
    if eigenvalue >= 0:
        return eigenvalue
    return eigenvalue + _dominant(
        lambda v: product(v) - eigenvalue * v, start, iterations, tolerance
    )


def _dominant(
    product: Callable[[Tensor], Tensor], start: Tensor, iterations: int, tolerance: float
) -> float:
    direction, estimate = start, 0.0
    for _ in range(iterations):
        moved = product(direction)
        before, estimate = estimate, float(direction @ moved)
        length = moved.norm()
        if length == 0 or abs(estimate - before) <= tolerance * abs(estimate):
            break
        direction = moved / length
    return estimate


def _split(direction: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    parts = torch.split(direction, [weight.numel() for weight in weights])
    return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]
