"""Images with their labels, and the way from stored pixels to what a network reads."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated

import numpy as np
import torch
from torch import Generator, Tensor

from ancl.data.storage import Digests, ImageView
from ancl.hashing import LATER
from ancl.runtime import send
from ancl.seeding import generator

Label = str | int
"""What a user calls a class."""


@dataclass(frozen=True, eq=False, init=False)
class Samples:
    """Images and their class numbers: a view, so that no pixels move with them.

    Args:
        x: uint8 images (N, H, W, C), or float32 (N, ...) exactly as a network reads it.
        y: int64 class numbers (N,).
        features: What a backbone that never learns makes of them (N, D), where that is known.
    """

    x: ImageView
    y: Tensor
    features: Tensor | None

    def __init__(self, x: ImageView | Tensor, y: Tensor, features: Tensor | None = None) -> None:
        object.__setattr__(self, "x", ImageView.of(x) if isinstance(x, Tensor) else x)
        object.__setattr__(self, "y", y)
        object.__setattr__(self, "features", features)

    def __len__(self) -> int:
        return len(self.y)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one sample as a network sees it: channels first."""
        shape = self.x.shape[1:]
        return (shape[-1], *shape[:-1]) if self.x.dtype == torch.uint8 else shape

    def take(self, index: Tensor) -> Samples:
        """The samples at these positions, in this order."""
        features = None if self.features is None else self.features[index]
        return Samples(self.x.take(index), self.y[index], features)

    def of_class(self, number: int) -> Tensor:
        """The positions of a class's samples, in order; none where it has no samples."""
        return self._by_class[number] if number < len(self._by_class) else self.y[:0]

    @cached_property
    def _by_class(self) -> tuple[Tensor, ...]:
        # Once for all classes: to look through every label for each of them would take seconds.
        return torch.split(self.y.argsort(stable=True), self.y.bincount().tolist())

    @staticmethod
    def concatenate(parts: Sequence[Samples]) -> Samples:
        """All parts, one after the other; with features where all of them have some."""
        features = [part.features for part in parts if part.features is not None]
        return Samples(
            ImageView.joined([part.x for part in parts]),
            torch.cat([part.y for part in parts]),
            torch.cat(features) if len(features) == len(parts) else None,
        )


def interleaved(samples: Sequence[Samples]) -> Samples:
    """The images of several tasks, interleaved so that every batch has some of each."""
    joined = Samples.concatenate(samples)
    places = torch.cat([torch.linspace(0, 1, len(part)) for part in samples])
    return joined.take(places.argsort(stable=True))


@dataclass(frozen=True)
class Normalization:
    """Mean and standard deviation of each channel, for pixels between 0 and 1.

    Args:
        mean: One number for each channel.
        std: The same.
        floats: Whether they are of floats, as they are, and not of bytes divided by 255.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    floats: Annotated[bool, LATER] = False


def as_input(x: Tensor, normalization: Normalization | None, device: torch.device) -> Tensor:
    """(pixels / 255 - mean) / std, channels first in channels-last memory.

    Floats are read as they are, but for a normalization of floats.

    Bytes travel to the device and become floats there: a quarter of the traffic.
    """
    x = send(x, device)
    if x.dtype != torch.uint8:
        layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
        x = x.to(torch.float32)
        if normalization is not None and normalization.floats:
            moments = _moments(normalization, 1, device)
            mean, std = (moment.view(-1, *(1 for _ in x.shape[2:])) for moment in moments)
            x = (x - mean) / std
        return x.contiguous(memory_format=layout)
    pixels = x.to(torch.float32, memory_format=torch.contiguous_format).div_(255)
    if normalization is not None:
        # Whole rows at a time: three channels at a time would be a loop of three for each pixel.
        mean, std = _moments(normalization, x.shape[2], device)
        pixels.view(*x.shape[:2], -1).sub_(mean).div_(std)
    # The view of NHWC memory is already channels-last.
    return pixels.permute(0, 3, 1, 2)


@lru_cache(maxsize=32)
def _moments(
    normalization: Normalization, width: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Mean and std of a row of pixels on the device; kept, as copying them each time would wait."""
    mean, std = torch.tensor(normalization.mean), torch.tensor(normalization.std)
    return mean.repeat(width).to(device), std.repeat(width).to(device)


def divide(n: int, held: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Positions 0 … n-1 in two parts, kept and drawn at random, each in ascending order."""
    shuffled = torch.randperm(n, generator=generator)
    return shuffled[held:].sort().values, shuffled[:held].sort().values


def canonical(samples: Samples) -> Samples:
    """The samples by ascending class and, within a class, by the hash of the image."""
    return ordered(samples)[0]


def not_in(samples: Samples, others: Samples) -> Samples:
    """The samples whose image is not among the others; of equal ones of a class, the first."""
    out = {bytes(row) for row in others.x.digests()}
    first: dict[tuple[bytes, int], int] = {}
    for index, (row, label) in enumerate(zip(samples.x.digests(), samples.y.tolist(), strict=True)):
        if bytes(row) not in out:
            first.setdefault((bytes(row), label), index)
    return samples.take(torch.tensor(list(first.values()), dtype=torch.long))


def fingerprint(*parts: Samples) -> str:
    """A hash of images and class numbers, part by part, whatever the order within a part."""
    return hash_parts([ordered(part) for part in parts])


def ordered(samples: Samples) -> tuple[Samples, Digests]:
    """The samples in canonical order, with the hash of each image."""
    digests = samples.x.digests()
    keys = (*(digests[:, column] for column in (3, 2, 1, 0)), samples.y.numpy())
    order = np.lexsort(keys)
    return samples.take(torch.from_numpy(order)), digests[order]


def hash_parts(parts: Sequence[tuple[Samples, Digests]]) -> str:
    """The hash of ordered parts: form, images per class, and every image's own hash.

    Images of files that are larger than their rows count with all of their content.
    """
    whole = hashlib.sha256()
    for samples, digests in parts:
        form = (str(samples.x.dtype), samples.x.shape[1:], samples.y.bincount().tolist())
        whole.update(repr(form).encode())
        whole.update(digests.astype(">u8").tobytes())
        contents = samples.x.contents()
        if contents.any():
            whole.update(contents.astype(">u8").tobytes())
    return whole.hexdigest()


def hold_out(train: Samples, count: int, path: tuple[int, int]) -> tuple[Samples, Samples]:
    """Images to train on, and this number of each class to hold out, drawn by (seed, task).

    Of a class with no more images than that, one stays to train on.
    """
    order = torch.randperm(len(train), generator=generator(*path, "held out"))
    shuffled = train.y[order]
    held = torch.zeros(len(train), dtype=torch.bool)
    for label in sorted(set(train.y.tolist())) if count else ():
        of_class = order[(shuffled == label).nonzero().squeeze(1)]
        held[of_class[: min(count, len(of_class) - 1)]] = True
    return train.take((~held).nonzero().squeeze(1)), train.take(held.nonzero().squeeze(1))
