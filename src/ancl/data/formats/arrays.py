"""``arrays:FILE.npz``: images and labels saved with NumPy."""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ancl.data.source import Source, make_source
from ancl.errors import ScenarioError

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
    with _opened(file) as stored:
        for names in (_PARTED, _WHOLE):
            if set(names) <= set(stored.files):
                return names
        raise ScenarioError(f"{file} holds {', '.join(stored.files) or 'nothing'}. {_WANTED}")


def _read(file: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    with _opened(file) as stored:
        return [stored[name] for name in names]


@contextmanager
def _opened(file: Path) -> Iterator[Any]:
    """The arrays of a file; pickled objects are not read."""
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as stored:
            yield stored
    except FileNotFoundError as error:
        raise ScenarioError(f"There is no file {file}. Write arrays:FILE.npz.") from error
    except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise ScenarioError(f"{file} is no file of plain arrays ({error}). {_WANTED}") from error
