"""Rules for λ and λ_a: by the numbers of classes, or found while training by forces.

A rule is data of a method. A rule by numbers of classes is a number in every task. What a rule by
forces yields in the course of a training is a ``Lambda``, as is any number: the loss asks it for
``now``, and lets it ``observe`` forces.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Self, overload

import torch
from torch import Tensor

from ancl.checks import Text, number_behind
from ancl.errors import MethodError
from ancl.types import Params

TASK = "task"
"""The name of the task loss among the terms of a loss."""


# -- by the numbers of classes ---------------------------------------------------------------


class Rule(ABC):
    """A λ that follows the task instead of being one number."""

    @abstractmethod
    def at(self, old: int, new: int) -> float:
        """λ for a task that adds ``new`` classes to ``old`` ones."""

    def scaled(self, number: float) -> Weight:
        """The rule for another number, as λ_a follows λ; a rule without one gives it back."""
        return number

    def unchanged(self) -> float:
        """λ for a task that adds no classes."""
        return self.at(1, 1)


Weight = float | Rule


@overload
def weight_at(weight: Weight, old: int, new: int) -> float: ...
@overload
def weight_at(weight: Balance, old: int, new: int) -> Balance: ...
@overload
def weight_at(weight: Weight | Auto, old: int, new: int) -> float | Auto: ...
def weight_at(weight: Weight | Balance | Auto, old: int, new: int) -> float | Balance | Auto:
    """The number a weight stands for in one task; a rule that decides while training stays one."""
    if not isinstance(weight, Rule):
        return weight
    return weight.at(old, new) if new else weight.unchanged()


@dataclass(frozen=True)
class Factor(Rule):
    """A number times a factor of the numbers of classes.

    Args:
        base: The number, which stands alone where a task brings no classes.
    """

    base: float = 1.0

    @abstractmethod
    def factor(self, old: int, new: int) -> float:
        """What the number is multiplied by."""

    def at(self, old: int, new: int) -> float:
        """λ in one task."""
        return self.base * self.factor(old, new)

    def scaled(self, number: float) -> Self:
        """The same rule for another number."""
        return replace(self, base=number)

    def unchanged(self) -> float:
        """The number itself."""
        return self.base


@dataclass(frozen=True)
class AdaptiveOldNew(Factor):
    """λ √(n_old / n_new), as LUCIR weighs its distillation.  Equation: [adaptive]."""

    def factor(self, old: int, new: int) -> float:
        """Grows with the classes there are to keep."""
        return math.sqrt(old / new)


@dataclass(frozen=True)
class AdaptiveAllNew(Factor):
    """λ √(n / n_new) with n = n_old + n_new, as PODNet does.  Equation: [adaptive]."""

    def factor(self, old: int, new: int) -> float:
        """Grows with the classes there are in all."""
        return math.sqrt((old + new) / new)


@dataclass(frozen=True)
class OldShare(Factor):
    """λ = n_old / n: the old network's share of the classes."""

    def factor(self, old: int, new: int) -> float:
        """The share in one task."""
        return old / (old + new)


@dataclass(frozen=True)
class NewShare(Factor):
    """λ_a = n_new / n: the task's share of the classes."""

    def factor(self, old: int, new: int) -> float:
        """The share in one task."""
        return new / (old + new)


# -- by forces -------------------------------------------------------------------------------

KAPPA_ON_ANSWERS = 0.4
"""κ of an Ω on answers where none is given: one for all methods."""
KAPPA_ON_WEIGHTS = 0.15
"""κ of an Ω on weights, whose force is that on the weights themselves."""
STEP = math.log(2.0)
"""The most that log λ moves after an epoch."""
REACH = 100.0
"""λ stays within this factor of the number it began with."""
DEFAULT_RHO = 0.1
"""ρ where none is given; one for all methods, chosen in ``docs/evidence/rules.md``."""
MEMORY = 0.95
"""The share of a mean force that stays at every step."""
MOST = 1e6
"""The largest λ_a over λ: a guard against forces that vanish, far from any sensible value."""


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
            raise ValueError("must be auto or auto:κ with κ > 0, as in auto:0.4") from error
        return cls(kappa)

    def __str__(self) -> str:
        return "auto" if self.kappa is None else f"auto:{self.kappa!r}"


