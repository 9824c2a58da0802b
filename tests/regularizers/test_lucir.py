"""LUCIR's less-forget constraint by hand, and what its gradient leaves alone."""

import pytest
import torch

from tests.lab import LessForget


def test_by_hand(feature_penalty) -> None:
    # 1 − cos 45° = 1 − 1/√2
    value = feature_penalty(LessForget(), torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    assert value.item() == pytest.approx(0.292893, abs=1e-6)

    # angles 90°, 180° and 0° of any length: (1 + 2 + 0)/3
    ours = torch.tensor([[2.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    theirs = torch.tensor([[0.0, 5.0], [0.0, -1.0], [4.0, 4.0]])
    assert feature_penalty(LessForget(), ours, theirs).item() == pytest.approx(1.0)


def test_the_gradient_turns_features_and_leaves_their_length(feature_penalty) -> None:
    """−(1/‖f‖)(I − f f^T)(f*), with f and f* of length 1."""
    ours, theirs = torch.randn(2, 1, 5, dtype=torch.float64)
    ours.requires_grad_()

    feature_penalty(LessForget(), ours, theirs).backward()

    f, length = (ours / ours.norm()).detach()[0], ours.norm().item()
    wanted = (theirs / theirs.norm())[0]
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad[0], -(wanted - f * (f @ wanted)) / length)
    assert (ours.grad[0] @ f).item() == pytest.approx(0, abs=1e-12)
