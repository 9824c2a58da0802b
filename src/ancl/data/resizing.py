"""Images brought to one size, by one rule: as bytes, by bicubic interpolation, sides as they come.

Arrays are resized as they are read, so that no more than a batch is in memory at that size.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from ancl.data.storage import ImageView, Storage
from ancl.errors import ScenarioError

MOST_PIXELS = 4096
"""The largest height and width that images are resized to."""
RESAMPLING = Image.Resampling.BICUBIC
"""That of ``data.size``."""
OTHERWISE = Image.Resampling.BILINEAR
"""That of ``folder:PATH@32``, and of pictures that are brought to the size of earlier ones."""
_COLOURS = 3


class ResizedStorage(Storage):
    """Images of another storage, resized as they are read.

    Args:
        storage: Where they are, uint8 (N, H, W, C).
        size: Their new height and width.
    """

    def __init__(self, storage: Storage, size: int) -> None:
        super().__init__((len(storage), size, size, storage.shape[3]), storage.dtype)
        self._storage = storage

    def rows(self, index: Tensor) -> Tensor:
        """Read, then resized."""
        size = self.shape[1]
        images = self._storage.rows(index).numpy()
        out = np.empty((len(images), *self.shape[1:]), np.uint8)
        for image, place in zip(images, out, strict=True):
            place[...] = resized_pixels(image, size)
        return torch.from_numpy(out)


def resized(x: ImageView, size: int | None) -> ImageView:
    """The same images at this height and width; as they are where there is no size.

    Raises:
        ScenarioError: They are not bytes.
    """
    if size is None or (x.shape[1:3] == (size, size) and x.dtype == torch.uint8):
        return x
    if x.dtype != torch.uint8 and x.ndim == 4 and x.shape[2:] == (size, size):
        return x  # floats are read as they are: channels first
    if x.ndim == 2:
        raise ScenarioError(
            f"These are vectors of {x.shape[1]} numbers, and no images: they cannot be resized. If "
            f"another model has made them, use network='features' (--network features)."
        )
    if x.dtype != torch.uint8 or x.ndim != 4:
        raise ScenarioError(
            f"data.size={size} resizes images of bytes (uint8), and these are floats of the shape "
            f"{x.shape[1:]}. Give uint8 images (N, H, W, C), or leave data.size out and resize "
            f"them yourself."
        )
    return ImageView(ResizedStorage(x.storage, size), x.index)


def resized_pixels(image: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """One image (H, W, C), or (H, W); channels that are no colours are images of their own.

    Pillow would take a fourth channel for transparency, and multiply the others by it.
    """
    if image.shape[:2] == (size, size):
        return image
    if image.ndim == 2 or image.shape[2] == _COLOURS:
        return np.asarray(Image.fromarray(image).resize((size, size), RESAMPLING))
    return np.stack([resized_pixels(layer, size) for layer in image.transpose(2, 0, 1)], axis=2)
