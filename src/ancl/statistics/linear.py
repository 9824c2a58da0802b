"""Classifiers that are computed from sums of features: nearest mean, discriminant, ridge.

Equal sums give equal bits. They hold no more than the sums do, so that they forget nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import MethodError, ScenarioError
from ancl.statistics.sums import Grid, Sums

_RELATIVE = 1e-13
"""A pivot of Cholesky's that is smaller, relative to the largest, is rounding."""


@dataclass(frozen=True, eq=False)
class Linear:
    """Scores f·w_c + b_c.

    A class without images has weights of 0 and a bias of minus infinity: no image gets it, and its
    share in a softmax is 0.

    Args:
        weight: (C, D), float64.
        bias: (C,), float64.
    """

    weight: Tensor
    bias: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """(N, C), in the precision of the features."""
        return F.linear(features, self.weight.to(features.dtype), self.bias.to(features.dtype))


@dataclass(frozen=True, eq=False)
class Cosine:
    """Scores cos(f - centre, direction of class c).

    They are not linear: each image's are divided by the length of its f - centre. The order of
    the classes is not changed by that, so that ``linear`` gives the same answers.

    Args:
        directions: (C, D), float64, of length 1.
        centre: (D,), float64.
        present: (C,), whether a class has images.
    """

    directions: Tensor
    centre: Tensor
    present: Tensor

    def scores(self, features: Tensor) -> Tensor:
        """(N, C), in the precision of the features; minus infinity for classes without images."""
        unit = F.normalize(features - self.centre.to(features.dtype), dim=1)
        cosines = unit @ self.directions.to(features.dtype).T
        return cosines.masked_fill(~self.present, -math.inf)

    def linear(self) -> Linear:
        """The classifier with the same answers; its scores are longer by ‖f - centre‖."""
        bias = -self.directions @ self.centre
        return Linear(self.directions, bias.masked_fill(~self.present, -math.inf))


class Moments(NamedTuple):
    """Means and scatter in the units of the features, of the classes that have images.

    Args:
        present: (C,), whether a class has images.
        images: n, (P,), float64.
        means: μ, (P, D).
        scatter: S_w = G - Σ_c n_c μ_c μ_cᵀ, (D, D).
    """

    present: Tensor
    images: Tensor
    means: Tensor
    scatter: Tensor


def moments(sums: Sums, grid: Grid) -> Moments:
    """What the sums say of the classes; steps of the grid are powers of two, so they are exact."""
    present = sums.images > 0
    if not present.any():
        raise ScenarioError("No image was learned: there is no class to answer with.")
    images, totals = sums.images[present].double(), sums.totals[present]
    means = totals / images.unsqueeze(1)
    within = sums.gram - means.T @ totals
    scatter = (within + within.T) * (grid.step**2 / 2)
    return Moments(present, images, means * grid.step, scatter)


def nearest_mean(sums: Sums, grid: Grid) -> Linear:
    """2 f·μ_c - ‖μ_c‖²: the class whose mean is nearest."""
    known = moments(sums, grid)
    return for_all_classes(known.present, 2 * known.means, -known.means.square().sum(dim=1))


def cosine_means(sums: Sums, grid: Grid, centred: bool = True) -> Cosine:
    """cos(f - m, μ_c - m): the class whose mean lies in the same direction.

    Args:
        sums: Of all images.
        grid: On which they were summed.
        centred: m is the mean of all images, 0 otherwise.
    """
    known = moments(sums, grid)
    centre = torch.zeros_like(known.means[0])
    if centred:
        centre = sums.totals.sum(dim=0) * (grid.step / known.images.sum())
    directions = sums.totals.new_zeros(sums.totals.shape)
    directions[known.present] = F.normalize(known.means - centre, dim=1)
    return Cosine(directions, centre, known.present)


def oas(covariance: Tensor, images: int) -> float:
    """The shrinkage of the oracle approximating estimator towards the mean of the diagonal."""
    size = len(covariance)
    mean = float(covariance.diagonal().mean())
    power = float(covariance.square().mean())
    spread = (images + 1) * (power - mean**2 / size)
    return min(1.0, (power + mean**2) / spread) if spread > 0 else 1.0


def discriminant(sums: Sums, grid: Grid, shrinkage: float | Literal["oas"] = 0.1) -> Linear:
    """f·Λμ_c - μ_cᵀΛμ_c / 2, Λ the inverse of (1 - ε) Σ + ε mean(diagonal of Σ) I, Σ = S_w / N.

    Σ is that of all classes together, in any order of images. Where it is 0, as with one image of
    each class, it says nothing: Λ = I, which answers with the nearest mean. No class has a prior.

    Args:
        sums: Of all images.
        grid: On which they were summed.
        shrinkage: ε, from 0 to 1, or ``oas``.
    """
    known = moments(sums, grid)
    total = int(known.images.sum())
    covariance = known.scatter / total
    share = oas(covariance, total) if shrinkage == "oas" else shrinkage
    if not 0 <= share <= 1:
        raise MethodError(f"shrinkage is {share}. Possible are 0 to 1, or 'oas'.")
    mean = float(covariance.diagonal().mean())
    if mean <= 0:
        covariance, mean = torch.zeros_like(covariance), 1.0
        share = 1.0
    shrunk = covariance.mul_(1 - share)
    shrunk.diagonal().add_(share * mean)
    weight = _solved(shrunk, known.means.T, "shrinkage", share).T
    return for_all_classes(known.present, weight, -(weight * known.means).sum(dim=1) / 2)


