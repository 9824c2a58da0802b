"""Classifiers that grow by one block of classes a task."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.errors import ScenarioError


class Head(nn.Module, ABC):
    """Features to logits of all classes so far, one block of classes for every task.

    A new block is drawn from PyTorch's global generator, on the CPU, so that it is the same
    on every device; the caller seeds that generator.

    Args:
        feature_size: The number of features the head reads.
    """

    _like: Tensor

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.feature_size = feature_size
        self.sizes: tuple[int, ...] = ()
        # An empty head has no parameter that could say to which device and dtype it was moved.
        self.register_buffer("_like", torch.empty(0), persistent=False)

    def grow(self, classes: int) -> None:
        """Append a block; the logits of earlier blocks stay as they are."""
        if classes < 1:
            raise ScenarioError(
                f"A head cannot grow by {classes} classes. Every task needs at least one class."
            )
        self._append(classes)
        self.sizes = (*self.sizes, classes)

    @abstractmethod
    def _append(self, classes: int) -> None:
        """Make the parameters of one more block, on the device and in the dtype of ``_like``."""

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """Logits of shape (B, sum of the sizes), the blocks side by side in order."""

    @abstractmethod
    def block(self, index: int) -> list[nn.Parameter]:
        """The parameters of one block, for example to freeze it."""


class LinearHead(Head):
    """Weights times features plus bias, initialised as ``nn.Linear`` is."""

    def __init__(self, feature_size: int) -> None:
        super().__init__(feature_size)
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()

    def _append(self, classes: int) -> None:
        layer = nn.Linear(self.feature_size, classes, device="cpu", dtype=self._like.dtype)
        layer.to(self._like.device)
        self.weights.append(layer.weight)
        self.biases.append(layer.bias)

    def forward(self, features: Tensor) -> Tensor:
        """One product with all blocks at once; no columns before the first block."""
        if not self.sizes:
            return features[:, :0]
        return F.linear(features, torch.cat(list(self.weights)), torch.cat(list(self.biases)))

    def block(self, index: int) -> list[nn.Parameter]:
        """Weight and bias of one block."""
        return [self.weights[index], self.biases[index]]


HEADS: dict[str, type[Head]] = {"linear": LinearHead}
