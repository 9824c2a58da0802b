"""Where images are, and views on them: to sort, join, split or draw moves positions, not pixels."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ancl.data.random_resized_crop import Boxes, whole_boxes
from ancl.runtime import room_on, send

Digests = NDArray[np.uint64]
"""One sha256 per row as four numbers, the first the most significant."""

CHUNK_BYTES = 2**24
"""What is read at a time where all rows are read once."""


class Storage(ABC):
    """Rows of one shape and type, read by position.

    Rows never change, so the hash of each is computed once.

    Args:
        shape: The number of rows, then the shape of one.
        dtype: The type of their values.
    """

    in_memory = False
    """Whether rows are at hand: to read one again costs no more than a copy of it."""
    early = 0
    """How many batches to announce before they are read."""
    larger = False
    """Whether images may have more pixels than their rows, so that parts are cut out before."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        self.shape, self.dtype = tuple(shape), dtype
        self.names: Sequence[str] | None = None  # of the file of each row, where they are files
        self._digests: Digests | None = None
        self._hashed = np.zeros(0, bool)

    def __len__(self) -> int:
        return self.shape[0]

    @abstractmethod
    def rows(self, index: Tensor) -> Tensor:
        """A copy of the rows at these positions, in this order, in memory."""

    def rows_on(self, index: Tensor, device: torch.device) -> Tensor:
        """The same on a device; nobody waits for it."""
        return send(self.rows(index), device)

    def announce(  # noqa: B027 - most have nothing to begin
        self, index: Tensor, boxes: Boxes | None = None
    ) -> None:
        """Say which rows, or parts, are read soon: a storage that takes its time can begin."""

    def sizes(self, index: Tensor) -> Tensor:
        """Height and width of each image that parts are cut out of (B, 2)."""
        return torch.tensor(self.shape[1:3]).expand(len(index), 2)

    def contents(self, index: Tensor) -> NDArray[np.uint64]:
        """A number of each image that changes with what is not in its row; 0 where all is."""
        return np.zeros(len(index), np.uint64)

    def cut(self, index: Tensor, boxes: Boxes) -> tuple[Tensor, Boxes | None]:
        """Parts of images, of the form of rows, as far as they are cut out as they are read.

        Args:
            index: The positions of the images.
            boxes: The part of each, in pixels of ``sizes``.

        Returns:
            Rows; and the parts of these that are left to be cut out, none where nothing is left.
        """
        return self.rows(index), boxes

    @property
    def leaves(self) -> tuple[Storage, ...]:
        """The storages that it joins; itself alone if it joins none."""
        return (self,)

    def moved(self, index: Tensor, starts: Mapping[Storage, int]) -> Tensor:
        """Positions in a storage that has the leaves of this one from these rows on."""
        return index + starts[self]

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def digests(self, index: Tensor) -> Digests:
        """The hash of the type, the shape and the values of each row."""
        if self._digests is None:
            self._digests = np.zeros((len(self), 4), np.uint64)
            self._hashed = np.zeros(len(self), bool)
        wanted = index.numpy()
        missing = torch.from_numpy(np.unique(wanted[~self._hashed[wanted]]))
        start = hashlib.sha256(repr((str(self.dtype), self.shape[1:])).encode())
        parts = _chunks(missing, self.row_bytes)
        for number, part in enumerate(parts):
            for coming in parts[number : number + self.early]:
                self.announce(coming)
            hashes = bytearray()
            for row in self.rows(part).numpy():
                digest = start.copy()
                digest.update(row)
                hashes += digest.digest()
            read = np.frombuffer(hashes, dtype=">u8").reshape(-1, 4)
            self._digests[part.numpy()] = read
            self._hashed[part.numpy()] = True
        digests: Digests = self._digests[wanted]
        return digests


class TensorStorage(Storage):
    """A tensor in memory; once rows are read on a device, all of it is kept there, if it fits."""

    in_memory = True

    def __init__(self, tensor: Tensor) -> None:
        super().__init__(tensor.shape, tensor.dtype)
        self._tensor = tensor
        self._copies: dict[torch.device, Tensor | None] = {}

    def rows(self, index: Tensor) -> Tensor:
        """One gather."""
        return self._tensor.index_select(0, index)

    def rows_on(self, index: Tensor, device: torch.device) -> Tensor:
        """One gather there: positions travel, and no pixels."""
        if device not in self._copies:
            room, size = room_on(device), len(self) * self.row_bytes
            self._copies[device] = (
                send(self._tensor, device) if room is None or size < room else None
            )
        copy = self._copies[device]
        if copy is None:
            return super().rows_on(index, device)
        return copy.index_select(0, send(index, device))


class MappedStorage(Storage):
    """An array of bytes in a file, of which the system reads what is asked for.

    The file must not change as long as it is used.
    """

    def __init__(self, array: NDArray[np.uint8]) -> None:
        super().__init__(array.shape, torch.uint8)
        self._array = np.asarray(array)  # the map itself, without NumPy's slower class for it

    def rows(self, index: Tensor) -> Tensor:
        """Only these rows become memory of this process."""
        return torch.from_numpy(np.ascontiguousarray(self._array[index.numpy()]))


