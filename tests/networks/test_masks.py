"""Masks on channels of residual blocks: their values, their gradients, and the pruned network."""

import math

import pytest
import torch
from torch import nn

from ancl import SpecError
from tests.lab import (
    MaskedLayer,
    Mlp,
    ResNet,
    annealed,
    mask_blocks,
    masked_convolutions,
    pruned,
    set_scale,
    share_of,
    soft_mask,
    used_share,
)


def masked(width: int = 4) -> ResNet:
    torch.manual_seed(0)
    net = ResNet(8, width, in_channels=1)
    net(torch.randn(32, 1, 8, 8))  # statistics that are not 0 and 1
    mask_blocks(net)
    return net


@pytest.mark.parametrize(
    ("scale", "value"), [(1 / 15, 0.503333), (15, 0.952574), (100, 1 - 2.1e-9)]
)
def test_a_mask_by_hand(scale, value) -> None:
    found = soft_mask(torch.tensor(0.2, dtype=torch.float64), scale)

    assert found.item() == pytest.approx(value, abs=1e-6 if scale < 100 else 1e-10)
    assert soft_mask(torch.tensor([-0.2, 0.2]), 1e9).tolist() == [0.0, 1.0]


def test_the_scale_rises_within_every_epoch() -> None:
    found = [annealed(15, batch, 5) for batch in range(5)]

    assert found == pytest.approx([0.066667, 3.8, 7.533333, 11.266667, 15.0], abs=1e-6)
    assert annealed(15, 0, 1) == 15


@pytest.mark.parametrize(("scale", "factor"), [(1.0, 1.0), (15.0, 28.357788), (1 / 15, 14.104140)])
def test_the_gradient_is_compensated(scale, factor) -> None:
    e = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (plain,) = torch.autograd.grad(torch.sigmoid(scale * e), e)
    (ours,) = torch.autograd.grad(soft_mask(e, scale), e)

    assert (ours / plain).item() == pytest.approx(factor, abs=1e-6)
    hat = (math.cosh(scale * 0.5) + 1) / (scale * (math.cosh(0.5) + 1))
    assert factor == pytest.approx(hat, abs=1e-6)


def test_the_share_of_used_weights_by_hand() -> None:
    def layers(first: float, inner: float, last: float) -> list[MaskedLayer]:
        return [MaskedLayer(9, 3, 2, first, inner), MaskedLayer(9, 2, 2, inner, last)]

    like = torch.zeros(())
    # (9·3·1.5 + 9·1.5·.5) / (9·3·2 + 9·2·2) = 47.25/90
    assert share_of(layers(3, 1.5, 0.5), like).item() == pytest.approx(0.525)
    assert share_of(layers(3, 2, 2), like).item() == 1.0
    assert share_of(layers(0, 0, 0), like).item() == 0.0


def test_the_share_of_a_network_counts_its_blocks() -> None:
    net = masked().eval()
    assert used_share(net).item() == 1.0
    with torch.no_grad():
        for conv in masked_convolutions(net):
            conv.e.fill_(-1.0)

    # What is left: the stem 9·1·4, and both shortcuts 4·8 and 8·16.
    total = 36 + 9 * (4 * 4 + 4 * 4) + 9 * (4 * 8 + 8 * 8) + 32 + 9 * (8 * 16 + 16 * 16) + 128
    assert used_share(net).item() == pytest.approx((36 + 32 + 128) / total)


def test_the_share_has_a_gradient_that_closes_masks() -> None:
    net = masked().train()
    set_scale(net, 10.0, 3, 5)

    used_share(net).backward()

    for conv in masked_convolutions(net):
        assert conv.scale == annealed(10.0, 3, 5)
        assert conv.e.grad is not None
        assert (conv.e.grad > 0).all()


def test_masks_of_1_change_nothing() -> None:
    torch.manual_seed(0)
    plain = ResNet(8, 4, in_channels=1)
    plain(torch.randn(32, 1, 8, 8))
    net, x = masked(), torch.randn(8, 1, 8, 8)

    assert torch.equal(net.eval()(x), plain.eval()(x))
    with torch.no_grad():
        for conv in masked_convolutions(net):
            conv.e.fill_(math.inf)
    set_scale(net, 100.0, 0, 1)
    assert torch.equal(net.train()(x), plain.train()(x))


@pytest.mark.parametrize("kept", ["some", "none"])
def test_the_pruned_network_is_the_one_with_binary_masks(kept) -> None:
    net, x = masked(8), torch.randn(8, 1, 8, 8)
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for conv in masked_convolutions(net):
            conv.e.copy_(torch.randn(len(conv.e), generator=draw) if kept == "some" else -conv.e)
    state = torch.random.get_rng_state()
    small = pruned(net)

    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.allclose(small(x), net.eval()(x), atol=1e-5)
    assert not masked_convolutions(small)
    channels = [conv.in_channels for conv in small.modules() if isinstance(conv, nn.Conv2d)]
    wanted = [max(1, int(conv.kept.sum())) for conv in masked_convolutions(net)]
    assert [channels[2], channels[4], channels[7]] == wanted
    # Folding goes on from there.
    assert torch.allclose(small.folded()(x), net.eval()(x), atol=1e-5)


def test_a_network_without_residual_blocks_is_refused() -> None:
    with pytest.raises(SpecError, match="Mlp has none"):
        mask_blocks(Mlp((1, 2, 2)))
