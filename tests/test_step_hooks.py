"""What is done to gradients and weights at every step."""

import torch
from torch import nn

from ancl.extend import Network
from tests.lab import ClampGradients, GradientNoise, LinearHead, NonNegativeRows, UnbiasedHead


def draw() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def with_gradient(size: int) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(size))
    parameter.grad = torch.zeros(size)
    return parameter


def noise(epoch: int, batch: int) -> torch.Tensor:
    parameter = with_gradient(20_000)
    GradientNoise().gradients([parameter], epoch, batch, draw())
    return parameter.grad


def test_noise_has_the_published_deviation_on_the_summed_gradient() -> None:
    # .3 / (1 + epoch)^.55 on the sum over the batch, so a batch-th of it on the mean.
    assert abs(noise(0, 1).std().item() - 0.3) < 0.005
    torch.testing.assert_close(noise(0, 32) * 32, noise(0, 1))
    torch.testing.assert_close(noise(10, 1), noise(0, 1) * (0.080233 / 0.3), rtol=1e-4, atol=1e-6)
    assert noise(0, 1).mean().abs().item() < 0.01


def test_noise_leaves_what_has_no_gradient_alone() -> None:
    still = nn.Parameter(torch.zeros(3))

    GradientNoise().gradients([still], 0, 1, draw())

    assert still.grad is None


def test_gradients_are_clamped_element_by_element() -> None:
    parameter = with_gradient(3)
    parameter.grad += torch.tensor([-9.0, 0.5, 7.0])

    ClampGradients(5.0).gradients([parameter], 0, 1, draw())

    assert parameter.grad.tolist() == [-5.0, 0.5, 5.0]


def test_rows_are_held_at_zero_or_above_and_biases_left_alone() -> None:
    for kind in (LinearHead, UnbiasedHead):
        torch.manual_seed(0)
        head = kind(4)
        head.grow(3)
        head.grow(2)
        before = [block.clone() for block in head.row_blocks()]
        biases = [p.clone() for p in head.parameters() if p.dim() == 1]

        NonNegativeRows().weights(Network(nn.Identity(), head))

        for rows, was in zip(head.row_blocks(), before, strict=True):
            assert torch.equal(rows, was.clamp(min=0))
            assert (was < 0).any()
        after = [p for p in head.parameters() if p.dim() == 1]
        assert all(torch.equal(a, b) for a, b in zip(after, biases, strict=True))
        assert len(biases) == (2 if kind is LinearHead else 0)
