"""Terms on weights: several quadratics as one, whose gradient is added in place."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ancl.types import Params


@dataclass(frozen=True, eq=False)
class QuadraticPenalty:
    """½ w Σ C (θ − θ*)²: one Ω on weights, with its λ as ``weight``."""

    name: str
    weight: float
    curvature: Params
    centre: Params


def like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy of ``tensor`` with the strides of ``parameter``.

    Fused optimizers and in-place arithmetic walk raw memory: a contiguous tensor beside a
    channels-last parameter would meet the wrong elements, silently.
    """
    return torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)


class Quadratic:
    """Σ_k ½ w_k Σ C_k (θ − a_k)², whose gradient is H (θ − a_0) + b.  Equation: [ancl-quadratic].

    H = Σ w_k C_k and b = Σ_{k>0} w_k C_k (a_0 − a_k), so two anchors cost a step no more than
    one, nothing is divided, and with w_1 = 0 the gradient is exactly that of the first alone.
    """

    def __init__(self, quadratics: list[QuadraticPenalty], weights: Params) -> None:
        self.quadratics = quadratics
        self._weights = list(weights.values())
        found = [
            (w.weight, aligned(w.curvature, weights), aligned(w.centre, weights))
            for w in quadratics
        ]
        first_weight, first_curvature, self._centre = found[0]
        self._curvatures = {w.name: c for w, (_, c, _) in zip(quadratics, found, strict=True)}
        self._centres = {w.name: a for w, (_, _, a) in zip(quadratics, found, strict=True)}
        self._hessian = list(torch._foreach_mul(first_curvature, first_weight))
        self._offset = [torch.zeros_like(h) for h in self._hessian] if len(quadratics) > 1 else []
        for weight, curvature, centre in found[1:]:
            scaled = torch._foreach_mul(curvature, weight)
            torch._foreach_add_(self._hessian, scaled)
            torch._foreach_addcmul_(self._offset, scaled, torch._foreach_sub(self._centre, centre))

    def add_gradient(self) -> None:
        """Add H (θ − a_0) + b to the gradients."""
        with torch.no_grad():
            gradients = [_gradient(weight) for weight in self._weights]
            moved = torch._foreach_sub(self._weights, self._centre)
            torch._foreach_addcmul_(gradients, self._hessian, moved)
            if self._offset:
                torch._foreach_add_(gradients, self._offset)

    def proximal(self, step: float) -> None:
        """Move to the minimiser of the quadratics plus ½‖θ − θ_now‖²/step: stable for every H."""
        with torch.no_grad():
            moved = list(torch._foreach_sub(self._weights, self._centre))
            if self._offset:
                torch._foreach_add_(moved, self._offset, alpha=-step)
            shrink = list(torch._foreach_mul(self._hessian, step))
            torch._foreach_add_(shrink, 1.0)
            torch._foreach_div_(moved, shrink)
            for weight, centre, way in zip(self._weights, self._centre, moved, strict=True):
                torch.add(centre, way, out=weight)

    def values(self) -> dict[str, Tensor]:
        """Each quadratic's penalty at the present weights."""
        with torch.no_grad():
            return {quadratic.name: self._value(quadratic) for quadratic in self.quadratics}

    def force(self, name: str) -> Tensor:
        """‖Σ_k w_k C_k (θ − a_k)‖ / w of one: how hard all pull together, as its own pull.

        Quadratics around two centres pull against each other between them, so that the force of one
        alone says little.
        """
        with torch.no_grad():
            weight = {quadratic.name: quadratic.weight for quadratic in self.quadratics}[name]
            pull = self._pull(name)
            for quadratic in self.quadratics:
                if quadratic.name != name:
                    torch._foreach_add_(
                        pull, self._pull(quadratic.name), alpha=quadratic.weight / weight
                    )
            return norm(pull)

    def _pull(self, name: str) -> list[Tensor]:
        """C (θ − θ*) of one."""
        pull = list(torch._foreach_sub(self._weights, self._centres[name]))
        torch._foreach_mul_(pull, self._curvatures[name])
        return pull

    def steepest(self) -> float:
        """The largest entry of H: SGD with momentum m is stable where lr · H < 2 (1 + m)."""
        return max(float(h.max()) for h in self._hessian)

    def _value(self, each: QuadraticPenalty) -> Tensor:
        moved = torch._foreach_sub(self._weights, self._centres[each.name])
        squares = torch._foreach_mul(moved, moved)
        torch._foreach_mul_(squares, self._curvatures[each.name])
        return 0.5 * each.weight * torch.stack([square.sum() for square in squares]).sum()


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """The length of several tensors as one vector."""
    norms = [tensor.norm() for tensor in tensors]
    whole: Tensor = torch.stack(norms).norm() if norms[1:] else norms[0]
    return whole


def aligned(values: Params, weights: Params) -> list[Tensor]:
    """Named tensors with the strides of the weights, in their order."""
    return [like(weight, values[name]) for name, weight in weights.items()]


def _gradient(weight: Tensor) -> Tensor:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad
