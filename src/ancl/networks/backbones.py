"""Backbones: a perceptron, residual networks for small images, and vectors as they are."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.errors import SpecError
from ancl.networks.network import Backbone, Level


class Mlp(Backbone):
    """Samples of any shape to the activations of the last hidden layer, without batch norm.

    Args:
        input_shape: The shape of one sample.
        hidden: The sizes of the hidden layers; the last one is the number of features.
    """

    def __init__(self, input_shape: Sequence[int], hidden: Sequence[int] = (256, 256)) -> None:
        super().__init__()
        _check_sizes(hidden)
        sizes = [math.prod(input_shape), *hidden]
        self.feature_size = sizes[-1]
        self.layers = nn.Sequential(nn.Flatten())
        for inputs, outputs in pairwise(sizes):
            self.layers.extend([nn.Linear(inputs, outputs), nn.ReLU()])

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, last hidden size)."""
        features: Tensor = self.layers(x)
        return features


def _check_sizes(hidden: Sequence[int]) -> None:
    fits = isinstance(hidden, list | tuple) and len(hidden) > 0
    if not fits or any(type(size) is not int or size < 1 for size in hidden):
        raise SpecError(
            f"hidden = {hidden!r} does not fit an MLP. "
            "Give at least one size, each a whole number from 1, such as [256, 256]."
        )


class Vectors(Backbone):
    """Vectors as they are, which another model has made: nothing is left to learn.

    Args:
        feature_size: The length of a vector.
    """

    def __init__(self, feature_size: int) -> None:
        super().__init__()
        self.feature_size = feature_size

    def forward(self, x: Tensor) -> Tensor:
        """The vectors (B, feature_size) themselves."""
        return x


DEPTHS = (8, 14, 20, 32, 44, 56)
"""6n + 2 layers: n blocks of two convolutions in each stage, the stem and the classifier."""


def draw_kernels(conv: nn.Conv2d) -> None:
    """Draw a convolution's kernels as residual networks begin."""
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")


def _conv3x3(inputs: int, outputs: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)


class Projection(nn.Conv2d):
    """A 1x1 convolution with a stride, as one without on every stride-th pixel: the same sums.

    The strided kernel of oneDNN writes past its workspace in the backward pass on
    channels-last images with fewer than 16 channels: crashes, or wrong gradients.
    """

    def __init__(self, inputs: int, outputs: int, every: int) -> None:
        super().__init__(inputs, outputs, 1, bias=False)
        self.every = every

    def forward(self, x: Tensor) -> Tensor:
        """The projection of the pixels that are kept."""
        return super().forward(x[:, :, :: self.every, :: self.every])


class Block(nn.Module):
    """Two convolutions plus a shortcut, which is a 1x1 convolution where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1, relu: bool = True) -> None:
        super().__init__()
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = _conv3x3(outputs, outputs)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Module | None = None
        if stride != 1 or inputs != outputs:
            project = Projection(inputs, outputs, stride)
            self.downsample = nn.Sequential(project, nn.BatchNorm2d(outputs))
        self.relu = relu

    def before_relu(self, x: Tensor) -> Tensor:
        """The sum of both paths.

        Batch norm's outputs are overwritten, which no backward pass reads: less memory traffic
        makes a training step about 7 % faster. Convolutions' and blocks' outputs stay.
        """
        shortcut: Tensor = x if self.downsample is None else self.downsample(x)
        hidden = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out: Tensor = self.bn2(self.conv2(hidden))
        out += shortcut
        return out

    def forward(self, x: Tensor) -> Tensor:
        """The activated sum; the activation is left out where features are to keep their sign."""
        out = self.before_relu(x)
        return F.relu(out, inplace=True) if self.relu else out


class ResidualStage(nn.Sequential):
    """Blocks in a row, of which only the first may change the shape."""

    def with_map(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The stage's output, and the same before the last activation."""
        *first, last = self
        assert isinstance(last, Block)
        for block in first:
            x = block(x)
        out = last.before_relu(x)
        return F.relu(out) if last.relu else out, out


def _stage(
    inputs: int, outputs: int, blocks: int, stride: int, last_relu: bool = True
) -> ResidualStage:
    def layers() -> Iterator[Block]:
        for index in range(blocks):
            first, last = index == 0, index == blocks - 1
            yield Block(
                inputs if first else outputs,
                outputs,
                stride if first else 1,
                relu=last_relu or not last,
            )

    return ResidualStage(*layers())


