"""Mlp: a hand-computed forward pass, shapes and refused settings."""

import pytest
import torch

from ancl import SpecError
from tests.lab import Mlp


def test_a_linear_layer_and_a_relu_for_every_hidden_size() -> None:
    network = Mlp((1, 2), hidden=(2, 1))
    values = [[[1.0, -1.0], [0.0, 2.0]], [0.0, 1.0], [[3.0, 0.5]], [-1.0]]
    with torch.no_grad():
        for parameter, value in zip(network.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(value))

    # (2, 1) -> relu(1, 3) -> 3 + 1.5 - 1;  (0, 1) -> relu(-1, 3) -> 1.5 - 1
    features = network(torch.tensor([[[2.0, 1.0]], [[0.0, 1.0]]]))
    assert features.tolist() == [[3.5], [0.5]]


def test_the_last_hidden_size_is_the_number_of_features() -> None:
    network = Mlp((3, 4, 4), hidden=[7, 5])

    assert network.feature_size == 5
    assert network(torch.randn(2, 3, 4, 4)).shape == (2, 5)
    assert [tuple(p.shape) for p in network.parameters()] == [(7, 48), (7,), (5, 7), (5,)]


@pytest.mark.parametrize("hidden", [(), (0,), (3, 2.5), 256, "256"])
def test_unusable_sizes_are_refused(hidden: object) -> None:
    with pytest.raises(SpecError, match="does not fit an MLP"):
        Mlp((4,), hidden=hidden)
