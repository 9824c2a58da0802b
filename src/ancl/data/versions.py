"""Twelve fixed versions of every image, each made when a batch needs it: EEIL's enlarged data."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from ancl.data.augment import cut, padding

VERSIONS = 12
BRIGHTNESS = 63.0
"""At most so many grey levels are added or taken away."""
CONTRAST = (0.2, 1.8)


@dataclass(frozen=True, eq=False)
class Versions:
    """What was drawn for every image, once: its versions are the same in every epoch.

    In order: the image as it is, brighter or darker, with more or less contrast; a crop of each
    of these three; the mirror images of these six. Only what was drawn is kept, since the images
    themselves would take twelve times the memory.

    Differs: the released code keeps fractions of grey levels, and no crop of it begins at the
    last of the 9 places down or across.

    Args:
        shift: Grey levels added to an image (N,).
        factor: What its distance from each channel's mean is multiplied by (N,).
        corner: Where its three crops begin in the padded image: top and left (2, 3, N).
    """

    shift: Tensor
    factor: Tensor
    corner: Tensor

    @staticmethod
    def draw(x: Tensor, randomness: Generator) -> Versions:
        """Versions of uint8 images (N, H, W, C)."""
        last = 2 * padding(*x.shape[1:3])
        return Versions(
            torch.empty(len(x)).uniform_(-BRIGHTNESS, BRIGHTNESS, generator=randomness),
            torch.empty(len(x)).uniform_(*CONTRAST, generator=randomness),
            torch.randint(0, last + 1, (2, 3, len(x)), generator=randomness),
        )

    def of(self, x: Tensor, image: Tensor, version: Tensor) -> Tensor:
        """The images of a batch, which are those of these numbers, each in one of its versions."""
        kind = version % 3
        shift = torch.where(kind == 1, self.shift[image], 0.0)
        factor = torch.where(kind == 2, self.factor[image], 1.0)
        cropped, whole = version // 3 % 2 == 1, padding(*x.shape[1:3])
        top, left = torch.where(cropped, self.corner[:, kind, image], whole).unsqueeze(2)
        return cut(_toned(x, shift, factor), top, left, version >= VERSIONS // 2)


def _toned(x: Tensor, shift: Tensor, factor: Tensor) -> Tensor:
    """Images with other brightness and contrast, to the nearest grey level."""
    shift, factor = (each.to(x.device).view(-1, 1, 1, 1) for each in (shift, factor))
    pixels = x.to(torch.float32)
    # (x − mean) · factor + mean + shift: a factor of 1 and no shift give the image to the bit.
    constant = pixels.mean(dim=(1, 2), keepdim=True) * (1 - factor) + shift
    return pixels.mul_(factor).add_(constant).round_().clamp_(0, 255).to(torch.uint8)
