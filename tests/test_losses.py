"""Cross-entropy over the classes a sample competes with, against hand values and a loop."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl.extend import CrossEntropy, Output, Step
from tests.lab import OneHot, own_task_logits

TASKS = (slice(0, 2), slice(2, 5))


def make_step(
    logits: Tensor, y: list[int], *, exemplars: list[bool] | None = None, **options: Any
) -> Step:
    mask = None if exemplars is None else torch.tensor(exemplars)
    out = Output(logits, torch.zeros(len(y), 1))
    return Step(logits, torch.tensor(y), out, {}, TASKS, exemplars=mask, **options)


def slow(logits: Tensor, y: list[int], competing: list[list[int]]) -> float:
    total = 0.0
    for row, label, classes in zip(logits.tolist(), y, competing, strict=True):
        total -= math.log(math.exp(row[label]) / sum(math.exp(row[c]) for c in classes))
    return total / len(y)


def test_the_value_and_gradient_by_hand() -> None:
    logits = torch.tensor([[9.0, 9.0, math.log(3.0), 0.0, 0.0]], requires_grad=True)

    loss = CrossEntropy()(make_step(logits, [2], rehearses=False))
    loss.backward()

    # Among (3, 1, 1)/5 the first: −ln .6; gradient (.6 − 1, .2, .2), nothing for other tasks
    assert loss.item() == pytest.approx(-math.log(0.6))
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx([0.0, 0.0, -0.4, 0.2, 0.2], abs=1e-6)


@pytest.mark.parametrize("rehearses", [True, False])
@pytest.mark.parametrize("over", ["auto", "own_task", "seen"])
@pytest.mark.parametrize("mixed", [True, False])
def test_it_equals_the_slow_loop(rehearses, over, mixed) -> None:
    logits = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    y = [2, 0, 4, 1, 3, 0] if mixed else [2, 2, 4, 3, 3, 4]
    exemplars = [label < 2 for label in y] if mixed else None
    step = make_step(logits, y, rehearses=rehearses, exemplars=exemplars)
    own = over == "own_task" or (over == "auto" and not rehearses)
    tasks = [[0, 1] if label < 2 else [2, 3, 4] for label in y]

    value = CrossEntropy(over)(step).item()

    expected = slow(logits, y, tasks if own else [list(range(5))] * 6)
    assert value == pytest.approx(expected, rel=1e-5)


def test_an_exemplar_gives_other_tasks_no_gradient() -> None:
    logits = torch.randn(2, 5, requires_grad=True)
    step = make_step(logits, [0, 4], exemplars=[True, False])

    CrossEntropy("own_task")(step).backward()

    assert logits.grad is not None
    assert (logits.grad != 0).tolist() == [
        [True, True, False, False, False],
        [False, False, True, True, True],
    ]


def test_new_and_all_classes_by_hand() -> None:
    logits = torch.tensor([[math.log(5.0), 0.0, math.log(3.0), 0.0, 0.0]])
    known = {"rehearses": False}, {"rehearses": True}

    new, every = (CrossEntropy()(make_step(logits, [2], **each)).item() for each in known)

    # Among (3, 1, 1) and among (5, 1, 3, 1, 1): without old images, old classes do not compete
    assert new == pytest.approx(-math.log(3 / 5))
    assert every == pytest.approx(-math.log(3 / 11))


def test_a_step_that_does_not_say_it_goes_by_its_exemplars_and_by_the_task() -> None:
    logits = torch.zeros(1, 5)

    assert make_step(logits, [2]).rehearses
    assert not make_step(logits, [2], task_aware=True).rehearses
    assert make_step(logits, [2], task_aware=True, exemplars=[False]).rehearses


def test_logits_of_other_tasks_are_minus_infinity() -> None:
    masked = own_task_logits(torch.ones(2, 5), torch.tensor([1, 2]), TASKS)

    inf = -math.inf
    assert masked.tolist() == [[1.0, 1.0, inf, inf, inf], [inf, inf, 1.0, 1.0, 1.0]]


def test_a_class_that_comes_again_competes_in_the_head_that_brought_it() -> None:
    logits, present = torch.randn(3, 5), torch.tensor([1, 2, 4])
    y = [1, 2, 4]

    told = make_step(logits, y, present=present, rehearses=False, task_aware=True)
    untold = make_step(logits, y, present=present, rehearses=True)

    assert CrossEntropy()(told).item() == pytest.approx(
        slow(logits, y, [[0, 1], [2, 3, 4], [2, 3, 4]]), rel=1e-5
    )
    assert CrossEntropy()(untold).item() == pytest.approx(
        slow(logits, y, [list(range(5))] * 3), rel=1e-5
    )


def test_sigmoids_are_those_of_the_present_classes() -> None:
    logits, present, y = torch.randn(2, 5), torch.tensor([1, 2, 4]), [1, 4]

    found = OneHot()(make_step(logits, y, present=present))

    total = 0.0
    for row, label in zip(logits.sigmoid().tolist(), y, strict=True):
        total -= sum(math.log(row[c] if c == label else 1 - row[c]) for c in present.tolist())
    # The mean over 2 images and 3 classes, times 3 of 5 classes
    assert found.item() == pytest.approx(total / 6 * 3 / 5, rel=1e-5)
