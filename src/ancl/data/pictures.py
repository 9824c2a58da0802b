"""Pictures, as files or opened by Pillow, to pixels: the way up they were taken."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from ancl.data.resizing import OTHERWISE, RESAMPLING, resized_pixels
from ancl.errors import ScenarioError
from ancl.files import read_plain
from ancl.runtime import check_memory

Picture = str | os.PathLike[str] | Image.Image
"""The path of an image file, or an image that Pillow opened."""

UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for files that are not images."""

_GREY = ("1", "L")
_DEEP = ("I", "F")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_SHOWN = 5


def is_picture_like(value: object) -> bool:
    """Whether a value is a picture: a path, or an image that Pillow opened."""
    return isinstance(value, str | os.PathLike | Image.Image)


def pixels_of(
    image: Image.Image,
    name: str,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    resampling: Image.Resampling = OTHERWISE,
) -> NDArray[np.uint8]:
    """The pixels of an image: (H, W) if it is grey, (H, W, 3) otherwise, or as ``mode`` says.

    Args:
        image: The image; it is turned the way up it was taken.
        name: What to call it in messages.
        size: Height and width to resize to.
        mode: The mode of Pillow to convert it to.
        resampling: How it is resized.

    Raises:
        ScenarioError: It has more than 8 bits per pixel.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(_DEEP):
        raise ScenarioError(
            f"{name} has more than 8 bits per pixel ({image.mode}). Convert it to 8 bits."
        )
    image = image.convert(mode or ("L" if image.mode in _GREY else "RGB"))
    if size is not None and resampling == RESAMPLING:
        return resized_pixels(np.asarray(image), size[0])
    if size is not None and image.size != (size[1], size[0]):
        image = image.resize((size[1], size[0]), resampling)
    return np.asarray(image)


def read_pictures(
    pictures: Sequence[Picture],
    shape: tuple[int, int, int] | None = None,
    square: int | None = None,
) -> NDArray[np.uint8]:
    """Pictures as one array (N, H, W, C).

    Args:
        pictures: Files or images.
        shape: Channels, height and width to convert each of them to. Without it they must be of
            one size, and grey ones become colour beside others in colour.
        square: Height and width to resize them to as ``data.size`` does.

    Raises:
        ScenarioError: Some cannot be read (all of them are named), or they differ in size.
    """
    size, mode = None, None
    if shape is not None:
        if shape[0] not in _MODES:
            raise ScenarioError(
                f"Pictures have 1, 3 or 4 channels, and this learner's images {shape[0]}. Give "
                f"arrays of the shape (N, {shape[1]}, {shape[2]}, {shape[0]})."
            )
        size, mode = shape[1:], _MODES[shape[0]]
    resampling = OTHERWISE
    if square is not None:
        size, resampling = (square, square), RESAMPLING
    if size is not None:
        pixels = len(pictures) * size[0] * size[1] * (shape[0] if shape else 3)
        check_memory(pixels, f"{len(pictures)} images")
    read = partial(_read, size=size, mode=mode, resampling=resampling)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        places = range(len(pictures))
        found = list(pool.map(lambda place: read(pictures[place], place), places))
    problems = [each for each in found if isinstance(each, str)]
    if problems:
        more = f" And {len(problems) - _SHOWN} more." if len(problems) > _SHOWN else ""
        raise ScenarioError("\n".join(problems[:_SHOWN]) + more)
    return _stacked(pictures, [each for each in found if not isinstance(each, str)])


def _read(
    picture: Picture,
    place: int,
    *,
    size: tuple[int, int] | None,
    mode: str | None,
    resampling: Image.Resampling,
) -> NDArray[np.uint8] | str:
    """The pixels of a picture, or what is wrong with it."""
    name = _name(picture, place)
    try:
        if isinstance(picture, Image.Image):
            return pixels_of(picture, name, size, mode, resampling)
        if Path(picture).is_dir():
            return f"{name} is a folder. Give its files, for example sorted(Path(…).glob('*.jpg'))."
        with Image.open(io.BytesIO(read_plain(Path(picture)))) as opened:
            return pixels_of(opened, name, size, mode, resampling)
    except FileNotFoundError:
        return f"There is no file {name}."
    except UNREADABLE as error:
        return f"{name} is not an image that can be read ({error}). Remove or replace it."
    except ScenarioError as error:
        return str(error)


def _stacked(pictures: Sequence[Picture], images: list[NDArray[np.uint8]]) -> NDArray[np.uint8]:
    for place, image in enumerate(images):
        if image.shape[:2] != images[0].shape[:2]:
            (a, b), (c, d) = images[0].shape[:2], image.shape[:2]
            raise ScenarioError(
                f"The images differ in size: {_name(pictures[0], 0)} is {b}x{a} and "
                f"{_name(pictures[place], place)} {d}x{c} (width x height). The first task "
                f"decides the size, so resize its images: [Image.open(f).resize((32, 32)) for f "
                f"in files]. Pictures that come later are resized to it."
            )
    if any(image.ndim == 3 for image in images):
        images = [np.stack([image] * 3, axis=2) if image.ndim == 2 else image for image in images]
    else:
        images = [image[:, :, None] for image in images]
    return np.stack(images)


def _name(picture: Picture, place: int) -> str:
    if not isinstance(picture, Image.Image):
        return str(picture)
    return str(getattr(picture, "filename", "")) or f"image {place}"
