"""Features on a grid of whole numbers, and their sums: exact, so that addition has no order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import ScenarioError, StoreError
from ancl.types import Params

_MOST = 2**15 - 1
_SPARE_BITS = 2
_WIDEST = 100
_EXACT = 2.0**53
"""Whole numbers below it are exact in float64, and so are their sums while they stay below it."""

_CHUNK = 1024


class GridRows(NamedTuple):
    """Features as whole numbers.

    Args:
        rows: (N, D), int16.
        clipped: How many of the numbers were too large for the grid, and became its largest.
    """

    rows: Tensor
    clipped: int


@dataclass(frozen=True)
class Grid:
    """Multiples of 2^-exponent, each kept as a whole number of 16 bits.

    Products of such numbers and sums of the products are exact in float64. A learner chooses its
    grid once, by the features it sees first.

    Examples:
        >>> grid = Grid.of(3.0)
        >>> grid.exponent, grid.put(torch.tensor([[3.0, -0.5]])).rows.tolist()
        (11, [[6144, -1024]])
    """

    exponent: int

    def __post_init__(self) -> None:
        """Refuse steps that float32 cannot hold."""
        if not -_WIDEST <= self.exponent <= _WIDEST:
            raise ScenarioError(
                f"The grid has exponent {self.exponent}. Possible are {-_WIDEST} to {_WIDEST}: "
                "scale the features, so that the largest are near 1."
            )

    @classmethod
    def of(cls, largest: float) -> Grid:
        """The finest grid on which numbers four times this large still have room."""
        if not math.isfinite(largest) or largest <= 0:
            raise ScenarioError(
                f"The largest feature is {largest}. A grid needs a number above 0: look at the "
                "network's weights and at its input."
            )
        return cls(15 - _SPARE_BITS - math.frexp(largest)[1])

    @classmethod
    def holding(cls, bound: float) -> Grid:
        """The finest grid that holds all numbers up to a bound that none is above."""
        grid = cls.of(bound)
        return cls(grid.exponent + _SPARE_BITS)

    @property
    def step(self) -> float:
        """The distance between two neighbours."""
        return 2.0**-self.exponent

    def put(self, features: Tensor) -> GridRows:
        """The nearest whole numbers of steps, halves to even; what is too large is clipped."""
        if not features.isfinite().all():
            raise ScenarioError(
                "Some features are not finite numbers. Look at the network's weights and at its "
                "input: nothing can be learned from them."
            )
        # A product with a power of two is exact, in float32 as well.
        exact = features if features.dtype == torch.double else features.float()
        whole = (exact * 2.0**self.exponent).round_()
        clipped = int((whole.abs() > _MOST).sum())
        return GridRows(whole.clamp_(-_MOST, _MOST).to(torch.int16), clipped)

    def back(self, rows: Tensor) -> Tensor:
        """The features that stand on the grid, in float32: exact."""
        return rows.float() * self.step


def in_chunks(rows: Tensor) -> Iterator[Tensor]:
    """A few rows at a time, so that what is computed of them stays small; one chunk of none."""
    return (rows[start : start + _CHUNK] for start in range(0, max(1, len(rows)), _CHUNK))


@dataclass(frozen=True, eq=False)
class Sums:
    """Number and sum of each class's features, and the sum of all products f fᵀ.

    All are whole numbers on the grid, below 2^53: exact. So the sums of two sets of images are
    the sum of their sums to the last bit, in any order, batch or merge, and what is added and
    removed again leaves nothing.

    Args:
        images: n, (C,), int64.
        totals: Q, (C, D), float64.
        gram: G, (D, D), float64. It belongs to all classes together.
    """

    images: Tensor
    totals: Tensor
    gram: Tensor

    def __post_init__(self) -> None:
        """Refuse sums that are no longer exact.

        |Σ f_i f_j| and |Σ f_i| of whole numbers are at most the largest Σ f_i², for every part of
        the images, too: the diagonal bounds all that was added on the way.
        """
        largest = float(self.gram.diagonal().max()) if len(self.gram) else 0.0
        if not largest < _EXACT:
            raise ScenarioError(
                f"The sums of {int(self.images.sum())} images reach {largest:.3g} steps of the "
                "grid; below 2^53 = 9.01e+15 they are exact. Use a grid with a smaller exponent."
            )

    @classmethod
    def none(cls, classes: int, size: int) -> Sums:
        """The sums of no images."""
        return cls(
            torch.zeros(classes, dtype=torch.long),
            torch.zeros(classes, size, dtype=torch.double),
            torch.zeros(size, size, dtype=torch.double),
        )

    @classmethod
    def of(
        cls,
        rows: Tensor,
        y: Tensor,
        classes: int,
        lifted: Callable[[Tensor], Tensor] | None = None,
    ) -> Sums:
        """The sums of these images.

        Args:
            rows: (N, D), int16, on the grid.
            y: The class of each, from 0.
            classes: The number of classes, also of those without images here.
            lifted: Whole numbers in, whole numbers out: what is summed in place of the rows.
        """
        if rows.dtype != torch.int16:
            raise TypeError(f"Sums are exact for int16 rows of a grid, not for {rows.dtype}.")
        change = lifted or torch.Tensor.contiguous
        sums = cls.none(classes, change(rows[:1]).shape[1])
        for part, labels in zip(in_chunks(rows), in_chunks(y), strict=True):
            whole = change(part).double()
            sums.totals.index_add_(0, labels, whole)
            sums.gram.addmm_(whole.T, whole)
        return cls(torch.bincount(y, minlength=classes), sums.totals, sums.gram)

    @property
    def classes(self) -> int:
        """The number of classes, with those without images."""
        return len(self.images)

    def padded(self, classes: int) -> Sums:
        """The same with more classes after the last, without images."""
        more = max(0, classes - self.classes)
        return Sums(F.pad(self.images, (0, more)), F.pad(self.totals, (0, 0, 0, more)), self.gram)

    def __add__(self, other: Sums) -> Sums:
        """The sums of both sets of images; classes are the same by number, later ones are added."""
        a, b = self._beside(other)
        return Sums(a.images + b.images, a.totals + b.totals, a.gram + b.gram)

    def __sub__(self, other: Sums) -> Sums:
        """The sums without these images, which must be among them."""
        a, b = self._beside(other)
        images, gram = a.images - b.images, a.gram - b.gram
        missing = (images < 0).nonzero().flatten().tolist()
        if missing or (gram.diagonal() < 0).any():
            raise ScenarioError(
                f"These images are not all in the sums: classes {missing} would have fewer than 0."
                if missing
                else "These images are not all in the sums: their features are larger than those."
            )
        return Sums(images, a.totals - b.totals, gram)

    def take(self, classes: Tensor) -> Sums:
        """The classes in this order. Only classes without images can be left out.

        The products of one class alone are not in the sums: to remove a class, subtract the sums
        of its images.
        """
        sums = Sums(self.images[classes], self.totals[classes], self.gram)
        if len(set(classes.tolist())) < len(classes) or sums.images.sum() != self.images.sum():
            raise ScenarioError(
                f"Classes {classes.tolist()} are asked for in this order. All classes with images "
                f"must be among them, once: {self.images.nonzero().flatten().tolist()}."
            )
        return sums

    def renumbered(self, classes: Sequence[int], number: int) -> Sums:
        """With other numbers for its classes, among this number; of two with one number the sum."""
        index = torch.tensor(classes, dtype=torch.long)
        images = self.images.new_zeros(number).index_add(0, index, self.images)
        totals = self.totals.new_zeros(number, len(self.gram)).index_add(0, index, self.totals)
        return Sums(images, totals, self.gram)

    def tensors(self) -> Params:
        """What is stored."""
        return {"images": self.images, "totals": self.totals, "gram": self.gram}

    @classmethod
    def read(cls, tensors: Params) -> Sums:
        """The sums from what was stored, which is checked."""
        try:
            images, totals, gram = (tensors[name] for name in ("images", "totals", "gram"))
            shapes = totals.shape == (*images.shape, len(gram)) and gram.shape == 2 * (len(gram),)
            types = (images.dtype, totals.dtype, gram.dtype) == (torch.long, *2 * (torch.double,))
            whole = torch.equal(totals, totals.round()) and torch.equal(gram, gram.round())
            fits = shapes and types and whole and bool((images >= 0).all())
            if fits and torch.equal(gram, gram.T):
                return cls(images, totals, gram)
        except (KeyError, TypeError, ScenarioError):
            pass
        raise StoreError("The stored sums of features are damaged: learn these images again.")

    def _beside(self, other: Sums) -> tuple[Sums, Sums]:
        """Both with equally many classes."""
        if len(self.gram) != len(other.gram):
            raise ScenarioError(
                f"Sums of {len(self.gram)} and of {len(other.gram)} features do not fit: they are "
                "of different networks."
            )
        return self.padded(other.classes), other.padded(self.classes)
