"""Decodes image files in a process of its own: ``python -m ancl.decoder FD ROWS SIZE SHORT``.

Every line of its input is a JSON list of [row, path, box]. It writes the pixels of each file into
that row of the shared memory behind the descriptor, and answers with a line: what was wrong, by
path, and what is known of files of which the middle was decoded. It imports no torch, so that many
of them start fast and take little memory. It ends with its input.
"""

import hashlib
import json
import mmap
import sys
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

VERSION = 2
"""Raised whenever the same file gives other pixels."""
MARGIN = 256 / 224
"""The shorter side before the middle is cut out, over the size of what is cut out, as the field
evaluates ImageNet."""
SCALES = (8, 4, 2, 1)
"""A JPEG can be decoded at an eighth, a quarter or a half of its size, faster than whole."""
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for files that are not images."""

Box = tuple[int, int, int, int, bool]
"""A part of an image: top, left, height, width, and whether it is mirrored."""
Asked = tuple[int, str, Box | None]
"""A row, the file that is decoded into it, and which part of it; none for the middle."""


Known = tuple[int, int, int]
"""What is known of a file: height, width, and the first 8 bytes of the hash of its content."""


class Filled(NamedTuple):
    """What was wrong with files of a job, by path; what is known of those that give a middle."""

    bad: dict[str, str]
    known: list[tuple[int, Known]]


def usual_short_side(size: int) -> int:
    """The length of the shorter side before the middle is cut out: 256 for 224."""
    return round(size * MARGIN)


def look_at(path: str) -> Known:
    """What is known of an image file, which is not decoded."""
    data = Path(path).read_bytes()
    with Image.open(BytesIO(data)) as opened:
        return _known(opened, data)


def _known(opened: Image.Image, data: bytes) -> Known:
    return opened.height, opened.width, int.from_bytes(hashlib.sha256(data).digest()[:8], "big")


def decode(path: str, size: int, box: Box | None = None) -> NDArray[np.uint8]:
    """A part of an image file, or its middle as the field evaluates: (size, size, 3)."""
    with Image.open(path) as opened:
        return part(opened, size, box) if box else middle(opened, size, usual_short_side(size))


def middle(opened: Image.Image, size: int, short_side: int) -> NDArray[np.uint8]:
    """The shorter side resized by Pillow's bilinear filter, and the middle cut out.

    An image of exactly this size is taken as it is. A JPEG of several times that size is decoded
    at a half, a quarter or an eighth.
    """
    if opened.size == (size, size):
        return np.asarray(opened.convert("RGB"))
    scale = short_side / min(opened.size)
    width, height = (max(short_side, round(side * scale)) for side in opened.size)
    opened.draft("RGB", (2 * width, 2 * height))  # never below twice the size: no visible loss
    resized = opened.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def part(opened: Image.Image, size: int, box: Box) -> NDArray[np.uint8]:
    """A part of an image, cut out and then resized by Pillow's bilinear filter: (size, size, 3).

    A JPEG is decoded at the smallest scale at which the part is not smaller than its result.

    Raises:
        ValueError: The image is smaller than the part.
    """
    top, left, height, width, mirrored = box
    whole_width, whole_height = opened.size
    if top + height > whole_height or left + width > whole_width:
        raise ValueError("it has changed since it was first read")
    scale = next(s for s in SCALES if s == 1 or min(height, width) >= s * size)
    opened.draft("RGB", (max(1, whole_width // scale), max(1, whole_height // scale)))
    # Pixels of the smaller image are squares of this many pixels, the last ones perhaps incomplete.
    scale = round(whole_width / opened.width)
    edges = [edge / scale for edge in (left, top, left + width, top + height)]
    x, y, right, bottom = int(edges[0]), int(edges[1]), -int(-edges[2] // 1), -int(-edges[3] // 1)
    cut = opened.convert("RGB").crop((x, y, right, bottom))
    inside = (edges[0] - x, edges[1] - y, edges[2] - x, edges[3] - y)
    pixels = np.asarray(cut.resize((size, size), Image.Resampling.BILINEAR, inside))
    return pixels[:, ::-1] if mirrored else pixels


def main(descriptor: int, rows: int, size: int, short_side: int) -> None:
    """Decode what is named, until there is no more."""
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    shared = mmap.mmap(descriptor, rows * size * size * 3)
    pixels = np.frombuffer(shared, np.uint8).reshape(rows, size, size, 3)
    for line in sys.stdin.buffer:
        answer = json.dumps(fill(pixels, json.loads(line), size, short_side))
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


def fill(pixels: NDArray[np.uint8], job: Iterable[Asked], size: int, short_side: int) -> Filled:
    """Decode each file of a job into its row."""
    done = Filled({}, [])
    for row, path, box in job:
        try:
            data = Path(path).read_bytes()
            with Image.open(BytesIO(data)) as opened:
                if box:
                    pixels[row] = part(opened, size, box)
                    continue
                known = _known(opened, data)  # before it is decoded at a smaller scale
                pixels[row] = middle(opened, size, short_side)
                done.known.append((row, known))
        except UNREADABLE as error:
            done.bad[path] = str(error).partition(" <")[0]
    return done


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
