"""Many more features, by a fixed random projection: exact as well."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ancl.errors import ScenarioError
from ancl.statistics.sums import Grid, in_chunks

_PROJECTION = Grid(10)
_SIZES = 2**25
_TIMES = 4


@dataclass(frozen=True, eq=False)
class Lift:
    """h = max(0, f V), with V drawn once from N(0, 1).

    V has multiples of 2^-10, so that f V of features on a grid is exact in float64: an image has
    the same h in every batch, also when it is removed. What is summed is h on a grid of its own.

    Args:
        projection: V, (D, M), int16, in steps of 2^-10.
        grid: Of the features that are lifted.
        seed: Where V was drawn from, if it is known: seed and width are all that is stored.
    """

    projection: Tensor
    grid: Grid
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse more features than can be multiplied exactly."""
        if len(self.projection) >= _SIZES:
            raise ScenarioError(
                f"{len(self.projection)} features are too many to lift exactly: fewer than 2^25 "
                "are possible."
            )

    @classmethod
    def draw(cls, grid: Grid, size: int, generator: Generator, width: int | None = None) -> Lift:
        """A new projection.

        Args:
            grid: Of the features that are lifted.
            size: D, their number.
            generator: Where the numbers come from: seed and width are all that needs storing.
            width: M, the number of lifted features; 4 D by default. Their sums take 8 M² bytes.
        """
        drawn = torch.randn(size, width or _TIMES * size, generator=generator)
        return cls(_PROJECTION.put(drawn).rows, grid)

    @classmethod
    def seeded(cls, grid: Grid, size: int, seed: int, width: int | None = None) -> Lift:
        """The projection of a seed; see ``draw``."""
        drawn = cls.draw(grid, size, Generator().manual_seed(seed), width)
        return cls(drawn.projection, grid, seed)

    @property
    def width(self) -> int:
        """M, the number of lifted features."""
        return self.projection.shape[1]

    @property
    def matrix(self) -> Tensor:
        """V, float32."""
        return self.projection.float() * _PROJECTION.step

    @property
    def lifted_grid(self) -> Grid:
        """A grid for h that does not depend on any image: with room for √D times f's largest.

        f has bits to spare, so that h, of length ‖f‖ times a draw from N(0, 1), fits.
        """
        return Grid(self.grid.exponent - math.ceil(math.log2(len(self.projection)) / 2))

    def rows(self, rows: Tensor) -> Tensor:
        """The lifted features of rows on the grid, on a grid of their own: what is summed."""
        return self.lifted_grid.put(self.exact(rows)).rows

    def exact(self, rows: Tensor) -> Tensor:
        """The lifted features of rows on the grid, (N, M), float64, without any rounding."""
        whole = rows.double() @ self.projection.double()
        return whole.clamp_(min=0) * (self.grid.step * _PROJECTION.step)

    def largest(self, rows: Tensor) -> float:
        """The largest lifted feature: what chooses the grid of h."""
        return max(float(self.exact(part).max()) for part in in_chunks(rows))

    def answer(self, features: Tensor) -> Tensor:
        """Any features lifted, in their own precision: what a classifier is asked with."""
        return (features @ self.matrix.to(features.dtype)).clamp_(min=0)