class ChangedStorage(Storage):
    """Rows of another storage, changed as they are read.

    Args:
        storage: Where they are.
        change: A function of each row alone, which keeps its shape and type.
    """

    def __init__(self, storage: Storage, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__(storage.shape, storage.dtype)
        self._storage, self._change, self.early = storage, change, storage.early

    def announce(self, index: Tensor, boxes: Boxes | None = None) -> None:
        """To the storage that is read: whole rows, as parts are cut out of what is changed."""
        self._storage.announce(index)

    def rows(self, index: Tensor) -> Tensor:
        """Read, then changed."""
        return self._change(self._storage.rows(index))


class ColourStorage(Storage):
    """Grey images (N, H, W, 1) with three equal channels, as they are read."""

    def __init__(self, storage: Storage) -> None:
        super().__init__((*storage.shape[:-1], 3), storage.dtype)
        self._storage = storage
        self.names = storage.names

    def rows(self, index: Tensor) -> Tensor:
        """Read, then repeated."""
        return self._storage.rows(index).expand(-1, -1, -1, 3).contiguous()


class JoinedStorage(Storage):
    """The rows of several storages, one after the other.

    Raises:
        ValueError: Their rows differ in shape or type.
    """

    def __init__(self, parts: Sequence[Storage]) -> None:
        forms = {(part.shape[1:], part.dtype): None for part in parts}
        if len(forms) > 1:
            raise ValueError(f"images of several forms cannot be joined: {list(forms)}")
        super().__init__((sum(map(len, parts)), *parts[0].shape[1:]), parts[0].dtype)
        self._parts = tuple(parts)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        self._starts = dict(zip(parts, [0, *ends], strict=False))
        self._ends = torch.tensor(ends)
        self.in_memory = all(part.in_memory for part in parts)
        self.early = max(part.early for part in parts)
        self.larger = any(part.larger for part in parts)

    @property
    def leaves(self) -> tuple[Storage, ...]:
        """Those given: a joined one is never joined again."""
        return self._parts

    def moved(self, index: Tensor, starts: Mapping[Storage, int]) -> Tensor:
        """Each position by as much as the rows of its part."""
        shifts = [starts[part] - self._starts[part] for part in self._parts]
        return index + torch.tensor(shifts)[torch.bucketize(index, self._ends, right=True)]

    def announce(self, index: Tensor, boxes: Boxes | None = None) -> None:
        """To the parts that take their time."""
        for where, part, inside in self._each(index, self._parts):
            part.announce(inside, boxes and boxes.at(where))

    def sizes(self, index: Tensor) -> Tensor:
        """As its parts know them."""
        sizes = torch.empty((len(index), 2), dtype=torch.long)
        for where, part, inside in self._each(index, self._parts):
            sizes[where] = part.sizes(inside)
        return sizes

    def contents(self, index: Tensor) -> NDArray[np.uint64]:
        """As its parts know them."""
        contents = np.zeros(len(index), np.uint64)
        for where, part, inside in self._each(index, self._parts):
            contents[where.numpy()] = part.contents(inside)
        return contents

    def cut(self, index: Tensor, boxes: Boxes) -> tuple[Tensor, Boxes | None]:
        """By each part as it can."""
        rows = torch.empty((len(index), *self.shape[1:]), dtype=self.dtype)
        rest, left = whole_boxes(len(index), *self.shape[1:3]), False
        for where, part, inside in self._each(index, self._parts):
            pixels, uncut = part.cut(inside, boxes.at(where))
            rows.index_copy_(0, where, pixels)
            if uncut is not None:
                left = True
                rest = Boxes(*(a.index_copy(0, where, b) for a, b in zip(rest, uncut, strict=True)))
        return rows, rest if left else None

    def rows(self, index: Tensor) -> Tensor:
        """Those of the first part, which is most often the largest, then the others into them."""
        first = self._parts[0]
        if not first.in_memory:
            return self._from_each(index)
        pixels = first.rows(index.clamp(max=len(first) - 1))
        for where, part, inside in self._others(index):
            pixels.index_copy_(0, where, part.rows(inside))
        return pixels

    def _from_each(self, index: Tensor) -> Tensor:
        """Rows of each part, none of which is read in vain."""
        rows = torch.empty((len(index), *self.shape[1:]), dtype=self.dtype)
        for where, part, inside in self._each(index, self._parts):
            rows.index_copy_(0, where, part.rows(inside))
        return rows

    def rows_on(self, index: Tensor, device: torch.device) -> Tensor:
        """The same, each part from where it is kept."""
        first = self._parts[0]
        if not first.in_memory:
            return super().rows_on(index, device)
        pixels = first.rows_on(index.clamp(max=len(first) - 1), device)
        for where, part, inside in self._others(index):
            pixels.index_copy_(0, send(where, device), part.rows_on(inside, device))
        return pixels

    def digests(self, index: Tensor) -> Digests:
        """As its parts know them."""
        first = self._parts[0]
        hashes = first.digests(index.clamp(max=len(first) - 1))
        for where, part, inside in self._others(index):
            hashes[where.numpy()] = part.digests(inside)
        return hashes

    def _others(self, index: Tensor) -> Iterator[tuple[Tensor, Storage, Tensor]]:
        """Which positions are in each part after the first, and where there."""
        return self._each(index, self._parts[1:])

    def _each(
        self, index: Tensor, parts: Sequence[Storage]
    ) -> Iterator[tuple[Tensor, Storage, Tensor]]:
        """Which positions are in each of some parts, and where there."""
        for part in parts:
            inside = index - self._starts[part]
            where = ((inside >= 0) & (inside < len(part))).nonzero().squeeze(1)
            if len(where):
                yield where, part, inside[where]


@dataclass(frozen=True, eq=False)
class ImageView:
    """Some rows of a storage, in an order; ``view[index]`` reads rows, ``view.take`` none.

    Args:
        storage: Where they are.
        index: The position of each (N,).
    """

    storage: Storage
    index: Tensor

    @staticmethod
    def of(storage: Storage | Tensor) -> ImageView:
        """All rows."""
        storage = TensorStorage(storage) if isinstance(storage, Tensor) else storage
        return ImageView(storage, torch.arange(len(storage)))

    @staticmethod
    def joined(parts: Sequence[ImageView]) -> ImageView:
        """All parts, one after the other."""
        parts = [part for part in parts if len(part)] or parts[:1]
        starts, rows = dict[Storage, int](), 0
        for leaf in (leaf for part in parts for leaf in part.storage.leaves):
            if leaf not in starts:
                starts[leaf], rows = rows, rows + len(leaf)
        index = torch.cat([part.storage.moved(part.index, starts) for part in parts])
        leaves = list(starts)
        return ImageView(leaves[0] if len(leaves) == 1 else JoinedStorage(leaves), index)

    def __len__(self) -> int:
        return len(self.index)

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows, then the shape of one."""
        return (len(self), *self.storage.shape[1:])

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.storage.shape)

    @property
    def dtype(self) -> torch.dtype:
        """The type of values."""
        return self.storage.dtype

    @property
    def row_bytes(self) -> int:
        """The size of one row."""
        return self.storage.row_bytes

    def __getitem__(self, index: Tensor | slice | int) -> Tensor:
        """A copy of some rows, or of one, in memory."""
        if isinstance(index, int):
            return self.storage.rows(self.index[index].view(1))[0]
        return self.storage.rows(self.index[index])

    def on(self, device: torch.device, index: Tensor) -> Tensor:
        """A copy of some rows on a device; nobody waits for it."""
        return self.storage.rows_on(self.index[index], device)

    def announce(self, index: Tensor, boxes: Boxes | None = None) -> None:
        """Say which rows are read soon, or which part of each."""
        self.storage.announce(self.index[index], boxes)

    def sizes(self, index: Tensor) -> Tensor:
        """Height and width of each image that parts are cut out of (B, 2)."""
        return self.storage.sizes(self.index[index])

    def contents(self) -> NDArray[np.uint64]:
        """A number of each image that changes with what is not in its row."""
        return self.storage.contents(self.index)

    def cut(self, index: Tensor, boxes: Boxes) -> tuple[Tensor, Boxes | None]:
        """Parts of images, and what is left to be cut out of them; see ``Storage.cut``."""
        return self.storage.cut(self.index[index], boxes)

    def take(self, index: Tensor) -> ImageView:
        """A view of some of its rows."""
        return ImageView(self.storage, self.index[index])

    def dense(self) -> Tensor:
        """A copy of all rows, in memory: for few, such as those of a memory."""
        return self.storage.rows(self.index)

    def chunks(self) -> Iterator[Tensor]:
        """All rows in order, a bounded part at a time."""
        parts = _chunks(self.index, self.storage.row_bytes)
        for number, part in enumerate(parts):
            for coming in parts[number : number + self.storage.early]:
                self.storage.announce(coming)
            yield self.storage.rows(part)

    def names(self) -> list[str] | None:
        """The name of the file of each row, where that is known."""
        names = self.storage.names
        return None if names is None else [names[position] for position in self.index.tolist()]

    def digests(self) -> Digests:
        """The hash of each row."""
        return self.storage.digests(self.index)

    def changed(self, change: Callable[[Tensor], Tensor]) -> ImageView:
        """Each row as a function of it: at once where rows are in memory, else as it is read."""
        if self.storage.in_memory:
            return ImageView.of(change(self.dense()))
        return ImageView(ChangedStorage(self.storage, change), self.index)


def in_colour(x: ImageView) -> ImageView:
    """Grey images of bytes with three equal channels; all others as they are."""
    grey = x.dtype == torch.uint8 and x.ndim == 4 and x.shape[3] == 1
    return ImageView(ColourStorage(x.storage), x.index) if grey else x


def _chunks(index: Tensor, row_bytes: int) -> tuple[Tensor, ...]:
    """Positions in parts whose rows take ``CHUNK_BYTES`` at most, or one row each."""
    return torch.split(index, max(1, CHUNK_BYTES // max(row_bytes, 1)))
