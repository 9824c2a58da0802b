"""Synaptic Intelligence: weights matter as much as their path lowered the task loss."""

from dataclasses import dataclass

import torch
from torch import Tensor

from ancl.regularizers.base import Evidence, Watcher, WeightRegularizer
from ancl.types import Importance, Params


class PathWatcher(Watcher):
    """Σ −g · Δθ over the steps of a training: each weight's part in lowering the task loss."""

    def __init__(self) -> None:
        self._total: dict[str, Tensor] = {}
        self._gradients: list[Tensor] = []
        self._weights: list[Tensor] = []

    def before(self, weights: Params) -> None:
        """Keep the gradient and the place from which the step is taken."""
        values = list(weights.values())
        self._gradients = [
            torch.zeros_like(w) if w.grad is None else w.grad.clone() for w in values
        ]
        self._weights = [w.detach().clone() for w in values]
        if not self._total:
            self._total = {name: torch.zeros_like(w) for name, w in weights.items()}

    def after(self, weights: Params) -> None:
        """Add −g · (θ_after − θ_before)."""
        with torch.no_grad():
            moved = torch._foreach_sub(list(weights.values()), self._weights)
            # By name: what was stored and restored comes back in another order.
            totals = [self._total[name] for name in weights]
            torch._foreach_addcmul_(totals, self._gradients, moved, -1.0)

    def state(self) -> Params:
        """A copy of the path integral so far."""
        return {name: total.clone() for name, total in self._total.items()}

    def restore(self, state: Params) -> None:
        """Forget the steps taken after ``state`` was read."""
        self._total = {name: total.clone() for name, total in state.items()}


@dataclass(frozen=True)
class Si(WeightRegularizer):
    """Σ ω (θ − θ*)², ω the path integral over the squared way of each weight.  Equation: [si].

    Differs: negative ω, which would push weights away from the anchor without bound, count as
    zero unless ``clip`` is off. Steps that patience takes back are taken out of the integral.

    Args:
        damping: Added to the squared way, so that weights at rest do not divide by zero.
        clip: Whether negative importance counts as zero.
    """

    watcher = PathWatcher
    damping: float = 0.1
    clip: bool = True

    def curvature(self, importance: Importance) -> Params:
        """2 ω: the penalty has no factor ½."""
        return {name: 2 * omega for name, omega in importance["path"].items()}

    def importance(self, evidence: Evidence) -> Importance:
        """The path integral w / ((θ − θ_start)² + damping) of one task."""
        path = {}
        for name, weight in evidence.weights.items():
            way = (weight.detach() - evidence.start[name]).square()
            omega = evidence.watched[name] / (way + self.damping)
            path[name] = omega.clamp(min=0) if self.clip else omega
        return {"path": path}

    def merge(self, before: Importance | None, now: Importance) -> Importance:
        """The sum over tasks."""
        if before is None:
            return now
        return {"path": {name: before["path"][name] + now["path"][name] for name in now["path"]}}
