"""One picture, a file's bytes or an image of Pillow, to pixels: the way up it was taken.

Nothing here needs torch: a server answers with this and ONNX Runtime alone.
"""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageColor, ImageOps

from ancl.errors import ScenarioError, SpecError, printable

Resize = Literal["stretch", "crop", "fit"]
Filter = Literal["bilinear", "bicubic", "lanczos", "box", "nearest"]
Pixels = NDArray[np.uint8]

UNREADABLE = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError)
"""What Pillow raises for files that are not images."""
NEEDS_HEIF = "is a HEIC or AVIF picture, and pillow-heif is not installed"
"""What is wrong with a picture that only the extra ``heif`` can read."""
INSTALL_HEIF = "pip install 'ancl[heif]'"

_GREY = ("1", "L")
_DEEP = ("I", "F")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_RAW = (".dng", ".cr2", ".cr3", ".nef", ".arw", ".orf", ".rw2", ".raf")
_SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".jp2"),
    *(".ppm", ".pgm", ".pbm", ".pnm", ".tga", ".ico", ".heic", ".heif", ".hif", ".avif"),
    *(".jxl", ".svg", ".psd", ".xcf"),  # not readable, and named as such
    *_RAW,
)
_FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "TIFF", "BMP", "PPM", "JPEG2000", "TGA", "ICO")
"""What Pillow may take a file for: not for PostScript, which it gives to another program."""
_BEGINNINGS = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
_HEIF = frozenset([b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"mif1", b"msf1"])
_AVIF = frozenset([b"avif", b"avis"])
START = 32
"""How many first bytes of a file show what it is."""


def read_colour(name: object) -> str:
    """The name of a colour, if it is one without transparency.

    Raises:
        ValueError: It is none: what it must be.
    """
    with suppress(ValueError):
        if isinstance(name, str) and len(ImageColor.getrgb(name)) == 3:
            return name
    raise ValueError("must be a colour: white, black, … or #rrggbb")


@dataclass(frozen=True)
class PictureRule:
    """How pictures of any form become images of one form.

    Args:
        resize: ``stretch`` changes the proportions; ``crop`` keeps them and cuts off what is too
            long, in equal parts; ``fit`` keeps them and fills up with the background.
        filter: How pixels are interpolated.
        background: The colour that transparent pixels are laid on: a name, or #rrggbb.
    """

    resize: Resize = "stretch"
    filter: Filter = "bilinear"
    background: str = "white"

    def __post_init__(self) -> None:
        for name, kind in (("resize", Resize), ("filter", Filter)):
            if getattr(self, name) not in get_args(kind):
                raise SpecError(
                    f"data.{name} is {getattr(self, name)!r}. Possible: "
                    f"{', '.join(get_args(kind))}."
                )
        try:
            read_colour(self.background)
        except ValueError as error:
            shown = printable(str(self.background), 40)
            raise SpecError(f"data.background is {shown!r}; it {error}.") from None


PLAIN = PictureRule()
"""How pictures are read where nothing else is said."""
SIZED = PictureRule(filter="bicubic")
"""The same with ``data.size``."""


def plain_rule(size: int | None) -> PictureRule:
    """How images become those of one form, where only ``data.size`` is said, or nothing."""
    return PLAIN if size is None else SIZED


def is_picture(name: str) -> bool:
    """Whether a file's name ends as a picture's does, whether it can be read or not."""
    return Path(name).suffix.lower() in _SUFFIXES


def begins_as_picture(start: bytes) -> bool:
    """Whether the first bytes of a file are those of a picture, whatever its name is."""
    webp = start[:4] == b"RIFF" and start[8:12] == b"WEBP"
    return webp or start.startswith(_BEGINNINGS) or bool(_brands(start) & (_HEIF | _AVIF))


def mode_of(channels: int) -> str:
    """The mode of Pillow with this number of channels.

    Raises:
        ScenarioError: There is none.
    """
    if channels not in _MODES:
        raise ScenarioError(
            f"Pictures have 1, 3 or 4 channels, and this learner's images {channels}. Give arrays "
            f"with {channels} channels."
        )
    return _MODES[channels]


def decode(
    data: bytes,
    name: str,
    rule: PictureRule,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
    most_pixels: int | None = None,
) -> tuple[Pixels, bool]:
    """The pixels of an image file, and whether some were transparent; see ``pixels_of``.

    Args:
        data: The content of the file.
        name: What to call it in messages.
        rule: How it becomes an image of the wanted form.
        size: Height and width to resize to.
        mode: The mode of Pillow to convert it to.
        most_pixels: Refuse a larger picture, before it is decoded.

    Raises:
        ScenarioError: It cannot be read.
    """
    if Path(name).suffix.lower() in _RAW:
        raise ScenarioError(f"{name} is the raw file of a camera. Convert it to JPEG or PNG.")
    brands = _brands(data[:START])
    # An AVIF file is compatible with the general brands of HEIF, too.
    if not (_reads_avif() if brands & _AVIF else _reads_heif() or not brands & _HEIF):
        raise ScenarioError(f"{name} {NEEDS_HEIF}. Install it: {INSTALL_HEIF}")
    try:
        with _open(data) as opened:
            if most_pixels is not None and opened.width * opened.height > most_pixels:
                raise ScenarioError(f"{name} has more than {most_pixels:,} pixels.")
            return pixels_of(opened, name, rule, size, mode)
    except UNREADABLE as error:
        reason = str(error).partition(" <")[0]  # without the object in memory that Pillow names
        raise ScenarioError(f"{name} is not an image that can be read ({reason}).") from error


