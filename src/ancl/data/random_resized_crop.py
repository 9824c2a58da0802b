"""Random parts of whole batches resized as Pillow resizes them: two products of matrices.

Resizing with Pillow's bilinear filter is linear and works on rows and columns separately: an image
becomes R · image · Cᵀ, where R and C hold the weights of the filter. Weights for pixels of the
padding fall away (they are zero), and a mirrored image has the rows of C in reverse.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Generator, Tensor

from ancl.runtime import send

AREA = (0.08, 1.0)
ASPECT = (3 / 4, 4 / 3)
ATTEMPTS = 10
_FAR = 1e9
_TABLE_SIDE = 32


class Boxes(NamedTuple):
    """One part of each image, in whole pixels, and whether it is mirrored; each (B,)."""

    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    mirrored: Tensor

    def at(self, index: Tensor | slice) -> Boxes:
        """Those of some images."""
        return Boxes(*(values[index] for values in self))


def whole_boxes(n: int, height: int, width: int) -> Boxes:
    """All of each image, upright: to resize it changes no pixel."""
    zeros = torch.zeros(n, dtype=torch.float64)
    return Boxes(zeros, zeros, zeros + height, zeros + width, torch.zeros(n, dtype=torch.bool))


def draw_boxes(n: int, height: int | Tensor, width: int | Tensor, generator: Generator) -> Boxes:
    """Parts of 8 % to 100 % of the area and 3:4 to 4:3 in shape, anywhere; mirrored or not.

    Of ten candidates an image takes the first that fits inside, else the middle of the image, as
    torchvision's ``RandomResizedCrop`` does.

    Args:
        n: How many images.
        height: Of all images, or of each (n,).
        width: The same.
        generator: Where randomness comes from: as many numbers, whatever the sizes.
    """
    size, shape = torch.rand(2, n, ATTEMPTS, generator=generator, dtype=torch.float64)
    height, width = (_one_each(n, side) for side in (height, width))
    area = (height * width).view(-1, 1) * (AREA[0] + (AREA[1] - AREA[0]) * size)
    low, high = math.log(ASPECT[0]), math.log(ASPECT[1])
    aspect = (low + (high - low) * shape).exp()
    wide, tall = (area * aspect).sqrt().round(), (area / aspect).sqrt().round()
    fits = (wide > 0) & (wide <= width.view(-1, 1)) & (tall > 0) & (tall <= height.view(-1, 1))
    first = fits.to(torch.uint8).argmax(dim=1, keepdim=True)
    chosen = fits.any(dim=1)
    middle = _middle(height, width)
    h = torch.where(chosen, tall.gather(1, first).squeeze(1), middle[0])
    w = torch.where(chosen, wide.gather(1, first).squeeze(1), middle[1])
    down, across = torch.rand(2, n, generator=generator, dtype=torch.float64)
    top = torch.where(chosen, (down * (height - h + 1)).floor(), ((height - h) / 2).floor())
    left = torch.where(chosen, (across * (width - w + 1)).floor(), ((width - w) / 2).floor())
    mirrored = torch.randint(0, 2, (n,), generator=generator).bool()
    return Boxes(top, left, h, w, mirrored)


def _one_each(n: int, side: int | Tensor) -> Tensor:
    return torch.as_tensor(side, dtype=torch.float64).expand(n)


def _middle(height: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
    """The largest allowed part: height and width, at most as flat or steep as the aspects say."""
    aspect = width / height
    tall = torch.where(aspect < ASPECT[0], (width / ASPECT[0]).round(), height)
    wide = torch.where(aspect > ASPECT[1], (height * ASPECT[1]).round(), width)
    return tall, wide


def resize_boxes(x: Tensor, boxes: Boxes, pad: int) -> Tensor:
    """Each image's box, in pixels of the padded image, resized to the image's own size.

    Args:
        x: uint8 images (B, H, W, C).
        boxes: Which part of each.
        pad: Pixels of zeros around every image.

    Returns:
        uint8 images of the same shape.
    """
    boxes = Boxes(*(send(drawn, x.device) for drawn in boxes))
    upright = torch.zeros_like(boxes.mirrored)
    down = _matrices(boxes.top, boxes.height, upright, x.shape[1], pad)
    across = _matrices(boxes.left, boxes.width, boxes.mirrored, x.shape[2], pad)
    return _resized(x, down, across)


def _resized(x: Tensor, down: Tensor, across: Tensor) -> Tensor:
    """``down`` · image · ``across``ᵀ for every image and channel, rounded."""
    batch, height, width, channels = x.shape
    # Within a row the channels lie one after the other: then both products read as they lie.
    rows = torch.stack(x.unbind(3), dim=2).to(torch.float32).view(batch, height * channels, width)
    wide = torch.bmm(rows, across.transpose(1, 2)).view(batch, height, channels * width)
    # Weights are positive and add up to 1 at most: half a level more rounds, and stays below 256.
    # By way of int16, because from floats to bytes there is no fast way.
    pixels = torch.bmm(down, wide).add_(0.5).to(torch.int16).to(torch.uint8)
    return torch.stack(pixels.view(batch, height, channels, width).unbind(2), dim=3)


def _matrices(start: Tensor, length: Tensor, mirrored: Tensor, side: int, pad: int) -> Tensor:
    """(B, side, side) weights of each image's box along one axis."""
    if side <= _TABLE_SIDE:
        whole = side + 2 * pad
        position = (mirrored * whole + start) * (whole + 1) + length
        return _table(side, pad, start.device).index_select(0, position.long())
    position = torch.arange(side, device=start.device)
    return _weights(
        start, length, torch.where(mirrored.view(-1, 1), position.flip(0), position), pad
    )


