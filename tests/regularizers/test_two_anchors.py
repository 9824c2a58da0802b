"""λ Ω(old) + λ_a Ω(auxiliary) as one term: which Ω interpolate, in value and gradient.

Every identity is checked on random tensors in double precision; the two Ω that do not
interpolate are checked to behave as they do instead.
"""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from tests.lab import Dmc, Icarl, LessForget, Lfl, Lwf, Pod

Rule = Callable[..., Any]
SEED, LAMB = st.integers(0, 2**31), st.floats(0.01, 100)
PLAIN = Lfl(centre=False, normalize=False, reduction="sum")
SPATIAL = {"flat": 0.0}


def identity(test: Rule) -> Rule:
    """Run a test over random tensors and both λ."""
    return settings(deadline=None, max_examples=25)(given(seed=SEED, lamb=LAMB, lamb_a=LAMB)(test))


def drawn(seed: int, *shape: int, count: int = 3) -> list[Tensor]:
    """The student's, the old and the auxiliary network's tensors; the first takes gradients."""
    draw = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=draw, dtype=torch.float64) for _ in range(count)]
    tensors[0].requires_grad_()
    return tensors


def assert_same(two: Tensor, one: Tensor, student: Tensor) -> None:
    """Equal in value, and in the student's gradient."""
    torch.testing.assert_close(two, one, rtol=1e-8, atol=1e-9)
    gradients = [torch.autograd.grad(loss, student, retain_graph=True)[0] for loss in (two, one)]
    torch.testing.assert_close(*gradients, rtol=1e-7, atol=1e-10)


def prepared(features: Tensor) -> Tensor:
    return F.normalize(features - features.mean(1, keepdim=True), dim=1)


# -- squared distances of features ------------------------------------------------------------


@identity
def test_features_interpolate(feature_penalty, seed, lamb, lamb_a) -> None:
    f, old, auxiliary = drawn(seed, 3, 5)
    total = lamb + lamb_a
    between = (lamb * old + lamb_a * auxiliary) / total
    constant = lamb * lamb_a / total * (old - auxiliary).square().sum(1).mean()

    two = lamb * feature_penalty(PLAIN, f, old) + lamb_a * feature_penalty(PLAIN, f, auxiliary)

    assert_same(two, total * feature_penalty(PLAIN, f, between) + constant, f)


@identity
def test_prepared_features_interpolate_inside_the_sphere(
    feature_penalty, seed, lamb, lamb_a
) -> None:
    """Also as unit vectors: r ‖f − u‖² + 2 (Λ − r), with r and u an image's own."""
    f, old, auxiliary = drawn(seed, 3, 5)
    omega, total = Lfl(reduction="sum"), lamb + lamb_a

    two = lamb * feature_penalty(omega, f, old) + lamb_a * feature_penalty(omega, f, auxiliary)

    ours, o, x = prepared(f), prepared(old), prepared(auxiliary)
    between = (lamb * o + lamb_a * x) / total
    constant = lamb * lamb_a / total * (o - x).square().sum(1).mean()
    assert_same(two, total * feature_penalty(PLAIN, ours, between) + constant, f)
    v = lamb * o + lamb_a * x
    r = v.norm(dim=1, keepdim=True)
    unit = r.squeeze(1) * (ours - v / r).square().sum(1) + 2 * (total - r.squeeze(1))
    assert_same(two, unit.mean(), f)


def test_features_by_hand(feature_penalty) -> None:
    f, o, x = (torch.tensor([v], dtype=torch.float64) for v in ([0.6, 0.8], [1, 0], [0, 1]))
    two = 4 * feature_penalty(PLAIN, f, o) + feature_penalty(PLAIN, f, x)
    between = torch.tensor([[0.8, 0.2]]).double()

    assert two.item() == pytest.approx(3.6)
    assert 5 * feature_penalty(PLAIN, f, between).item() == pytest.approx(2.0)
    r = math.sqrt(17)  # |4 o + x|
    u = torch.tensor([[4 / r, 1 / r]], dtype=torch.float64)
    assert u[0].tolist() == pytest.approx([0.970143, 0.242536], abs=1e-6)
    assert r * feature_penalty(PLAIN, f, u).item() == pytest.approx(1.846211, abs=1e-6)
    assert 2 * (5 - r) == pytest.approx(1.753789, abs=1e-6)


@identity
def test_logit_regression_interpolates(logit_penalty, seed, lamb, lamb_a) -> None:
    z, old, auxiliary = drawn(seed, 3, 4)
    total = lamb + lamb_a
    o, x = (t - t.mean(1, keepdim=True) for t in (old, auxiliary))
    constant = lamb * lamb_a / total * (o - x).square().mean()

    two = lamb * logit_penalty(Dmc(), z, old) + lamb_a * logit_penalty(Dmc(), z, auxiliary)

    between = (lamb * old + lamb_a * auxiliary) / total
    assert_same(two, total * logit_penalty(Dmc(), z, between) + constant, z)