class ResNet(Backbone):
    """Images to averaged features, after He et al. (2016) with projected shortcuts (option B).

    Args:
        depth: 6n + 2 layers; 32 is the network of the ANCL paper (15 blocks).
        width: Channels of the first stage; the number of features is four times as large.
        in_channels: 3 for colour, 1 for grey images.
        last_relu: Whether the last block ends in a ReLU; cosine classifiers do without.
    """

    feature_size: int

    def __init__(
        self, depth: int = 32, width: int = 16, in_channels: int = 3, last_relu: bool = True
    ) -> None:
        super().__init__()
        _check(depth, width, in_channels, last_relu)
        blocks = (depth - 2) // 6
        self.feature_size = 4 * width
        self.conv1 = _conv3x3(in_channels, width)
        self.bn1 = nn.BatchNorm2d(width)
        self.layer1 = _stage(width, width, blocks, stride=1)
        self.layer2 = _stage(width, 2 * width, blocks, stride=2)
        self.layer3 = _stage(2 * width, 4 * width, blocks, stride=2, last_relu=last_relu)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                draw_kernels(module)

    def _stem(self, x: Tensor) -> Tensor:
        return F.relu(self.bn1(self.conv1(x)), inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, 4 · width) of images of any size."""
        x = self.layer3(self.layer2(self.layer1(self._stem(x))))
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def levels(self) -> tuple[Level, Level, Level]:
        """What leads from the image to the features, one after the other.

        Each gives its output, and the same before its last activation.
        """

        def last(x: Tensor) -> tuple[Tensor, Tensor]:
            x, before = self.layer3.with_map(x)
            return F.adaptive_avg_pool2d(x, 1).flatten(1), before

        return lambda x: self.layer1.with_map(self._stem(x)), self.layer2.with_map, last

    def with_maps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, and every stage's output before its last activation."""
        maps = []
        for level in self.levels():
            x, before = level(x)
            maps.append(before)
        return x, tuple(maps)

    def last_layers(self) -> list[str]:
        """The 3x3 convolutions of the last stage."""
        return [
            f"layer3.{n}.{conv}" for n in range(len(self.layer3)) for conv in ("conv1", "conv2")
        ]

    def folded(self) -> ResNet:
        """A copy for inference whose convolutions carry the batch norms; equal but for rounding."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        fold_all(twin)
        return twin


def _check(depth: int, width: int, in_channels: int, last_relu: bool) -> None:
    if depth not in DEPTHS:
        raise SpecError(
            f"A ResNet of depth {depth} does not exist here. "
            f"Possible: {', '.join(str(possible) for possible in DEPTHS)}."
        )
    for name, value in {"width": width, "in_channels": in_channels}.items():
        if type(value) is not int or value < 1:
            raise SpecError(
                f"{name} = {value!r} does not fit a ResNet. Give a whole number from 1."
            )
    if type(last_relu) is not bool:
        raise SpecError(f"last_relu = {last_relu!r} does not fit a ResNet. Give true or false.")


PAIRS = (("conv1", "bn1"), ("conv2", "bn2"), ("0", "1"))
"""Children that follow each other directly: in the stem, in a block and in its shortcut."""


def fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> None:
    """Weights times γ/√(σ² + ε), and β − μγ/√(σ² + ε) as the bias, written into ``conv``.

    Computed in double precision: the small rounding left is that of the convolution alone.
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert conv.bias is None
    with torch.no_grad():
        scale = norm.weight.double() * (norm.running_var.double() + norm.eps).rsqrt()
        bias = norm.bias.double() - norm.running_mean.double() * scale
        weight = conv.weight.double() * scale.view(-1, 1, 1, 1)
    dtype = conv.weight.dtype
    conv.weight = nn.Parameter(weight.to(dtype), requires_grad=False)
    conv.bias = nn.Parameter(bias.to(dtype), requires_grad=False)


def fold_all(module: nn.Module) -> None:
    """Fold every batch norm of a residual network, in place; identities take their names."""
    for parent in list(module.modules()):
        children = dict(parent.named_children())
        for first, second in PAIRS:
            conv, norm = children.get(first), children.get(second)
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                fold(conv, norm)
                setattr(parent, second, nn.Identity())
