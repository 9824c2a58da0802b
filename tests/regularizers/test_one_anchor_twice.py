"""The same network as old and auxiliary anchor: λ add up, and λ_a = 0 changes no bit."""

import pytest
import torch
from torch import Tensor

from ancl.extend import Anchor, CrossEntropy, Objective, Output, PenaltyTerm, Regularizer, Step
from tests.lab import Dmc, Eeil, Icarl, LessForget, Lfl, Lwf, Pod, RWalk

ANSWERS = [
    Dmc(),
    Eeil(),
    Icarl(),
    Icarl("softmax"),
    LessForget(),
    Lfl(),
    Lwf(),
    Pod(),
    Pod("l2"),
    Pod(square=False, normalize="none", flat_form="l2"),
    RWalk(),
]


def batch(weight: Tensor) -> tuple[Step, Anchor]:
    """A step whose every output depends on one weight, and an anchor for all of them."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(4, 6, generator=draw, dtype=torch.float64)

    def forward(w: Tensor) -> Output:
        hidden = torch.tanh(x @ w)
        return Output(hidden[:, :4], hidden, (hidden.reshape(4, 2, 2, 2),))

    other = torch.randn(6, 8, generator=draw, dtype=torch.float64)
    importance = {name: {"w": other.square()} for name in ("gradients", "scores")}
    anchor = Anchor(slice(0, 4), lambda x, maps: forward(other), {"w": other}, importance)
    step = Step(x, torch.arange(4), forward(weight), {"w": weight}, (slice(0, 2), slice(2, 4)))
    return step, anchor


def loss_of(omega: Regularizer, *lambs: float) -> tuple[Tensor, Tensor]:
    """The whole loss with one pull for every λ, all to the same anchor, and its gradient."""
    weight = torch.full((6, 8), 0.1, dtype=torch.float64, requires_grad=True)
    step, anchor = batch(weight)
    names = ("old", "auxiliary")
    pulls = [
        PenaltyTerm(name, lamb, omega, anchor) for name, lamb in zip(names, lambs, strict=False)
    ]
    total = sum(Objective(CrossEntropy(), pulls)(step).values(), torch.zeros(()).double())
    return total, torch.autograd.grad(total, weight)[0]


@pytest.mark.parametrize("omega", ANSWERS, ids=repr)
def test_an_auxiliary_network_like_the_old_one_adds_to_its_weight(omega) -> None:
    two, two_gradient = loss_of(omega, 3.0, 0.5)
    one, one_gradient = loss_of(omega, 3.5)

    torch.testing.assert_close(two, one)
    torch.testing.assert_close(two_gradient, one_gradient)
    assert (one_gradient - loss_of(omega, 3.0)[1]).abs().max() > 0


@pytest.mark.parametrize("omega", ANSWERS, ids=repr)
def test_an_auxiliary_weight_of_zero_changes_no_bit(omega) -> None:
    with_zero, without = loss_of(omega, 3.0, 0.0), loss_of(omega, 3.0)

    assert all(torch.equal(a, b) for a, b in zip(with_zero, without, strict=True))
