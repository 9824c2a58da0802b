"""Low-rank adapters (LoRA): a frozen layer with a small one beside it, which alone learns.

A layer W x becomes W x + B A x. A has orthonormal rows and never learns, so that the function is
linear in B: the mean of two B is the mean of two networks, a distance between two B is one between
their weights, and an importance of B is one of weights. B begins at 0: nothing changes at first.
"""

import copy
from collections.abc import Iterator
from typing import NamedTuple, TypeGuard, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.errors import SpecError
from ancl.seeding import seeded

M = TypeVar("M", bound=nn.Module)
Layer = nn.Linear | nn.Conv2d
"""What can be adapted."""
_COMPUTES = ("__call__", "forward", "_conv_forward")
"""The functions of a layer that decide what it computes."""
_SHOWN = 6


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

    @property
    def weight(self) -> Tensor:
        """W + B A, for modules that read the weight of a layer and do not call it."""
        change = self.b.flatten(1) @ self.a.flatten(1)
        return self.layer.weight + change.reshape(self.layer.weight.shape)

    @property
    def bias(self) -> Tensor | None:
        """The layer's, for the same modules."""
        return self.layer.bias

    @torch.no_grad()
    def merged(self) -> Layer:
        """One plain layer with W + B A."""
        layer = copy.deepcopy(self.layer)
        change = self.b.flatten(1).double() @ self.a.flatten(1).double()
        layer.weight.copy_(layer.weight.double() + change.reshape(layer.weight.shape))
        return layer


def adapt(module: nn.Module, rank: int) -> nn.Module:
    """Freeze a module, and give every layer that can have one an adapter, in place.

    A is drawn from a fixed seed: networks with the same weights share it, too. A layer with fewer
    inputs or outputs than the rank gets as many rows as it has.

    Args:
        module: The module; its linear layers and its convolutions of 1x1 pixels are adapted. Those
            that compute something else are not: with a forward, a computed weight or hooks.
        rank: r of each adapter; from 1 to the largest that one of the layers admits.

    Raises:
        SpecError: It has adapters already, no layer of it can have one, or the rank does not fit.
    """
    name = type(module).__name__
    if is_adapted(module):
        raise SpecError(
            f"{name} has adapters already. Call adapt once, or call merge_adapters first, which "
            f"adds them to their layers."
        )
    if isinstance(module, Layer):
        raise SpecError(
            f"{name} is a layer, and adapt puts adapters into a module, in place. Give "
            f"nn.Sequential(layer)."
        )
    if why := nothing_to_adapt(module):
        raise SpecError(f"{name} {why} Leave adapt out; requires_grad_ says which weights learn.")
    places = [place for place in _places(module) if not place.obstacle]
    largest = max(min(place.layer.weight.shape[:2]) for place in places)
    if type(rank) is not int or not 1 <= rank <= largest:
        raise SpecError(
            f"rank is {rank!r}, but adapters of {name} need a whole number from 1 to {largest}: no "
            f"layer has more inputs and outputs."
        )
    module.requires_grad_(False)
    adapters: dict[Layer, Adapted] = {}  # a layer that several parts share has one
    with seeded(0, "adapter"):
        for place in places:
            if place.layer not in adapters:
                adapters[place.layer] = Adapted(place.layer, rank)
            setattr(place.parent, place.name, adapters[place.layer])
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
    layers: dict[Adapted, Layer] = {}  # what several parts share they share afterwards
    for parent in list(twin.modules()):
        for name, part in parent._modules.items():
            if isinstance(part, Adapted):
                if part not in layers:
                    layers[part] = part.merged()
                setattr(parent, name, layers[part])
    return twin


def nothing_to_adapt(module: nn.Module) -> str:
    """Why no layer of a module can be adapted, as the rest of a sentence; empty where one can."""
    places = list(_places(module))
    if not all(place.obstacle for place in places):
        return ""
    missing = "has no linear layer and no convolution of 1x1 pixels"
    if not places:
        return f"{missing}."
    shown = "; ".join(f"{place.path}: {place.obstacle}" for place in places[:_SHOWN])
    more = f"; and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return f"{missing} that can be adapted ({shown}{more})."


class _Place(NamedTuple):
    """A layer where a module uses it, and why it cannot be adapted there, if so."""

    parent: nn.Module
    name: str
    path: str
    layer: Layer
    obstacle: str


def _places(module: nn.Module, path: str = "") -> Iterator[_Place]:
    """Every linear layer and convolution of 1x1 pixels, at every name that it has."""
    for name, part in module._modules.items():
        if _fits(part):
            yield _Place(module, name, path + name, part, _obstacle(module, part))
        elif part is not None:
            yield from _places(part, f"{path}{name}.")


def _fits(part: nn.Module | None) -> TypeGuard[Layer]:
    one_pixel = isinstance(part, nn.Conv2d) and set(part.kernel_size) == {1}
    return one_pixel or isinstance(part, nn.Linear)


def _obstacle(parent: nn.Module, layer: Layer) -> str:
    """Why W x + B A x is not what the layer would compute with W + B A, or is never asked."""
    kind = nn.Linear if isinstance(layer, nn.Linear) else nn.Conv2d
    if isinstance(parent, nn.MultiheadAttention):
        return f"{type(parent).__name__} reads its weight, and does not call it"
    if "forward" in vars(layer) or any(
        getattr(type(layer), name, None) is not getattr(kind, name, None) for name in _COMPUTES
    ):
        return f"{type(layer).__name__} has a forward that is not that of {kind.__name__}"
    if layer._parameters.get("weight") is None:
        return "its weight is computed from other tensors"
    if layer._forward_pre_hooks or layer._forward_hooks:
        return "it has forward hooks, which may change what it computes"
    if isinstance(layer, nn.Conv2d):
        if layer.groups > 1:
            return "it has groups"
        if layer.padding not in ((0, 0), "valid", "same"):
            return "it has padding"
    return ""
