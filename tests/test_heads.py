"""Heads: growth, initial values, one product for all blocks."""

import math

import pytest
import torch
from torch import nn

from ancl.errors import ScenarioError
from ancl.heads import HEADS, LinearHead
from ancl.seeding import seeded


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


def grown(*sizes: int, dtype: torch.dtype = torch.float32) -> LinearHead:
    head = LinearHead(4).to(dtype)
    with seeded(0, "head"):
        for classes in sizes:
            head.grow(classes)
    return head


def test_logits_are_the_blocks_side_by_side() -> None:
    head = LinearHead(2)
    head.grow(1)
    head.grow(2)
    values = [[[1.0, 2.0]], [[0.0, 1.0], [3.0, 0.0]]]
    biases = [[0.5], [0.0, -1.0]]
    with torch.no_grad():
        for index, (weight, bias) in enumerate(zip(values, biases, strict=True)):
            head.block(index)[0].copy_(torch.tensor(weight))
            head.block(index)[1].copy_(torch.tensor(bias))

    # 1*2 + 2*3 + 0.5, 0*2 + 1*3, 3*2 + 0*3 - 1
    assert head(torch.tensor([[2.0, 3.0]])).tolist() == [[8.5, 3.0, 5.0]]
    assert head.sizes == (1, 2)


def test_growing_keeps_earlier_logits_and_parameters() -> None:
    head, features = grown(3), torch.randn(5, 4)
    before, block = head(features), head.block(0)

    head.grow(2)

    assert torch.allclose(head(features)[:, :3], before, rtol=0, atol=1e-6)
    assert all(now is then for now, then in zip(head.block(0), block, strict=True))
    assert head(features).shape == (5, 5)


def test_a_block_is_initialised_as_a_linear_layer() -> None:
    with seeded(0, "head"):
        first, second = nn.Linear(4, 3), nn.Linear(4, 200)
    head = grown(3, 200)

    assert torch.equal(head.block(0)[0], first.weight)
    assert torch.equal(head.block(1)[0], second.weight)
    assert torch.equal(head.block(1)[1], second.bias)
    for values in head.block(1):  # U(-1/2, 1/2): its deviation is 1/sqrt(12)
        assert values.abs().max() <= 0.5
        assert values.std().item() == pytest.approx(1 / math.sqrt(12), rel=0.1)


def test_only_the_frozen_block_goes_without_gradient() -> None:
    head = grown(2, 2)
    for parameter in head.block(0):
        parameter.requires_grad_(False)

    head(torch.ones(1, 4)).sum().backward()

    assert [parameter.grad for parameter in head.block(0)] == [None, None]
    assert head.block(1)[0].grad.tolist() == [[1.0] * 4] * 2


def test_an_empty_head_grows_in_the_dtype_it_was_moved_to() -> None:
    head = grown(2, dtype=torch.float64)

    assert head.block(0)[0].dtype == torch.float64
    assert head(torch.ones(3, 4, dtype=torch.float64)).dtype == torch.float64
    assert sorted(head.state_dict()) == ["biases.0", "weights.0"]


def test_without_blocks_there_are_no_logits() -> None:
    assert LinearHead(4)(torch.ones(3, 4)).shape == (3, 0)


def test_a_task_without_classes_is_refused() -> None:
    head = LinearHead(4)
    with pytest.raises(ScenarioError, match="cannot grow by 0 classes"):
        head.grow(0)
    assert head.sizes == ()


def test_heads_are_found_by_name() -> None:
    assert HEADS["linear"] is LinearHead
