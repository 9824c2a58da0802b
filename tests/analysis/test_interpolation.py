import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.lab import distillation_gradient, linear_error, linear_gradient, penalty_minimum


def draw(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()


def test_two_penalties_are_one_around_the_weighted_mean() -> None:
    old, auxiliary = {"w": draw(6, seed=0)}, {"w": draw(6, seed=1)}
    f_old, f_aux = {"w": draw(6, seed=2).abs()}, {"w": draw(6, seed=3).abs()}
    lamb, lamb_a = 3.0, 0.5

    mean, undecided = penalty_minimum(old, auxiliary, f_old, f_aux, lamb, lamb_a)

    def two(theta: Tensor) -> float:
        first = lamb * (f_old["w"] * (theta - old["w"]).square()).sum()
        return 0.5 * float(first + lamb_a * (f_aux["w"] * (theta - auxiliary["w"]).square()).sum())

    both = lamb * f_old["w"] + lamb_a * f_aux["w"]
    constants = [
        two(theta) - 0.5 * float((both * (theta - mean["w"]).square()).sum())
        for theta in (draw(6, seed=4), draw(6, seed=5), mean["w"])
    ]
    assert undecided == 0.0
    assert constants[0] == pytest.approx(constants[2], abs=1e-12)
    assert constants[1] == pytest.approx(constants[2], abs=1e-12)


def test_weights_of_no_importance_stay_at_the_old_network() -> None:
    old, auxiliary = {"w": torch.tensor([1.0, 1.0, 1.0])}, {"w": torch.tensor([2.0, 2.0, 2.0])}
    f_old, f_aux = {"w": torch.tensor([0.0, 0.0, 1.0])}, {"w": torch.tensor([0.0, 4.0, 1.0])}

    mean, undecided = penalty_minimum(old, auxiliary, f_old, f_aux, 1.0, 3.0)

    assert mean["w"].tolist() == [1.0, 2.0, 1.75]  # the last: (1 · 1 + 3 · 2) / 4
    assert undecided == pytest.approx(1 / 3)


def test_the_gradient_is_that_of_distillation() -> None:
    logits, target = draw(1, 5, seed=0).requires_grad_(), draw(1, 5, seed=1)

    F.cross_entropy(logits / 2.0, (target / 2.0).softmax(dim=1)).backward()

    assert logits.grad is not None
    assert torch.allclose(distillation_gradient(logits.detach(), target, 2.0), logits.grad)


def test_for_large_temperatures_the_logits_are_interpolated() -> None:
    logits, old, auxiliary = (draw(8, 5, seed=seed) for seed in (0, 1, 2))
    every = slice(0, 5)

    errors = [
        linear_error(logits, old, auxiliary, (2.0, 0.5), (every, every), temperature)
        for temperature in (1.0, 4.0, 16.0, 64.0)
    ]

    # The next term of the series is a factor 1/T smaller.
    assert errors[0] > errors[1] > errors[2] > errors[3]
    assert errors[2] / errors[3] == pytest.approx(4.0, rel=0.1)
    drawn = (2.0 * old + 0.5 * auxiliary) / 2.5
    pulls = 2.0 * linear_gradient(logits, old, 3.0) + 0.5 * linear_gradient(logits, auxiliary, 3.0)
    assert torch.allclose(pulls, 2.5 * linear_gradient(logits, drawn, 3.0))


def test_networks_that_speak_for_other_classes_do_not_meet() -> None:
    logits, old, auxiliary = (draw(8, 4, seed=seed) for seed in (0, 1, 2))
    own = slice(0, 2), slice(2, 4)

    error = linear_error(logits, old, auxiliary, (1.0, 0.0), own, 4.0)
    alone = linear_error(logits[:, :2], old[:, :2], old[:, :2], (1.0, 0.0), (own[0], own[0]), 4.0)

    assert error == pytest.approx(alone, abs=1e-12)
