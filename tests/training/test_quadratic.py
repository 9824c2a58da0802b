"""Quadratic wells as one: values, gradients, the closed form of A-EWC, and implicit steps."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from ancl import Training
from ancl.extend import Anchor, CrossEntropy, Objective, PenaltyTerm, Step, architecture
from tests.lab import (
    Batches,
    Ewc,
    Fit,
    Params,
    Quadratic,
    QuadraticPenalty,
    Samples,
    View,
    Watcher,
    like,
)


def scalar(value: float) -> Params:
    return {"w": torch.tensor([value], dtype=torch.float64)}


def wells(lamb: float, lamb_a: float) -> list[QuadraticPenalty]:
    """F = 3 around 1 for the old network, F' = 2 around 4 for the auxiliary one."""
    old = QuadraticPenalty("old", lamb, scalar(3.0), scalar(1.0))
    return [old, QuadraticPenalty("auxiliary", lamb_a, scalar(2.0), scalar(4.0))]


def test_two_wells_by_hand() -> None:
    weight = scalar(2.0)["w"].requires_grad_()
    quadratic = Quadratic(wells(2.0, 1.0), {"w": weight})

    quadratic.add_gradient()
    values = {name: value.item() for name, value in quadratic.values().items()}

    # ½ · 2 · 3 (2 − 1)² = 3 and ½ · 1 · 2 (2 − 4)² = 4, together 7 = ½ · 8 (2 − 1.75)² + 6.75
    assert values == {"old": 3.0, "auxiliary": 4.0}
    assert sum(values.values()) == 0.5 * 8 * (2 - 1.75) ** 2 + 6.75
    assert weight.grad is not None
    assert weight.grad.item() == 6 * (2 - 1) + 2 * (2 - 4)
    assert quadratic.steepest() == 8.0


def test_the_gradient_is_added_to_what_is_there() -> None:
    weight = scalar(2.0)["w"].requires_grad_()
    weight.grad = torch.tensor([10.0], dtype=torch.float64)

    Quadratic(wells(2.0, 1.0), {"w": weight}).add_gradient()

    assert weight.grad.item() == 12.0


@pytest.mark.parametrize(("constant", "limit"), [(0.0, 2.0), (0.1, 2 - 0.1 / 0.3)])
def test_steps_of_a_ewc_follow_the_recursion(constant, limit) -> None:
    """With a = lr λF = .2 and b = lr λ_a F' = .1, from 1 between 1 and 4."""
    weight = scalar(1.0)["w"].requires_grad_()
    quadratic = Quadratic(wells(0.2 / 3, 0.1 / 2), {"w": weight})
    seen = []
    for _ in range(200):
        weight.grad = torch.full_like(weight, constant)
        quadratic.add_gradient()
        with torch.no_grad():
            weight -= weight.grad
        seen.append(weight.item())

    if not constant:
        assert seen[:3] == pytest.approx([1.3, 1.51, 1.657])
    assert seen[-1] == pytest.approx(limit)


@settings(deadline=None, max_examples=60)
@given(seed=st.integers(0, 2**31), lamb=st.floats(0.0, 1e4), lamb_a=st.floats(1e-3, 1e4))
def test_two_wells_are_one_around_an_interpolation(seed, lamb, lamb_a) -> None:
    """½ Σ G (θ − m)² + const, G = λF + λ_aF', m = (λF o + λ_aF' x) / G, per weight."""
    draw = torch.Generator().manual_seed(seed)
    theta, o, x = (torch.randn(3, 4, generator=draw, dtype=torch.float64) for _ in range(3))
    f, f_a = (torch.rand(3, 4, generator=draw, dtype=torch.float64) + 0.01 for _ in range(2))
    theta.requires_grad_()
    both = [
        QuadraticPenalty("old", lamb, {"w": f}, {"w": o}),
        QuadraticPenalty("auxiliary", lamb_a, {"w": f_a}, {"w": x}),
    ]
    quadratic = Quadratic(both, {"w": theta})

    g = lamb * f + lamb_a * f_a
    m = (lamb * f * o + lamb_a * f_a * x) / g
    constant = 0.5 * (lamb * f * lamb_a * f_a / g * (o - x) ** 2).sum()
    one = 0.5 * (g * (theta - m) ** 2).sum() + constant
    (expected,) = torch.autograd.grad(one, theta)
    quadratic.add_gradient()

    torch.testing.assert_close(sum(quadratic.values().values()), one.detach(), rtol=1e-9, atol=0)
    torch.testing.assert_close(theta.grad, expected, rtol=1e-8, atol=1e-8 * float(g.max()))


def test_a_second_well_of_weight_zero_leaves_the_gradient_bit_for_bit() -> None:
    torch.manual_seed(0)
    alone, both = (torch.randn(50).requires_grad_() for _ in range(2))
    both.data.copy_(alone.data)
    first = QuadraticPenalty("old", 3.3, {"w": torch.rand(50)}, {"w": torch.randn(50)})
    second = QuadraticPenalty("auxiliary", 0.0, {"w": torch.rand(50)}, {"w": torch.randn(50)})
    Quadratic([first], {"w": alone}).add_gradient()
    Quadratic([first, second], {"w": both}).add_gradient()

    assert alone.grad is not None
    assert both.grad is not None
    assert torch.equal(alone.grad, both.grad)


