"""A step knows its epoch and how much of the training is over: an Ω of your own may decay."""

from dataclasses import dataclass, field, replace

import pytest
import torch
from torch import Tensor

from ancl import Training
from ancl.extend import (
    Anchor,
    CrossEntropy,
    Network,
    Objective,
    Output,
    PenaltyTerm,
    Regularizer,
    Step,
    anchor_for,
    architecture,
)
from tests.lab import Batches, Fit, Lwf, Samples, View, only_current

TASKS = (slice(0, 2), slice(2, 4))
TRAINING = Training(epochs=4, lr=0.1, batch_size=4, schedule="constant")


@dataclass(frozen=True)
class Decaying(Regularizer):
    """LwF's Ω, whose weight falls from 1 to 0; it notes what it saw."""

    reads = "logits"
    seen: list[tuple[int, float]] = field(default_factory=list)

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        self.seen.append((step.epoch, step.progress))
        return (1 - step.progress) * Lwf().penalty(step, anchor)


@dataclass(frozen=True)
class Steady(Lwf):
    """The same, at a weight that the test sets."""

    weight: list[float] = field(default_factory=lambda: [1.0])

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        return self.weight[0] * super().penalty(step, anchor)


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    return architecture("mlp", (5,), hidden=(6,)).build([2, 2])


def batches(seed: int) -> Batches:
    draw = torch.Generator().manual_seed(seed)
    return Batches(Samples(torch.rand(12, 5, generator=draw), 2 + torch.arange(12) % 2), 4, None)


def make_fit(omega: Regularizer, training: Training = TRAINING) -> Fit:
    anchor = anchor_for(omega, network(1), TASKS[0])
    objective = Objective(CrossEntropy(), (PenaltyTerm("old", 2.0, omega, anchor),))
    view = View(TASKS, task_aware=False)
    return Fit(network(0), objective, batches(0), batches(1), view, training, (0, 1, "main"))


def test_progress_goes_from_0_to_1_and_validation_is_at_the_end_of_its_epoch() -> None:
    omega = Decaying()
    list(make_fit(omega, replace(TRAINING, epochs=2)))

    # 2 epochs of 3 training and 3 validation batches.
    expected = [(0, 0 / 6), (0, 1 / 6), (0, 2 / 6), *[(0, 3 / 6)] * 3]
    expected += [(1, 3 / 6), (1, 4 / 6), (1, 5 / 6), *[(1, 1.0)] * 3]
    assert [epoch for epoch, _ in omega.seen] == [epoch for epoch, _ in expected]
    assert [part for _, part in omega.seen] == pytest.approx([part for _, part in expected])


def test_a_decaying_term_is_the_steady_one_at_every_weight() -> None:
    decaying, steady = make_fit(Decaying()), make_fit(omega := Steady())
    step_of = steady._step

    def weighted(batch, part, answers=None, replay=None):  # type: ignore[no-untyped-def]
        omega.weight[0] = 1 - (steady.epoch + part) / TRAINING.epochs
        return step_of(batch, part, answers, replay)

    steady._step = weighted  # type: ignore[method-assign]
    for one, other in zip(decaying, steady, strict=True):
        assert one.train == other.train
        assert one.val == other.val
    assert one.val["old"] == 0.0
    assert other.train["task"] != make_fit(Lwf()).__next__().train["task"]


@pytest.mark.parametrize("at", [1, 3])
def test_a_decaying_term_resumes_to_the_bit(at: int) -> None:
    whole, broken, resumed = (make_fit(Decaying()) for _ in range(3))
    list(whole)
    for _ in range(at):
        next(broken)
    resumed.restore(broken.state())
    list(resumed)

    one, other = whole.state(), resumed.state()
    assert all(torch.equal(one.tensors[n], other.tensors[n]) for n in one.tensors)


def test_in_your_own_loop_nothing_is_over_unless_you_say_it() -> None:
    x, y, out = torch.zeros(1, 5), torch.tensor([2]), Output(torch.zeros(1, 4), torch.zeros(1, 6))
    step = Step(x, y, out, {}, TASKS)
    assert (step.epoch, step.progress) == (0, 0.0)

    given = Step(x, y, out, {}, TASKS, epoch=3, progress=0.75)
    for each in (given, given.with_output(out), only_current(given)):
        assert (each.epoch, each.progress) == (3, 0.75)
