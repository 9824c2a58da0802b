"""Rules for λ: numbers that follow how many classes are old and how many are new, and texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import sqrt
from typing import Annotated, Self, overload

from ancl.checks import Text
from ancl.training.auto import Auto, AutoText
from ancl.training.balance import Balance


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


BalanceText = Annotated[str, Text("balance:ρ", lambda value: str(Balance.read(str(value))))]
"""A balance as a setting: ``balance``, or with its ρ. The setting that is kept has its ρ."""


def _refused(value: object) -> str:
    try:
        return str(Balance.read(str(value)))
    except ValueError as error:
        raise ValueError("must be a valid number") from error


LambText = Annotated[str, Text("auto[:κ]", lambda value: str(AutoText.read(str(value))))]
"""A λ that is found while training, as a setting: ``auto``, or with its κ."""

RefusedBalance = Annotated[str, Text("", _refused)]
"""A balance where there can be none: read, so that it can be refused with the reason."""


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
        return sqrt(old / new)


@dataclass(frozen=True)
class AdaptiveAllNew(Factor):
    """λ √(n / n_new) with n = n_old + n_new, as PODNet does.  Equation: [adaptive]."""

    def factor(self, old: int, new: int) -> float:
        """Grows with the classes there are in all."""
        return sqrt((old + new) / new)


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
