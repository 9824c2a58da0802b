"""Class-incremental losses: NCA and margin ranking by hand, with their edges."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ancl import MethodError
from ancl.extend import Output, Step
from tests.lab import CosineHead, MarginRanking, Nca


def step(
    logits: Tensor,
    y: list[int],
    *tasks: slice,
    scale: float | Tensor | None = None,
    exemplars: list[bool] | None = None,
) -> Step:
    given = torch.tensor(scale) if isinstance(scale, float) else scale
    out = Output(logits, logits)
    known = tasks or (slice(0, logits.shape[1]),)
    marked = None if exemplars is None else torch.tensor(exemplars)
    return Step(logits, torch.tensor(y), out, {}, known, scale=given, exemplars=marked)


RIGHT = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64)
WRONG = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("scale", "right", "wrong"), [(1.0, 0.551445, 1.861995), (2.0, 0.239545, 2.758624)]
)
@pytest.mark.parametrize("margin", [0.0, 0.6, 5.0])
def test_the_official_margin_cancels(scale, right, wrong, margin) -> None:
    loss = Nca("official", margin)

    assert loss(step(scale * RIGHT, [0], scale=scale)).item() == pytest.approx(right, abs=1e-6)
    assert loss(step(scale * WRONG, [0], scale=scale)).item() == pytest.approx(wrong, abs=1e-6)


@pytest.mark.parametrize(
    ("scale", "right", "wrong"), [(1.0, 0.293147, 1.913262), (2.0, 0.0, 3.326928)]
)
def test_the_papers_form_has_a_margin_and_a_hinge(scale, right, wrong) -> None:
    loss = Nca("paper")

    # −η(y_c − .6) + log Σ_{i≠c} e^{η y_i}: −.4 + log 2; η = 2: −.8 + log 2 < 0
    assert loss(step(scale * RIGHT, [0], scale=scale)).item() == pytest.approx(right, abs=1e-6)
    assert loss(step(scale * WRONG, [0], scale=scale)).item() == pytest.approx(wrong, abs=1e-6)


def test_without_a_scale_the_margin_is_taken_as_it_is() -> None:
    assert Nca("paper")(step(RIGHT, [0])).item() == pytest.approx(0.293147, abs=1e-6)


def test_the_official_form_is_cross_entropy_where_images_are_classified_right() -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(6, 5, generator=draw, dtype=torch.float64, requires_grad=True)
    best = logits.argmax(1).tolist()
    others = [(label + 1) % 5 for label in best]

    found, expected = Nca()(step(logits, best)), F.cross_entropy(logits, torch.tensor(best))
    gradients = [torch.autograd.grad(loss, logits)[0] for loss in (found, expected)]

    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*gradients)
    wrong = step(logits, others)
    assert Nca()(wrong).item() > F.cross_entropy(logits, wrong.y).item()


def test_large_logits_stay_finite() -> None:
    logits = torch.tensor([[900.0, -900.0, 0.0]], requires_grad=True)

    loss = Nca()(step(logits, [1]))
    loss.backward()

    # M − s_y + log(1 + e^0 + e^−900)
    assert loss.item() == pytest.approx(1800 + 0.693147, abs=1e-3)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())


@pytest.mark.parametrize("form", ["official", "paper"])
def test_within_its_own_task_only_that_tasks_classes_compete(form) -> None:
    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(2, 5, generator=draw, dtype=torch.float64, requires_grad=True)
    tasks = (slice(0, 2), slice(2, 5))

    told = Nca(form, 9.0, "own_task")(step(logits, [1, 4], *tasks, exemplars=[True, False]))
    apart = Nca(form, 9.0)(step(logits[:1, :2], [1])), Nca(form, 9.0)(step(logits[1:, 2:], [2]))
    told.backward()

    torch.testing.assert_close(told, (apart[0] + apart[1]) / 2)
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())
    assert logits.grad[0, 2:].tolist() == [0, 0, 0]


# -- margin ranking ---------------------------------------------------------------------------

OLD, NEW = slice(0, 2), slice(2, 5)


def test_margin_ranking_by_hand() -> None:
    cosines = torch.tensor([[0.7, 0.9, 0.1, -0.3, 0.6]], dtype=torch.float64)

    # the two nearest new classes: .5 − .7 + .6 = .4, .5 − .7 + .1 < 0
    mean = MarginRanking()(step(10 * cosines, [0], OLD, NEW, scale=10.0))
    total = MarginRanking(reduction="sum")(step(cosines, [0], OLD, NEW, scale=1.0))
    # all three with m = 1.1: 1.0, .5, .1
    three = MarginRanking(1.1, 3)(step(cosines, [0], OLD, NEW, scale=1.0))

    assert mean.item() == pytest.approx(0.2)
    assert total.item() == pytest.approx(0.4)
    assert three.item() == pytest.approx(1.6 / 3)


def test_only_images_of_old_classes_count() -> None:
    cosines = torch.tensor([[0.7, 0.9, 0.1, -0.3, 0.6]], dtype=torch.float64).repeat(4, 1)

    # class 0: .2, class 1: (.5 − .9 + .6)/2 = .1; new images are no part of the mean
    value = MarginRanking()(step(cosines, [0, 3, 1, 4], OLD, NEW, scale=1.0))

    assert value.item() == pytest.approx(0.15)


@pytest.mark.parametrize("tasks", [(OLD, NEW), (slice(0, 5),), (slice(0, 5), slice(0, 5))])
def test_without_an_old_class_it_is_zero_with_a_gradient(tasks) -> None:
    logits = torch.randn(3, 5, requires_grad=True)

    value = MarginRanking()(step(logits, [2, 3, 4], *tasks, scale=1.0))
    value.backward()

    assert value.item() == 0
    assert logits.grad is not None
    assert logits.grad.abs().max().item() == 0


def test_fewer_new_classes_than_negatives_are_all_taken() -> None:
    cosines = torch.tensor([[0.7, 0.9, 0.6]], dtype=torch.float64)

    value = MarginRanking(negatives=4)(step(cosines, [0], OLD, slice(2, 3), scale=1.0))

    assert value.item() == pytest.approx(0.4)


def test_the_scale_takes_no_gradient_from_cosines() -> None:
    torch.manual_seed(0)
    head = CosineHead(4).double()
    head.grow(2)
    head.grow(3)
    with torch.no_grad():
        head.scale.fill_(7.0)
    features = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)

    loss = MarginRanking(2.0)(step(head(features), [0, 1, 2], OLD, NEW, scale=head.scale))
    loss.backward()

    assert loss.item() > 0
    assert head.scale.grad is not None
    assert head.scale.grad.item() == pytest.approx(0, abs=1e-12)
    assert features.grad is not None
    assert features.grad[:2].abs().min() > 0


def test_a_head_without_cosines_is_refused() -> None:
    with pytest.raises(MethodError, match="head='cosine'"):
        MarginRanking()(step(torch.zeros(1, 5), [0], OLD, NEW))