# -- soft answers -----------------------------------------------------------------------------


@identity
def test_sigmoids_mix_class_by_class_whatever_the_anchors_speak_for(
    logit_penalty, seed, lamb, lamb_a
) -> None:
    """Weight w = λ [c old] + λ_a [c auxiliary], target the weighted mean of both sigmoids."""
    z, old, auxiliary = drawn(seed, 3, 5)
    two = lamb * logit_penalty(Icarl(), z, old, classes=slice(0, 4))
    two = two + lamb_a * logit_penalty(Icarl(), z, auxiliary, classes=slice(2, 5))

    of_old = lamb * torch.tensor([1.0, 1, 1, 1, 0]).double()
    of_auxiliary = lamb_a * torch.tensor([0.0, 0, 1, 1, 1]).double()
    weight = of_old + of_auxiliary
    target = (of_old * old.sigmoid() + of_auxiliary * auxiliary.sigmoid()) / weight
    each = F.binary_cross_entropy_with_logits(z, target, reduction="none")
    assert_same(two, (weight * each).sum(1).mean(), z)


@identity
def test_softmaxes_over_other_classes_leave_a_residual(logit_penalty, seed, lamb, lamb_a) -> None:
    """−Λ Σ m log q + λ log Q_old: no interpolation, as Q_old moves with the student."""
    z, old, auxiliary = drawn(seed, 3, 5)
    earlier = slice(0, 3)
    two = lamb * logit_penalty(Lwf(1.0), z, old, classes=earlier)
    two = two + lamb_a * logit_penalty(Lwf(1.0), z, auxiliary)

    padded = F.pad(old[:, earlier].softmax(1), (0, 2))
    logs = z.log_softmax(1)
    mixture = -(lamb * padded + lamb_a * auxiliary.softmax(1)).mul(logs).sum(1).mean()
    residual = lamb * logs[:, earlier].logsumexp(1).mean()
    assert_same(two, mixture + residual, z)
    (moved,) = torch.autograd.grad(residual, z)
    assert moved.abs().max() > 0


def test_the_residual_by_hand(logit_penalty) -> None:
    z = torch.tensor([[1.0, 0.0, 2.0]], dtype=torch.float64)
    p, r = (torch.tensor([v], dtype=torch.float64) for v in ([0.8, 0.2], [0.1, 0.2, 0.7]))
    two = 3 * logit_penalty(Lwf(1.0), z, p.log(), classes=slice(0, 2))
    two = two + logit_penalty(Lwf(1.0), z, r.log())

    q = z.softmax(1)
    mixture = -(3 * F.pad(p, (0, 1)) + r).mul(q.log()).sum()
    assert q[0, :2].sum().item() == pytest.approx(0.334759, abs=1e-6)
    assert two.item() == pytest.approx(2.447391, abs=1e-6)
    assert (mixture + 3 * q[0, :2].sum().log()).item() == pytest.approx(2.447391, abs=1e-6)
    assert abs(mixture.item() - two.item()) > 3


@settings(deadline=None, max_examples=25)
@given(seed=SEED, temperature=st.floats(0.5, 10))
def test_the_gradient_of_distillation(logit_penalty, seed, temperature) -> None:
    """(y − y*)/τ for one image."""
    z, anchor = drawn(seed, 1, 5, count=2)

    (found,) = torch.autograd.grad(logit_penalty(Lwf(temperature), z, anchor), z)

    y, wanted = ((t / temperature).softmax(1).detach() for t in (z, anchor))
    torch.testing.assert_close(found, (y - wanted) / temperature)


def test_at_a_high_temperature_distillation_regresses_centred_logits(logit_penalty) -> None:
    """(o − o*) / (C τ²) for logits of mean zero."""
    z, anchor = (t - t.mean(1, keepdim=True) for t in drawn(0, 1, 4, count=2))

    (found,) = torch.autograd.grad(logit_penalty(Lwf(1e4), z, anchor), z)

    torch.testing.assert_close(found * 1e8, (z - anchor).detach() / 4, rtol=1e-3, atol=1e-4)


# -- directions -------------------------------------------------------------------------------


