"""Arrays in ``.npz`` and ``.npy`` files, read only as far as they are plain.

No pickles, no false sizes. Images of bytes in a ``.npy`` file are memory-mapped.
"""

import math
import os
import zipfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ancl.data.source import Source, make_source
from ancl.errors import AnclError, ScenarioError, printable
from ancl.files import open_plain
from ancl.runtime import check_memory

_KINDS = "biufSU"
_MOST_HEADER = 10_000


def names_in(file: Path, refuse: Callable[[str], AnclError]) -> list[str]:
    """The names of the arrays in a file.

    Raises:
        AnclError: It is not such a file; ``refuse`` makes the error of a reason.
    """
    return [name.removesuffix(".npy") for name in _opened(file, refuse, lambda zip: zip.namelist())]


def read_npz(
    file: Path, names: Sequence[str], refuse: Callable[[str], AnclError]
) -> list[NDArray[Any]]:
    """The arrays of these names: numbers or text.

    Args:
        file: The file.
        names: Which.
        refuse: Makes the error of a reason.

    Raises:
        AnclError: It is damaged, holds other types, or does not fit into memory.
    """
    return _opened(file, refuse, lambda zip: [_array(zip, f"{name}.npy") for name in names])


def _opened(
    file: Path, refuse: Callable[[str], AnclError], read: Callable[[zipfile.ZipFile], list[Any]]
) -> list[Any]:
    try:
        with open_plain(file) as opened, zipfile.ZipFile(opened) as zipped:
            return read(zipped)
    except AnclError:
        raise
    except Exception as error:  # a damaged archive may fail in any way
        raise refuse(printable(str(error) or type(error).__name__, 300)) from error


def _array(zipped: zipfile.ZipFile, name: str) -> NDArray[Any]:
    entry = zipped.getinfo(name)
    with zipped.open(entry) as file:
        return _in_memory(file, name, *_header(file, name, entry.file_size))


def read_npy(file: Path, refuse: Callable[[str], AnclError]) -> NDArray[Any]:
    """The array of a ``.npy`` file: images of bytes as a map of the file, all else in memory.

    Args:
        file: The file.
        refuse: Makes the error of a reason.

    Raises:
        AnclError: It is damaged, holds other types, or does not fit into memory.
    """
    try:
        with open_plain(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            shape, fortran, dtype = _header(opened, file.name, size)
            start = opened.tell()
            if math.prod(shape) * dtype.itemsize > size - start:
                raise ValueError(f"{file.name} ends too early")
            if dtype != np.uint8 or len(shape) < 3 or fortran or not math.prod(shape):
                return _in_memory(opened, file.name, shape, fortran, dtype)
            return np.memmap(opened, dtype, "r", start, shape)
    except AnclError:
        raise
    except Exception as error:  # a damaged file may fail in any way
        raise refuse(printable(str(error) or type(error).__name__, 300)) from error


def _in_memory(
    file: IO[bytes], name: str, shape: tuple[int, ...], fortran: bool, dtype: np.dtype[Any]
) -> NDArray[Any]:
    size = math.prod(shape) * dtype.itemsize
    check_memory(2 * size, f"The array {name.removesuffix('.npy')}")
    data = file.read(size)
    if len(data) != size:
        raise ValueError(f"{name} ends too early")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _header(
    file: IO[bytes], name: str, file_size: int
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and type: all that a file may say of plain values."""
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its format is {version}")
    first = version == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file, max_header_size=_MOST_HEADER)
    if dtype.kind not in _KINDS or dtype.hasobject:
        raise ValueError(f"{name} holds values of the type {dtype}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > file_size:
        raise ValueError(f"{name} says that its shape is {shape}, but has fewer bytes")
    return shape, fortran, dtype


_WHOLE = ("x", "y")
_PARTED = ("x_train", "y_train", "x_test", "y_test")
_WANTED = (
    "It should hold x and y, or x_train, y_train, x_test and y_test, of numbers or text: "
    "numpy.savez(file, x=images, y=labels)."
)


def arrays_source(file: Path) -> Source:
    """The source of ``x`` and ``y``, or of ``x_train, y_train, x_test, y_test``.

    They are in one ``.npz`` file, or in a folder of ``.npy`` files of these names.
    """
    return make_source(file.stem, *_read(file, _names(file)))


def arrays_part(file: Path, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """The images and labels of one part, ``train`` or ``test``; all where there are no parts."""
    names = _names(file)
    x, y = _read(file, names[2:] if part == "test" and names == _PARTED else names[:2])
    return x, y


def arrays_classes(file: Path) -> int:
    """How many different labels the file has, found without reading its images."""
    labels = _read(file, (_names(file)[1],))[0]
    return len(np.unique(labels))


def _names(file: Path) -> tuple[str, ...]:
    if file.is_dir():
        present = sorted(path.stem for path in file.glob("*.npy"))
    else:
        present = names_in(file, partial(_refusal, file))
    for names in (_PARTED, _WHOLE):
        if set(names) <= set(present):
            return names
    shown = printable(", ".join(present), 200)
    raise ScenarioError(f"{file} holds {shown or 'nothing'}. {_WANTED}")


def _read(file: Path, names: tuple[str, ...]) -> list[NDArray[Any]]:
    if file.is_dir():
        places = [file / f"{name}.npy" for name in names]
        return [read_npy(path, partial(_refusal, path)) for path in places]
    return read_npz(file, names, partial(_refusal, file))


def _refusal(file: Path, reason: str) -> ScenarioError:
    if not file.exists():
        return ScenarioError(f"There is no file {file}. Write arrays:FILE.npz, or arrays:FOLDER.")
    return ScenarioError(f"{file} is not a file of plain arrays ({reason}). {_WANTED}")
