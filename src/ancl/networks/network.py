"""A backbone and a head: the one kind of network that is trained, stored and used as an anchor."""

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import MethodType
from typing import Any, cast

import torch
from torch import Tensor, nn

from ancl.errors import MethodError, StoreError
from ancl.networks.heads import Head
from ancl.types import Output, Params

BACKBONE = "backbone."
"""What the names of the backbone's tensors begin with."""
_LOWER = (torch.bfloat16, torch.float16)
Level = Callable[[Tensor], tuple[Tensor, Tensor]]
"""From a map to the next one, and the same before its last activation."""


class Backbone(nn.Module):
    """Samples to features (B, D), with a default for all else that a network asks of it.

    A user's module need not be one: ``as_backbone`` gives any module the defaults of what it lacks.

    Attributes:
        feature_size: The number of features now, of one with its own ``add_task``: where it grows,
            the head gets columns for the new ones. If left out it stays the same.
        fresh_head: Whether the whole head is drawn anew when a task begins.
        feature_bound: No feature is larger than this in absolute value; none if not known.
        fixed_norms: Whether batch norms keep their running statistics while weights are trained.
    """

    feature_size: int | None = None
    fresh_head: bool = False
    feature_bound: float | None = None
    fixed_norms: bool = False

    def add_task(self, classes: int) -> None:
        """Grow by a task with this number of classes; by default not at all."""

    def with_side(self, x: Tensor) -> tuple[Tensor, Params]:
        """Features, and what terms of the loss read besides; by default nothing."""
        return self(x), {}

    def with_maps(self, x: Tensor) -> tuple[Tensor, Sequence[Tensor]]:
        """Features, and every stage's map before its activation.

        Raises:
            MethodError: It does not give them.
        """
        raise MethodError(
            f"The method reads feature maps, which {type(self).__name__} does not "
            "give. Use a resnet, or give your module a method "
            "with_maps(x) -> (features, tuple of maps before their activation)."
        )

    def levels(self) -> Sequence[Level]:
        """What leads from the image to the features, one after the other; none by default."""
        return ()

    def at(self, epoch: int, batch: int, batches: int) -> None:
        """Prepare for the epoch and the batch that come next, both counted from 0."""

    def stored(self) -> int:
        """The number of parameters that features are computed from; by default all."""
        return sum(parameter.numel() for parameter in self.parameters())

    def last_layers(self) -> list[str]:
        """Names of layers in the last stage, whose outputs show what it has learned.

        By default every convolution and linear layer of its last child that has any.
        """
        for child, module in reversed(list(self.named_children())):
            layers = [
                f"{child}.{name}".rstrip(".")
                for name, part in module.named_modules()
                if isinstance(part, nn.Conv2d | nn.Linear)
            ]
            if layers:
                return layers
        return []

    def folded(self) -> nn.Module:
        """A copy for inference, which may be faster."""
        return copy.deepcopy(self)


