"""Pickles of arrays and plain containers, read without running what is in them.

A pickle may name any function to call. This reader knows only those that rebuild NumPy arrays,
under their old and new names, and refuses the file at the first other name.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from ancl.errors import ScenarioError


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
