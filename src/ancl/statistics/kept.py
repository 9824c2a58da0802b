"""Classifiers that need the features of every image: nearest neighbours, logistic regression."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import MethodError
from ancl.statistics.linear import Linear, for_all_classes
from ancl.statistics.sums import in_chunks

_HISTORY = 10
_ITERATIONS = 1000
_TOLERANCE = 1e-5
_FLATTER = 0.01
_LENGTHS = 30


def knn_scores(
    query: Tensor, features: Tensor, y: Tensor, classes: int, k: int = 20, temperature: float = 0.07
) -> Tensor:
    """log(share of the votes + 1 / k), of the k nearest images' votes exp(cos / T).

    The order of the votes, as scores that a temperature can make probabilities. A class without
    images has minus infinity; one without an image among the k nearest has log(1 / k).

    Args:
        query: (N, D), what is asked.
        features: (n, D), those that are kept.
        y: The class of each that is kept.
        classes: The number of classes.
        k: How many images vote; all, where there are fewer.
        temperature: T. A smaller one lets the nearest decide.

    Returns:
        (N, C), in the precision of the query.
    """
    unit = F.normalize(features.to(query.dtype), dim=1)
    absent = torch.bincount(y, minlength=classes) == 0
    scores = []
    for part in in_chunks(query):
        nearest = (F.normalize(part, dim=1) @ unit.T).topk(min(k, len(y)), dim=1)
        votes = (nearest.values / temperature).softmax(dim=1)
        shares = votes.new_zeros(len(part), classes).scatter_add_(1, y[nearest.indices], votes)
        scores.append((shares + 1 / k).log_().masked_fill_(absent, -math.inf))
    return torch.cat(scores)


def logistic(
    features: Tensor, y: Tensor, classes: int, penalty: float, balanced: bool = False
) -> Linear:
    """The minimum of Σ_i cross-entropy(W f_i + b, y_i) + λ/2 ‖W‖², of which there is one.

    The steps are those of L-BFGS, each as long as it should be: along a line the scores are
    linear, so that another length costs no product with the features. Nothing is random.

    Args:
        features: (N, D).
        y: The class of each image.
        classes: The number of classes; those without images get none.
        penalty: λ, above 0; 1 / C in scikit-learn's words. The bias has none.
        balanced: Whether every class counts as if it had equally many images.
    """
    if not (math.isfinite(penalty) and penalty > 0):
        raise MethodError(f"penalty is {penalty}. logistic needs a number above 0.")
    images = torch.bincount(y, minlength=classes)
    present = images > 0
    number = present.sum()
    labels = (present.cumsum(0) - 1)[y]
    mean = features.double().mean(dim=0)
    centred = features.double() - mean
    weights = (len(y) / (number * images))[y] if balanced else torch.ones(len(y))
    problem = _Regression(
        torch.cat([centred, centred.new_ones(len(y), 1)], dim=1),
        F.one_hot(labels).T.double(),
        weights.double(),
        penalty,
    )
    solution = _minimum(problem)
    weight = solution[:, :-1]
    return for_all_classes(present, weight, solution[:, -1] - weight @ mean)


class _Point(NamedTuple):
    """Where a search stands: weights (P, D + 1), scores (P, N) and gradient."""

    theta: Tensor
    scores: Tensor
    gradient: Tensor


@dataclass(frozen=True, eq=False)
class _Regression:
    """What is minimised; classes are rows everywhere, which makes the products fast.

    Args:
        inputs: (N, D + 1), the last column 1.
        wanted: (P, N), 1 for an image's own class.
        weights: (N,), what each image counts.
        penalty: λ.
    """

    inputs: Tensor
    wanted: Tensor
    weights: Tensor
    penalty: float

    def penalised(self, theta: Tensor) -> Tensor:
        """λ W, and 0 for the bias."""
        return F.pad(self.penalty * theta[:, :-1], (0, 1))

    def gradient(self, theta: Tensor, shares: Tensor) -> Tensor:
        """Of the whole sum."""
        return ((shares - self.wanted) * self.weights) @ self.inputs + self.penalised(theta)

    def search(self, at: _Point, step: Tensor) -> _Point:
        """A point along the step where the slope is a hundredth of the first, or flatter.

        The sum is convex: Newton's length is taken while it lies between those known to be too
        short and too long.
        """
        change = step @ self.inputs.T
        first = float((at.gradient * step).sum())
        pull = float((self.penalised(at.theta) * step).sum())
        stiffness = float((self.penalised(step) * step).sum())
        short, long, length = 0.0, math.inf, 1.0
        for _ in range(_LENGTHS):
            shares = (at.scores + length * change).softmax(dim=0)
            mean = (shares * change).sum(dim=0)
            slope = float((mean - (self.wanted * change).sum(dim=0)) @ self.weights)
            slope += pull + length * stiffness
            if abs(slope) <= _FLATTER * abs(first):
                break
            spread = (shares * change.square()).sum(dim=0) - mean.square()
            newton = length - slope / (float(spread @ self.weights) + stiffness)
            short, long = (length, long) if slope < 0 else (short, length)
            if short < newton < long:
                length = newton
            else:
                length = 2 * length if math.isinf(long) else (short + long) / 2
        theta = at.theta + length * step
        return _Point(theta, at.scores + length * change, self.gradient(theta, shares))


def _minimum(problem: _Regression) -> Tensor:
    """θ at which the largest slope is 1e-5 of the images' weight, by L-BFGS.

    torch.optim has one too; to load it takes longer than a whole fit.
    """
    scores = torch.zeros_like(problem.wanted)
    theta = problem.inputs.new_zeros(len(scores), problem.inputs.shape[1])
    point = _Point(theta, scores, problem.gradient(theta, scores.softmax(dim=0)))
    enough = _TOLERANCE * float(problem.weights.sum())
    history: list[tuple[Tensor, Tensor, float]] = []
    for _ in range(_ITERATIONS):
        if float(point.gradient.abs().max()) <= enough:
            return point.theta
        last, point = point, problem.search(point, _direction(point.gradient, history))
        moved, bend = point.theta - last.theta, point.gradient - last.gradient
        history = [*history[1 - _HISTORY :], (moved, bend, float((moved * bend).sum()))]
    raise MethodError(
        f"logistic found no minimum in {_ITERATIONS} steps with penalty={problem.penalty:g}. Use a "
        "larger penalty."
    )


def _direction(gradient: Tensor, history: list[tuple[Tensor, Tensor, float]]) -> Tensor:
    """-H⁻¹ gradient, H estimated from the last steps and the changes of the gradient with them."""
    step, parts = -gradient, []
    for moved, bend, product in reversed(history):
        parts.append(float((moved * step).sum()) / product)
        step = step - parts[-1] * bend
    if history:
        _, bend, product = history[-1]
        step = step * (product / float(bend.square().sum()))
    for (moved, bend, product), part in zip(history, reversed(parts), strict=True):
        step = step + (part - float((bend * step).sum()) / product) * moved
    return step
