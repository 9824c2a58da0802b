"""EEIL: one softmax a task, and the noise of its gradients."""

import pytest
import torch

from tests.lab import Eeil, Lwf, eeil_noise

TASKS = (slice(0, 2), slice(2, 5), slice(5, 7))


def test_each_task_is_distilled_by_itself(logit_penalty) -> None:
    ours, theirs = torch.randn(2, 6, 7, dtype=torch.float64)
    heads = [logit_penalty(Lwf(2.0), ours, theirs, classes=task) for task in TASKS]

    old = logit_penalty(Eeil(), ours, theirs, classes=slice(0, 5), tasks=TASKS)
    auxiliary = logit_penalty(Eeil(), ours, theirs, classes=TASKS[-1], tasks=TASKS)
    joint = logit_penalty(Lwf(2.0), ours, theirs, classes=slice(0, 5))

    assert old.item() == pytest.approx((heads[0] + heads[1]).item())
    assert auxiliary.item() == pytest.approx(heads[2].item())
    assert abs(old.item() - joint.item()) > 0.01


def test_the_gradient_stays_within_a_head(logit_penalty) -> None:
    """(q − p)/T within each head, so each head's gradients sum to zero."""
    ours, theirs = torch.randn(2, 1, 7, dtype=torch.float64)
    ours.requires_grad_()

    logit_penalty(Eeil(3.0), ours, theirs, classes=slice(0, 5), tasks=TASKS).backward()

    assert ours.grad is not None
    for task in TASKS[:2]:
        q, p = ((z[0, task] / 3).softmax(0).detach() for z in (ours, theirs))
        torch.testing.assert_close(ours.grad[0, task], (q - p) / 3)
    assert ours.grad[0, 5:].tolist() == [0, 0]


def test_tasks_that_share_their_classes_count_once(logit_penalty) -> None:
    ours, theirs = torch.randn(2, 3, 4)
    every = slice(0, 4)

    shared = logit_penalty(Eeil(), ours, theirs, tasks=(every, every, every))

    assert shared.item() == logit_penalty(Lwf(), ours, theirs).item()


def test_noise_falls_with_epochs() -> None:
    assert eeil_noise(0) == pytest.approx(0.3)
    assert eeil_noise(1) == pytest.approx(0.204906, abs=1e-6)
    assert eeil_noise(10) == pytest.approx(0.080233, abs=1e-6)
    assert eeil_noise(3, scale=1.0, decay=0.5) == pytest.approx(0.5)


def test_smoothing_is_within_each_head(logit_penalty) -> None:
    ours, theirs = torch.randn(2, 6, 7, dtype=torch.float64)
    heads = [logit_penalty(Lwf(2.0, 0.1), ours, theirs, classes=task) for task in TASKS]

    smooth = logit_penalty(Eeil(2.0, 0.1), ours, theirs, tasks=TASKS)

    assert smooth.item() == pytest.approx(sum(head.item() for head in heads))
    assert smooth.item() != pytest.approx(logit_penalty(Eeil(), ours, theirs, tasks=TASKS).item())
