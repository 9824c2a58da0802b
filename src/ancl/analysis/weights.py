"""Networks as vectors: distances between them, and where theory expects them to lie."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from ancl.networks import Network
from ancl.types import Params

BACKBONE = "backbone."


def parameter_names(network: Network) -> list[str]:
    """Everything that is learned: convolutions, γ and β, heads; no running statistics."""
    return [name for name, _ in network.named_parameters()]


def vector(tensors: Params, names: Collection[str]) -> Tensor:
    """The named tensors as one vector of doubles."""
    return torch.cat([tensors[name].detach().cpu().double().flatten() for name in names])


def distance(first: Params, second: Params, names: Collection[str]) -> float:
    """‖θ − θ'‖ over the named tensors.  Equation: [weight-distance]."""
    return float((vector(first, names) - vector(second, names)).norm())


def distances(
    network: Params, references: Mapping[str, Params], names: list[str]
) -> dict[str, float]:
    """To each reference: over everything learned, and over the backbone alone."""
    backbone = [name for name in names if name.startswith(BACKBONE)]
    every = {ref: distance(network, tensors, names) for ref, tensors in references.items()}
    alone = {
        f"{ref}_backbone": distance(network, tensors, backbone)
        for ref, tensors in references.items()
    }
    return every | alone
