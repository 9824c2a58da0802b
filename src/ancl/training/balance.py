"""λ_a by balance: the auxiliary network pulls with a share ρ of the old network's force."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ancl.checks import number_behind
from ancl.errors import MethodError
from ancl.types import Output, Params

DEFAULT_RHO = 0.1
"""ρ where none is given; one for all methods, chosen in ``docs/evidence/rules.md``."""
MEMORY = 0.95
"""The share of a mean force that stays at every step."""
MOST = 1e6
"""The largest λ_a over λ: a guard against forces that vanish, far from any sensible value."""
FORMS = "balance or balance:ρ with ρ ≥ 0, as in balance:0.1"


@dataclass(frozen=True)
class Balance:
    """λ_a = ρ λ ‖force to the old network‖ / ‖force to the auxiliary one‖.  Equation: [balance].

    The scale of Ω cancels, so that one ρ serves all methods. An Ω on answers has the force
    ∂Ω/∂z, where z are the features and, where it reads them, the maps: λ_a then follows every
    step. An Ω on weights has the force of its curvature: λ_a is one number per task.

    Args:
        rho: ρ; with 0 there is no auxiliary network.
    """

    rho: float = DEFAULT_RHO

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rho) and self.rho >= 0):
            raise MethodError(f"The ρ of balance is {self.rho}. It must be a number of 0 or more.")

    @classmethod
    def read(cls, text: str) -> Self:
        """The rule as text.

        Examples:
            >>> Balance.read("balance:0.5"), str(Balance.read("balance:1e-2"))
            (Balance(rho=0.5), 'balance:0.01')

        Raises:
            ValueError: It is not this rule.
        """
        try:
            rho = number_behind("balance", text)
            return cls() if rho is None else cls(rho)
        except (ValueError, MethodError) as error:
            raise ValueError(f"must be {FORMS}") from error

    def __str__(self) -> str:
        return f"balance:{self.rho!r}"


class Balancer:
    """λ_a as it is now: all that changes in the course of a ``Balance``.

    Nothing leaves the device before the end of an epoch.

    Args:
        rule: The rule.
        lamb: λ, with which it is balanced.

    Attributes:
        lamb_a: λ_a; 0 before the first step.
    """

    def __init__(self, rule: Balance, lamb: float) -> None:
        self.rule, self.lamb = rule, lamb
        self.lamb_a: Tensor | float = 0.0
        self._means: Tensor | None = None
        self._sums: Tensor | None = None
        self._steps = 0

    def measure(self, old: Tensor, auxiliary: Tensor) -> None:
        """Take the forces of one step, of both networks' Ω without its λ.

        Both means begin at 0, so that at first both are too small by the same factor. Forces that
        are not finite are left out: a training that recovers continues with the means before them.
        """
        forces = torch.stack([old, auxiliary])
        before = torch.zeros_like(forces) if self._means is None else self._means.to(forces)
        means = torch.where(forces.isfinite().all(), before.lerp(forces, 1 - MEMORY), before)
        wanted, most = self.lamb * self.rule.rho * means[0] / means[1], MOST * self.lamb
        there, last = means[1] > 0, torch.as_tensor(self.lamb_a).to(forces)
        lamb_a = torch.where(there, wanted.clamp(max=most), last)
        now = torch.stack([lamb_a, (there & (wanted > most)).to(forces)])
        self._sums = now if self._sums is None else self._sums + now
        self._means, self.lamb_a, self._steps = means, lamb_a, self._steps + 1

    def settle(self, old: float, auxiliary: float) -> None:
        """Take the sums of both networks' curvatures, for a whole task."""
        wanted = self.lamb * self.rule.rho * old / auxiliary if old > 0 and auxiliary > 0 else 0.0
        self.lamb_a = min(wanted, MOST * self.lamb)
        self._sums, self._steps = torch.tensor([self.lamb_a, float(wanted > self.lamb_a)]), 1

    def retune(self, lamb: float) -> None:
        """Continue with another λ; a λ_a that was settled is settled again."""
        if self.settled:
            self.lamb_a, self._steps = 0.0, 0
        self.lamb = lamb

    @property
    def settled(self) -> bool:
        """Whether λ_a is one number for the whole task, and known."""
        return isinstance(self.lamb_a, float) and self._steps > 0

    def epoch(self) -> tuple[dict[str, float], str]:
        """The mean λ_a of the steps since the last call, and a note where it was capped."""
        if self._sums is None:
            return {}, ""
        (total, capped), steps = self._sums.tolist(), self._steps
        if not self.settled:
            self._sums, self._steps = None, 0
        note = f"λ_a held at {MOST:g} λ in {capped:g} of {steps} steps" if capped else ""
        return {"lamb_a": total / steps}, note

    def state(self) -> Params:
        """What the next step depends on."""
        if self._means is None:
            return {}
        return {"means": self._means.clone(), "lamb_a": torch.as_tensor(self.lamb_a).clone()}

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``, between two epochs."""
        if state:
            self._means, self.lamb_a = state["means"].clone(), state["lamb_a"].clone()
            self._sums, self._steps = None, 0


def apart(out: Output) -> Output:
    """The same output with maps of its own: what is computed of the real ones does not read them.

    The force on a map is then that of Ω alone, and nothing is propagated through the backbone.
    """
    return out._replace(maps=tuple(stage.view_as(stage) for stage in out.maps))


def norm(tensors: Sequence[Tensor]) -> Tensor:
    """The length of several tensors as one vector."""
    norms = [each.norm() for each in tensors]
    whole: Tensor = torch.stack(norms).norm() if norms[1:] else norms[0]
    return whole


def force(penalty: Tensor, out: Output) -> Tensor:
    """‖∂Ω/∂z‖ over the batch, z the features and maps; the logits where no features learn."""
    for read in ((out.features, *out.maps), (out.logits,)):
        learning = [tensor for tensor in read if tensor.requires_grad]
        if learning and penalty.requires_grad:
            found = torch.autograd.grad(penalty, learning, retain_graph=True, allow_unused=True)
            there = [each for each in found if each is not None]
            if there:
                return norm(there)
    return torch.zeros_like(penalty, requires_grad=False)
