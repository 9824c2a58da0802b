"""Choices by held images: how warm scores are, which penalty, which classifier."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor
from torch.nn import functional as F

from ancl.statistics.linear import normal_equations
from ancl.statistics.sums import Grid, Sums


class Choice(NamedTuple):
    """What was chosen of a classifier, and by what.

    Args:
        method: Which of several it is; empty where there was one.
        penalty: Its penalty, where that was not given.
        held: By how many held images.
        right: How many of these each candidate answers right.
    """

    method: str = ""
    penalty: float | None = None
    held: Annotated[int, Ge(0)] = 0
    right: Mapping[str, int] = MappingProxyType({})

    def __str__(self) -> str:
        """One sentence."""
        parts = [self.method] if self.method else []
        parts += [f"penalty {self.penalty:g}"] if self.penalty is not None else []
        others = ", ".join(f"{name} {count}" for name, count in self.right.items())
        by = f"by {self.held} held images" if self.held else "without held images"
        return f"Chosen {by}: {', '.join(parts)}{f' (right: {others})' if others else ''}."

    def json(self) -> dict[str, Any]:
        """What is stored."""
        return {**self._asdict(), "right": dict(self.right)}


_SMALLEST, _LARGEST = 1e-4, 1e3
"""Penalties that are tried, relative to the mean of the diagonal of G."""

_COLDEST, _HOTTEST = 1e-3, 1e3
_HALVINGS = 60
_ROUGHLY = 25
"""Enough for six digits of a temperature that is only compared by."""
_SHARE = 0.1
_UNKNOWN = 0.25
"""Images of unknown class that a fit adds. More made probabilities too careful on test images."""


def fit_temperature(scores: Tensor, labels: Tensor, halvings: int = _HALVINGS) -> float:
    """T that minimises the cross-entropy of softmax(scores / T) to smoothed labels.

    A quarter of an image is added whose class is unknown, every class equally likely: without
    it, images that are all answered right would ask for a temperature of 0. The loss is convex in 1
    / T; its derivative is brought to 0 by halving.

    Args:
        scores: (N, C); minus infinity for classes that are not possible.
        labels: The position of each image's own class.
        halvings: Of the range of log T.
    """
    scores = scores.double()
    possible = scores.isfinite()
    known = torch.where(possible, scores, 0.0)
    unknown = _UNKNOWN / (len(labels) + _UNKNOWN)
    wanted = known.gather(1, labels.unsqueeze(1)).squeeze(1) * (1 - unknown)
    wanted = wanted + unknown * known.sum(dim=1) / possible.sum(dim=1)
    coldest, hottest = torch.tensor([_COLDEST, _HOTTEST], dtype=torch.double).log().tolist()
    for _ in range(halvings):
        middle = (coldest + hottest) / 2
        shares = (scores / torch.tensor(middle).double().exp()).softmax(dim=1)
        slope = ((shares * known).sum(dim=1) - wanted).mean()
        # The loss falls with 1 / T while the mean score is below the one wanted.
        if slope < 0:
            hottest = middle
        else:
            coldest = middle
    return float(torch.tensor((coldest + hottest) / 2).exp())


def held_loss(scores: Tensor, y: Tensor) -> float:
    """The mean cross-entropy of held images, at the temperature that suits them best.

    Scores of regressions are no logits: without the temperature this would compare their lengths.
    """
    temperature = fit_temperature(scores, y, _ROUGHLY)
    return float(F.cross_entropy(scores.double() / temperature, y))


def penalties_to_try(sums: Sums, grid: Grid, balanced: bool = True) -> list[float]:
    """Powers of ten around the mean of the diagonal of G, so that features of any length fit.

    All are large enough for a solution by Cholesky.
    """
    mean = float(normal_equations(sums, grid, balanced)[0].diagonal().mean())
    if mean <= 0:
        return [1.0]
    low, high = (math.log10(mean * factor) for factor in (_SMALLEST, _LARGEST))
    return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]


def fallback_penalty(sums: Sums, grid: Grid, balanced: bool = True) -> float:
    """A tenth of the mean of the diagonal of G, where no held image can choose."""
    return _SHARE * float(normal_equations(sums, grid, balanced)[0].diagonal().mean()) or 1.0


def choose_penalty(losses: Mapping[float, float]) -> float:
    """The penalty with the smallest held loss; of equal ones the largest.

    Measured with 16 classes of photos and a pretrained network, six draws of 5, 20 and 50 images a
    class: ``held_loss`` chose the same penalty in every draw. Accuracy wandered over three powers
    of ten with 5 held images a class, and squared error chose a tenth of the best one, at a price
    of up to 1.3 points.
    """
    return min(losses, key=lambda penalty: (losses[penalty], -penalty))


def downhill(penalties: Sequence[float], loss: Callable[[float], float], start: float) -> float:
    """The choice of ``choose_penalty`` without the loss of them all, where it has one minimum.

    Args:
        penalties: Ascending.
        loss: The held loss of one, which is asked again for those it was asked for.
        start: The nearest to it is the first.
    """
    place = min(range(len(penalties)), key=lambda at: abs(math.log(penalties[at] / start)))
    while True:
        near = penalties[max(0, place - 1) : place + 2]
        best = choose_penalty({penalty: loss(penalty) for penalty in near})
        if best == penalties[place]:
            return best
        place = penalties.index(best)


def choose(correct: Mapping[str, int], order: Sequence[str]) -> str:
    """The classifier that held images favour; a change needs more than one image.

    From the simplest on, each takes the place of the one chosen so far if it answers at least two
    more held images right.

    Args:
        correct: How many held images each answers right.
        order: All of them, the simplest first.

    Examples:
        >>> choose({"ncm": 80, "slda": 81, "ridge": 82}, ["ncm", "slda", "ridge"])
        'ridge'
        >>> choose({"ncm": 80, "slda": 82, "ridge": 83}, ["ncm", "slda", "ridge"])
        'slda'
    """
    best, *others = order
    for name in others:
        if correct[name] > correct[best] + 1:
            best = name
    return best
