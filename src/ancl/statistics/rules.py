"""From statistics to a classifier: the rules, their settings, and the choice between them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import MethodError
from ancl.statistics.choice import (
    Choice,
    choose,
    downhill,
    fallback_penalty,
    fit_temperature,
    held_loss,
    penalties_to_try,
)
from ancl.statistics.kept import logistic
from ancl.statistics.ledger import Statistics
from ancl.statistics.linear import (
    Linear,
    RidgePath,
    cosine_means,
    discriminant,
    nearest_mean,
    normal_equations,
    ridge,
    solved_ridge,
)
from ancl.statistics.sums import Grid, Sums
from ancl.types import Params

MOST_HELD = 2000
"""Choices look at this many held images at most: the first by their hashes, so as good as any."""
MOST_WORK = 3 * 10**9
"""Images times classes times features up to which a choice has logistic in it: a few seconds."""
_VARIANCE = 0.05
"""Measured with photos of 24 classes on EfficientNet-Lite0, three draws: from a hundred times less
to four times more, the loss of held images changed by 4 % at most."""
Penalty = float | Literal["auto"]


class FittedClassifier(NamedTuple):
    """A classifier that was computed.

    Args:
        tensors: What scores are computed from; see ``classifier_scores``.
        choice: What was chosen, if anything was.
    """

    tensors: Params
    choice: Choice | None = None


@dataclass(frozen=True, eq=False)
class FitData:
    """What classifiers are computed from: the same bits for the same images, however they came.

    Classes stand in an order that their images alone decide, so that rounding does not depend on
    the order in which they came.

    Args:
        known: The statistics.
        groups: The group of each class within which classes compete, where they do not all.
    """

    known: Statistics
    groups: Tensor | None = None

    @cached_property
    def order(self) -> Tensor:
        """The number of the class that stands at each place."""
        sums = self.known.learned_sums
        rows = [row.tobytes() for row in sums.totals.numpy()]
        return torch.tensor(sorted(range(len(rows)), key=rows.__getitem__), dtype=torch.long)

    @cached_property
    def places(self) -> Tensor:
        """The place of each class."""
        return torch.empty_like(self.order).index_copy_(
            0, self.order, torch.arange(len(self.order))
        )

    @cached_property
    def sums(self) -> Sums:
        """The sums of all images that are learned from."""
        return self.known.learned_sums.take(self.order)

    @property
    def images(self) -> int:
        """How many these are."""
        return int(self.sums.images.sum())

    @property
    def grid(self) -> Grid:
        """The grid on which they were summed."""
        return self.known.summed_grid

    @cached_property
    def learned(self) -> tuple[Tensor, Tensor]:
        """Features and classes of the images that are learned from.

        Raises:
            MethodError: Their sums alone are kept.
        """
        if self.known.keep == "sums":
            raise MethodError(
                "keep is sums, and this classifier needs the features of every image. Use "
                "keep=ledger, or ncm, slda or ridge."
            )
        images, lift = self.known.learned, self.known.lift
        rows = lift.rows(images.rows) if lift else images.rows  # exactly what is summed
        return self.grid.back(rows), self.places[images.y]

    @cached_property
    def held(self) -> tuple[Tensor, Tensor]:
        """Features and classes of images that nothing is learned from, for choices."""
        held, lift = self.known.held, self.known.lift
        images = held.take(torch.arange(min(MOST_HELD, len(held))))
        features = self.known.grid.back(images.rows)
        return lift.answer(features) if lift else features, self.places[images.y]

    def compared(self, scores: Tensor) -> Tensor:
        """Scores of held images, minus infinity for classes that do not compete with their own."""
        return self._masked(scores, self.held[1])

    def _masked(self, scores: Tensor, y: Tensor) -> Tensor:
        if self.groups is None:
            return scores
        groups = self.groups[self.order]
        return scores.masked_fill(groups[y].unsqueeze(1) != groups, -math.inf)

    def temperature(self, tensors: Params) -> float:
        """T that makes logits of a classifier's scores, by held images, or else by learned ones.

        Args:
            tensors: Of the classifier; see ``classifier_scores``.
        """
        features, y = self.held
        if not len(y) and self.known.keep == "sums":
            return 1.0
        if not len(y):
            features, y = (part[:MOST_HELD] for part in self.learned)
        scores = classifier_scores(features, tensors)[:, self.order]
        return fit_temperature(self._masked(scores, y), y)

    def right(self, scores: Tensor) -> int:
        """How many held images these scores answer right."""
        return int((self.compared(scores).argmax(dim=1) == self.held[1]).sum())

    def linear(self, found: Linear) -> Params:
        """A linear classifier with the classes in the order of their numbers."""
        return {
            "weight": found.weight[self.places].float(),
            "bias": found.bias[self.places].float(),
        }


class ClassifierRule(ABC):
    """How a classifier is computed; a frozen dataclass of its settings."""

    @abstractmethod
    def fit(self, data: FitData) -> FittedClassifier:
        """Compute it."""


@dataclass(frozen=True)
class MeanRule(ClassifierRule):
    """The class whose mean is nearest.  Equation: [ncm].

    Args:
        metric: Near by ``cosine``, or by distance (``euclid``).
        centre: Whether the mean of all images is subtracted before the cosine.
    """

    metric: Literal["cosine", "euclid"] = "cosine"
    centre: bool = True

    def fit(self, data: FitData) -> FittedClassifier:
        """Means, or their directions."""
        if self.metric == "euclid":
            return FittedClassifier(data.linear(nearest_mean(data.sums, data.grid)))
        classifier = cosine_means(data.sums, data.grid, self.centre)
        absent = torch.where(classifier.present, 0.0, -math.inf)
        tensors = data.linear(Linear(classifier.directions, absent))
        return FittedClassifier({**tensors, "centre": classifier.centre.float()})


@dataclass(frozen=True)
class DiscriminantRule(ClassifierRule):
    """Linear discriminant analysis with one covariance, shrunk.  Equation: [slda].

    Args:
        shrinkage: ε, the share of the mean of the covariance's diagonal, or ``oas``.
    """

    shrinkage: float | Literal["oas"] = 0.1

    def fit(self, data: FitData) -> FittedClassifier:
        """One Cholesky."""
        classifier = discriminant(data.sums, data.grid, self.shrinkage)
        return FittedClassifier(data.linear(classifier))


@dataclass(frozen=True)
class RidgeRule(ClassifierRule):
    """Least squares to 1 for the own class and 0 for others, penalised.  Equation: [ridge].

    Args:
        penalty: λ, or ``auto``: the one of powers of ten that held images favour.
        balanced: Whether every class counts as if it had equally many images.
    """

    penalty: Penalty = "auto"
    balanced: bool = True

    def fit(self, data: FitData) -> FittedClassifier:
        """The classifier of one penalty."""
        if self.penalty != "auto":
            classifier = ridge(data.sums, data.grid, self.penalty, self.balanced)
            return FittedClassifier(data.linear(classifier))
        if not len(data.held[1]):
            penalty = fallback_penalty(data.sums, data.grid, self.balanced)
            classifier = ridge(data.sums, data.grid, penalty, self.balanced)
            return FittedClassifier(data.linear(classifier), Choice(penalty=penalty))
        tried = penalties_to_try(data.sums, data.grid, self.balanced)
        solve = cache(self._solver(data))
        features, y = data.held

        @cache
        def loss(penalty: float) -> float:
            return held_loss(data.compared(solve(penalty).scores(features)), y)

        start = fallback_penalty(data.sums, data.grid, self.balanced)
        best = downhill(tried, loss, start)
        choice = Choice(penalty=best, held=len(y))
        return FittedClassifier(data.linear(solve(best)), choice)

    def _solver(self, data: FitData) -> Callable[[float], Linear]:
        """The classifier of a penalty; by the kernel of images where these are few."""
        few = data.images + data.sums.classes < len(data.sums.gram) // 2
        if few and data.known.keep == "ledger":
            return RidgePath.of_rows(*data.learned, data.sums.classes, self.balanced).linear
        equations = normal_equations(data.sums, data.grid, self.balanced)
        return partial(solved_ridge, *equations, data.sums.images > 0)


@dataclass(frozen=True)
class LogisticRule(ClassifierRule):
    """Multinomial logistic regression on the features of all images.  Equation: [logistic].

    Args:
        penalty: λ, or ``auto``: a twentieth of the variance of the features.
        balanced: Whether every class counts as if it had equally many images.
    """

    penalty: Penalty = "auto"
    balanced: bool = True

    def fit(self, data: FitData) -> FittedClassifier:
        """The minimum."""
        features, y = data.learned
        penalty = self._penalty(data) if self.penalty == "auto" else self.penalty
        classifier = logistic(features, y, data.sums.classes, penalty, self.balanced)
        choice = Choice(penalty=penalty) if self.penalty == "auto" else None
        return FittedClassifier(data.linear(classifier), choice)

    def _penalty(self, data: FitData) -> float:
        """A twentieth of the variance of the features; see ``_VARIANCE``."""
        features, _ = data.learned
        variance = float(features.double().var(dim=0, correction=0).sum())
        return _VARIANCE * variance or 1.0


@dataclass(frozen=True)
class NeighbourRule(ClassifierRule):
    """The images themselves, among which the nearest vote.  Equation: [knn]."""

    def fit(self, data: FitData) -> FittedClassifier:
        """All images that are learned from, by hash."""
        images, grid = data.known.learned, torch.tensor(data.known.grid.exponent)
        return FittedClassifier({"rows": images.rows, "labels": images.y, "grid": grid})


@dataclass(frozen=True)
class ChosenRule(ClassifierRule):
    """Of several classifiers the one that held images favour; the simplest of equal ones.

    Args:
        candidates: By name, the simplest first.
    """

    candidates: Mapping[str, ClassifierRule] = field(default_factory=dict)

    def fit(self, data: FitData) -> FittedClassifier:
        """Compute all that the kept statistics and a few seconds allow, and choose."""
        work = data.images * data.sums.classes * len(data.sums.gram)
        whole = data.known.keep == "ledger" and work <= MOST_WORK
        rules = {n: r for n, r in self.candidates.items() if whole or n != "logistic"}
        fitted = {name: rule.fit(data) for name, rule in rules.items()}
        features, y = data.held
        right = {
            name: data.right(classifier_scores(features, classifier.tensors)[:, data.order])
            for name, classifier in fitted.items()
        }
        best = choose(right, list(fitted))
        chosen = fitted[best].choice
        choice = Choice(best, chosen.penalty if chosen else None, len(y), right)
        return fitted[best]._replace(choice=choice)


def classifier_scores(features: Tensor, tensors: Params) -> Tensor:
    """Scores (N, C) of a linear classifier; with a ``centre``, of the direction from there.

    Args:
        features: (N, D).
        tensors: ``weight`` (C, D), ``bias`` (C,), and perhaps ``centre`` (D,).
    """
    if "centre" in tensors:
        features = F.normalize(features - tensors["centre"].to(features), dim=1)
    return F.linear(features, tensors["weight"].to(features), tensors["bias"].to(features))
