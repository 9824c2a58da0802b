"""Real images that come with the package: no download. See ``EMBEDDED.md`` for their licences.

- Handwritten digits: the test part of "Optical Recognition of Handwritten Digits" by E. Alpaydin
  and C. Kaynak (1998), UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, under the
  Creative Commons Attribution 4.0 International licence (CC BY 4.0).
- Garments: 3,000 images of Fashion-MNIST by Zalando SE (2017), at half their size, under the MIT
  licence.
"""

from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from ancl.data.source import Source, make_source

_SEED = 1998
_TEST_FRACTION = 1 / 3
_TRAIN = 100
_SCALE = 15
"""The file counts dark points from 0 to 16; times 15 they fill a byte."""


def digits() -> Source:
    """1,797 digits of 8 by 8 pixels in 10 classes; a third of each class is for the test."""
    images, labels = _read()
    return make_source("digits", images * _SCALE, labels, test_fraction=_TEST_FRACTION)


def hard_digits(*, shift: int = 3, noise: float = 0.1) -> Source:
    """The digits anywhere on a larger canvas, under noise: the same images each time.

    Args:
        shift: How many pixels a digit may be off the centre, in each direction.
        noise: Standard deviation of the pixels' Gaussian noise, as a part of their range.
    """
    images, labels = _read()
    # RandomState promises the same draws in every version of NumPy; torch and Generator do not.
    random = np.random.RandomState(_SEED)
    side = images.shape[1] + 2 * shift
    canvas = np.zeros((len(images), side, side))
    corners = random.randint(0, 2 * shift + 1, size=(len(images), 2))
    for target, image, (top, left) in zip(canvas, images, corners, strict=True):
        target[top : top + image.shape[0], left : left + image.shape[1]] = image
    noisy = canvas * _SCALE + random.normal(0.0, noise * 255, size=canvas.shape)
    pixels = noisy.round().clip(0, 255).astype(np.uint8)
    return make_source("hard_digits", pixels, labels, test_fraction=_TEST_FRACTION)


def fashion_digits() -> Source:
    """10 kinds of garments (0 to 9), then 10 digits (10 to 19), all of 14 by 14 pixels.

    100 images of each class are for training, the others for the test: 200 of each garment and
    about 80 of each digit.
    """
    garments = _stored("fashion.npz")
    images, labels = _read()
    # Digits in the middle of a garment's canvas.
    images = np.pad(images * _SCALE, ((0, 0), (3, 3), (3, 3)))
    rank = np.zeros(len(labels), dtype=int)
    for digit in range(10):
        rank[labels == digit] = np.arange((labels == digit).sum())
    parts = []
    for part, chosen in (("train", rank < _TRAIN), ("test", rank >= _TRAIN)):
        parts.append(np.concatenate([garments[f"{part}_images"], images[chosen]]))
        parts.append(np.concatenate([garments[f"{part}_labels"], labels[chosen] + 10]))
    return make_source("fashion_digits", *parts)


def _read() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    stored = _stored("digits.npz")
    return stored["images"], stored["labels"]


def _stored(name: str) -> dict[str, NDArray[np.uint8]]:
    resource = files("ancl.data.formats").joinpath(name)
    with resource.open("rb") as file, np.load(file) as stored:
        return dict(stored)
