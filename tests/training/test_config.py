"""Settings of a training: the values of one task, and what does not go together."""

import math

import pytest

from ancl import Training
from tests.lab import scheduled_rate


def test_the_first_task_has_values_of_its_own() -> None:
    training = Training(epochs=200, epochs_first=50, lr=0.05, lr_first=0.1)

    first, later = training.at(0), training.at(3)

    assert (first.epochs, first.lr) == (50, 0.1)
    assert (later.epochs, later.lr) == (200, 0.05)
    assert first.lr_first is None
    assert Training(lr=0.3, lr_first=None).at(0).lr == 0.3
    assert training.at(1) == training.at(2)


def test_the_defaults_are_the_papers() -> None:
    training = Training()

    assert (training.batch_size, training.momentum, training.weight_decay) == (128, 0.9, 2e-4)
    assert (training.patience, training.factor, training.lr_min) == (5, 3.0, 1e-4)
    assert training.problems() == []


def test_what_does_not_go_together_is_told() -> None:
    adamw = Training(optimizer="adamw", penalty_step="proximal").problems()
    stepless = Training(schedule="multistep").problems()

    assert len(adamw) == len(stepless) == 1
    assert "optimizer=sgd" in adamw[0]
    assert "milestones=[80,120]" in stepless[0]


@pytest.mark.parametrize("warmup", [0.0, 0.04, 0.1, 0.3])
@pytest.mark.parametrize("schedule", ["constant", "cosine"])
def test_the_rate_never_exceeds_its_start_and_rises_only_in_warm_up(warmup, schedule) -> None:
    training = Training(lr=0.2, schedule=schedule, warmup=warmup)
    rates = [scheduled_rate(training, step, 25, 0) for step in range(25)]
    warm = round(warmup * 25)

    assert max(rates) == pytest.approx(0.2)
    assert rates[:warm] == pytest.approx([0.2 * (k + 1) / warm for k in range(warm)])
    assert all(a >= b for a, b in zip(rates[warm:], rates[warm + 1 :], strict=False))


def test_rates_by_hand() -> None:
    cosine = Training(lr=1.0, schedule="cosine")
    stepped = Training(lr=1.0, schedule="multistep", milestones=(2, 5), gamma=0.5)

    assert scheduled_rate(cosine, 0, 100, 0) == 1.0
    assert scheduled_rate(cosine, 25, 100, 0) == pytest.approx(0.5 + math.sqrt(0.5) / 2)
    assert scheduled_rate(cosine, 50, 100, 0) == pytest.approx(0.5)
    by_epoch = [scheduled_rate(stepped, 0, 100, epoch) for epoch in range(7)]
    assert by_epoch == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
