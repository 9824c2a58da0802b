"""Data by name: what ``data.source`` may be."""

import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ancl.data.formats.arrays import arrays_classes, arrays_source
from ancl.data.formats.digits import digits, hard_digits
from ancl.data.formats.folders import folder_classes, folder_source
from ancl.data.published import PUBLISHED
from ancl.data.source import Source
from ancl.errors import ScenarioError, unknown

VARIABLES = ("ANCL_DATA", "DATA_DIR")
"""Environment variables that name the data root, the first one set wins."""


def data_root(given: str | Path | None = None) -> Path:
    """The folder given, else ``$ANCL_DATA``, else ``$DATA_DIR``, else ``./data``."""
    named = [given, *(os.environ.get(variable) for variable in VARIABLES)]
    return Path(next((name for name in named if name), "data")).expanduser()


FORMS = ("folder:PATH", "folder:PATH@32", "arrays:FILE.npz")
"""How to name data of one's own."""


class KnownSource(NamedTuple):
    """How to read a source below a data root, and what is known of it before it is read."""

    read: Callable[[Path], Source]
    classes: int
    explanation: str
    images: int | None = None

    def load(self, root: str | Path | None = None) -> Source:
        """Read it; ``root`` is where data lies, see ``data_root``."""
        return self.read(data_root(root))


SOURCES: dict[str, KnownSource] = {
    "digits": KnownSource(
        lambda root: digits(), 10, "1,797 handwritten digits of 8x8 pixels, embedded", 1_797
    ),
    "hard-digits": KnownSource(
        lambda root: hard_digits(), 10, "the same, shifted and noisy, 14x14 pixels", 1_797
    ),
    **{
        name: KnownSource(data.load, data.classes, data.explanation, sum(data.images))
        for name, data in PUBLISHED.items()
    },
}


def known_source(name: str) -> KnownSource:
    """The entry of a name, or of a folder or file: ``folder:PATH``, ``arrays:FILE.npz``.

    Raises:
        ScenarioError: There is none of that name.
    """
    kind, colon, rest = name.partition(":")
    if colon and kind == "folder":
        return _folder(rest)
    if colon and kind == "arrays":
        file = Path(rest).expanduser()
        return KnownSource(lambda root: arrays_source(file), arrays_classes(file), "your arrays")
    if name not in SOURCES:
        raise ScenarioError(unknown("data source", name, [*SOURCES, *FORMS]))
    return SOURCES[name]


def load_source(name: str, root: Path | None = None) -> Source:
    """The images of a name; ``root`` is where data lies, see ``data_root``."""
    return known_source(name).load(root)


def _folder(text: str) -> KnownSource:
    """A folder of images, perhaps with the size they are resized to after an ``@``."""
    sized = re.fullmatch(r"(.+)@(\d+)", text)
    path = Path(sized[1] if sized else text).expanduser()
    size = int(sized[2]) if sized else None
    if size == 0:
        raise ScenarioError(f"folder:{text} asks for images of no size. Write folder:PATH@32.")
    read = partial(folder_source, path, size)
    return KnownSource(lambda root: read(), folder_classes(path), "your images")