def is_grey(data: bytes) -> bool:
    """Whether ``decode`` gives the image of a file one channel; also where it cannot be read."""
    try:
        with _open(data) as opened:
            return opened.mode in _GREY and not _is_transparent(opened)
    except UNREADABLE:
        return True


def pixels_of(
    image: Image.Image,
    name: str,
    rule: PictureRule,
    size: tuple[int, int] | None = None,
    mode: str | None = None,
) -> tuple[Pixels, bool]:
    """The pixels of an image: (H, W) if it is grey, (H, W, 3) otherwise, or as ``mode`` says.

    Args:
        image: The image; it is turned the way up it was taken.
        name: What to call it in messages.
        rule: How it becomes an image of the wanted form.
        size: Height and width to resize to.
        mode: The mode of Pillow to convert it to.

    Returns:
        The pixels, and whether some were transparent, which are laid on the background.

    Raises:
        ScenarioError: It has more than 8 bits per pixel.
    """
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith(_DEEP):
        raise ScenarioError(
            f"{name} has more than 8 bits per pixel ({image.mode}). Convert it to 8 bits."
        )
    transparent = mode != "RGBA" and _is_transparent(image)
    if transparent:
        ground = Image.new("RGBA", image.size, rule.background)
        image = Image.alpha_composite(ground, image.convert("RGBA"))
    image = image.convert(mode or ("L" if image.mode in _GREY else "RGB"))
    pixels = np.asarray(image)
    return (pixels if size is None else resized_pixels(pixels, size, rule)), transparent


def resized_pixels(image: Pixels, size: tuple[int, int], rule: PictureRule) -> Pixels:
    """One image (H, W, C), or (H, W), at this height and width.

    Channels that are no colours are images of their own: Pillow would take a fourth channel for
    transparency, and multiply the others by it.
    """
    if image.shape[:2] == size:
        return image
    if image.ndim == 2 or image.shape[2] == 3:
        return np.asarray(_resized(Image.fromarray(image), (size[1], size[0]), rule))
    grey = rule.background
    red, green, blue = (f"#{part:02x}{part:02x}{part:02x}" for part in _rgb(rule.background))
    grounds = (red, green, blue, "white") if image.shape[2] == 4 else (grey,) * image.shape[2]
    layers = zip(image.transpose(2, 0, 1), grounds, strict=True)
    return np.stack(
        [resized_pixels(layer, size, replace(rule, background=g)) for layer, g in layers], axis=2
    )


def _open(data: bytes) -> Image.Image:
    """The image of a file, if it is of a kind that is decoded here, and by no other program."""
    brands = _brands(data[:START])
    heif = ("AVIF",) if brands & _AVIF else ("HEIF",) if brands & _HEIF else None
    if heif == ("HEIF",) and not _reads_heif():
        raise OSError(NEEDS_HEIF)
    return Image.open(io.BytesIO(data), formats=heif or _FORMATS)


def _rgb(colour: str) -> tuple[int, int, int]:
    red, green, blue = ImageColor.getrgb(colour)[:3]
    return red, green, blue


def _is_transparent(image: Image.Image) -> bool:
    if not image.has_transparency_data:
        return False
    low, _ = image.convert("RGBA").getchannel("A").getextrema()
    return isinstance(low, int | float) and low < 255


def _resized(image: Image.Image, size: tuple[int, int], rule: PictureRule) -> Image.Image:
    how = Image.Resampling[rule.filter.upper()]
    if rule.resize == "crop":
        return ImageOps.fit(image, size, how)
    if rule.resize == "fit":
        return ImageOps.pad(image, size, how, color=rule.background)
    return image.resize(size, how)


def _brands(start: bytes) -> frozenset[bytes]:
    """What a file of the HEIF family says it is: its brand, and those it is compatible with."""
    if start[4:8] != b"ftyp":
        return frozenset()
    return frozenset([start[8:12], *(start[at : at + 4] for at in range(16, len(start), 4))])


@cache
def _reads_heif() -> bool:
    try:
        from pillow_heif import register_heif_opener
    except ImportError:
        return False
    register_heif_opener()
    return True


@cache
def _reads_avif() -> bool:
    from PIL import features

    return bool(features.check("avif"))
