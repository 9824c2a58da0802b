"""Images brought to one size, as bytes, by the rule of pictures.

Arrays are resized as they are read, so that no more than a batch is in memory at that size.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ancl.data.storage import ImageView, Storage
from ancl.errors import ScenarioError
from ancl.picture import SIZED, PictureRule, resized_pixels

MOST_PIXELS = 4096
"""The largest height and width that images are resized to."""


class ResizedStorage(Storage):
    """Images of another storage, resized as they are read.

    Args:
        storage: Where they are, uint8 (N, H, W, C).
        size: Their new height and width.
        rule: How they come to it.
    """

    def __init__(self, storage: Storage, size: int, rule: PictureRule) -> None:
        super().__init__((len(storage), size, size, storage.shape[3]), storage.dtype)
        self._storage, self._rule = storage, rule

    def rows(self, index: Tensor) -> Tensor:
        """Read, then resized."""
        size = (self.shape[1], self.shape[2])
        images = self._storage.rows(index).numpy()
        out = np.empty((len(images), *self.shape[1:]), np.uint8)
        for image, target in zip(images, out, strict=True):
            target[...] = resized_pixels(image, size, self._rule)
        return torch.from_numpy(out)


def resized(x: ImageView, size: int | None, rule: PictureRule = SIZED) -> ImageView:
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
    return ImageView(ResizedStorage(x.storage, size, rule), x.index)