def test_a_copy_has_the_strides_of_its_parameter() -> None:
    parameter = torch.randn(8, 4, 3, 3).contiguous(memory_format=torch.channels_last)
    values = torch.randn(8, 4, 3, 3)

    copy = like(parameter, values)

    assert copy.stride() == parameter.stride() != values.stride()
    assert torch.equal(copy, values)


class Recorded(Watcher):
    """Keeps the task loss's gradients and the weights after every step."""

    def __init__(self) -> None:
        self.gradients: list[Params] = []
        self.weights: list[Params] = []

    def before(self, weights: Params) -> None:
        self.gradients.append({n: w.grad.clone() for n, w in weights.items()})

    def after(self, weights: Params) -> None:
        self.weights.append({n: w.detach().clone() for n, w in weights.items()})

    def state(self) -> Params:
        return {}

    def restore(self, state: Params) -> None:
        pass


class Cast(nn.Module):
    """Images in the precision of the network."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("like", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        return x.to(self.like.dtype)


def double_fit(training: Training, loss: object, watcher: Watcher | None, scale: float) -> Fit:
    """A convolutional network in double precision, held to itself and to another one."""
    torch.manual_seed(0)
    layers = [Cast(), nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3)]
    layers += [nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = architecture(nn.Sequential(*layers), (2, 6, 6)).build([3]).double()
    assert not net.backbone[4].weight.is_contiguous()
    pulls = []
    for name, lamb, far in (("old", 3.0, 0.0), ("auxiliary", 0.7, 0.1)):
        weights = {n: w.detach() + far * torch.randn_like(w) for n, w in net.weights().items()}
        curvature = {n: scale * torch.rand(w.shape).double() for n, w in weights.items()}
        anchor = Anchor(slice(0, 3), weights=weights, importance={"gradients": curvature})
        pulls.append(PenaltyTerm(name, lamb, Ewc(), anchor))
    x, y = torch.randn(9, 2, 6, 6), torch.arange(9) % 3
    batches = Batches(Samples(x, y), 9, None)
    view, path = View((slice(0, 3),), task_aware=True), (0, 1, "main")
    return Fit(net, Objective(loss, pulls), batches, None, view, training, path, watcher)


def test_training_on_a_real_network_follows_the_closed_form() -> None:
    """The iterates of A-EWC with plain SGD, from recorded gradients of the task loss."""
    lr, recorded = 0.05, Recorded()
    training = Training(
        epochs=8, lr=lr, momentum=0, weight_decay=0, batch_size=9, schedule="constant"
    )
    fit = double_fit(training, CrossEntropy(), recorded, scale=1.0)
    old, auxiliary = fit.objective.terms

    list(fit)

    for name, start in old.anchor.weights.items():
        a = lr * old.lamb * old.anchor.importance["gradients"][name]
        b = lr * auxiliary.lamb * auxiliary.anchor.importance["gradients"][name]
        keep, centre = 1 - a - b, a * start + b * auxiliary.anchor.weights[name]
        for k in range(1, 9):
            expected = keep**k * start
            for step in range(k):
                expected = expected + keep**step * centre
                expected = expected - keep ** (k - step - 1) * lr * recorded.gradients[step][name]
            torch.testing.assert_close(
                recorded.weights[k - 1][name], expected, rtol=1e-11, atol=1e-12
            )


def bowl(step: Step) -> Tensor:
    """A task loss with a known minimum: ½ Σ (θ − 1)² over the weights."""
    return torch.stack([0.5 * (w - 1).square().sum() for w in step.weights.values()]).sum()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize(
    ("penalty_step", "scale"), [("plain", 1.0), ("proximal", 1.0), ("proximal", 1e6)]
)
def test_implicit_steps_end_where_plain_ones_do(momentum, penalty_step, scale) -> None:
    training = Training(
        epochs=400,
        lr=0.1,
        momentum=momentum,
        weight_decay=0,
        batch_size=9,
        schedule="constant",
        penalty_step=penalty_step,
    )
    fit = double_fit(training, bowl, None, scale)
    old, auxiliary = fit.objective.terms

    list(fit)

    for name, weight in fit.weights.items():
        f = old.lamb * old.anchor.importance["gradients"][name]
        f_a = auxiliary.lamb * auxiliary.anchor.importance["gradients"][name]
        pulled = f * old.anchor.weights[name] + f_a * auxiliary.anchor.weights[name]
        minimum = (1 + pulled) / (1 + f + f_a)
        torch.testing.assert_close(weight.detach(), minimum, rtol=1e-6, atol=1e-6)


def test_a_proximal_step_by_hand() -> None:
    weight = scalar(2.0)["w"].requires_grad_()

    Quadratic(wells(2.0, 1.0), {"w": weight}).proximal(0.5)

    # min 3 (θ − 1)² + (θ − 4)² + (θ − 2)²: 6 (θ − 1) + 2 (θ − 4) + 2 (θ − 2) = 0, θ = 18/10
    assert weight.item() == pytest.approx(1.8)
