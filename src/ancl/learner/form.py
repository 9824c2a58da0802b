"""The form of a learner's images, and how others are brought to it: where that is certain.

Nothing is guessed: images whose layout or values may mean two things are refused with the way out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import torch
from torch import Tensor

from ancl.data import Samples
from ancl.data.convert import check_finite
from ancl.data.pictures import read_pictures
from ancl.data.resizing import resized
from ancl.data.source import value_range
from ancl.data.storage import ImageView, in_colour
from ancl.errors import ScenarioError
from ancl.picture import PLAIN, PictureRule

_CHANNELS = (1, 3, 4)
_DARK = 128
"""Bytes that end below this may have another largest value than 255."""
_FAR = 10
"""Values this many times larger than training's are on another scale."""


@dataclass(frozen=True)
class Form:
    """What the images of a learner are; its first task decides it.

    Args:
        shape: The shape of one image as the network sees it: channels first.
        pixels: Whether they are bytes, which are normalised; floats are read as they are.
        values: The smallest and the largest value learned from; nothing where that is not known.
        rule: How pictures are brought to the shape.
        resized: Whether arrays of any size are brought to it, too, as ``data.size`` does.
    """

    shape: tuple[int, ...]
    pixels: bool
    values: tuple[float, float] | None = None
    rule: PictureRule = PLAIN
    resized: bool = False

    @classmethod
    def of(cls, x: ImageView, rule: PictureRule = PLAIN, *, resized: bool = False) -> Self:
        """The form of checked images."""
        shape = Samples(x, torch.zeros(len(x), dtype=torch.long)).input_shape
        return cls(shape, x.dtype == torch.uint8, value_range(x), rule, resized)

    def widened(self, x: ImageView) -> Self:
        """The same after more images were learned from."""
        (low, high), before = value_range(x), self.values
        return replace(self, values=(min(before[0], low), max(before[1], high)) if before else None)

    def joined(self, other: Self) -> Self:
        """The same after all that another learned from, too."""
        if self.values is None or other.values is None:
            return replace(self, values=None)
        low, high = zip(self.values, other.values, strict=True)
        return replace(self, values=(min(low), max(high)))

    @property
    def is_image(self) -> bool:
        """Whether samples have channels, height and width."""
        return len(self.shape) == 3 and self.shape[0] in _CHANNELS

    @property
    def picture(self) -> tuple[int, int, int] | None:
        """The shape that pictures are converted to; nothing where samples are not images."""
        if len(self.shape) != 3:
            return None
        c, h, w = self.shape
        return c, h, w

    @property
    def image_bytes(self) -> int:
        """The bytes of one image as it is kept: pixels as bytes, other inputs as 4 bytes each."""
        return math.prod(self.shape) * (1 if self.pixels else 4)

    @property
    def square(self) -> int | None:
        """The size that images are brought to whatever theirs is; nothing where it must be this."""
        return self.shape[1] if self.resized else None

    def fit(self, x: Tensor | ImageView, say: Callable[[str], None]) -> Tensor | ImageView:
        """Images in this form; a single one gets an axis for their number.

        A view of images that have it already stays a view.

        Args:
            x: Bytes or floats, channels first or last.
            say: Takes a warning.

        Raises:
            ScenarioError: They have another size, or what their values stand for is not certain.
        """
        x = self._colourful(x)
        if isinstance(x, ImageView):
            c, h, w = self.picture or (0, 0, 0)
            size = x.shape[1:3] if self.resized else (h, w)
            if self.pixels and x.dtype == torch.uint8 and len(x) and x.shape[1:] == (*size, c):
                return resized(x, self.square, self.rule)
            x = x.dense()
        if x.numel() == 0:
            raise ScenarioError(f"There are no images: the array has the shape {tuple(x.shape)}.")
        x = self._arranged(x)
        if x.dtype != torch.uint8:
            check_finite(x)
        if not self.pixels:
            return self._as_floats(x, say)
        x = self._in_channels(self._as_bytes(x), say)
        return resized(ImageView.of(x), self.square, self.rule) if self.resized else x

    def _colourful(self, x: Tensor | ImageView) -> Tensor | ImageView:
        """Grey bytes with three equal channels, where that is what was learned from."""
        if not self.pixels or self.shape[0] != 3 or x.dtype != torch.uint8 or x.shape[-1] != 1:
            return x
        return in_colour(x) if isinstance(x, ImageView) else x.expand(*x.shape[:-1], 3)

    # -- layout ------------------------------------------------------------------------------

    def _arranged(self, x: Tensor) -> Tensor:
        """With the axes (N, H, W, C) for a learner of bytes, as the network reads them else."""
        # One image comes before many grey ones without channels: (3, H, W) is one.
        for layout in (self._batch, self._recoloured):
            for images in (x, x.unsqueeze(0)):
                if (arranged := layout(images)) is not None:
                    return arranged
        given = Samples(x, torch.empty(0)).input_shape if x.ndim == 4 else tuple(x.shape)
        raise ScenarioError(
            f"The images have shape {given}, but this learner began with {self.shape} (channels "
            f"first). "
            + (
                f"It resizes images of any size, with {self.shape[0]} channels: give these."
                if self.resized
                else "Resize them to it; files and Pillow images are resized for you."
            )
        )

    def _batch(self, x: Tensor) -> Tensor | None:
        shape = tuple(x.shape[1:])
        if len(self.shape) != 3:
            return x if shape == self.shape else None
        c, h, w = self.shape
        if self.resized:
            h, w = self._size_of(shape)
        if c == 1 and shape == (h, w):
            return x.unsqueeze(3) if self.pixels else x.unsqueeze(1)
        # Where both fit, bytes have their channels last and floats first, as everywhere here.
        layouts = {(h, w, c): self._last, (c, h, w): self._first}
        if x.dtype == torch.uint8:
            layouts = {(c, h, w): self._first, (h, w, c): self._last}
        return layouts[shape](x) if shape in layouts else None

    def _size_of(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Height and width of images of any size, of this shape: channels are where they fit."""
        if len(shape) == 3 and shape[2] != self.shape[0]:
            return shape[1], shape[2]
        # One pixel wide would be a row of a single image whose channels come last.
        return (shape[0], shape[1]) if len(shape) > 2 or shape[1:] > (1,) else (0, 0)

    def _recoloured(self, x: Tensor) -> Tensor | None:
        """Images of the same size with other channels; floats can only be repeated."""
        if not self.is_image:
            return None
        c, h, w = self.shape
        if self.resized and x.ndim == 4 and x.shape[3] in _CHANNELS:
            h, w = x.shape[1:3]
        x = x.unsqueeze(3) if x.ndim == 3 else x
        shape = tuple(x.shape[1:])
        last, first = shape[:2] == (h, w), shape[1:] == (h, w)
        channels = shape[2] if last and len(shape) == 3 else shape[0] if first else 0
        if channels not in _CHANNELS or (not self.pixels and (channels, c) != (1, 3)):
            return None
        x = self._last(x) if last else self._first(x)
        return x if self.pixels else x.expand(-1, c, -1, -1).contiguous()

    def _first(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1).contiguous() if self.pixels else x

    def _last(self, x: Tensor) -> Tensor:
        return x if self.pixels else x.permute(0, 3, 1, 2).contiguous()

    def _in_channels(self, x: Tensor, say: Callable[[str], None]) -> Tensor:
        """Bytes in the learner's channels: converted as pictures are."""
        if self.picture is None or x.shape[3] == self.shape[0]:
            return x
        pictures = list(x.numpy())
        return torch.from_numpy(read_pictures(pictures, self.picture, rule=self.rule, say=say))

    # -- values ------------------------------------------------------------------------------

    def _as_bytes(self, x: Tensor) -> Tensor:
        if x.dtype == torch.uint8:
            return x
        low, high = _range(x)
        if low >= 0 and high <= 1:
            if self.values and 1 < self.values[1] < _DARK and high > 0:
                raise ScenarioError(
                    f"The images are floats from {low:g} to {high:g}, and this learner learned "
                    f"from bytes up to {self.values[1]:g}: what 1.0 stands for is not certain. "
                    f"Give bytes (uint8) of the same scale."
                )
            return (x * 255).round().to(torch.uint8)
        if _whole_bytes(x):
            return x.to(torch.uint8)
        raise ScenarioError(
            f"The images are floats from {low:g} to {high:g}, but this learner learned from bytes "
            f"(uint8, 0 to 255) and normalises them itself. Give them as they were before they "
            f"were normalised: uint8, or floats from 0 to 1."
        )

    def _as_floats(self, x: Tensor, say: Callable[[str], None]) -> Tensor:
        unit, byte = self._scale()
        if x.dtype == torch.uint8:
            if self.is_image and (unit or byte):
                return x.float() / 255 if unit else x.float()
            raise ScenarioError(
                f"The images are bytes (uint8), but this learner learned from floats"
                f"{self._learned()}, and how those were made of bytes is not known. Convert them "
                f"as you did for learning."
            )
        if self.values is None:
            return x
        low, high = _range(x)
        if not self.is_image:
            self._warn_if_far(low, high, say)
            return x
        if unit and _whole_bytes(x) and high > 1:
            return x / 255
        if byte and low >= 0 and high <= 1:
            return x * 255
        odd = self._far(low, high) or (self.values[0] < 0 and high > 0 and _shares(x))
        if unit:
            odd = low < 0 or high > 1
        if byte:
            odd = low < 0 or high > 255
        if odd:
            raise ScenarioError(
                f"The images have values from {low:g} to {high:g}, but this learner learned from "
                f"floats{self._learned()}. Prepare them as you did for learning."
            )
        return x

    def _scale(self) -> tuple[bool, bool]:
        """Whether values learned from were shares, 0 to 1, or bytes, 0 to 255."""
        if self.values is None or self.values[0] < 0:
            return False, False
        return self.values[1] <= 1, _DARK <= self.values[1] <= 255

    def _far(self, low: float, high: float) -> bool:
        reach = max(map(abs, self.values or (0.0,)))
        return 0 < _FAR * reach < max(abs(low), abs(high))

    def _warn_if_far(self, low: float, high: float, say: Callable[[str], None]) -> None:
        if self._far(low, high):
            say(
                f"The samples have values from {low:g} to {high:g}, and this learner learned from "
                f"floats{self._learned()}. If that is another scale, prepare them as for learning."
            )

    def _learned(self) -> str:
        return f" from {self.values[0]:g} to {self.values[1]:g}" if self.values else ""


def _range(x: Tensor) -> tuple[float, float]:
    low, high = x.aminmax()
    return float(low), float(high)


def _whole_bytes(x: Tensor) -> bool:
    """Whether floats are whole numbers from 0 to 255."""
    return bool(((x >= 0) & (x <= 255) & (x == x.round())).all())


def _shares(x: Tensor) -> bool:
    """Whether floats are bytes divided by 255: all of them multiples, from 0 to 1."""
    scaled = x * 255
    return bool(((x >= 0) & (x <= 1) & ((scaled - scaled.round()).abs() < 1e-3)).all())
