"""One entry on disk: a directory of tensors and JSON, complete or absent.

A directory is written under a temporary name and then put into its place.

torch is imported only where tensors are made or written: a listing of thousands of entries should
not wait for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from safetensors import SafetensorError, deserialize

from ancl.errors import StoreError, printable
from ancl.files import open_plain, read_plain
from ancl.store.places import (
    HEADER,
    OURS,
    TENSORS,
    aside_of,
    check_replaceable,
    current,
    delete,
    flush,
    replace_directory,
    temporary,
)

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
_READS = 1000
_FIELDS = {"key": str, "meta": dict, "tensors_sha256": str, "tensors_bytes": int}
_T = TypeVar("_T")
_parse: Callable[[bytes], object] = deserialize  # which has no types of its own


@dataclass(frozen=True, eq=False)
class StageResult:
    """What a stage leaves behind: tensors by name, and everything else as JSON.

    Args:
        tensors: By name.
        meta: Everything else.
    """

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class DamagedError(StoreError):
    """An entry that is not what was written, and the reason."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"{directory} is damaged: {reason}. Remove it, and it is computed again.")
        self.reason = reason


def write_entry(directory: Path, entry: StageResult) -> None:
    """Write an entry under a temporary name, flush it to the disk and put it in its place.

    A crash at any moment leaves the old entry, the new one, or a temporary that is never read. Two
    processes must not write the same directory at once.

    Args:
        directory: Where it goes. What is there is replaced, if it is an entry.
        entry: What to write.

    Raises:
        StoreError: The meta is not JSON, or something else than an entry is there.
        OSError: The disk is full, or the directory cannot be written.
    """
    check_replaceable(directory)
    data = encoded(entry.tensors)
    header = sealed(directory.name, entry.meta, data)
    write_whole(directory, header, lambda new: write_file(new / TENSORS, data))


