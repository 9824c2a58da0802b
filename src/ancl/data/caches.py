"""Decoded pixels, and hashes of images, kept in the cache directory: bounded and checksummed.

An entry is a directory with an array and where it comes from: pixels with a list of the files that
they were decoded from. It counts, and stays, only as long as every one of these files is there as
it was. It gets its name when it is complete. Where room is needed, the entry that was not used for
the longest time goes, and never one that a process reads: each holds a shared lock on its file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import time
import uuid
import warnings
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from filelock import FileLock
from numpy.typing import NDArray

from ancl.data.formats.arrays import read_npy
from ancl.data.storage import MappedStorage
from ancl.errors import ScenarioError, SpecError
from ancl.files import MARK, file_mark, open_plain, read_json
from ancl.wording import parse_size

try:
    import fcntl
except ImportError:  # Windows, which removes no file that is open
    fcntl = None  # type: ignore[assignment]

ROOT, BOUND = "ANCL_CACHE", "ANCL_CACHE_SIZE"
"""Environment variables: where caches are, and how large all of them may be together."""
MOST = "10GB"
_PIXELS, _HASHES, _ORIGIN = "pixels.npy", "hashes.npy", "origin.json"
_LOCK = ".lock"
_NAME = re.compile("[0-9a-f]{12}-[0-9a-f]{16}")
_BEGUN = re.compile("begun-[0-9a-f]{32}")
_STALE_SECONDS = 24 * 3600.0
_CHUNK = 2**24
_EARLIER = re.compile(r"\.ancl-(\d+|None)px-[0-9a-f]{16}\.npy(\.\d+\.tmp)?")
"""What versions up to 0.2 left in folders of images."""

Marks = Mapping[str, str]
"""Files, each with a mark that changes when it does."""


class Cache(NamedTuple):
    """The pixels of some images, decoded, or hashes of them.

    Attributes:
        path: The directory of the cache.
        place: The folder that the images, or the archive of them, are in.
        images: Their number.
        bytes: The size on disk.
        used: When it was last read, in seconds since 1970.
    """

    path: Path
    place: str
    images: int
    bytes: int
    used: float


def cache_root() -> Path:
    """Where pixels are: below ``$ANCL_CACHE``, ``$XDG_CACHE_HOME/ancl`` or ``~/.cache/ancl``."""
    if given := os.environ.get(ROOT):
        return Path(given).expanduser() / "pixels"
    shared = os.environ.get("XDG_CACHE_HOME")
    home = Path(shared) if shared else Path("~/.cache").expanduser()
    return home / "ancl" / "pixels"


def cache_bound() -> int:
    """How many bytes all caches may have together.

    Raises:
        SpecError: ``$ANCL_CACHE_SIZE`` is not a size.
    """
    given = os.environ.get(BOUND) or MOST
    size = parse_size(given)
    if size is None:
        raise SpecError(f"${BOUND} is {given!r}, which is not a size. Write 10GB, 500MB or 0.")
    return size


def list_caches() -> list[Cache]:
    """Every cache whose images are still there, the last used first; all others are removed."""
    _remove_stale()
    return sorted(_entries(), key=lambda entry: -entry.used)


def clear_caches() -> list[Cache]:
    """Remove every cache, and return what was removed."""
    _remove_stale()
    removed = list(_entries())
    for entry in removed:
        _remove(entry.path)
    return removed


def remove_holding(names: Collection[str], hashes: Collection[bytes]) -> list[Cache]:
    """Remove every cache that has one of these images, and return what was removed.

    Args:
        names: What the images are called: a cache that read a file of such a name has it.
        hashes: The sha256 of their pixels: a cache that has these has it, whatever the file.
    """
    files = {os.path.abspath(os.path.expanduser(name)) for name in names if name}
    removed = []
    for entry in _entries():
        origin = _origin(entry.path)
        inside = {os.path.join(entry.place, name) for name in (origin or {}).get("files", {})}
        if inside & files or _has_pixels(entry.path, hashes):
            _remove(entry.path)
            removed.append(entry)
    return removed


def _has_pixels(path: Path, hashes: Collection[bytes]) -> bool:
    try:
        pixels = MappedStorage(read_npy(path / _PIXELS, ScenarioError))
    except ScenarioError:
        return False
    whole = pixels.digests(torch.arange(len(pixels))).astype(">u8").tobytes()
    return any(whole[start : start + 32] in hashes for start in range(0, len(whole), 32))


class PixelCache:
    """The cache of one reading: these files, decoded in this way.

    Args:
        place: The folder of the files.
        marks: The files that are read, as they are now.
        how: All else that decides the pixels.
        say: Receives that a cache is damaged.
    """

    def __init__(
        self,
        place: Path,
        marks: Marks,
        how: object,
        say: Callable[[str], None] = warnings.warn,
    ) -> None:
        self._entry = _Entry(place, [dict(marks), how], _PIXELS, say)
        self._marks = dict(marks)
        self.transparent = 0
        """How many of the images have transparent pixels: known once it is read or written."""

    def read(self, count: int) -> NDArray[np.uint8] | None:
        """The pixels of this number of images, mapped; nothing where they are not cached."""

        def fits(array: NDArray[Any]) -> bool:
            return array.dtype == np.uint8 and array.ndim == 4 and len(array) == count

        pixels = self._entry.read(fits)
        self.transparent = self._entry.origin.get("transparent", 0)
        return pixels

    @contextmanager
    def writing(self, shape: tuple[int, ...]) -> Iterator[NDArray[np.uint8] | None]:
        """Room for pixels on the disk; they are a cache once the block ends without an error.

        It yields nothing where they do not fit, or nothing can be written.
        """
        with self._entry.writing(shape, np.uint8) as pixels:
            yield pixels
            origin = {"transparent": self.transparent, "files": self._marks}
            self._entry.origin = {"images": shape[0], **origin}


class HashCache:
    """What was computed of images that stay in their files: some numbers of each.

    Args:
        place: The folder of the images. The cache stays as long as it is there.
        decides: All that decides the numbers: the files as they are now, and how they are read.
        say: Receives that a cache is damaged.
    """

    def __init__(
        self, place: Path, decides: object, say: Callable[[str], None] = warnings.warn
    ) -> None:
        self._entry = _Entry(place, decides, _HASHES, say)

    def read(self, shape: tuple[int, ...]) -> NDArray[np.uint64] | None:
        """The numbers; nothing where they are not cached."""
        return self._entry.read(lambda array: array.dtype == np.uint64 and array.shape == shape)

    def write(self, numbers: NDArray[np.uint64]) -> None:
        """Keep them; where nothing can be written they are computed again the next time."""
        self._entry.remove()  # what is there is not so
        with self._entry.writing(numbers.shape, np.uint64) as array:
            if array is not None:
                array[...] = numbers
            self._entry.origin = {"images": len(numbers), "transparent": 0, "files": {}}


class _Entry:
    """One directory of the cache: an array, and where it comes from.

    Args:
        place: The folder that it is about.
        decides: What decides the array, as JSON.
        file: The name of the array.
        say: Receives that it is damaged.
    """

    def __init__(self, place: Path, decides: object, file: str, say: Callable[[str], None]) -> None:
        self._place, self._file, self._say = str(place.absolute()), file, say
        key = hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:16]
        self.path = cache_root() / f"{_start(self._place)}-{key}"
        self.origin: dict[str, Any] = {}
        """What the entry says of itself; known once it is read, given before it is complete."""

    def read(self, fits: Callable[[NDArray[Any]], bool]) -> NDArray[Any] | None:
        """The array, if it is there, undamaged and fits; a damaged one is removed and named."""
        origin, array = _origin(self.path), _opened(self.path / self._file)
        fitting = array if array is not None and fits(array) else None
        if origin and fitting is not None and origin.get("checksum") == _checksum(fitting):
            self.origin = origin
            with suppress(OSError):
                os.utime(self.path / _ORIGIN)  # the time of its last use
            return fitting
        # Who removes a cache removes first what says that it is one.
        there = (self.path / _ORIGIN).exists()
        earlier = origin is not None and "checksum" not in origin  # versions up to 0.2 had none
        if there and self.remove() and not earlier:
            self._say(f"The cache {self.path}, of {self._place}, is damaged: it is made anew.")
        return None

    def remove(self) -> bool:
        """Remove what is there, unless it says that it is something else."""
        foreign = _foreign(self.path)
        if not foreign:
            _remove(self.path)
        return not foreign

    @contextmanager
    def writing(
        self, shape: tuple[int, ...], dtype: type[np.generic]
    ) -> Iterator[NDArray[Any] | None]:
        """Room on the disk for the array; it counts once the block ends without an error."""
        begun = cache_root() / f"begun-{uuid.uuid4().hex}"
        try:
            array = _room(begun / self._file, shape, np.dtype(dtype))
        except OSError:
            array = None
        try:
            yield array
            if array is not None:
                array.flush()
                self._finish(begun, array)
        finally:
            shutil.rmtree(begun, ignore_errors=True)

    def _finish(self, begun: Path, array: NDArray[Any]) -> None:
        kind = Path(self._file).stem
        content = {
            "format": f"{kind}, {MARK}",
            "place": self._place,
            **self.origin,
            "checksum": _checksum(array),
        }
        with suppress(OSError):  # another process has written the same
            (begun / _ORIGIN).write_text(json.dumps(content), encoding="utf-8")
            if not (self.path / _ORIGIN).exists():  # the rest of one that was being removed
                _remove(self.path)
            begun.rename(self.path)


def remove_changed(place: Path, marks: Marks) -> None:
    """Remove the caches of a folder of which a file is gone or another one.

    Args:
        place: The folder.
        marks: All of its files, as they are now.
    """
    for path in cache_root().glob(f"{_start(str(place.absolute()))}-*"):
        origin = _origin(path)
        if origin is None or not origin["files"].items() <= marks.items():
            _remove(path)
    _remove_earlier(place)


# -- inside ----------------------------------------------------------------------------------


def _room(
    file: Path, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> np.memmap[Any, np.dtype[Any]] | None:
    """A new file of this shape on the disk, if there is room for it.

    Raises:
        OSError: It cannot be written.
    """
    size = math.prod(shape) * dtype.itemsize
    if size > cache_bound():
        return None
    root = cache_root()
    root.mkdir(parents=True, mode=0o700, exist_ok=True)
    with FileLock(root / _LOCK):  # two processes at once would both take the same room
        if not _make_room(size):
            return None
        file.parent.mkdir(mode=0o700)
        array = np.lib.format.open_memmap(file, mode="w+", dtype=dtype, shape=shape)
        if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and not a crash later
            with file.open("r+b") as opened:
                os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return array


def _checksum(array: NDArray[Any]) -> int:
    """A sum over form and values that changes when a byte does."""
    total = zlib.crc32(repr((str(array.dtype), array.shape)).encode())
    flat: Any = np.asarray(array).reshape(-1).view(np.uint8)
    for start in range(0, len(flat), _CHUNK):
        total = zlib.crc32(flat[start : start + _CHUNK], total)
    return total


def _opened(file: Path) -> NDArray[Any] | None:
    """An array of the cache; one that is mapped is in use as long as anything refers to it."""
    try:
        with open_plain(file) as opened:
            lock = os.dup(opened.fileno())
    except OSError:
        return None
    try:
        if fcntl:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(lock, fcntl.LOCK_SH)
        array = read_npy(file, ScenarioError)
    except ScenarioError:
        os.close(lock)
        return None
    if isinstance(array, np.memmap):
        weakref.finalize(array._mmap, os.close, lock)  # type: ignore[attr-defined]
    else:
        os.close(lock)
    return array


def _remove_unused(path: Path) -> bool:
    """Remove a cache, if no process reads it."""
    try:
        with open_plain(path / _PIXELS) as opened:
            if fcntl:
                fcntl.flock(opened.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
            _remove(path)
    except FileNotFoundError:  # hashes, which are read at once
        _remove(path)
    except OSError:
        return False
    return not path.exists()


def _start(place: str) -> str:
    return hashlib.sha256(place.encode(errors="surrogateescape")).hexdigest()[:12]


def _origin(path: Path) -> dict[str, Any] | None:
    """What a cache says of itself, if it is one of ours."""
    if not _NAME.fullmatch(path.name):
        return None
    try:
        content = read_json(path / _ORIGIN)
    except (OSError, ValueError):
        return None
    kinds = {"format": str, "place": str, "images": int, "transparent": int, "files": dict}
    if not isinstance(content, dict) or MARK not in str(content.get("format")):
        return None
    fits = all(isinstance(content.get(name), kind) for name, kind in kinds.items())
    return content if fits else None


def _foreign(path: Path) -> bool:
    """Whether a directory with the name of a cache says that it is something else."""
    try:
        content = read_json(path / _ORIGIN)
    except (OSError, ValueError):  # damaged
        return False
    return isinstance(content, dict) and MARK not in str(content.get("format"))


def _entries() -> Iterator[Cache]:
    for path in cache_root().glob("*-*"):
        origin = _origin(path)
        with suppress(OSError):  # another process removed it just now
            if origin is not None:
                size = sum(file.stat().st_size for file in path.iterdir())
                used = (path / _ORIGIN).stat().st_mtime
                yield Cache(path, origin["place"], origin["images"], size, used)


def _remove_stale() -> None:
    """Remove caches whose images are gone or others, and what was begun and never finished."""
    for path in cache_root().glob("*-*"):
        origin = _origin(path)
        if origin is not None and not _unchanged(origin):
            _remove(path)
        elif _BEGUN.fullmatch(path.name):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _STALE_SECONDS:
                    shutil.rmtree(path, ignore_errors=True)


def _unchanged(origin: Mapping[str, Any]) -> bool:
    path = origin["place"]
    try:
        return os.path.exists(path) and all(
            file_mark(os.path.join(path, name)) == mark for name, mark in origin["files"].items()
        )
    except (OSError, ValueError):
        return False


def _make_room(size: int) -> bool:
    """Remove what was not used for the longest time, until this many bytes fit, if they can."""
    _remove_stale()
    entries = sorted(_entries(), key=lambda entry: entry.used)
    over = size + sum(entry.bytes for entry in entries) + _begun_bytes() - cache_bound()
    for entry in entries:
        if over > 0 and _remove_unused(entry.path):
            over -= entry.bytes
    return over <= 0


def _begun_bytes() -> int:
    """The size of what processes are writing now."""
    total = 0
    for file in cache_root().glob("begun-*/*"):
        with suppress(OSError):  # complete just now
            total += file.stat().st_size
    return total


def _remove(path: Path) -> None:
    """Remove a cache: its own files, and nothing else; what says that it is one goes first."""
    with suppress(OSError):
        for name in (_ORIGIN, _PIXELS, _HASHES):
            (path / name).unlink(missing_ok=True)
        path.rmdir()


def _remove_earlier(folder: Path) -> None:
    """Remove the hidden files of pixels that earlier versions left in a folder of images."""
    for path in folder.glob(".ancl-*.npy*"):
        with suppress(OSError):
            if _EARLIER.fullmatch(path.name) and not path.is_symlink():
                with open_plain(path) as file:
                    ours = file.read(6) == b"\x93NUMPY"
                if ours:
                    path.unlink()
