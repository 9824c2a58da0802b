"""Pictures of any form and size, given one by one, to one array."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from ancl.errors import ScenarioError, counted
from ancl.files import read_plain
from ancl.picture import PLAIN, PictureRule, Pixels, decode, mode_of, pixels_of
from ancl.runtime import check_memory

Picture = str | os.PathLike[str] | bytes | Image.Image | Pixels
"""The path of an image file or its content, an image that Pillow opened, or its pixels."""

_SHOWN = 5


def is_picture_like(value: object) -> bool:
    """Whether a value is a picture: a path, the content of a file, or an image of Pillow's."""
    return isinstance(value, str | os.PathLike | bytes | bytearray | memoryview | Image.Image)


def is_pixels(value: object) -> bool:
    """Whether a value is an array that is one picture: bytes (H, W), or with 1, 3 or 4 channels."""
    if not isinstance(value, np.ndarray) or value.dtype != np.uint8 or not value.size:
        return False
    return value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3, 4))


def read_pictures(
    pictures: Sequence[Picture],
    shape: tuple[int, int, int] | None = None,
    *,
    size: int | None = None,
    rule: PictureRule = PLAIN,
    say: Callable[[str], None] = lambda message: None,
) -> Pixels:
    """Pictures as one array (N, H, W, C).

    Args:
        pictures: Files, their contents, images or pixels.
        shape: Channels, height and width to convert each of them to. Without it they must be of
            one size, and grey ones become colour beside others in colour.
        size: Height and width to resize each of them to, where there is no shape.
        rule: How they become images of one form.
        say: Receives how many are transparent.

    Raises:
        ScenarioError: Some cannot be read (all of them are named), or they differ in size.
    """
    images = try_pictures(pictures, shape, size=size, rule=rule, say=say)
    problems = [image for image in images if isinstance(image, str)]
    if problems:
        more = f" And {len(problems) - _SHOWN} more." if len(problems) > _SHOWN else ""
        raise ScenarioError("\n".join(problems[:_SHOWN]) + more)
    return _stacked(pictures, [image for image in images if not isinstance(image, str)])


def try_pictures(
    pictures: Sequence[Picture],
    shape: tuple[int, int, int] | None = None,
    *,
    size: int | None = None,
    rule: PictureRule = PLAIN,
    say: Callable[[str], None] = lambda message: None,
) -> list[Pixels | str]:
    """The pixels of each picture, or what is wrong with it; see ``read_pictures``."""
    wanted, mode = (size, size) if size else None, None
    if shape is not None:
        wanted, mode = shape[1:], mode_of(shape[0])
    if wanted is not None:
        channels = shape[0] if shape else 3
        check_memory(len(pictures) * channels * wanted[0] * wanted[1], f"{len(pictures)} images")
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        positions = range(len(pictures))
        read = list(pool.map(lambda at: _read(pictures[at], at, rule, wanted, mode), positions))
    if transparent := sum(laid for _, laid in read):
        say(transparent_note(transparent, len(read), rule))
    return [image for image, _ in read]


def transparent_note(transparent: int, count: int, rule: PictureRule) -> str:
    """What is done with transparent pixels."""
    verb = "has" if transparent == 1 else "have"
    return (
        f"{transparent:,} of {counted(count, 'image')} {verb} transparent pixels: they are laid on "
        f"{rule.background} (data.background)."
    )


def _read(
    picture: Picture,
    position: int,
    rule: PictureRule,
    size: tuple[int, int] | None,
    mode: str | None,
) -> tuple[Pixels | str, bool]:
    """The pixels of a picture and whether some were transparent, or what is wrong with it."""
    name = _name(picture, position)
    try:
        if isinstance(picture, np.ndarray):
            flat = picture[:, :, 0] if picture.ndim == 3 and picture.shape[2] == 1 else picture
            return pixels_of(Image.fromarray(flat), name, rule, size, mode)
        if isinstance(picture, Image.Image):
            return pixels_of(picture, name, rule, size, mode)
        if isinstance(picture, bytes | bytearray | memoryview):
            return decode(bytes(picture), name, rule, size, mode)
        if Path(picture).is_dir():
            advice = "Give its files, for example sorted(Path(…).glob('*.jpg'))."
            return f"{name} is a folder. {advice}", False
        return decode(read_plain(Path(picture)), name, rule, size, mode)
    except FileNotFoundError:
        return f"There is no file {name}.", False
    except OSError as error:
        return f"{name} cannot be read ({error.strerror or error}).", False
    except ScenarioError as error:
        return f"{error} Remove or replace it.", False


def _stacked(pictures: Sequence[Picture], images: list[Pixels]) -> Pixels:
    for position, image in enumerate(images):
        if image.shape[:2] != images[0].shape[:2]:
            (a, b), (c, d) = images[0].shape[:2], image.shape[:2]
            raise ScenarioError(
                f"The images differ in size: {_name(pictures[0], 0)} is {b}x{a} and "
                f"{_name(pictures[position], position)} {d}x{c} (width x height). The first task "
                f"decides the size. Say which: Learner(…, size=32). Pictures that come later are "
                f"resized to it."
            )
    if any(image.ndim == 3 for image in images):
        images = [np.stack([image] * 3, axis=2) if image.ndim == 2 else image for image in images]
    else:
        images = [image[:, :, None] for image in images]
    return np.stack(images)


def _name(picture: Any, position: int) -> str:
    if isinstance(picture, str | os.PathLike):
        return str(picture)
    return str(getattr(picture, "filename", "")) or f"image {position}"