def write_whole(
    directory: Path, header: bytes, fill: Callable[[Path], None], *, overwrite: bool = False
) -> None:
    """Write a directory under a temporary name, and put it in its place once it is whole.

    Args:
        directory: Its place.
        header: What makes it ours.
        fill: Writes everything else into a new directory.
        overwrite: Whether what somebody put there meanwhile is removed too.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = temporary(directory)
    try:
        new.mkdir()
        # The header comes first: whatever a killed writer leaves carries our mark.
        write_file(new / HEADER, header)
        fill(new)
        flush(new)
    except BaseException:
        delete(new)
        raise
    replace_directory(new, directory, overwrite=overwrite)


def read_entry(directory: Path, key: str | None = None) -> StageResult:
    """Read an entry and compare its checksums.

    Args:
        directory: Where it was written.
        key: What it must have been written as, where a renamed directory would be an error.

    Raises:
        DamagedError: It does not exist, or it is not what was written.
    """

    def read() -> StageResult:
        header, data = _compared(directory, key)
        return StageResult(decoded(directory, data), header["meta"])

    return reread(directory, read)


def check_entry(directory: Path, key: str) -> None:
    """Compare the checksums of an entry, and make no tensor of it.

    Raises:
        DamagedError: It does not exist, or it is not what was written.
    """

    def read() -> None:
        _, data = _compared(directory, key)
        try:
            _parse(data)
        except SafetensorError as error:
            raise _undecodable(directory, error) from error

    reread(directory, read)


def read_header(directory: Path, key: str | None = None) -> dict[str, Any]:
    """Read the JSON part alone, with its checksum; the tensors are compared in size only.

    Args:
        directory: Where it was written.
        key: As in ``read_entry``.

    Raises:
        DamagedError: It does not exist, or it is not what was written.
    """

    def read() -> dict[str, Any]:
        place = current(directory)
        try:
            with open_plain(place / TENSORS) as file:
                return _fitting_header(directory, key, place, file)
        except OSError as error:
            raise DamagedError(directory, why(error)) from error

    return reread(directory, read)


def stats(directory: Path) -> tuple[os.stat_result, ...]:
    """What the system knows of the header and of the tensors; nothing where one is missing."""
    for place in (directory, aside_of(directory)):
        with suppress(OSError):
            return tuple(os.stat(f"{place}/{name}") for name in (HEADER, TENSORS))
    return ()


def usage(directory: Path, found: tuple[os.stat_result, ...]) -> tuple[int, float]:
    """The bytes of an entry with these ``stats``, and when it was written or last used.

    Raises:
        OSError: It is gone.
    """
    if not found:
        place = current(directory)
        return size_of(place), place.stat().st_mtime
    return sum(stat.st_size for stat in found), max(stat.st_mtime for stat in found)


def mark_use(directory: Path) -> None:
    """Note that an entry is used now, as far as possible: the store may be read-only."""
    # Not on the header, whose time of change tells an index that it is the one it read.
    with suppress(OSError):
        os.utime(current(directory) / TENSORS)


def size_of(directory: Path) -> int:
    """The bytes of all files below a directory; files that vanish meanwhile are not counted."""
    total = 0
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def encoded(tensors: Mapping[str, Tensor]) -> bytes:
    """Tensors as the bytes of a file."""
    import torch
    from safetensors.torch import save

    # A copy each: safetensors refuses odd strides and tensors that share their memory.
    packed = torch.contiguous_format
    return save({n: t.detach().cpu().clone(memory_format=packed) for n, t in tensors.items()})


def decoded(directory: Path, data: bytes) -> dict[str, Tensor]:
    """The tensors of such bytes, which an entry in this directory holds.

    Raises:
        DamagedError: They are not tensors.
    """
    from safetensors.torch import load

    try:
        # Cloned into torch's own memory, since the bits of a kernel may depend on alignment.
        return {name: tensor.clone() for name, tensor in load(data).items()}
    except SafetensorError as error:
        raise _undecodable(directory, error) from error


def _undecodable(directory: Path, error: SafetensorError) -> DamagedError:
    return DamagedError(directory, f"{TENSORS} cannot be decoded: {error}")


def sealed(
    key: str,
    meta: dict[str, Any],
    data: bytes = b"",
    texts: Mapping[str, bytes] | None = None,
    parts: Collection[str] | None = None,
) -> bytes:
    """The header of an entry, with its checksum.

    Args:
        key: What the entry is written as.
        meta: What it holds as JSON.
        data: Its tensors.
        texts: What is for readers, by the name of the file.
        parts: The names of files that are named by what they hold; see ``ancl.store.bundle``.

    Raises:
        StoreError: The meta is not JSON.
    """
    try:
        # Through JSON and back, since the checksum must not depend on keys that were numbers.
        meta = json.loads(json.dumps(meta, allow_nan=False))
    except (TypeError, ValueError) as error:
        path = _not_finite(meta, "meta")
        reason = f"{path} is not a finite number" if path else str(error)
        raise StoreError(
            f"The entry {key} cannot be written as JSON: {reason}. Write NaN and infinity as null, "
            "and keep to numbers, texts, lists and dictionaries."
        ) from error
    header = {
        "format": f"{OURS}{FORMAT}",
        "key": key,
        "meta": meta,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
        "tensors_bytes": len(data),
    }
    if texts:
        header["beside"] = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    if parts is not None:
        header["parts"] = sorted(parts)
    return json.dumps({**header, "sha256": checksum(header)}, indent=1).encode()


def _not_finite(value: object, path: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    items: list[tuple[object, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    places = (_not_finite(item, f"{path}[{name!r}]") for name, item in items)
    return next((where for where in places if where), None)


def checksum(header: dict[str, Any]) -> str:
    """The hash of JSON values, whatever the order of their names."""
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def opened(directory: Path, raw: bytes) -> dict[str, Any]:
    """A header as it was sealed.

    Raises:
        DamagedError: It is not ours, or not as it was written.
    """
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DamagedError(directory, f"{HEADER} is not JSON or is truncated") from error
    written = header.get("format") if isinstance(header, dict) else None
    if not isinstance(written, str) or not written.startswith(OURS):
        raise DamagedError(directory, f"{HEADER} is foreign: it was not written by ancl")
    version = written.removeprefix(OURS)
    if version != str(FORMAT):
        age = (
            "an older" if re.fullmatch(r"\d{1,9}", version) and int(version) < FORMAT else "a newer"
        )
        shown = printable(version, 20)
        raise DamagedError(directory, f"it has {age} format, {shown}; this version reads {FORMAT}")
    claimed = header.pop("sha256", None)
    try:
        intact = claimed == checksum(header)
    except ValueError:  # NaN, which we never write
        intact = False
    if not intact:
        raise DamagedError(directory, f"the checksum of {HEADER} does not fit: it was changed")
    # Whoever forges an entry writes the checksum that fits, too.
    if any(type(header.get(name)) is not kind for name, kind in _FIELDS.items()):
        raise DamagedError(directory, f"{HEADER} lacks a field, or has one of another type")
    return dict(header)


def reread(directory: Path, read: Callable[[], _T]) -> _T:
    """What is read from a directory, again where it was replaced while it was read.

    A writer may replace the directory between two opens: what failed is damaged only if the
    directory is still the one that it was.
    """
    for _ in range(_READS):
        before = _identity(directory)
        try:
            return read()
        except DamagedError:
            if before == _identity(directory):
                raise
    return read()


def _identity(directory: Path) -> tuple[int, ...]:
    """What changes when a directory is replaced; the number of an inode alone may be used again."""
    with suppress(OSError):
        stat = os.stat(current(directory))
        return stat.st_dev, stat.st_ino, stat.st_ctime_ns
    return ()


def _fitting_header(
    directory: Path, key: str | None, place: Path, tensors: BinaryIO
) -> dict[str, Any]:
    """The header, which is of this key and of a file of this size."""
    header = opened(directory, read_plain(place / HEADER))
    if key is not None and header["key"] != key:
        raise DamagedError(directory, f"it was written as {printable(header['key'], 64)}")
    size = os.fstat(tensors.fileno()).st_size
    if size != header["tensors_bytes"]:
        raise DamagedError(directory, _truncated(size, header["tensors_bytes"]))
    return header


def _compared(directory: Path, key: str | None) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the tensors, which fit each other."""
    place = current(directory)
    try:
        # The tensors are opened before the header is read: an open file outlives its removal.
        with open_plain(place / TENSORS) as file:
            header = _fitting_header(directory, key, place, file)
            data = file.read()
    except OSError as error:
        raise DamagedError(directory, why(error)) from error
    if hashlib.sha256(data).hexdigest() != header["tensors_sha256"]:
        raise DamagedError(directory, f"the checksum of {TENSORS} does not fit")
    return header, data


def why(error: OSError) -> str:
    """Why a file of an entry cannot be read."""
    name = Path(error.filename).name if error.filename else "a file"
    if isinstance(error, FileNotFoundError):
        return f"{name} is missing"
    return f"{name} cannot be read ({error.strerror})"


def _truncated(found: int, expected: int) -> str:
    return f"{TENSORS} has {found} bytes instead of {expected}: it was truncated or changed"


def write_file(path: Path, data: bytes) -> None:
    """Write a file and have the disk keep it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
