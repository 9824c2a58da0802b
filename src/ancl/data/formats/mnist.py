"""MNIST and its kin: arrays of bytes after a header, packed with gzip or not."""

import gzip
import io
import math
import struct
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ancl.data.formats.archives import Contents, Tree
from ancl.errors import ScenarioError
from ancl.runtime import check_memory

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_BYTES = 0x08


def read_idx(tree: Tree, classes: Sequence[str]) -> Contents:
    """The four files as one data set."""
    marks = tree.marks()
    parts = [_array(tree, name, marks) for name in FILES]
    train_x, train_y, test_x, test_y = parts
    return Contents(
        train_x[..., None],
        train_y.astype(np.int64),
        test_x[..., None],
        test_y.astype(np.int64),
        tuple(classes),
    )


def _array(tree: Tree, name: str, marks: dict[str, str]) -> NDArray[np.uint8]:
    """One file: two zeros, the type, the number of axes, each axis's length, then the bytes."""
    packed = name not in marks
    data = tree.read(f"{name}.gz" if packed else name)
    try:
        opened = gzip.GzipFile(fileobj=io.BytesIO(data)) if packed else io.BytesIO(data)
        zeros, kind, axes = struct.unpack(">HBB", opened.read(4))
        if (zeros, kind, axes) != (0, _BYTES, int(name[-7])):
            raise ValueError(f"its header says type {kind} with {axes} axes")
        shape = struct.unpack(f">{axes}I", opened.read(4 * axes))
        size = math.prod(shape)
        check_memory(2 * size, f"{tree.place}: {name}")
        # Not a byte more than the header says, whatever a packed file would unpack to.
        rows = np.frombuffer(opened.read(size + 1), dtype=np.uint8)
        if len(rows) != size:
            raise ValueError(f"its header says {size:,} bytes, and there are more or fewer")
        return rows.reshape(shape)
    except (OSError, EOFError, ValueError, struct.error, zlib.error) as error:
        raise ScenarioError(
            f"{tree.place}: {name} is damaged ({error}). Remove it and fetch the data again."
        ) from error
