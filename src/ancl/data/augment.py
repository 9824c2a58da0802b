"""Random changes of whole uint8 batches, drawn from one CPU generator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from ancl.data.resized import draw_boxes, resize_boxes
from ancl.errors import SpecError, unknown

Augmentation = Callable[[Tensor, Generator], Tensor]
"""From a batch of images (B, H, W, C) and a source of randomness to a batch of the same shape."""


def augmentation(name: str) -> Augmentation:
    """The augmentation of this name: none, flip, crop or facil."""
    if name not in AUGMENTATIONS:
        raise SpecError(unknown("augmentation", name, AUGMENTATIONS))
    return AUGMENTATIONS[name]


def none(x: Tensor, generator: Generator) -> Tensor:
    """The batch as it is."""
    return x


def flip(x: Tensor, generator: Generator) -> Tensor:
    """Each image mirrored left to right with probability one half."""
    _only_images(x, "flip")
    mirrored = _coin(len(x), generator).to(x.device)
    return torch.where(mirrored.view(-1, 1, 1, 1), x.flip(2), x)


def crop(x: Tensor, generator: Generator) -> Tensor:
    """Each image padded with zeros, cut back to its size at a random place, and flipped or not.

    Padding, place and mirror together only say which pixel goes where: one gather does all three.
    """
    _only_images(x, "crop")
    batch, height, width, channels = x.shape
    pad = padding(height, width)
    rows, columns = torch.randint(0, 2 * pad + 1, (2, batch, 1), generator=generator)
    mirrored = _coin(batch, generator).view(-1, 1)
    across = torch.arange(width)
    rows = rows + torch.arange(height)
    columns = columns + torch.where(mirrored, across.flip(0), across)
    padded = F.pad(x, (0, 0, pad, pad, pad, pad))
    tall, wide = padded.shape[1:3]
    # Where each pixel lies in the batch laid out as one long row of pixels.
    first = torch.arange(batch).view(-1, 1, 1) * (tall * wide)
    place = (first + rows.unsqueeze(2) * wide + columns.unsqueeze(1)).flatten().to(x.device)
    return padded.view(-1, channels).index_select(0, place).view(x.shape)


def facil(x: Tensor, generator: Generator) -> Tensor:
    """A random part of each image padded with zeros, resized to its size, and flipped or not.

    FACIL's training transform, and with it the ANCL paper's, for CIFAR-100. Part and filter are
    those of torchvision's ``RandomResizedCrop`` on Pillow images, to within one grey level.
    """
    _only_images(x, "facil")
    batch, height, width, _ = x.shape
    pad = padding(height, width)
    boxes = draw_boxes(batch, height + 2 * pad, width + 2 * pad, generator)
    return resize_boxes(x, boxes, pad)


def padding(height: int, width: int) -> int:
    """4 pixels, and for images smaller than 32 an eighth of the shorter side, at least 1."""
    return min(4, max(1, min(height, width) // 8))


def _coin(n: int, generator: Generator) -> Tensor:
    return torch.randint(0, 2, (n,), generator=generator).bool()


def _only_images(x: Tensor, name: str) -> None:
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise SpecError(
            f"data.augment={name} works on uint8 images (N, H, W, C), and this data is {x.dtype} "
            f"of shape {tuple(x.shape)}. Use data.augment=none, or give uint8 images."
        )


AUGMENTATIONS: dict[str, Augmentation] = {
    "none": none,
    "flip": flip,
    "crop": crop,
    "facil": facil,
}
