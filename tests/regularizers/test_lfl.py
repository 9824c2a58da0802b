"""LFL: centring, length and reduction against a slow loop."""

import math

import pytest
import torch

from tests.lab import Lfl


def slow(ours: torch.Tensor, theirs: torch.Tensor, *, centre: bool, normalize: bool) -> float:
    """Σ over features, mean over the batch, one sample after the other."""

    def prepared(values: list[float]) -> list[float]:
        mean = sum(values) / len(values) if centre else 0.0
        values = [value - mean for value in values]
        length = math.sqrt(sum(value**2 for value in values)) if normalize else 1.0
        return [value / length for value in values]

    total = 0.0
    for f, g in zip(ours.tolist(), theirs.tolist(), strict=True):
        total += sum((a - b) ** 2 for a, b in zip(prepared(f), prepared(g), strict=True))
    return total / len(ours)


def test_by_hand(feature_penalty) -> None:
    # (3, 1) − 2 = (1, −1) → (1, −1)/√2; (0, 2) − 1 = (−1, 1) → (−1, 1)/√2; Σ (2/√2)² · 2 = 4
    ours, theirs = torch.tensor([[3.0, 1.0]]), torch.tensor([[0.0, 2.0]])

    assert feature_penalty(Lfl(reduction="sum"), ours, theirs).item() == pytest.approx(4.0)
    assert feature_penalty(Lfl(), ours, theirs).item() == pytest.approx(2.0)


@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_it_equals_the_slow_loop(feature_penalty, centre: bool, normalize: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    ours, theirs = torch.randn(2, 4, 64, generator=draw, dtype=torch.float64)
    expected = slow(ours, theirs, centre=centre, normalize=normalize)
    options = {"centre": centre, "normalize": normalize}

    total = feature_penalty(Lfl(**options, reduction="sum"), ours, theirs)
    assert total.item() == pytest.approx(expected)
    # The released code averages over the 64 features: λ = 400 there is 6.25 on the sum.
    mean = feature_penalty(Lfl(**options), ours, theirs)
    assert 400 * mean.item() == pytest.approx(6.25 * expected)


def test_two_anchors_of_one_layer_pull_to_the_point_between(feature_penalty) -> None:
    """The gradient is 2 (λ + λ_a)(f − (λ f_old + λ_a f_aux)/(λ + λ_a)) ∂f/∂W for f = W x."""
    draw = torch.Generator().manual_seed(1)
    x, w = torch.randn(1, 3, generator=draw), torch.randn(4, 3, generator=draw)
    old, auxiliary = torch.randn(2, 1, 4, generator=draw)
    w.requires_grad_()
    omega, lamb, lamb_a = Lfl(centre=False, normalize=False, reduction="sum"), 4.0, 1.5

    loss = lamb * feature_penalty(omega, x @ w.T, old)
    loss = loss + lamb_a * feature_penalty(omega, x @ w.T, auxiliary)
    (gradient,) = torch.autograd.grad(loss, w)

    between = (lamb * old + lamb_a * auxiliary) / (lamb + lamb_a)
    expected = 2 * (lamb + lamb_a) * ((x @ w.T).detach() - between).T @ x
    torch.testing.assert_close(gradient, expected)
