"""Low-rank adapters (LoRA): a frozen layer with a small one beside it, which alone learns.

A layer W x becomes W x + B A x. A has orthonormal rows and never learns, so that the function is
linear in B: the mean of two B is the mean of two networks, a distance between two B is one between
their weights, and an importance of B is one of weights. B begins at 0: nothing changes at first.
"""

import copy
from collections.abc import Iterator
from typing import TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.seeding import seeded

M = TypeVar("M", bound=nn.Module)
Layer = nn.Linear | nn.Conv2d
"""What can be adapted."""


class Adapted(nn.Module):
    """A frozen layer with its adapter: W x + B A x.  Equation: [lora].

    Args:
        layer: A linear layer, or a convolution of 1x1 pixels; its weights stop learning.
        rank: r, the number of rows of A; at most as many as the layer has inputs or outputs.
    """

    def __init__(self, layer: Layer, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        outputs, inputs = layer.weight.shape[:2]
        rank, ones = min(rank, inputs, outputs), layer.weight.shape[2:]
        rows = torch.linalg.qr(torch.randn(inputs, rank, dtype=torch.double)).Q.T
        rows = rows.reshape(rank, inputs, *ones).to(layer.weight)
        self.a = nn.Parameter(rows, requires_grad=False)
        self.b = nn.Parameter(layer.weight.new_zeros(outputs, rank, *ones))

    def forward(self, x: Tensor) -> Tensor:
        """Both paths."""
        out: Tensor = self.layer(x)
        if isinstance(self.layer, nn.Linear):
            return out + F.linear(F.linear(x, self.a), self.b)
        down, across = self.layer.stride
        return out + F.conv2d(F.conv2d(x[..., ::down, ::across], self.a), self.b)

    @torch.no_grad()
    def merged(self) -> Layer:
        """One plain layer with W + B A."""
        layer = copy.deepcopy(self.layer)
        change = self.b.flatten(1).double() @ self.a.flatten(1).double()
        layer.weight.copy_(layer.weight.double() + change.reshape(layer.weight.shape))
        return layer


def adapt(module: nn.Module, rank: int) -> nn.Module:
    """Freeze a module, and give every layer that can have one an adapter, in place.

    A is drawn from a fixed seed: networks with the same weights share it, too.

    Args:
        module: The module; its linear layers and its convolutions of 1x1 pixels are adapted.
        rank: r of each adapter.
    """
    module.requires_grad_(False)
    with seeded(0, "adapter"):
        for parent, name, layer in list(_adaptable(module)):
            setattr(parent, name, Adapted(layer, rank))
    return module


def is_adapted(module: nn.Module) -> bool:
    """Whether there is an adapter in it."""
    return any(isinstance(part, Adapted) for part in module.modules())


@torch.no_grad()
def clear_adapters(module: nn.Module) -> None:
    """Set every B to 0, in place: the layers answer as without an adapter."""
    for part in module.modules():
        if isinstance(part, Adapted):
            part.b.zero_()


def merge_adapters(module: M) -> M:
    """A copy whose adapters are added to their layers; the module itself where it has none."""
    if not is_adapted(module):
        return module
    twin = copy.deepcopy(module)
    for parent in list(twin.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, Adapted):
                setattr(parent, name, part.merged())
    return twin


def _adaptable(module: nn.Module) -> Iterator[tuple[nn.Module, str, Layer]]:
    """Every layer that can be adapted, with its parent and its name there."""
    if isinstance(module, nn.MultiheadAttention | Adapted):
        return  # it reads the weights of its layers, and does not call them
    for name, part in module.named_children():
        if _fits(part):
            yield module, name, part
        else:
            yield from _adaptable(part)


def _fits(part: nn.Module) -> TypeGuard[Layer]:
    if isinstance(part, nn.Conv2d):
        plain = set(part.kernel_size) == {1} and part.groups == 1
        return plain and part.padding in ((0, 0), "valid", "same")
    return isinstance(part, nn.Linear)
