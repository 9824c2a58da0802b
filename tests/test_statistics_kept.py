"""Neighbours, logistic regression and choices by held images, against numbers worked out apart."""

import math
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from ancl import MethodError
from tests.lab import (
    Grid,
    Sums,
    choose,
    choose_penalty,
    held_loss,
    knn_scores,
    logistic,
    patch_part,
    penalties_to_try,
)

WHOLE = Grid(0)
POINTS = [[0, 0], [2, 0], [0, 2], [2, 2], [4, 0], [6, 2], [0, 5], [1, 7], [2, 6]]
X = torch.tensor(POINTS, dtype=torch.int16)
Y = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
SUMS = Sums.of(X, Y, 3)


def double(values: list[list[float]]) -> Tensor:
    return torch.tensor(values, dtype=torch.double)


# Classifiers that keep features


def test_neighbours_vote_by_cosine() -> None:
    query = torch.tensor([[1.0, 0.0]]).double()
    angles = torch.tensor([0.0, 0.1, 0.2, 0.3])
    features = 3 * torch.stack([angles.cos(), angles.sin()], dim=1).double()

    scores = knn_scores(query, features, torch.tensor([0, 2, 2, 3]), 5, k=3)

    votes = [math.exp(math.cos(angle) / 0.07) for angle in (0, 0.1, 0.2)]
    shares = [votes[0] / sum(votes), (votes[1] + votes[2]) / sum(votes)]
    wanted = [math.log(share + 1 / 3) for share in (shares[0], shares[1], 0.0)]
    assert scores[0, [0, 2, 3]].tolist() == pytest.approx(wanted, rel=1e-6)
    assert scores[0, [1, 4]].tolist() == [-math.inf, -math.inf]
    everyone = knn_scores(query, features, torch.tensor([0, 2, 2, 3]), 5, k=20)
    assert everyone[0].argmax() == 2


def test_neighbours_are_the_same_in_one_chunk_or_many() -> None:
    generator = torch.Generator().manual_seed(0)
    query, kept = (torch.randn(n, 8, generator=generator).double() for n in (2500, 60))
    y = torch.arange(60) % 4

    at_once = knn_scores(query, kept, y, 4)

    parts = torch.cat([knn_scores(part, kept, y, 4) for part in query.split(700)])
    assert torch.allclose(at_once, parts, atol=1e-12)


@pytest.mark.parametrize(
    ("balanced", "weight", "bias"),
    [
        (
            False,
            [[-0.6724229, -0.5532018], [1.0168192, -0.4727984], [-0.3443963, 1.0260002]],
            [3.8328204, -1.6594508, -2.1733696],
        ),
        (
            True,
            [[-0.6934944, -0.5235193], [1.0368591, -0.4709439], [-0.3433647, 0.9944632]],
            [3.6056497, -1.5722029, -2.0334468],
        ),
    ],
)
def test_logistic_regression_is_that_of_scikit_learn(
    balanced: bool, weight: list[list[float]], bias: list[float]
) -> None:
    """Version 1.9.1, ``C=2.0, tol=1e-12``, and ``class_weight="balanced"`` in the second case."""
    linear = logistic(X, Y, 3, 0.5, balanced)

    assert torch.allclose(linear.weight, double(weight), atol=2e-4)
    assert torch.allclose(linear.bias - linear.bias.mean(), double([bias])[0], atol=1e-3)


def test_logistic_regression_needs_a_penalty_and_says_when_it_finds_no_minimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(MethodError, match="needs a number above 0"):
        logistic(X, Y, 3, 0.0)
    patch_part(monkeypatch, "LOGISTIC_STEPS", 2)
    with pytest.raises(MethodError, match=r"in 2 steps with penalty=0\.5\. Use a larger"):
        logistic(X, Y, 3, 0.5)


# Choices


def test_a_change_of_the_classifier_needs_more_than_one_image() -> None:
    order = ["ncm", "slda", "ridge"]

    assert choose({"ncm": 10, "slda": 11, "ridge": 11}, order) == "ncm"
    assert choose({"ncm": 10, "slda": 12, "ridge": 13}, order) == "slda"
    assert choose({"ncm": 10, "slda": 11, "ridge": 12}, order) == "ridge"
    assert choose({"ncm": 10}, ["ncm"]) == "ncm"


def test_the_penalty_with_the_smallest_held_loss_and_of_equal_ones_the_largest() -> None:
    assert choose_penalty({1.0: 0.5, 10.0: 0.4, 100.0: 0.4, 1e3: 0.6}) == 100.0


def test_the_held_loss_does_not_depend_on_the_length_of_scores() -> None:
    scores, y = torch.randn(40, 3, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 3
    scores[torch.arange(40), y] += 1.0

    losses = [held_loss(scores * factor, y) for factor in (0.1, 1.0, 10.0)]

    assert losses == pytest.approx(3 * losses[:1], rel=1e-6)
    assert losses[0] <= float(torch.nn.functional.cross_entropy(scores, y))


def test_penalties_are_powers_of_ten_around_the_products() -> None:
    # The mean of the diagonal of G_b is (89 + 122) / 2 = 105.5: from 0.01055 to 105500
    assert penalties_to_try(SUMS, WHOLE) == pytest.approx([0.1, 1, 10, 100, 1e3, 1e4, 1e5])
    larger = penalties_to_try(SUMS, Grid(-10))
    assert all(b == pytest.approx(10 * a) for a, b in pairwise(larger))
    assert larger[0] == pytest.approx(1e5)  # 2^20 times as much: from 11062
    assert penalties_to_try(Sums.of(0 * X, Y, 3), WHOLE) == [1.0]
