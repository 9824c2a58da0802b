"""``arrays:FILE.npz``: images and labels saved with NumPy."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ancl.data.formats.npz import names_in, read_npz
from ancl.data.source import Source, make_source
from ancl.errors import ScenarioError, printable

_WHOLE = ("x", "y")
_PARTED = ("x_train", "y_train", "x_test", "y_test")
_WANTED = (
    "It should hold x and y, or x_train, y_train, x_test and y_test, of numbers or text: "
    "numpy.savez(file, x=images, y=labels)."
)


def arrays_source(file: Path) -> Source:
    """The source in a file of ``x`` and ``y``, or of ``x_train, y_train, x_test, y_test``."""
    return make_source(file.stem, *_read(file, _names(file)))


def arrays_classes(file: Path) -> int:
    """How many different labels the file has, found without reading its images."""
    labels = _read(file, (_names(file)[1],))[0]
    return len(np.unique(labels))


def _names(file: Path) -> tuple[str, ...]:
    found = names_in(file, partial(_refusal, file))
    for names in (_PARTED, _WHOLE):
        if set(names) <= set(found):
            return names
    shown = printable(", ".join(found), 200)
    raise ScenarioError(f"{file} holds {shown or 'nothing'}. {_WANTED}")


def _read(file: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    return read_npz(file, names, partial(_refusal, file))


def _refusal(file: Path, reason: str) -> ScenarioError:
    if not file.exists():
        return ScenarioError(f"There is no file {file}. Write arrays:FILE.npz.")
    return ScenarioError(f"{file} is no file of plain arrays ({reason}). {_WANTED}")
