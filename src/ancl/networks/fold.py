"""Batch norm in eval mode is a scale and a shift, so the convolution before it can carry both."""

import torch
from torch import nn

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
