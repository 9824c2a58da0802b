"""Two networks made one: weights between them, and batch norms that fit."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from ancl.networks.network import Network
from ancl.types import Params

BatchNorm = nn.modules.batchnorm._BatchNorm
"""Every kind of batch norm."""


def between(first: Tensor, second: Tensor, share: float | Tensor) -> Tensor:
    """(1 − β) first + β second, exact for β = 0, for β = 1 and for equal tensors.

    Equation: [connector]. What cannot be averaged, such as a count of batches, is the nearer one's.
    """
    if first.is_floating_point():
        weight = share.to(first) if isinstance(share, Tensor) else first.new_tensor(share)
        return torch.lerp(first, second, weight)
    return (second if float(torch.as_tensor(share).mean()) >= 0.5 else first).clone()


@torch.no_grad()
def merge(
    first: Network, second: Network, share: float, shares: Mapping[str, Tensor] | None = None
) -> None:
    """Move every tensor of the first network to a point between it and the second, in place.

    Args:
        first: The network at β = 0.
        second: The network at β = 1.
        share: β.
        shares: β of every element of some of the backbone's weights, by name.
    """
    own = {f"backbone.{name}": value for name, value in (shares or {}).items()}
    theirs = second.state_dict()
    for name, value in first.state_dict().items():
        value.copy_(between(value, theirs[name], own.get(name, share)))


def importance_shares(old: Params, other: Params, lamb: float, lamb_a: float) -> Params:
    """λ_aF_aux / (λF_old + λ_aF_aux), weight by weight; 0 where neither has importance.

    Equation: [interpolation]. Two quadratic penalties with these curvatures are one around the
    point that has this share of the way from the old to the auxiliary network.
    """
    found: Params = {}
    for name, importance in old.items():
        pull = lamb_a * other[name].double()
        both = lamb * importance.double() + pull
        free = both == 0
        found[name] = torch.where(free, torch.zeros_like(both), pull / both.masked_fill(free, 1.0))
    return found


def norms_of(network: nn.Module) -> list[BatchNorm]:
    """All batch norms with running statistics."""
    found = [module for module in network.modules() if isinstance(module, BatchNorm)]
    return [norm for norm in found if norm.running_mean is not None]


@torch.no_grad()
def pooled_statistics(first: Network, second: Network, share: float) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance of a mixture of both networks' inputs, for every batch norm in order."""
    found = []
    for one, other in zip(norms_of(first), norms_of(second), strict=True):
        (mean, var), (its_mean, its_var) = _statistics(one), _statistics(other)
        middle = between(mean, its_mean, share)
        square = between(var + mean.square(), its_var + its_mean.square(), share)
        found.append((middle, square - middle.square()))
    return found


@torch.no_grad()
def write_statistics(network: Network, statistics: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Give every batch norm its running mean and variance."""
    for norm, (mean, var) in zip(norms_of(network), statistics, strict=True):
        for own, value in zip(_statistics(norm), (mean, var), strict=True):
            own.copy_(value)


@torch.no_grad()
def estimate_statistics(network: Network, batches: Iterable[Tensor]) -> None:
    """Running statistics of every batch norm as the mean over batches of equal size.

    Weights that were computed and not trained have no running statistics of their own.
    """
    norms = norms_of(network)
    if not norms:
        return
    before = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative mean, which forgets the reset values at once
        norm.train()
    for x in batches:
        network(x)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    network.eval()


def _statistics(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var