def normal_equations(sums: Sums, grid: Grid, balanced: bool = True) -> tuple[Tensor, Tensor]:
    """G and Q of ridge: W = (G + λI)⁻¹ Q, for classes with images.

    Balanced: every class stands for N / C images around its own mean, with the scatter of all:
    G_b = S_w + (N / C) Σ_c μ_c μ_cᵀ and Q_b = (N / C) μ. Equal classes: the same as plain ridge.
    """
    known = moments(sums, grid)
    if not balanced:
        return sums.gram * grid.step**2, (sums.totals[known.present] * grid.step).T
    share = known.images.sum() / len(known.images)
    gram = known.scatter.addmm_(known.means.T, known.means, alpha=float(share))
    return gram, share * known.means.T


def ridge(sums: Sums, grid: Grid, penalty: float, balanced: bool = True) -> Linear:
    """f·w_c with W = (G + λI)⁻¹ Q: least squares to 1 for the own class and 0 for others.

    Args:
        sums: Of all images.
        grid: On which they were summed.
        penalty: λ, in squared units of the features. Features s times as large need s² times it,
            twice as many images twice.
        balanced: Whether every class counts as if it had equally many images.
    """
    return solved_ridge(*normal_equations(sums, grid, balanced), sums.images > 0, penalty)


def solved_ridge(gram: Tensor, targets: Tensor, present: Tensor, penalty: float) -> Linear:
    """Ridge of one penalty from its ``normal_equations``, which stay as they are."""
    _check_penalty(penalty)
    gram = gram.clone()
    gram.diagonal().add_(penalty)
    weight = _solved(gram, targets, "penalty", penalty).T
    return for_all_classes(present, weight, weight.new_zeros(len(weight)))


@dataclass(frozen=True, eq=False)
class RidgePath:
    """Ridge for any number of penalties, from one eigendecomposition G = U diag(s) Uᵀ.

    One penalty costs a product instead of a factorisation. The decomposition itself costs about
    seven of these, so that a few penalties are faster by ``ridge``, one by one.

    Args:
        basis: U, (D, R): directions in which there are images.
        values: s, (R,).
        targets: Uᵀ Q, (R, P).
        present: (C,), whether a class has images.
    """

    basis: Tensor
    values: Tensor
    targets: Tensor
    present: Tensor

    @classmethod
    def of_sums(cls, sums: Sums, grid: Grid, balanced: bool = True) -> RidgePath:
        """From the D x D products: for more images than features."""
        gram, targets = normal_equations(sums, grid, balanced)
        values, basis = torch.linalg.eigh(gram)
        return cls(basis, values.clamp_(min=0), basis.T @ targets, sums.images > 0)

    @classmethod
    def of_rows(cls, features: Tensor, y: Tensor, classes: int, balanced: bool = True) -> RidgePath:
        """The same from the N x N kernel of the features: for fewer images than features.

        G = ZᵀZ and Q = ZᵀT, with Z = F and T = Y; balanced, Z has F less the means of its classes,
        and √(N / C) μ_c for each class, and T has √(N / C) for the latter. With K = Z Zᵀ =
        V diag(s) Vᵀ, U = ZᵀV / √s.
        """
        features = features.double()
        images = torch.bincount(y, minlength=classes)
        present = images > 0
        one_hot = F.one_hot(y, classes)[:, present].double()
        if balanced:
            means = (one_hot.T @ features) / images[present].double().unsqueeze(1)
            weight = math.sqrt(len(y) / len(means))
            targets = torch.cat(
                [torch.zeros_like(one_hot), weight * torch.eye(len(means))]
            ).double()
            features = torch.cat([features - one_hot @ means, weight * means])
        else:
            targets = one_hot
        values, vectors = torch.linalg.eigh(features @ features.T)
        known = values > values[-1] * len(values) * torch.finfo(torch.double).eps
        values, vectors = values[known], vectors[:, known]
        roots = values.sqrt()
        basis = features.T @ (vectors / roots)
        return cls(basis, values, roots.unsqueeze(1) * (vectors.T @ targets), present)

    def linear(self, penalty: float) -> Linear:
        """The classifier of one penalty."""
        _check_penalty(penalty)
        weight = (self.basis @ (self.targets / (self.values + penalty).unsqueeze(1))).T
        return for_all_classes(self.present, weight, weight.new_zeros(len(weight)))

    def scores(self, features: Tensor, penalties: list[float]) -> Tensor:
        """(penalties, N, C), float64."""
        turned = features.double() @ self.basis
        shrunk = torch.stack(
            [self.targets / (self.values + penalty).unsqueeze(1) for penalty in penalties]
        )
        scores = turned.new_full((len(penalties), len(features), len(self.present)), -math.inf)
        scores[:, :, self.present] = turned @ shrunk
        return scores


def _check_penalty(penalty: float) -> None:
    if not (math.isfinite(penalty) and penalty >= 0):
        raise MethodError(f"penalty is {penalty}. Possible are 0 and all numbers above.")


def _solved(matrix: Tensor, right: Tensor, name: str, value: float) -> Tensor:
    """matrix⁻¹ right, by Cholesky; rounding is never taken for a direction with images."""
    factor, fault = torch.linalg.cholesky_ex(matrix)
    pivots = factor.diagonal().square()
    if int(fault) or not float(pivots.min()) > _RELATIVE * float(pivots.max()):
        raise MethodError(
            f"The images do not vary in all {len(matrix)} directions of the features, so that the "
            f"classifier has no solution with {name}={value:g}. Use a larger {name}."
        )
    return torch.cholesky_solve(right, factor)


def for_all_classes(present: Tensor, weight: Tensor, bias: Tensor) -> Linear:
    """The classifier with rows for classes without images, which no image gets."""
    weights = weight.new_zeros(len(present), weight.shape[1])
    biases = bias.new_full((len(present),), -math.inf)
    weights[present], biases[present] = weight, bias
    return Linear(weights, biases)
