"""Between old and auxiliary network: where the theory expects weights and logits to be drawn."""

import torch
from torch import Tensor

from ancl.types import Params


def drawn_to(
    old: Params,
    auxiliary: Params,
    old_curvature: Params,
    auxiliary_curvature: Params,
    lamb: float,
    lamb_a: float,
) -> tuple[Params, float]:
    """θ̄ = (λF_old θ_old + λ_aF_aux θ_aux) / (λF_old + λ_aF_aux), weight by weight.

    Both quadratic penalties together are one around θ̄, of curvature λF_old + λ_aF_aux.
    Equation: [interpolation]. A weight that matters to neither network stays at the old one.

    Returns:
        θ̄, and the share of weights that matter to neither.
    """
    found: Params = {}
    idle = total = 0
    for name, importance in old_curvature.items():
        alpha = lamb * importance.double()
        beta = lamb_a * auxiliary_curvature[name].double()
        both = alpha + beta
        free = both == 0
        share = torch.where(free, torch.zeros_like(both), beta / both.masked_fill(free, 1.0))
        start = old[name].double()
        found[name] = start + share * (auxiliary[name].double() - start)
        idle, total = idle + int(free.sum()), total + free.numel()
    return found, idle / total


def distillation_gradient(logits: Tensor, target: Tensor, temperature: float) -> Tensor:
    """(softmax(z/T) − softmax(z*/T)) / T: the gradient of LwF's Ω by the logits of one image."""
    ours, theirs = (each.double() / temperature for each in (logits, target))
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
        logits: The network's own.
        old: The old network's.
        auxiliary: The auxiliary network's.
        lambs: λ and λ_a.
        classes: What old and auxiliary network speak for. Where that is the same, the linear
            form is one pull of strength λ + λ_a to (λz_old + λ_az_aux) / (λ + λ_a).
        temperature: T.
    """
    exact, linear = torch.zeros_like(logits.double()), torch.zeros_like(logits.double())
    for target, lamb, spoken in zip((old, auxiliary), lambs, classes, strict=True):
        pair = logits[:, spoken], target[:, spoken]
        exact[:, spoken] += lamb * distillation_gradient(*pair, temperature)
        linear[:, spoken] += lamb * linear_gradient(*pair, temperature)
    return float((exact - linear).norm() / exact.norm())
