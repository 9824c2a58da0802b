"""The outer step: what it moves, what it leaves, what it is computed from, and how it goes on."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ancl import Training
from ancl.extend import CrossEntropy, Network, Objective, architecture
from tests.lab import (
    Batches,
    Branches,
    Fit,
    Outer,
    OuterStep,
    Samples,
    Saved,
    TrainingError,
    TwoBranches,
    View,
    generator,
    seeded,
)

OUTER = Outer(("backbone.alpha",), 0.5, momentum=0.9, bounds=(0.0, 1.0))
PATH = (3, 1, "main")


def network() -> Network:
    made = architecture("resnet8", (1, 6, 6), width=2, growth=TwoBranches())
    with seeded(0, "network"):
        found = made.build((2, 2))
        for name, value in found.backbone.state_dict().items():
            if name.endswith(("weight", "scale")):  # otherwise α has no gradient
                value.add_(0.3 * torch.randn(value.shape))
    return found


def alpha(net: Network) -> Tensor:
    assert isinstance(net.backbone, Branches)
    assert net.backbone.alpha is not None
    return net.backbone.alpha


def batches(count: int = 24, seed: int = 0) -> Batches:
    with seeded(seed, "batches"):
        return Batches(Samples(torch.randn(count, 1, 6, 6), torch.arange(count) % 4), 8, None)


def test_it_moves_its_own_parameters_alone_and_learns_nothing_of_the_images() -> None:
    net = network()
    before = net.tensors()
    step = OuterStep(OUTER, net, batches(), PATH)

    found = step(0)
    after = net.tensors()

    assert [n for n, t in after.items() if not torch.equal(t, before[n])] == ["backbone.alpha"]
    assert list(found.values()) == alpha(net).tolist()
    assert list(found) == ["alpha_1", "alpha_2", "alpha_3"]
    assert not alpha(net).requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())


def test_its_first_gradient_is_that_of_its_first_batch_alone() -> None:
    """The code of AANets' authors adds up all gradients since the run began."""
    net = network()
    # Gradients that other steps left behind must not count.
    for parameter in net.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    one = batches(8)
    fresh = alpha(net).detach().clone().requires_grad_(True)
    batch = next(one.shuffled(generator(*PATH, "outer", 0)))
    alpha(net).requires_grad_(True)
    loss = F.cross_entropy(net.eval()(batch.x).logits, batch.y)
    (wanted,) = torch.autograd.grad(loss, [alpha(net)])
    alpha(net).requires_grad_(False)

    OuterStep(replace(OUTER, bounds=(-9.0, 9.0)), net, one, PATH)(0)

    assert torch.equal(alpha(net), fresh - 0.5 * wanted)
    assert wanted.abs().min() > 0


def test_values_are_held_within_their_bounds() -> None:
    net = network()
    step = OuterStep(replace(OUTER, lr=1e4), net, batches(), PATH)

    found = [step(epoch) for epoch in range(3)]

    assert all(value in (0.0, 1.0) for each in found for value in each.values())


def test_what_is_not_finite_is_said() -> None:
    net = network()
    with torch.no_grad():
        net.head.weights[0].fill_(math.nan)

    with pytest.raises(TrainingError, match=r"outer step of task 2 .*alpha_1.*Lower its rate"):
        OuterStep(OUTER, net, batches(), PATH)(0)


def fit(epochs: int = 4, outer: Outer | None = OUTER) -> Fit:
    net, training = network(), Training(epochs=epochs, lr=0.05, lr_first=None, schedule="constant")
    view = View((slice(0, 2), slice(2, 4)), task_aware=False)
    found = Fit(net, Objective(CrossEntropy("seen")), batches(seed=5), None, view, training, PATH)
    found.outer = outer and OuterStep(outer, net, batches(), PATH)
    return found


def test_a_training_leaves_the_parameters_of_its_outer_step_alone() -> None:
    alone, both = fit(1, None), fit(1)
    start = alpha(alone.network).clone()

    logs = next(alone), next(both)

    assert torch.equal(alpha(alone.network), start)
    assert not torch.equal(alpha(both.network), start)
    own, other = alone.network.tensors(), both.network.tensors()
    assert [n for n in own if not torch.equal(own[n], other[n])] == ["backbone.alpha"]
    assert logs[0].lambs == {}
    assert list(logs[1].lambs.values()) == alpha(both.network).tolist()
    assert both.trainable_parameters == alone.trainable_parameters + 3


def test_a_training_goes_on_with_the_momentum_of_its_outer_step() -> None:
    whole, first, second = fit(), fit(), fit()
    whole_log = list(whole)
    for _ in range(2):
        next(first)
    saved = first.state()
    second.restore(Saved({n: t.clone() for n, t in saved.tensors.items()}, saved.meta))

    rest = list(second)

    assert "outer/backbone.alpha/momentum_buffer" in saved.tensors
    assert [e.train for e in rest] == [e.train for e in whole_log[2:]]
    own, other = whole.network.tensors(), second.network.tensors()
    assert all(torch.equal(own[name], other[name]) for name in own)


def test_an_interrupt_between_both_levels_loses_nothing() -> None:
    whole, stopped, again = fit(), fit(), fit()
    list(whole)
    next(stopped)
    saved = stopped.state()
    assert stopped.outer is not None

    def interrupt(epoch: int) -> dict[str, float]:
        raise KeyboardInterrupt

    stopped.outer = interrupt
    with pytest.raises(KeyboardInterrupt):
        next(stopped)
    again.restore(saved)
    list(again)

    own, other = whole.network.tensors(), again.network.tensors()
    assert all(torch.equal(own[name], other[name]) for name in own)
