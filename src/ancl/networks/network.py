"""A backbone and a head: the one kind of network that is trained, stored and used as an anchor."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from ancl.errors import MethodError, StoreError
from ancl.networks.heads import Head
from ancl.types import Output, Params


class Network(nn.Module):
    """Features from the backbone, logits from the head.

    Args:
        backbone: Samples to features (B, D).
        head: Features to logits.
        reads_features: Whether it may be given features (B, D) in place of images, as a backbone
            that never learns has made them.
    """

    def __init__(self, backbone: nn.Module, head: Head, *, reads_features: bool = False) -> None:
        super().__init__()
        self.backbone, self.head, self.reads_features = backbone, head, reads_features
        self._contiguous = not _bears_channels_last(backbone)

    def forward(self, x: Tensor, maps: bool = False) -> Output:
        """Logits and features, and the stages' maps only if asked for."""
        if self.reads_features and x.dim() == 2:
            return Output(self.head(x), x)
        if self._contiguous:
            x = x.contiguous()
        if not maps:
            with_side = getattr(self.backbone, "with_side", None)
            features, side = with_side(x) if callable(with_side) else (self.backbone(x), {})
            return Output(self.head(features), features, side=side)
        with_maps = getattr(self.backbone, "with_maps", None)
        if with_maps is None:
            raise MethodError(
                f"The method reads feature maps, which {type(self.backbone).__name__} does not "
                "give. Use a resnet, or give your module a method "
                "with_maps(x) -> (features, tuple of maps before their activation)."
            )
        features, stages = with_maps(x)
        return Output(self.head(features), features, tuple(stages))

    def add_task(self, classes: int, *, draw: bool = True) -> None:
        """Add a task with this number of classes: to the head, and to a backbone with ``add_task``.

        Where such a backbone says its ``feature_size`` and it has grown, the head gets columns for
        the new features. With ``fresh_head`` the whole head is then drawn anew.

        Args:
            classes: Of the task.
            draw: Whether the head's block is drawn; see ``Head.grow``.
        """
        if not callable(getattr(self.backbone, "add_task", None)):
            self.head.grow(classes, draw=draw)
            return
        grow_backbone(self.backbone, classes)
        if new := feature_size(self.backbone, self.head.feature_size) - self.head.feature_size:
            self.head.widen(new)
        self.head.grow(classes)
        if getattr(self.backbone, "fresh_head", False) and len(self.head.sizes) > 1:
            self.head.reset()
        self._contiguous = not _bears_channels_last(self.backbone)

    def at(self, epoch: int, batch: int, batches: int) -> None:
        """Call ``at`` of a backbone that has it, with the epoch and the batch that come next.

        Both count from 0. Noise of its own comes from PyTorch's global generators, which are seeded
        for every epoch of a training.
        """
        told = getattr(self.backbone, "at", None)
        if callable(told):
            told(epoch, batch, batches)

    def stored(self) -> int:
        """The number of parameters that answers are computed from.

        Those of ``backbone.stored()``, if it has that method, otherwise all; and the head's.
        """
        own = getattr(self.backbone, "stored", None)
        found = own() if callable(own) else sum(p.numel() for p in self.backbone.parameters())
        return int(found) + sum(parameter.numel() for parameter in self.head.parameters())

    def last_layers(self) -> list[str]:
        """Names of layers in the backbone's last stage, whose outputs show what it has learned.

        Those that ``backbone.last_layers()`` names, if it has that method; otherwise every
        convolution and linear layer of its last child that has any. Empty where there is none.
        """
        named = getattr(self.backbone, "last_layers", None)
        if callable(named):
            return list(named())
        for child, module in reversed(list(self.backbone.named_children())):
            found = [
                f"{child}.{name}".rstrip(".")
                for name, part in module.named_modules()
                if isinstance(part, nn.Conv2d | nn.Linear)
            ]
            if found:
                return found
        return []

    def weights(self) -> Params:
        """The backbone's parameters themselves, by name; no heads, no buffers."""
        return dict[str, Tensor](self.backbone.named_parameters())

    def tensors(self) -> Params:
        """A contiguous copy on the CPU of everything the network knows."""
        return {
            name: value.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
            for name, value in self.state_dict().items()
        }

    def load(self, tensors: Params) -> None:
        """Copy stored values into the network's own tensors, whose strides and device stay.

        Raises:
            StoreError: If a tensor is missing, unknown or of another shape or type; nothing is
                copied.
        """
        own = self.state_dict()
        faults = _faults(own, tensors)
        if faults:
            raise StoreError(
                f"The stored tensors do not fit the network: {'; '.join(faults)}. "
                "Build it as it was when they were stored: the same network and options, "
                "and a head with the same classes for every task."
            )
        with torch.no_grad():
            for name, value in own.items():
                value.copy_(tensors[name])


def _faults(own: Params, given: Params) -> list[str]:
    """Why the given tensors do not fit, one phrase for each kind."""
    shapes = [
        f"{name} {tuple(given[name].shape)} instead of {tuple(value.shape)}"
        for name, value in own.items()
        if name in given and given[name].shape != value.shape
    ]
    types = [
        f"{name} {given[name].dtype} instead of {value.dtype}"
        for name, value in own.items()
        if name in given and given[name].dtype != value.dtype
    ]
    kinds = {
        "missing": [name for name in own if name not in given],
        "unexpected": [name for name in given if name not in own],
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


def grow_backbone(backbone: nn.Module, classes: int) -> None:
    """Call ``backbone.add_task(classes)``, if the backbone has it."""
    add_task = getattr(backbone, "add_task", None)
    if callable(add_task):
        add_task(classes)


def feature_size(backbone: nn.Module, otherwise: int) -> int:
    """The number of features that a backbone with ``add_task`` says it gives now."""
    grows = callable(getattr(backbone, "add_task", None))
    size = getattr(backbone, "feature_size", otherwise) if grows else otherwise
    return size if isinstance(size, int) else otherwise


def frozen(network: Network) -> Network:
    """A copy for inference: eval mode, no gradients.

    A backbone with a method ``folded()`` gives its own copy, which may be faster: our residual
    networks fold their batch norms into the convolutions.
    """
    folded = getattr(network.backbone, "folded", None)
    own = folded() if callable(folded) else copy.deepcopy(network.backbone)
    head = copy.deepcopy(network.head)
    twin = Network(own, head, reads_features=network.reads_features).eval().requires_grad_(False)
    channels_last(twin)
    return twin


def train_mode(network: Network) -> None:
    """Training mode, but for parts of the backbone that do not learn: they keep their statistics.

    Such a part has weights, and none of them learns: its batch norms neither look at the batch
    nor count it, and its dropout drops nothing.
    """
    network.train()
    for part in _frozen_parts(network.backbone):
        part.eval()


def _frozen_parts(part: nn.Module) -> Iterator[nn.Module]:
    """The largest parts of which no weight learns."""
    if not any(weight.requires_grad for weight in part.parameters()):
        yield part
        return
    for child in part.children():
        if next(child.parameters(), None) is not None:
            yield from _frozen_parts(child)
