"""CIFAR-10 and CIFAR-100 as their publisher packs them: rows of 3,072 bytes in pickles."""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ancl.data.formats.archives import Contents, Tree
from ancl.errors import ScenarioError


def read_cifar100(tree: Tree) -> Contents:
    """The fine labels of CIFAR-100."""
    train, test = _part(tree, "train", "fine_labels"), _part(tree, "test", "fine_labels")
    return Contents(*train, *test, _names(tree, "meta", "fine_label_names"))


def read_cifar100_16(tree: Tree) -> Contents:
    """CIFAR-100 at half its size: each pixel is the mean of 2x2 pixels."""
    whole = read_cifar100(tree)
    return whole._replace(train_x=halved(whole.train_x), test_x=halved(whole.test_x))


def halved(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Images (N, H, W, C) as means of 2x2 pixels, to the nearest grey level; halves are raised.

    >>> halved(np.array([[[[1], [2]], [[2], [1]]]], dtype=np.uint8)).tolist()
    [[[[2]]]]
    """
    sums = np.full_like(images[:, ::2, ::2], 2, dtype=np.uint16)
    for row, column in ((0, 0), (0, 1), (1, 0), (1, 1)):
        sums += images[:, row::2, column::2]
    return (sums // 4).astype(np.uint8)


def read_cifar10(tree: Tree) -> Contents:
    """CIFAR-10, whose training images lie in five files."""
    parts = [_part(tree, f"data_batch_{number}", "labels") for number in range(1, 6)]
    train_x, train_y = (np.concatenate([part[column] for part in parts]) for column in (0, 1))
    test = _part(tree, "test_batch", "labels")
    return Contents(train_x, train_y, *test, _names(tree, "batches.meta", "label_names"))


def _part(tree: Tree, name: str, labels: str) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    found = read_pickle(tree.read(name), f"{tree.place}: {name}")
    rows, numbers = _entry(found, "data", name), _entry(found, labels, name)
    if not (isinstance(rows, np.ndarray) and rows.dtype == np.uint8 and rows.shape[1:] == (3072,)):
        raise ScenarioError(f"{tree.place}: {name} should hold rows of 3,072 bytes, and does not.")
    if not isinstance(numbers, list) or not all(type(number) is int for number in numbers):
        raise ScenarioError(f"{tree.place}: the labels of {name} are not a list of numbers.")
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), np.array(numbers, dtype=np.int64)


def _names(tree: Tree, name: str, key: str) -> tuple[str, ...]:
    names = _entry(read_pickle(tree.read(name), f"{tree.place}: {name}"), key, name)
    return tuple(n.decode() if isinstance(n, bytes) else str(n) for n in names)


def _entry(found: dict[str, Any], key: str, name: str) -> Any:
    if key not in found:
        raise ScenarioError(
            f"{name} has no entry {key!r}, only {', '.join(found)}. It is not the file expected."
        )
    return found[key]


def _array(kind: Any, shape: tuple[int, ...], code: bytes | str) -> Any:
    """An empty array, which the pickle then fills."""
    return np.ndarray.__new__(np.ndarray, shape, np.dtype(_text(code)))


def _dtype(code: bytes | str, align: int = 0, copy: int = 0) -> Any:
    """A dtype; old pickles give the flags as numbers, at which new NumPy warns."""
    return np.dtype(_text(code), bool(align), bool(copy))


def _buffer(data: bytes, dtype: Any, shape: tuple[int, ...], order: Any) -> Any:
    return np.frombuffer(data, dtype=dtype).reshape(shape, order=_text(order))


def _encode(text: str, encoding: str) -> bytes:
    """Bytes that an old protocol wrote as text; no other encoding occurs."""
    return text.encode("latin1")


def _text(code: Any) -> Any:
    return code.decode("ascii") if isinstance(code, bytes) else code


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _buffer for core in ("core", "_core")},
}


class _Reader(pickle.Unpickler):
    """An unpickler that finds the functions of ``_KNOWN`` and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The function of a name, if it only makes arrays."""
        if (module, name) not in _KNOWN:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return _KNOWN[module, name]


def read_pickle(data: bytes, where: str) -> dict[str, Any]:
    """The mapping a pickle of arrays holds, with its keys as text.

    Args:
        data: The file.
        where: What messages call it.

    Raises:
        ScenarioError: It holds anything but arrays, numbers, text and containers, or is damaged.
    """
    try:
        # Text of Python 2 arrives as bytes: image rows are such text.
        found = _Reader(io.BytesIO(data), encoding="bytes").load()
    except Exception as error:  # a damaged pickle may fail in any way
        raise ScenarioError(
            f"{where} is not a pickle of arrays: {error}. It was not read any further. Get the "
            "file from its publisher again: ancl data fetch."
        ) from error
    if not isinstance(found, dict):
        raise ScenarioError(f"{where} holds a {type(found).__name__}, not the mapping expected.")
    return {str(_text(key)): value for key, value in found.items()}