@functools.lru_cache(maxsize=4)
def _table(side: int, pad: int, device: torch.device) -> Tensor:
    """The weights of every box there is, by (mirrored or not, start, length): (N, side, side).

    Boxes lie on whole pixels, so for small images there are few, and to look them up is faster
    than to compute them (13 MB for a side of 32).
    """
    whole = side + 2 * pad
    starts, lengths = torch.meshgrid(torch.arange(whole), torch.arange(whole + 1), indexing="ij")
    fits = (lengths > 0) & (starts + lengths <= whole)
    upright = torch.zeros(whole, whole + 1, side, side)
    upright[fits] = _weights(starts[fits], lengths[fits], torch.arange(side), pad)
    return torch.stack([upright, upright.flip(2)]).view(-1, side, side).to(device)


def _weights(start: Tensor, length: Tensor, place: Tensor, pad: int) -> Tensor:
    """(B, side, side) weights: how much each pixel of the image counts for each pixel wanted.

    ``place`` counts the pixels wanted along the box, backwards for a mirrored image.

    A wanted pixel has a place in the box; pixels nearer to it than the filter reaches count,
    linearly less with the distance. The filter reaches one pixel, or as many as are shrunk to one.
    Pixels of the padding count in the sum the weights are divided by; those outside the box do
    not count, as if they were far away. All distances are in units of the reach.
    """
    side = place.shape[-1]
    start, length = start.to(torch.float32).view(-1, 1), length.to(torch.float32).view(-1, 1)
    reach = (length / side).clamp(min=1.0)
    whole = torch.arange(side + 2 * pad, dtype=torch.float32, device=start.device)
    there = whole + 0.5 - start
    outside = (there < 0) | (there > length)
    there = (there / reach).masked_fill_(outside, _FAR)
    wanted = (place + 0.5) * (length / side / reach)
    distance = (there.unsqueeze(1) - wanted.unsqueeze(2)).abs_()
    weights = torch.rsub(distance, 1).clamp_(min=0)
    return weights[:, :, pad : pad + side].div(weights.sum(dim=2, keepdim=True))
