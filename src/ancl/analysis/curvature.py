"""How sharp a loss is: the largest eigenvalue of its Hessian, by power iteration."""

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ancl.seeding import generator

Losses = Callable[[], Iterable[Tensor]]
"""Differentiable parts of one loss, made anew at every call: their sum is the loss."""


def hessian_product(losses: Losses, weights: Sequence[Tensor], direction: Tensor) -> Tensor:
    """H v, by differentiating the gradient's product with v, part by part."""
    pieces = _split(direction, weights)
    total = torch.zeros_like(direction)
    for loss in losses():
        slope = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
        along = torch.stack([(s * p).sum() for s, p in zip(slope, pieces, strict=True)]).sum()
        found = torch.autograd.grad(along, weights, materialize_grads=True)
        total += torch.cat([each.flatten() for each in found])
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

    Power iteration finds the one of largest size. Where that is negative, the Hessian is shifted
    by it, which makes the largest one dominant.

    Args:
        losses: The loss; networks in eval mode, whose batch norms are fixed.
        weights: What it is differentiated by.
        iterations: At most so many products.
        tolerance: Stop where the estimate changes by less than this share.
        seed: Of the first direction.
    """

    def product(direction: Tensor) -> Tensor:
        return hessian_product(losses, weights, direction)

    first = torch.randn(sum(w.numel() for w in weights), generator=generator(seed, "sharpness"))
    start = (first / first.norm()).to(weights[0])
    found = _dominant(product, start, iterations, tolerance)
    if found >= 0:
        return found
    return found + _dominant(lambda v: product(v) - found * v, start, iterations, tolerance)


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