class _Completed:
    """A module of any class, with the defaults of ``Backbone`` for what it lacks.

    It is no module itself: the names of stored tensors stay those of the user's own.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        default, value = getattr(Backbone, name), getattr(self._module, name, None)
        if callable(default):
            return value if callable(value) else MethodType(default, self._module)
        return value if isinstance(value, int | float) else default

    def __call__(self, x: Tensor) -> Any:
        return self._module(x)


def as_backbone(module: nn.Module) -> Backbone:
    """A module with all that a backbone has."""
    return module if isinstance(module, Backbone) else cast(Backbone, _Completed(module))


def grows(module: nn.Module) -> bool:
    """Whether a backbone changes with its tasks: it has its own ``add_task``."""
    add_task = getattr(module, "add_task", None)
    return callable(add_task) and getattr(add_task, "__func__", None) is not Backbone.add_task


class Network(nn.Module):
    """Features from the backbone, logits from the head.

    Args:
        backbone: Samples to features (B, D).
        head: Features to logits.
        reads_features: Whether it may be given features (B, D) in place of images, as a backbone
            that never learns has made them.

    Attributes:
        base: The names of tensors that it shares with other networks, and that none of them
            changes; see ``share``.
    """

    def __init__(self, backbone: nn.Module, head: Head, *, reads_features: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.reads_features = backbone, head, reads_features
        self.base: frozenset[str] = frozenset()
        self._contiguous = not _bears_channels_last(backbone)

    def forward(self, x: Tensor, maps: bool = False) -> Output:
        """Logits and features, and the stages' maps only if asked for."""
        if self.reads_features and x.dim() == 2:
            return Output(self.head(x), x)
        if self._contiguous:
            x = x.contiguous()
        backbone = as_backbone(self.backbone)
        if maps:
            features, stages = backbone.with_maps(x)
            features = in_full(features)
            return Output(in_full(self.head(features)), features, tuple(map(in_full, stages)))
        features, side = backbone.with_side(x)
        features, side = in_full(features), {n: in_full(value) for n, value in side.items()}
        return Output(in_full(self.head(features)), features, side=side)

    def add_task(self, classes: int, *, draw: bool = True) -> None:
        """Add a task with this number of classes to the head, and to a backbone that grows.

        Where such a backbone says its ``feature_size`` and it has grown, the head gets columns for
        the new features. With ``fresh_head`` the whole head is then drawn anew.

        Args:
            classes: Of the task.
            draw: Whether the head's block is drawn; see ``Head.grow``. It always is where the
                backbone grows.
        """
        if not grows(self.backbone):
            self.head.grow(classes, draw=draw)
            return
        backbone = as_backbone(self.backbone)
        backbone.add_task(classes)
        size = backbone.feature_size
        if size is not None and size != self.head.feature_size:
            self.head.widen(size - self.head.feature_size)
        self.head.grow(classes)
        if backbone.fresh_head and len(self.head.sizes) > 1:
            self.head.reset()
        self._contiguous = not _bears_channels_last(self.backbone)

    def freeze(self, blocks: Iterable[int], *, backbone: bool = False) -> None:
        """Leave these blocks of the head alone, and the backbone too where asked."""
        for index in blocks:
            for parameter in self.head.block(index):
                parameter.requires_grad_(False)
        if backbone:
            self.backbone.requires_grad_(False)

    def at(self, epoch: int, batch: int, batches: int) -> None:
        """Tell the backbone the epoch and the batch that come next.

        Both count from 0. Noise of its own comes from PyTorch's global generators, which are seeded
        for every epoch of a training.
        """
        as_backbone(self.backbone).at(epoch, batch, batches)

    def stored(self) -> int:
        """The number of parameters that answers are computed from."""
        head = sum(parameter.numel() for parameter in self.head.parameters())
        return int(as_backbone(self.backbone).stored()) + head

    def last_layers(self) -> list[str]:
        """Names of layers in the backbone's last stage; empty where there is none."""
        return list(as_backbone(self.backbone).last_layers())

    def weights(self) -> Params:
        """The backbone's parameters themselves, by name; no heads, no buffers, no base."""
        weights = self.backbone.named_parameters()
        return {name: weight for name, weight in weights if BACKBONE + name not in self.base}

    def changeable(self) -> Params:
        """The tensors themselves, by name, that a training may change: all but the base."""
        return {name: value for name, value in self.state_dict().items() if name not in self.base}

    def tensors(self) -> Params:
        """A contiguous copy on the CPU of everything the network knows besides its base."""
        return packed(self.changeable())

    def share(self, base: Params) -> None:
        """Use these very tensors, and no copy, as the part that nothing changes.

        They get the strides of the network's own, whatever they were read with: all networks of
        an architecture have the same.

        Raises:
            StoreError: If one is unknown or of another shape or type; nothing is shared.
        """
        values = self.state_dict()
        _check_fit({name: values[name] for name in base if name in values}, base)
        for name, tensor in tensors_of(self).items():
            if name in base:
                if base[name].stride() != tensor.stride():
                    base[name].data = torch.empty_like(tensor.data).copy_(base[name])
                tensor.data = base[name].data
        self.base = frozenset(base)

    def load(self, tensors: Params) -> None:
        """Copy stored values into the network's own tensors, whose strides and device stay.

        Values of its base may be among them.

        Raises:
            StoreError: If a tensor is missing, unknown or of another shape or type, or not that of
                the base; nothing is copied.
        """
        values = self.state_dict()
        _check_fit({n: v for n, v in values.items() if n in tensors or n not in self.base}, tensors)
        for name in self.base.intersection(tensors):
            if not torch.equal(values[name].cpu(), tensors[name].cpu()):
                raise StoreError(
                    f"The stored tensors have another frozen base than the network: {name} differs."
                )
        with torch.no_grad():
            for name, value in self.changeable().items():
                value.copy_(tensors[name])


def in_full(tensor: Tensor) -> Tensor:
    """What a layer answered under autocast, in fp32: losses are computed of that."""
    return tensor.float() if tensor.dtype in _LOWER else tensor


def packed(tensors: Params) -> Params:
    """Contiguous copies on the CPU."""
    return {
        name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        for name, value in tensors.items()
    }


def tensors_of(module: nn.Module) -> Params:
    """Parameters and buffers themselves, by every name that they have."""
    parameters = module.named_parameters(remove_duplicate=False)
    return {**dict(parameters), **dict(module.named_buffers(remove_duplicate=False))}


