"""Decoded pixels, kept in the cache directory: bounded, and gone when their images are.

An entry is a directory with the pixels and a list of the files that they were decoded from. It
counts, and stays, only as long as every one of these files is there as it was.
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
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ancl.data.formats.arrays import read_npy
from ancl.data.storage import MappedStorage
from ancl.errors import ScenarioError, SpecError
from ancl.files import MARK, file_mark, open_plain, read_json
from ancl.wording import parse_size

ROOT, BOUND = "ANCL_CACHE", "ANCL_CACHE_SIZE"
"""Environment variables: where caches are, and how large all of them may be together."""
MOST = "10GB"
_PIXELS, _ORIGIN = "pixels.npy", "origin.json"
_NAME = re.compile("[0-9a-f]{12}-[0-9a-f]{16}")
_BEGUN = re.compile("begun-[0-9a-f]{32}")
_STALE_SECONDS = 24 * 3600.0
_EARLIER = re.compile(r"\.ancl-(\d+|None)px-[0-9a-f]{16}\.npy(\.\d+\.tmp)?")
"""What versions up to 0.2 left in folders of images."""

Marks = Mapping[str, str]
"""Files, each with a mark that changes when it does."""


class Cache(NamedTuple):
    """The pixels of some images, decoded.

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
    """

    def __init__(self, place: Path, marks: Marks, how: object) -> None:
        self._place, self._marks = str(place.absolute()), dict(marks)
        decides = json.dumps([self._marks, how])
        key = hashlib.sha256(decides.encode()).hexdigest()[:16]
        self.path = cache_root() / f"{_start(self._place)}-{key}"
        self.transparent = 0
        """How many of the images have transparent pixels: known once it is read or written."""

    def read(self, count: int) -> NDArray[np.uint8] | None:
        """The pixels of this number of images, mapped; nothing where they are not cached."""
        origin = _origin(self.path)
        try:
            images = read_npy(self.path / _PIXELS, ScenarioError)
        except ScenarioError:
            return None
        fits = images.dtype == np.uint8 and images.ndim == 4 and len(images) == count
        if origin is None or not fits:
            return None
        self.transparent = origin["transparent"]
        with suppress(OSError):
            os.utime(self.path / _ORIGIN)  # the time of its last use
        return images

    @contextmanager
    def writing(self, shape: tuple[int, ...]) -> Iterator[NDArray[np.uint8] | None]:
        """Room for pixels on the disk; they are a cache once the block ends without an error.

        It yields nothing where they do not fit, or nothing can be written.
        """
        begun = cache_root() / f"begun-{uuid.uuid4().hex}"
        try:
            pixels = _room(begun, shape)
        except OSError:
            pixels = None
        try:
            yield pixels
            if pixels is not None:
                pixels.flush()
                self._finish(begun, len(pixels))
        finally:
            shutil.rmtree(begun, ignore_errors=True)

    def _finish(self, begun: Path, count: int) -> None:
        content = {
            "format": f"pixels, {MARK}",
            "place": self._place,
            "images": count,
            "transparent": self.transparent,
            "files": self._marks,
        }
        with suppress(OSError):  # another process has written the same
            (begun / _ORIGIN).write_text(json.dumps(content), encoding="utf-8")
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


def _room(begun: Path, shape: tuple[int, ...]) -> np.memmap[Any, np.dtype[np.uint8]] | None:
    """A new file of this shape on the disk, if there is room for it.

    Raises:
        OSError: It cannot be written.
    """
    size = math.prod(shape)
    if size > cache_bound():
        return None
    _make_room(size)
    begun.mkdir(parents=True, mode=0o700)
    file = begun / _PIXELS
    pixels = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
    if hasattr(os, "posix_fallocate"):  # a full disk is an error now, and not a crash later
        with file.open("r+b") as opened:
            os.posix_fallocate(opened.fileno(), 0, file.stat().st_size)
    return pixels


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
    place = origin["place"]
    try:
        return all(
            file_mark(os.path.join(place, name)) == mark for name, mark in origin["files"].items()
        )
    except (OSError, ValueError):
        return False


def _make_room(size: int) -> None:
    """Remove what was not used for the longest time, until this many bytes fit."""
    _remove_stale()
    entries = sorted(_entries(), key=lambda entry: entry.used)
    total = size + sum(entry.bytes for entry in entries)
    for entry in entries:
        if total <= cache_bound():
            break
        _remove(entry.path)
        total -= entry.bytes


def _remove(path: Path) -> None:
    """Remove a cache: its own two files, and nothing else."""
    with suppress(OSError):
        for name in (_PIXELS, _ORIGIN):
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
