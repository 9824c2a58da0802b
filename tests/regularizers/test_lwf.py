"""Learning without Forgetting against hand-computed values, a slow loop and its identities."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ancl.extend import Anchor, Output, Step
from tests.lab import Lwf


def make_step(logits: Tensor) -> Step:
    out = Output(logits, torch.zeros(len(logits), 1))
    x, y = torch.zeros(len(logits), 1), torch.zeros(len(logits), dtype=torch.long)
    return Step(x, y, out, {}, (slice(0, logits.shape[1]),))


def make_anchor(logits: Tensor, classes: slice) -> Anchor:
    return Anchor(classes, forward=lambda x, maps: Output(logits, torch.zeros(len(x), 1)))


def test_the_value_and_gradient_by_hand() -> None:
    student = torch.tensor([[1.0, 0.0]], dtype=torch.float64, requires_grad=True)
    teacher = torch.tensor([[2.0, 0.0]], dtype=torch.float64)

    penalty = Lwf(2.0).penalty(make_step(student), make_anchor(teacher, slice(0, 2)))
    penalty.backward()

    # softmax(2/2, 0) = (.731059, .268941); softmax(1/2, 0) = (.622459, .377541);
    # −.731059 ln .622459 − .268941 ln .377541 = .608548; gradient (q − p) / T
    assert penalty.item() == pytest.approx(0.608548, abs=1e-6)
    assert student.grad is not None
    assert student.grad[0].tolist() == pytest.approx([-0.0543, 0.0543], abs=1e-6)


def test_tempering_is_the_power_of_the_softmax() -> None:
    """Softmax, power 1/T, normalised: the released form is the same number."""
    powers = [p**0.5 for p in torch.tensor([2.0, 0.0]).softmax(0).tolist()]

    assert [p / sum(powers) for p in powers] == pytest.approx([0.731059, 0.268941], abs=1e-6)


def slow_penalty(student: Tensor, teacher: Tensor, classes: slice, temperature: float) -> float:
    """The formula with loops over samples and classes."""
    total = 0.0
    for z, t in zip(student.tolist(), teacher.tolist(), strict=True):
        z, t = z[classes], t[classes]
        p = [math.exp(v / temperature) for v in t]
        q = [math.exp(v / temperature) for v in z]
        for pc, qc in zip(p, q, strict=True):
            total -= pc / sum(p) * math.log(qc / sum(q))
    return total / len(student)


@pytest.mark.parametrize("temperature", [1.0, 2.0, 3.5])
@pytest.mark.parametrize("classes", [slice(0, 4), slice(4, 7), slice(0, 7)])
def test_it_equals_the_slow_loop_over_the_anchors_classes(temperature, classes) -> None:
    draw = torch.Generator().manual_seed(0)
    student = torch.randn(5, 7, generator=draw, dtype=torch.float64)
    teacher = torch.randn(5, 7, generator=draw, dtype=torch.float64)

    value = Lwf(temperature).penalty(make_step(student), make_anchor(teacher, classes))

    assert value.item() == pytest.approx(slow_penalty(student, teacher, classes, temperature))


def test_only_the_anchors_classes_get_a_gradient() -> None:
    student = torch.randn(3, 5, requires_grad=True)

    Lwf().penalty(make_step(student), make_anchor(torch.randn(3, 5), slice(0, 3))).backward()

    assert student.grad is not None
    assert bool((student.grad[:, :3] != 0).all())
    assert bool((student.grad[:, 3:] == 0).all())


def test_two_anchors_by_hand_are_one_mixture_of_answers() -> None:
    q = torch.tensor([[0.6, 0.4]], dtype=torch.float64)
    p, r = torch.tensor([[0.8, 0.2]]).double(), torch.tensor([[0.3, 0.7]]).double()
    step, omega, both = make_step(q.log()), Lwf(1.0), slice(0, 2)

    two = 3 * omega.penalty(step, make_anchor(p.log(), both))
    two = two + omega.penalty(step, make_anchor(r.log(), both))
    mixture = torch.tensor([[0.675, 0.325]]).double()  # (3 · .8 + .3)/4, (3 · .2 + .7)/4

    assert two.item() == pytest.approx(2.570407, abs=1e-6)
    one = 4 * omega.penalty(step, make_anchor(mixture.log(), both))
    assert one.item() == pytest.approx(two.item())
    # Interpolated logits are another answer: the normalised geometric mean.
    logits = (3 * p.log() + r.log()) / 4
    assert logits.softmax(1)[0].tolist() == pytest.approx([0.695910, 0.304090], abs=1e-6)


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 2**31),
    lamb=st.floats(0.01, 100),
    lamb_a=st.floats(0.01, 100),
    temperature=st.floats(0.5, 5),
)
def test_two_anchors_are_one_mixture(seed, lamb, lamb_a, temperature) -> None:
    """λ CE(p, q) + λ_a CE(r, q) = (λ + λ_a) CE(m, q), in value and gradient."""
    draw = torch.Generator().manual_seed(seed)
    z, p, r = (torch.randn(4, 6, generator=draw, dtype=torch.float64) for _ in range(3))
    z.requires_grad_()
    omega, classes = Lwf(temperature), slice(0, 6)

    two = lamb * omega.penalty(make_step(z), make_anchor(p, classes))
    two = two + lamb_a * omega.penalty(make_step(z), make_anchor(r, classes))
    (gradient,) = torch.autograd.grad(two, z)
    soft = [(t / temperature).softmax(1) for t in (p, r)]
    mixture = (lamb * soft[0] + lamb_a * soft[1]) / (lamb + lamb_a)
    reference = make_anchor(temperature * mixture.log(), classes)
    one = (lamb + lamb_a) * omega.penalty(make_step(z), reference)
    (expected,) = torch.autograd.grad(one, z)

    torch.testing.assert_close(two, one, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gradient, expected, rtol=1e-8, atol=1e-10)


def test_an_anchor_is_asked_once_a_batch() -> None:
    calls = []

    def forward(x: Tensor, maps: bool) -> Output:
        calls.append(maps)
        return Output(torch.zeros(2, 3), x)

    anchor, step = Anchor(slice(0, 3), forward=forward), make_step(torch.zeros(2, 3))
    Lwf().penalty(step, anchor)
    Lwf(1.0).penalty(step, anchor)

    assert calls == [False]


def test_answers_belong_to_the_anchor_and_not_to_its_place_in_memory() -> None:
    step, values = make_step(torch.zeros(1, 2)), []
    for logit in (0.0, 5.0, 10.0):
        anchor = make_anchor(torch.tensor([[logit, 0.0]]), slice(0, 2))
        values.append(step.of(anchor).logits[0, 0].item())
        del anchor

    assert values == [0.0, 5.0, 10.0]


def test_smoothing_mixes_the_students_answer_with_a_uniform_one() -> None:
    student, teacher = torch.tensor([[100.0, 0.0]]).double(), torch.tensor([[0.0, 0.0]]).double()
    epsilon = 1e-5

    smooth = Lwf(2.0, epsilon).penalty(make_step(student), make_anchor(teacher, slice(0, 2)))

    # softmax(50, 0) = (1, 2e-22): −½ ln((1 + ε/2)/(1 + ε)) − ½ ln((ε/2)/(1 + ε))
    expected = -0.5 * math.log((1 + epsilon / 2) / (1 + epsilon))
    expected -= 0.5 * math.log(epsilon / 2 / (1 + epsilon))
    assert smooth.item() == pytest.approx(expected, rel=1e-9)
    plain = Lwf(2.0).penalty(make_step(student), make_anchor(teacher, slice(0, 2)))
    assert plain.item() == pytest.approx(25.0)