def share_equal(module: nn.Module, base: Params) -> None:
    """Let a module use these very tensors in place of its own where both are the same."""
    for name, tensor in tensors_of(module).items():
        shared = base.get(name)
        if shared is None or shared.data_ptr() == tensor.data_ptr():
            continue
        alike = (shared.shape, shared.dtype, shared.stride(), shared.device) == (
            *(tensor.shape, tensor.dtype, tensor.stride(), tensor.device),
        )
        if alike and torch.equal(shared, tensor):
            tensor.data = shared.data


def _check_fit(values: Params, given: Params) -> None:
    faults = _faults(values, given)
    if faults:
        raise StoreError(
            f"The stored tensors do not fit the network: {'; '.join(faults)}. "
            "Build it as it was when they were stored: the same network and options, "
            "and a head with the same classes for every task."
        )


def _faults(values: Params, given: Params) -> list[str]:
    """Why the given tensors do not fit, one phrase for each kind."""
    shapes = [
        f"{name} {tuple(given[name].shape)} instead of {tuple(value.shape)}"
        for name, value in values.items()
        if name in given and given[name].shape != value.shape
    ]
    types = [
        f"{name} {given[name].dtype} instead of {value.dtype}"
        for name, value in values.items()
        if name in given and given[name].dtype != value.dtype
    ]
    kinds = {
        "missing": [name for name in values if name not in given],
        "unexpected": [name for name in given if name not in values],
        "of another shape": shapes,
        "of another type": types,
    }
    return [f"{kind}: {_first(names)}" for kind, names in kinds.items() if names]


def _first(names: list[str], shown: int = 3) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def _bears_channels_last(module: nn.Module) -> bool:
    """Whether no strided 1x1 convolution reads fewer than 16 channels.

    With channels-last images, oneDNN's kernel for those corrupts memory in the backward pass.
    """
    return not any(
        isinstance(part, nn.Conv2d)
        and set(part.kernel_size) == {1}
        and max(part.stride) > 1
        and part.in_channels // part.groups < 16
        for part in module.modules()
    )


def channels_last(network: Network) -> None:
    """Lay out every 4-d parameter channels last, in place, where that is safe: it is faster.

    ``Module.to(memory_format=...)`` would refuse a user's module that has 5-d weights too.
    """
    if not _bears_channels_last(network.backbone):
        return
    for parameter in network.parameters():
        if parameter.dim() == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)


def frozen(network: Network) -> Network:
    """A copy for inference: eval mode, no gradients; it shares the network's base.

    The backbone's own copy may be faster: our residual networks fold their batch norms into the
    convolutions.
    """
    backbone, head = as_backbone(network.backbone).folded(), copy.deepcopy(network.head)
    twin = Network(backbone, head, reads_features=network.reads_features)
    twin.eval().requires_grad_(False)
    channels_last(twin)
    if network.base:
        # Where a folded layer has values of its own, it keeps them.
        share_equal(twin, {n: t for n, t in tensors_of(network).items() if n in network.base})
    return twin


def train_mode(network: Network) -> None:
    """Training mode, but for parts of the backbone that do not learn: they keep their statistics.

    Such a part has weights, and none of them learns: its batch norms neither look at the batch
    nor count it, and its dropout drops nothing. With ``fixed_norms`` so do all batch norms.
    """
    network.train()
    for _, part in _frozen_parts(network.backbone):
        part.eval()
    for _, norm in _fixed_norms(network.backbone):
        norm.eval()


def _fixed_norms(backbone: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The batch norms that keep their statistics, with what names in them begin with."""
    if as_backbone(backbone).fixed_norms:
        for name, part in backbone.named_modules():
            if isinstance(part, nn.modules.batchnorm._BatchNorm):
                yield f"{name}.", part


def _frozen_parts(part: nn.Module, path: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The largest parts of which no weight learns, with what names in them begin with."""
    if not any(weight.requires_grad for weight in part.parameters()):
        yield path, part
        return
    for name, child in part.named_children():
        if next(child.parameters(), None) is not None:
            yield from _frozen_parts(child, f"{path}{name}.")


def base_names(backbone: nn.Module) -> frozenset[str]:
    """The names of what no training of a backbone, as it was made, will change: its base.

    These are weights that do not learn (``requires_grad`` is False), the buffers of parts with
    such weights alone, which stay in eval mode, and those of batch norms that are fixed. All other
    buffers may move. A backbone that grows with its tasks may change any of its parts then, so it
    has no base.
    """
    weights = backbone.named_parameters(remove_duplicate=False)
    frozen_weights = {name for name, weight in weights if not weight.requires_grad}
    fixed = dict(_fixed_norms(backbone))
    if not (frozen_weights or fixed) or grows(backbone):
        return frozenset()
    buffers = {
        path + name
        for path, part in (*_frozen_parts(backbone), *fixed.items())
        for name, _ in part.named_buffers(remove_duplicate=False)
    }
    return frozenset(frozen_weights | buffers).intersection(backbone.state_dict())
