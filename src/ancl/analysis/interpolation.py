"""Between old and auxiliary network: where theory expects weights and logits to end."""

from collections.abc import Collection, Mapping

import torch
from torch import Tensor

from ancl.methods.growing.connector import importance_shares
from ancl.networks import Network
from ancl.types import Params


def penalty_minimum(
    old: Params,
    auxiliary: Params,
    old_curvature: Params,
    auxiliary_curvature: Params,
    lamb: float,
    lamb_a: float,
) -> tuple[Params, float]:
    """θ̄ = (λF_old θ_old + λ_aF_aux θ_aux) / (λF_old + λ_aF_aux), weight by weight.

    The sum of both quadratic penalties is one around θ̄, with curvature λF_old + λ_aF_aux.
    A weight without importance in either network stays at the old one.

    Returns:
        θ̄, and the share of weights without importance in either network.
    """
    minimum: Params = {}
    undecided = total = 0
    shares = importance_shares(old_curvature, auxiliary_curvature, lamb, lamb_a)
    for name, share in shares.items():
        start = old[name].double()
        minimum[name] = start + share * (auxiliary[name].double() - start)
        pull = lamb * old_curvature[name].double() + lamb_a * auxiliary_curvature[name].double()
        undecided, total = undecided + int((pull == 0).sum()), total + share.numel()
    return minimum, undecided / total


def distillation_gradient(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """(softmax(z/T) − softmax(z*/T)) / T: the gradient of LwF's Ω by the logits of one image."""
    ours, theirs = (answers.double() / temperature for answers in (logits, target))
    return (ours.softmax(dim=1) - theirs.softmax(dim=1)) / temperature


def linear_gradient(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """(z − z*) / (C T²), both centred: what that gradient becomes for large T.

    Equation: [large-temperature].
    """
    apart = logits.double() - target.double()
    apart = apart - apart.mean(dim=1, keepdim=True)
    return apart / (logits.shape[1] * temperature**2)


def linear_error(
    logits: Tensor,
    old: Tensor,
    auxiliary: Tensor,
    lambs: tuple[float, float],
    classes: tuple[slice, slice],
    temperature: float,
) -> float:
    """‖exact − linear‖ / ‖exact‖ of the summed gradient of both distillation terms.

    Args:
        logits: The network's logits.
        old: The old network's logits.
        auxiliary: The auxiliary network's logits.
        lambs: λ and λ_a.
        classes: The classes of the old and of the auxiliary network's term. Where they are the
            same, the linear form is one penalty of weight λ + λ_a to
            (λz_old + λ_az_aux) / (λ + λ_a).
        temperature: T.
    """
    exact, linear = torch.zeros_like(logits.double()), torch.zeros_like(logits.double())
    for target, lamb, target_classes in zip((old, auxiliary), lambs, classes, strict=True):
        pair = logits[:, target_classes], target[:, target_classes]
        exact[:, target_classes] += lamb * distillation_gradient(*pair, temperature)
        linear[:, target_classes] += lamb * linear_gradient(*pair, temperature)
    return float((exact - linear).norm() / exact.norm())


BACKBONE = "backbone."


def parameter_names(network: Network) -> list[str]:
    """The names of all that is learned: convolutions, γ and β, heads; no running statistics."""
    return [name for name, parameter in network.named_parameters() if parameter.requires_grad]


def vector(tensors: Params, names: Collection[str]) -> Tensor:
    """The named tensors as one vector of doubles."""
    return torch.cat([tensors[name].detach().cpu().double().flatten() for name in names])


def distance(first: Params, second: Params, names: Collection[str]) -> float:
    """‖θ − θ'‖ over the named tensors.  Equation: [weight-distance]."""
    return float((vector(first, names) - vector(second, names)).norm())


def distances(
    network: Params, references: Mapping[str, Params], names: list[str]
) -> dict[str, float]:
    """To each reference: over all that is learned, and over the backbone alone."""
    backbone = [name for name in names if name.startswith(BACKBONE)]
    every = {ref: distance(network, tensors, names) for ref, tensors in references.items()}
    alone = {
        f"{ref}_backbone": distance(network, tensors, backbone)
        for ref, tensors in references.items()
    }
    return every | alone