@identity
def test_directions_interpolate_on_the_sphere(feature_penalty, seed, lamb, lamb_a) -> None:
    """r (1 − ⟨f, u⟩) + Λ − r, image by image: teachers that disagree pull less."""
    f, old, auxiliary = drawn(seed, 3, 5)
    omega = LessForget()
    two = lamb * feature_penalty(omega, f, old) + lamb_a * feature_penalty(omega, f, auxiliary)

    v = lamb * F.normalize(old, dim=1) + lamb_a * F.normalize(auxiliary, dim=1)
    r = v.norm(dim=1)
    one = r * (1 - F.cosine_similarity(f, v, dim=1)) + lamb + lamb_a - r
    assert_same(two, one.mean(), f)
    assert bool((r <= lamb + lamb_a + 1e-9).all())


def test_directions_by_hand(feature_penalty) -> None:
    f, o, x = (torch.tensor([v], dtype=torch.float64) for v in ([1, 0], [1, 0], [0, 1]))
    two = 3 * feature_penalty(LessForget(), f, o) + 4 * feature_penalty(LessForget(), f, x)
    between = torch.tensor([[0.6, 0.8]]).double()  # (3, 4)/5, and a constant 7 − 5

    assert two.item() == pytest.approx(4.0)
    assert 5 * feature_penalty(LessForget(), f, between).item() + 2 == pytest.approx(4.0)


# -- maps -------------------------------------------------------------------------------------


@identity
def test_plain_maps_interpolate(map_penalty, seed, lamb, lamb_a) -> None:
    """The paper's form: pooling is linear, so the reference is the interpolated map's."""
    h, old, auxiliary = drawn(seed, 2, 3, 4, 4)
    omega, total = Pod(square=False, normalize="none", **SPATIAL), lamb + lamb_a
    between = (lamb * old + lamb_a * auxiliary) / total
    constant = lamb * lamb_a / total * map_penalty(omega, old, auxiliary)

    two = lamb * map_penalty(omega, h, old) + lamb_a * map_penalty(omega, h, auxiliary)

    assert_same(two, total * map_penalty(omega, h, between) + constant, h)


@pytest.mark.parametrize("normalize", ["none", "joint"])
def test_pooled_maps_interpolate(map_penalty, normalize) -> None:
    """Squared activations interpolate where they are compared, not as maps."""
    omega = Pod(normalize=normalize, **SPATIAL)

    @identity
    def check(seed: int, lamb: float, lamb_a: float) -> None:
        h, old, auxiliary = drawn(seed, 2, 3, 4, 4)
        total = lamb + lamb_a
        o, x = omega.pooled(old), omega.pooled(auxiliary)
        distance = (omega.pooled(h) - (lamb * o + lamb_a * x) / total).square().sum(1)
        constant = lamb * lamb_a / total * (o - x).square().sum(1)

        two = lamb * map_penalty(omega, h, old) + lamb_a * map_penalty(omega, h, auxiliary)

        assert_same(two, (total * distance + constant).mean(), h)

    check()


@settings(deadline=None, max_examples=25)
@given(seed=SEED, lamb=st.floats(1.1, 100))
def test_unsquared_maps_do_not_interpolate(map_penalty, seed, lamb) -> None:
    """The minimum stays at the old map as long as λ > λ_a: the auxiliary only weakens its pull."""
    h, old, auxiliary = drawn(seed, 1, 2, 3, 3)
    omega = Pod("l2", square=False, normalize="none", **SPATIAL)

    def loss(stage: Tensor) -> float:
        two = lamb * map_penalty(omega, stage, old) + map_penalty(omega, stage, auxiliary)
        return float(two)

    at_old = loss(old)
    assert at_old == pytest.approx(map_penalty(omega, old, auxiliary).item())
    for stage in (h.detach(), auxiliary, (lamb * old + auxiliary) / (lamb + 1)):
        assert loss(stage) > at_old
    # With squares the old map is no minimum: a step towards the auxiliary one lowers the loss.
    squares = Pod(square=False, normalize="none", **SPATIAL)
    near = old + 1e-3 / lamb * (auxiliary - old)
    lower = lamb * map_penalty(squares, near, old) + map_penalty(squares, near, auxiliary)
    assert lower < map_penalty(squares, old, auxiliary)


def test_unsquared_maps_by_hand(map_penalty) -> None:
    """Pooled, o = (0, ...) and x of length √3: with λ = 2, λ_a = 1 the minimum is √3 at o."""
    omega = Pod("l2", square=False, normalize="none", **SPATIAL)
    o, direction = torch.zeros(1, 3, 1, 1).double(), torch.full((1, 3, 1, 1), 0.5**0.5).double()

    losses = [
        2 * map_penalty(omega, k * direction, o) + map_penalty(omega, k * direction, direction)
        for k in (-0.5, 0.0, 1 / 3, 1.0)
    ]

    # along the segment 2k√3 + (1 − k)√3
    expected = [3**0.5 * k for k in (2.5, 1.0, 4 / 3, 2.0)]
    assert [float(loss) for loss in losses] == pytest.approx(expected)
