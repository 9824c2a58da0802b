"""λ by a ratio of forces: the old network pulls with a share κ of the task loss's force."""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ancl.checks import number_behind
from ancl.errors import MethodError
from ancl.types import Params

KAPPA_ON_ANSWERS = 0.4
"""κ of an Ω on answers where none is given: one for all methods."""
KAPPA_ON_WEIGHTS = 0.15
"""κ of an Ω on weights, whose force is that on the weights themselves."""
STEP = math.log(2.0)
"""The most that log λ moves after an epoch."""
REACH = 100.0
"""λ stays within this factor of the number it began with."""
FORMS = "auto or auto:κ with κ > 0, as in auto:0.4"


@dataclass(frozen=True)
class Auto:
    """λ with which λ ‖force of Ω‖ = κ ‖force of the task loss‖.  Equation: [auto].

    The force of an Ω on answers is that to the old network. For an Ω on weights it is what the old
    and the auxiliary network pull together: between the two they pull against each other, and by
    the old network's force alone λ would fall with every step towards the auxiliary one.

    After every epoch λ moves towards that, by a factor of 2 at most: a network that has just begun
    has not left the old one yet, so single steps say little. The next task begins with the λ of the
    last one.

    Args:
        start: The λ to begin with, in the middle of what is possible.
        kappa: κ; if left out one for all Ω on answers, and one for all on weights.
        last: The λ of the last task.
    """

    start: float
    kappa: float | None = None
    last: float | None = None

    def __post_init__(self) -> None:
        for name, value in (("κ", self.kappa), ("first λ", self.start)):
            if value is not None and not (math.isfinite(value) and value > 0):
                raise MethodError(f"The {name} of auto is {value}. It must be a number above 0.")

    def key_description(self) -> dict[str, float | str | None]:
        """What decides numbers; 2 since both networks' pulls on weights count."""
        return {"is": "Auto 2", "start": self.start, "kappa": self.kappa, "last": self.last}


@dataclass(frozen=True)
class AutoText:
    """The rule as text, without the λ that it begins with."""

    kappa: float | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """The rule as text.

        >>> AutoText.read("auto"), str(AutoText.read("auto:5e-1"))
        (AutoText(kappa=None), 'auto:0.5')

        Raises:
            ValueError: It is not this rule.
        """
        try:
            kappa = number_behind("auto", text)
            Auto(1.0, kappa)
        except (ValueError, MethodError) as error:
            raise ValueError(f"must be {FORMS}") from error
        return cls(kappa)

    def __str__(self) -> str:
        return "auto" if self.kappa is None else f"auto:{self.kappa!r}"


def default_kappa(*, on_weights: bool) -> float:
    """κ where none is given."""
    return KAPPA_ON_WEIGHTS if on_weights else KAPPA_ON_ANSWERS


class Mover:
    """λ as it is now: all that changes in the course of an ``Auto``.

    Nothing leaves the device before the end of an epoch.

    Args:
        rule: The rule.
        term: The name of its term.
        on_weights: Whether its Ω is on weights.

    Attributes:
        first: λ in the first epoch, with which patience selects.
        lamb: λ.
    """

    def __init__(self, rule: Auto, term: str, *, on_weights: bool) -> None:
        self.term = term
        own = default_kappa(on_weights=on_weights)
        self._kappa = own if rule.kappa is None else rule.kappa
        self._low, self._high = rule.start / REACH, rule.start * REACH
        self.first = self.lamb = self._within(rule.start if rule.last is None else rule.last)
        self._sums: Tensor | None = None

    def measure(self, task: Tensor, old: Tensor) -> None:
        """Take the forces of one step: of the task loss, and of Ω without its λ."""
        now = torch.stack([task, old])
        self._sums = now if self._sums is None else self._sums + now

    def epoch(self) -> tuple[dict[str, float], str]:
        """End an epoch: the λ that it had, and a note when λ meets its limit."""
        had, sums = self.lamb, self._sums
        task, old = (0.0, 0.0) if sums is None else sums.tolist()
        self._sums = None
        if math.isfinite(task + old) and task > 0 and old > 0:
            wanted = math.log(self._kappa * task / (self.lamb * old))
            self.lamb = self._within(self.lamb * math.exp(max(-STEP, min(STEP, wanted))))
        met = self.lamb != had and self.lamb in (self._low, self._high)
        return {"lamb": had}, f"λ has reached its limit of {self.lamb:.3g}" if met else ""

    def state(self) -> Params:
        """What the next epoch depends on."""
        return {"lamb": torch.tensor(self.lamb, dtype=torch.float64)}

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``, between two epochs."""
        self.lamb, self._sums = float(state["lamb"]), None

    def _within(self, lamb: float) -> float:
        return min(max(lamb, self._low), self._high)
