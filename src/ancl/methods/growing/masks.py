"""Masks on channels of residual blocks: learned while they become binary, then cut off."""

import copy
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ancl.errors import SpecError
from ancl.networks.backbones import Block


def soft_mask(e: Tensor, scale: float) -> Tensor:
    """The mask m = σ(s e), with the gradient of σ(e): that of m, compensated.  Equation: [mask].

    The compensation of HAT is σ(e)(1 − σ(e)) / (s σ(se)(1 − σ(se))): without it hardly any e
    would move where s is large. Times ∂m/∂e the denominator cancels.
    """
    slope = torch.sigmoid(e)
    return torch.sigmoid(scale * e).detach() + (slope - slope.detach())


def annealed(largest: float, batch: int, batches: int) -> float:
    """The scale s of a batch: 1/s_max at an epoch's first, s_max at its last.  Equation: [mask].

    >>> [round(annealed(15, batch, 5), 6) for batch in range(5)]
    [0.066667, 3.8, 7.533333, 11.266667, 15.0]
    """
    if batches == 1:
        return largest
    return 1 / largest + (largest - 1 / largest) * batch / (batches - 1)


class MaskedConv(nn.Conv2d):
    """A convolution whose input channels have a mask: soft in training, else 0 or 1.

    Attributes:
        e: A channel is kept where it is above 0.
        scale: s, which the training sets before every batch.
    """

    e: nn.Parameter
    scale: float

    @classmethod
    def of(cls, conv: nn.Conv2d) -> "MaskedConv":
        """The convolution with all its channels kept."""
        masked = cls.__new__(cls)
        masked.__dict__.update(copy.deepcopy(conv).__dict__)
        masked.e = nn.Parameter(torch.ones(conv.in_channels, dtype=conv.weight.dtype))
        masked.scale = 1.0
        return masked

    def mask(self) -> Tensor:
        """The mask of its input channels."""
        return soft_mask(self.e, self.scale) if self.training else self.kept.to(self.e.dtype)

    @property
    def kept(self) -> Tensor:
        """Which channels are kept."""
        return self.e.detach() > 0

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of the masked input."""
        return super().forward(x * self.mask().view(1, -1, 1, 1))


def masked_convolutions(extractor: nn.Module) -> list[MaskedConv]:
    """Its convolutions with a mask."""
    return [module for module in extractor.modules() if isinstance(module, MaskedConv)]


def mask_blocks(extractor: nn.Module) -> None:
    """Give the inner channels of every residual block a fresh mask, in place.

    Channels of the residual stream are tied by the shortcuts; those between the two convolutions
    of a block are free to go.

    Raises:
        SpecError: It has no residual block of ours.
    """
    blocks = [module for module in extractor.modules() if isinstance(module, Block)]
    if not blocks:
        raise SpecError(
            f"sparsity masks channels of residual blocks, and {type(extractor).__name__} has none. "
            f"Use a resnet, such as network.name=resnet32, or sparsity=0."
        )
    for block in blocks:
        if isinstance(block.conv2, MaskedConv):
            nn.init.ones_(block.conv2.e)
            block.conv2.e.requires_grad_(True)
        else:
            block.conv2 = MaskedConv.of(block.conv2)


def set_scale(extractor: nn.Module, largest: float, batch: int, batches: int) -> None:
    """The masks' s for one batch of an epoch."""
    for conv in masked_convolutions(extractor):
        conv.scale = annealed(largest, batch, batches)


class MaskedLayer(NamedTuple):
    """A convolution as the sparsity loss sees it: its kernel's area, channels, and used ones."""

    area: int
    inputs: int
    outputs: int
    used_inputs: Tensor | float
    used_outputs: Tensor | float


def used_share(extractor: nn.Module) -> Tensor:
    """Σ K ‖m_in‖₁ ‖m_out‖₁ / Σ K c_in c_out: the share of weights in use.  Equation: [sparsity]."""
    return share_of(_layers(extractor), next(extractor.parameters()))


def share_of(layers: list[MaskedLayer], like: Tensor) -> Tensor:
    """The same of any layers, on the device and in the dtype of a tensor."""
    whole = sum(layer.area * layer.inputs * layer.outputs for layer in layers)
    used = sum(layer.area * layer.used_inputs * layer.used_outputs for layer in layers)
    return torch.as_tensor(used, dtype=like.dtype, device=like.device) / whole


def _layers(extractor: nn.Module) -> list[MaskedLayer]:
    """Every convolution; the first one of a block writes what the second one's mask reads."""
    outputs = {
        block.conv1: block.conv2.mask().sum()
        for block in extractor.modules()
        if isinstance(block, Block) and isinstance(block.conv2, MaskedConv)
    }
    layers = []
    for conv in extractor.modules():
        if isinstance(conv, nn.Conv2d):
            area = conv.kernel_size[0] * conv.kernel_size[1]
            read: Tensor | float = conv.in_channels
            if isinstance(conv, MaskedConv):
                read = conv.mask().sum()
            written = outputs.get(conv, float(conv.out_channels))
            layers.append(MaskedLayer(area, conv.in_channels, conv.out_channels, read, written))
    return layers


@torch.no_grad()
def pruned(extractor: nn.Module) -> nn.Module:
    """A copy for inference without the channels that masks cut off; equal but for rounding."""
    twin = copy.deepcopy(extractor).eval().requires_grad_(False)
    for block in twin.modules():
        if isinstance(block, Block) and isinstance(block.conv2, MaskedConv):
            masked, channels = block.conv2, block.conv2.kept.nonzero().squeeze(1)
            if not len(channels):  # a convolution reads at least one; this one weighs nothing
                channels = torch.zeros(1, dtype=torch.long, device=masked.e.device)
                nn.init.zeros_(masked.weight)
            block.conv1 = _cut(block.conv1, outputs=channels)
            block.bn1 = _cut_norm(block.bn1, channels)
            block.conv2 = _cut(masked, inputs=channels)
    return twin


def _cut(
    conv: nn.Conv2d, *, inputs: Tensor | None = None, outputs: Tensor | None = None
) -> nn.Conv2d:
    weight = conv.weight if outputs is None else conv.weight[outputs]
    weight = weight if inputs is None else weight[:, inputs]
    # Made without values: PyTorch's global generators stay as they are.
    smaller = nn.Conv2d(
        weight.shape[1],
        weight.shape[0],
        (conv.kernel_size[0], conv.kernel_size[1]),
        stride=(conv.stride[0], conv.stride[1]),
        padding=(int(conv.padding[0]), int(conv.padding[1])),
        bias=False,
        device="meta",
    )
    smaller.weight = nn.Parameter(weight.clone(), requires_grad=False)
    return smaller


def _cut_norm(norm: nn.BatchNorm2d, channels: Tensor) -> nn.BatchNorm2d:
    smaller = nn.BatchNorm2d(len(channels), eps=norm.eps, momentum=norm.momentum)
    smaller.load_state_dict(
        {name: v[channels] if v.dim() else v for name, v in norm.state_dict().items()}
    )
    return smaller.to(norm.weight).eval().requires_grad_(False)
