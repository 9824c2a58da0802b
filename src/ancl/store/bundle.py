"""An entry in many files: a header, and parts that are named by what they hold.

What several versions of something have in common is one file. To replace a bundle, a new directory
is made in which the parts that stay are links to the same files, and the names of both directories
are exchanged: a reader finds the old bundle or the new one, whole.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ancl.errors import printable
from ancl.files import open_plain, read_plain
from ancl.store.entry import (
    DamagedError,
    opened,
    reread,
    sealed,
    why,
    write_file,
    write_whole,
)
from ancl.store.places import (
    HEADER,
    PARTS,
    check_replaceable,
    current,
    flush,
)

_T = TypeVar("_T")
_NAME = re.compile(r"[0-9a-f]{64}\.[a-z]{1,16}")


class Bundle(NamedTuple):
    """A bundle that is open for reading.

    Args:
        directory: Where it is, for messages.
        place: Where it is now.
        meta: What its header holds.
    """

    directory: Path
    place: Path
    meta: dict[str, Any]

    def part(self, name: str) -> bytes:
        """What a part holds, compared with its name.

        Raises:
            DamagedError: It is missing, or holds something else.
        """
        if not _NAME.fullmatch(name):
            raise DamagedError(self.directory, f"{printable(name, 80)!r} is no name of a part")
        try:
            with open_plain(self.place / PARTS / name) as file:
                data = file.read()
        except OSError as error:
            raise DamagedError(self.directory, why(error)) from error
        if part_name(data, name.rpartition(".")[2]) != name:
            raise DamagedError(self.directory, f"{PARTS}/{name} is not what was written")
        return data


def part_name(data: bytes, kind: str) -> str:
    """What a part is called."""
    return f"{hashlib.sha256(data).hexdigest()}.{kind}"


def read_bundle(directory: Path, read: Callable[[Bundle], _T]) -> _T:
    """What a function reads of a bundle, while others may replace it.

    Raises:
        DamagedError: It does not exist, or it is not what was written.
    """

    def begin() -> _T:
        place = current(directory)
        try:
            header = opened(directory, read_plain(place / HEADER))
        except OSError as error:
            raise DamagedError(directory, why(error)) from error
        return read(Bundle(directory, place, header["meta"]))

    return reread(directory, begin)


def write_bundle(
    directory: Path,
    meta: dict[str, Any],
    parts: Mapping[str, bytes],
    stay: Collection[str],
    *,
    overwrite: bool = False,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Write a bundle under a temporary name, flush it to the disk and put it in its place.

    A crash at any moment leaves the old bundle, the new one, or a temporary that is never read.
    Two processes must not write the same directory at once.

    Args:
        directory: Where it goes. What is there is replaced, if we wrote it.
        meta: What its header holds.
        parts: New parts by ``part_name``.
        stay: Parts of the bundle that is there now, which the new one has too.
        overwrite: Whether anything else that is there is replaced too.
        beside: Texts for readers by file name, each with our mark; they are not read back.

    Raises:
        StoreError: The meta is not JSON, or something else than a bundle is there.
        OSError: The disk is full, or the directory cannot be written.
    """
    check_replaceable(directory, overwrite=overwrite)
    texts = {name: text.encode() for name, text in (beside or {}).items()}
    header = sealed(directory.name, meta, texts=texts, parts={*parts, *stay})
    old = current(directory) / PARTS

    def fill(new: Path) -> None:
        (new / PARTS).mkdir()
        for name in sorted({*stay} - parts.keys()):
            _link(old / name, new / PARTS / name)
        for name, data in parts.items():
            write_file(new / PARTS / name, data)
        flush(new / PARTS)
        for name, text in texts.items():
            write_file(new / name, text)

    write_whole(directory, header, fill, overwrite=overwrite)


def _link(old: Path, new: Path) -> None:
    """The same file under another name; a copy where the file system has no links."""
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copyfile(old, new, follow_symlinks=False)