def default_kappa(*, on_weights: bool) -> float:
    """κ where none is given."""
    return KAPPA_ON_WEIGHTS if on_weights else KAPPA_ON_ANSWERS


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

        >>> Balance.read("balance:0.5"), str(Balance.read("balance:1e-2"))
        (Balance(rho=0.5), 'balance:0.01')

        Raises:
            ValueError: It is not this rule.
        """
        try:
            rho = number_behind("balance", text)
            return cls() if rho is None else cls(rho)
        except (ValueError, MethodError) as error:
            message = "must be balance or balance:ρ with ρ ≥ 0, as in balance:0.1"
            raise ValueError(message) from error

    def __str__(self) -> str:
        return f"balance:{self.rho!r}"


def _refused(value: object) -> str:
    try:
        return str(Balance.read(str(value)))
    except ValueError as error:
        raise ValueError("must be a valid number") from error


BalanceText = Annotated[str, Text("balance:ρ", lambda value: str(Balance.read(str(value))))]
"""A balance as a setting: ``balance``, or with its ρ. The setting that is kept has its ρ."""
RefusedBalance = Annotated[str, Text("", _refused)]
"""A balance where there can be none: read, so that it can be refused with the reason."""
LambText = Annotated[str, Text("auto[:κ]", lambda value: str(AutoText.read(str(value))))]
"""A λ that is found while training, as a setting: ``auto``, or with its κ."""


# -- λ as it is now --------------------------------------------------------------------------


class Lambda:
    """λ of a term as it is now: a number that stays, unless a subclass says otherwise.

    Nothing leaves the device before the end of an epoch.

    Attributes:
        reads: The terms by whose forces it is found; ``task`` is the task loss.
        moves: Whether it changes between two steps of an epoch.
        saved_as: What its state is saved under.
        now: λ.
    """

    saved_as: ClassVar[str] = ""
    moves: ClassVar[bool] = False
    reads: tuple[str, ...] = ()
    now: Tensor | float

    def __init__(self, number: float) -> None:
        self.now = number

    @property
    def first_over_now(self) -> float:
        """λ of the first epoch over the present one: the loss that selects weights has that."""
        return 1.0

    def observe(self, forces: Mapping[str, Tensor]) -> None:
        """Take the forces of one step: of the terms it reads, each without its λ."""

    def end_epoch(self) -> tuple[dict[str, float], str]:
        """End an epoch: what λ was in it, and a note where it met a limit."""
        return {}, ""

    def state(self) -> Params:
        """What the next step depends on."""
        return {}

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``, between two epochs."""


class AutoLambda(Lambda):
    """λ by the rule ``Auto``: it moves after every epoch.

    Args:
        rule: The rule.
        term: The name of its term.
        on_weights: Whether its Ω is on weights.
    """

    saved_as = "auto"
    now: float

    def __init__(self, rule: Auto, term: str, *, on_weights: bool) -> None:
        self.reads = (TASK, term)
        default = default_kappa(on_weights=on_weights)
        self._kappa = default if rule.kappa is None else rule.kappa
        self._low, self._high = rule.start / REACH, rule.start * REACH
        self._first = self._limited(rule.start if rule.last is None else rule.last)
        super().__init__(self._first)
        self._sums: Tensor | None = None

    @property
    def first_over_now(self) -> float:
        """The λ that it began with, over the present one."""
        return self._first / self.now

    def observe(self, forces: Mapping[str, Tensor]) -> None:
        """Add the forces of one step to the epoch's."""
        both = torch.stack([forces[name] for name in self.reads])
        self._sums = both if self._sums is None else self._sums + both

    def end_epoch(self) -> tuple[dict[str, float], str]:
        """The λ that the epoch had, and a note when λ meets its limit."""
        had, sums = self.now, self._sums
        task, old = (0.0, 0.0) if sums is None else sums.tolist()
        self._sums = None
        if math.isfinite(task + old) and task > 0 and old > 0:
            wanted = math.log(self._kappa * task / (self.now * old))
            self.now = self._limited(self.now * math.exp(max(-STEP, min(STEP, wanted))))
        met = self.now != had and self.now in (self._low, self._high)
        return {"lamb": had}, f"λ has reached its limit of {self.now:.3g}" if met else ""

    def state(self) -> Params:
        """λ."""
        return {"lamb": torch.tensor(self.now, dtype=torch.float64)}

    def restore(self, state: Params) -> None:
        """Go back to an earlier λ."""
        self.now, self._sums = float(state["lamb"]), None

    def _limited(self, lamb: float) -> float:
        return min(max(lamb, self._low), self._high)


