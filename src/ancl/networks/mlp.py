"""A multilayer perceptron: flatten, then a linear layer and a ReLU for every hidden size."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from ancl.errors import SpecError


class Mlp(nn.Module):
    """Samples of any shape to the activations of the last hidden layer, without batch norm.

    Args:
        input_shape: The shape of one sample.
        hidden: The sizes of the hidden layers; the last one is the number of features.
    """

    def __init__(self, input_shape: Sequence[int], hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        _check(hidden)
        sizes = [math.prod(input_shape), *hidden]
        self.feature_size = sizes[-1]
        self.layers = nn.Sequential(nn.Flatten())
        for inputs, outputs in pairwise(sizes):
            self.layers.extend([nn.Linear(inputs, outputs), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, last hidden size)."""
        features: Tensor = self.layers(x)
        return features


def _check(hidden: Sequence[int]) -> None:
    fits = isinstance(hidden, list | tuple) and len(hidden) > 0
    if not fits or any(type(size) is not int or size < 1 for size in hidden):
        raise SpecError(
            f"hidden = {hidden!r} does not fit an MLP. "
            "Give at least one size, each a whole number from 1, such as [256, 256]."
        )
