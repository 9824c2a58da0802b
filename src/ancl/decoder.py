"""Decodes image files in a process of its own: ``python -m ancl.decoder FD ROWS SIZE``.

Every line of its input is a JSON list of [row, path]. It writes the pixels of each file into that
row of the shared memory behind the descriptor, and answers with a line: what was wrong, by path.
It imports no torch, so that many of them start fast and take little memory. It ends with its input.
"""

import json
import mmap
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile

VERSION = 1
"""Raised whenever the same file gives other pixels."""
MARGIN = 256 / 224
"""The shorter side before the middle is cut out, over the size of what is cut out."""
UNREADABLE = (OSError, SyntaxError, ValueError, Image.DecompressionBombError)
"""What Pillow raises for files that are not images."""


def decode(path: str, size: int) -> NDArray[np.uint8]:
    """The middle of an image, as the field evaluates ImageNet: (size, size, 3).

    Its shorter side is resized to 256/224 of the size, by Pillow's bilinear filter, and the middle
    is cut out. A JPEG of several times that size is decoded at a half, a quarter or an eighth.
    """
    wanted = round(size * MARGIN)
    with Image.open(path) as opened:
        scale = wanted / min(opened.size)
        width, height = (max(wanted, round(side * scale)) for side in opened.size)
        opened.draft("RGB", (2 * width, 2 * height))  # never below twice the size: no visible loss
        resized = opened.convert("RGB").resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def main(descriptor: int, rows: int, size: int) -> None:
    """Decode what is named, until there is no more."""
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    shared = mmap.mmap(descriptor, rows * size * size * 3)
    pixels = np.frombuffer(shared, np.uint8).reshape(rows, size, size, 3)
    for line in sys.stdin.buffer:
        answer = json.dumps(fill(pixels, json.loads(line), size))
        sys.stdout.buffer.write(answer.encode() + b"\n")
        sys.stdout.buffer.flush()


def fill(pixels: NDArray[np.uint8], job: list[Any], size: int) -> dict[str, str]:
    """Decode each file of a job into its row; what is wrong, by path."""
    bad: dict[str, str] = {}
    for row, path in job:
        try:
            pixels[row] = decode(path, size)
        except UNREADABLE as error:
            bad[path] = str(error).partition(" <")[0]
    return bad


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