class BalancedLambda(Lambda):
    """λ_a by the rule ``Balance``, for an Ω on answers: it follows every step; 0 before the first.

    Args:
        rule: The rule.
        reads: The names of the terms of old and auxiliary network.
        old: λ, with which it is balanced.
    """

    saved_as, moves = "balance", True

    def __init__(self, rule: Balance, reads: tuple[str, str], old: Lambda) -> None:
        super().__init__(0.0)
        self.rule, self.reads, self._old = rule, reads, old
        self._means: Tensor | None = None
        self._sums: Tensor | None = None
        self._steps = 0

    def observe(self, forces: Mapping[str, Tensor]) -> None:
        """Follow the mean forces of both networks.

        Both means begin at 0, so that at first both are too small by the same factor. Forces that
        are not finite are left out: a training that recovers continues with the means before them.
        """
        both, lamb = torch.stack([forces[name] for name in self.reads]), self._old.now
        before = torch.zeros_like(both) if self._means is None else self._means.to(both)
        means = torch.where(both.isfinite().all(), before.lerp(both, 1 - MEMORY), before)
        wanted, most = lamb * self.rule.rho * means[0] / means[1], MOST * lamb
        there, last = means[1] > 0, self.now.to(both) if isinstance(self.now, Tensor) else self.now
        lamb_a = torch.where(there, wanted.clamp(max=most), last)
        logged = torch.stack([lamb_a, (there & (wanted > most)).to(both)])
        self._sums = logged if self._sums is None else self._sums + logged
        self._means, self.now, self._steps = means, lamb_a, self._steps + 1

    def end_epoch(self) -> tuple[dict[str, float], str]:
        """The mean λ_a of the epoch's steps, and a note where it was capped."""
        if self._sums is None:
            return {}, ""
        (total, capped), steps = self._sums.tolist(), self._steps
        self._sums, self._steps = None, 0
        return {"lamb_a": total / steps}, _capped(capped, steps)

    def state(self) -> Params:
        """The mean forces, and λ_a."""
        if self._means is None:
            return {}
        return {"means": self._means.clone(), "lamb_a": torch.as_tensor(self.now).clone()}

    def restore(self, state: Params) -> None:
        """Go back to earlier means."""
        if state:
            self._means, self.now = state["means"].clone(), state["lamb_a"].clone()
            self._sums, self._steps = None, 0


class CurvatureLambda(Lambda):
    """As ``BalancedLambda``, for an Ω on weights: one number for every λ it is balanced with."""

    def __init__(self, rule: Balance, reads: tuple[str, str], old: Lambda) -> None:
        super().__init__(0.0)
        self.rule, self.reads, self._old = rule, reads, old
        self._known_for: float | None = None
        self._capped = False

    @property
    def known(self) -> bool:
        """Whether λ_a is known for λ as it is."""
        return self._known_for == float(self._old.now)

    @property
    def first_over_now(self) -> float:
        """As that of λ, which it follows."""
        return self._old.first_over_now

    def observe(self, forces: Mapping[str, Tensor]) -> None:
        """Take the sums of both networks' curvatures."""
        old, auxiliary = (float(forces[name]) for name in self.reads)
        lamb = float(self._old.now)
        wanted = lamb * self.rule.rho * old / auxiliary if old > 0 and auxiliary > 0 else 0.0
        self.now = min(wanted, MOST * lamb)
        self._known_for, self._capped = lamb, wanted > self.now

    def end_epoch(self) -> tuple[dict[str, float], str]:
        """λ_a, which all steps had, and a note where it was capped."""
        if self._known_for is None:
            return {}, ""
        # Logged as all λ_a are: in single precision.
        return {"lamb_a": torch.tensor(self.now).item()}, _capped(float(self._capped), 1)


def _capped(steps: float, of: int) -> str:
    return f"λ_a held at {MOST:g} λ in {steps:g} of {of} steps" if steps else ""
