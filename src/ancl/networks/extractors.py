"""One feature extractor per task: the backbone of DER, which grows by a copy of its newest one."""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ancl.networks.growth import Growth
from ancl.networks.masks import mask_blocks, masked_convolutions, pruned, set_scale, used_share
from ancl.networks.network import grow_backbone
from ancl.types import Params

SIDE = "side"
"""Logits of the side head: one for all old classes, then one for each of the task's own."""
USED = "used"
"""The share of the newest extractor's weights that its masks leave in use."""


@dataclass(frozen=True)
class Extractors(Growth):
    """A new extractor for every task; those before it never learn again.  Equation: [der].

    Args:
        reuse: Whether the classifier's old part is kept when a task begins, with weights of 0 for
            new features, or the whole of it is drawn anew.
        bias: Whether the side head has biases.
        mask_scale: The largest scale s of the masks on the inner channels of residual blocks,
            from the second extractor on; no masks if left out.
    """

    reuse: bool = False
    bias: bool = False
    mask_scale: float | None = None

    def around(self, backbone: nn.Module, feature_size: int) -> nn.Module:
        """The list of extractors, of which the backbone is the first."""
        if self.mask_scale is not None:
            mask_blocks(copy.deepcopy(backbone))  # refuses one that has no residual blocks
        return ExtractorList(backbone, feature_size, self)


class ExtractorList(nn.Module):
    """Features of all extractors side by side, and the side head on the newest one's alone.

    The side head is not part of inference: the next task makes a new one.

    Args:
        extractor: The first extractor.
        feature_size: The number of features that each of them yields.
        growth: How they grow.
    """

    def __init__(self, extractor: nn.Module, feature_size: int, growth: Extractors) -> None:
        super().__init__()
        self.extractors = nn.ModuleList([extractor])
        self.side: nn.Linear | None = None
        self.fresh_head = not growth.reuse
        self._each, self._growth, self._tasks = feature_size, growth, 0

    @property
    def feature_size(self) -> int:
        """The number of features of all extractors."""
        return len(self.extractors) * self._each

    def add_task(self, classes: int) -> None:
        """From the second task on, append a copy of the newest extractor and freeze all others."""
        if self._tasks:
            newest = copy.deepcopy(self.extractors[-1])
            self.extractors.requires_grad_(False)
            self.extractors.append(newest)
            if self._growth.mask_scale is not None:
                mask_blocks(newest)
            self.side = nn.Linear(self._each, classes + 1, bias=self._growth.bias)
        grow_backbone(self.extractors[-1], classes)
        self._tasks += 1

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, extractors · features of each)."""
        return torch.cat([extractor(x) for extractor in self.extractors], dim=1)

    def with_side(self, x: Tensor) -> tuple[Tensor, Params]:
        """The same, and what the terms of the loss read besides."""
        found = [extractor(x) for extractor in self.extractors]
        side: Params = {}
        if self.side is not None:
            side[SIDE] = self.side(found[-1])
            if self._growth.mask_scale is not None:
                side[USED] = used_share(self.extractors[-1]).unsqueeze(0)
        return torch.cat(found, dim=1), side

    def at(self, epoch: int, batch: int, batches: int) -> None:
        """Set the scale of the newest extractor's masks."""
        if self._growth.mask_scale is not None:
            set_scale(self.extractors[-1], self._growth.mask_scale, batch, batches)

    def stored(self) -> int:
        """The number of parameters that features are computed from: none of masked channels."""
        return sum(p.numel() for each in self.extractors for p in inference_copy(each).parameters())

    def folded(self) -> nn.Module:
        """A copy for inference: no side head, no masked channels, every extractor folded."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        twin.side = None
        for index, extractor in enumerate(twin.extractors):
            whole = inference_copy(extractor)
            fold = getattr(whole, "folded", None)
            twin.extractors[index] = fold() if callable(fold) else whole
        return twin


def inference_copy(extractor: nn.Module) -> nn.Module:
    """An extractor without its masked channels; itself where it has no masks."""
    return pruned(extractor) if masked_convolutions(extractor) else extractor
