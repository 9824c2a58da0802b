"""One entry on disk: a directory of tensors and JSON, complete or absent.

A directory is written under a temporary name and renamed. To replace an
entry, the old one is renamed to ``.NAME.old`` first, so that a crash between the two loses nothing.

torch is imported only where tensors are made or written: a listing of thousands of entries should
not wait for it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from safetensors import SafetensorError, deserialize

from ancl.errors import StoreError, printable
from ancl.files import carries_mark, open_plain, read_plain

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
HEADER, TENSORS = "entry.json", "tensors.safetensors"
_OURS = "ancl-store "
_READS = 3
_START = 256
_FIELDS = {"key": str, "meta": dict, "tensors_sha256": str, "tensors_bytes": int}
_T = TypeVar("_T")
_parse: Callable[[bytes], object] = deserialize  # which has no types of its own


@dataclass(frozen=True, eq=False)
class StageResult:
    """What a stage leaves behind: tensors by name, and everything else as JSON."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]


class DamagedError(StoreError):
    """An entry that is not what was written, and the reason."""

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"{directory} is damaged: {reason}. Remove it, and it is computed again.")
        self.reason = reason


def write_entry(
    directory: Path,
    entry: StageResult,
    *,
    overwrite: bool = False,
    beside: Mapping[str, str] | None = None,
) -> None:
    """Write an entry under a temporary name, flush it to the disk and rename it.

    A crash at any moment leaves the old entry, the new one, or a temporary that is never read. Two
    processes must not write the same directory at once.

    Args:
        directory: Where it goes. What is there is replaced, if it is an entry.
        entry: What to write.
        overwrite: Whether anything else that is there is replaced too.
        beside: Texts for readers by file name, each with our mark; they are not read back.

    Raises:
        StoreError: The meta is not JSON, or something else than an entry is there.
        OSError: The disk is full, or the directory cannot be written.
    """
    if not overwrite and os.path.lexists(directory) and not is_ours(directory):
        raise StoreError(
            f"{directory} exists, and ancl did not write it, so it is not replaced. Give a new "
            "name, or allow it: overwrite=True."
        )
    data = _encoded(entry.tensors)
    header = _sealed(directory.name, entry.meta, data)
    directory.parent.mkdir(parents=True, exist_ok=True)
    new = _temporary(directory)
    try:
        new.mkdir()
        _write(new / TENSORS, data)
        _write(new / HEADER, header)
        for name, text in (beside or {}).items():
            _write(new / name, text.encode())
        _flush(new)
        _swap(new, directory)
    finally:
        delete(new)


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
        return StageResult(_decoded(directory, data), header["meta"])

    return _again(read)


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

    _again(read)


def read_header(directory: Path) -> dict[str, Any]:
    """Read the JSON part alone; the tensors are compared in size, else it is ``DamagedError``."""
    place = current(directory)
    try:
        header = _opened(directory, read_plain(place / HEADER))
        with open_plain(place / TENSORS) as file:
            size = os.fstat(file.fileno()).st_size
    except OSError as error:
        raise DamagedError(directory, _why(error)) from error
    if size != header["tensors_bytes"]:
        raise DamagedError(directory, _truncated(size, header["tensors_bytes"]))
    return header


def current(directory: Path) -> Path:
    """Where the entry is: in its place, or renamed if a writer stopped half-way."""
    aside = _aside(directory)
    return aside if not directory.exists() and aside.exists() else directory


def remove_entry(directory: Path) -> None:
    """Remove an entry; a reader sees all of it or nothing."""
    _discard(_aside(directory))
    _discard(directory)


def delete(path: Path) -> None:
    """Remove a file or a directory, as far as possible; it need not exist."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def entry_names(directory: Path) -> list[str]:
    """The names of the entries in a directory, including those that a crash left renamed."""
    names = _directories(directory)
    aside = {name[1:-4] for name in names if name.startswith(".") and name.endswith(".old")}
    return sorted({name for name in names if not name.startswith(".")} | aside)


def temporaries(directory: Path) -> list[Path]:
    """What a killed writer left: half an entry, or one that was already replaced."""
    hidden = [name for name in _directories(directory) if name.startswith(".")]
    replaced = [n for n in hidden if n.endswith(".old") and (directory / n[1:-4]).exists()]
    return [directory / name for name in hidden if name.endswith(".tmp") or name in replaced]


def is_ours(directory: Path) -> bool:
    """Whether a directory holds nothing but what we write, so that it may be removed.

    An entry is known by its header. A directory without one is ours where a writer left it.
    """
    if directory.is_symlink() or not directory.is_dir():
        return False
    names = {path.name for path in directory.iterdir()}
    if HEADER not in names:
        return not names or (names == {TENSORS} and directory.name.endswith((".tmp", ".old")))
    try:
        with open_plain(directory / HEADER) as file:
            start = file.read(_START)
    except OSError:
        return False
    known = f'"format": "{_OURS}'.encode() in start
    return known and all(carries_mark(directory / name) for name in names - {HEADER, TENSORS})


def stats(directory: Path) -> tuple[os.stat_result, ...]:
    """What the system knows of the header and of the tensors; nothing where one is missing."""
    for place in (directory, _aside(directory)):
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
    return sum(each.st_size for each in found), max(each.st_mtime for each in found)


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


def _directories(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as found:
            return [item.name for item in found if item.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _encoded(tensors: dict[str, Tensor]) -> bytes:
    import torch
    from safetensors.torch import save

    # A copy each: safetensors refuses odd strides and tensors that share their memory.
    packed = torch.contiguous_format
    return save({n: t.detach().cpu().clone(memory_format=packed) for n, t in tensors.items()})


def _decoded(directory: Path, data: bytes) -> dict[str, Tensor]:
    from safetensors.torch import load

    try:
        # Cloned into torch's own memory, since the bits of a kernel may depend on alignment.
        return {name: tensor.clone() for name, tensor in load(data).items()}
    except SafetensorError as error:
        raise _undecodable(directory, error) from error


def _undecodable(directory: Path, error: SafetensorError) -> DamagedError:
    return DamagedError(directory, f"{TENSORS} cannot be decoded: {error}")


def _sealed(key: str, meta: dict[str, Any], data: bytes) -> bytes:
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
        "format": f"{_OURS}{FORMAT}",
        "key": key,
        "meta": meta,
        "tensors_sha256": hashlib.sha256(data).hexdigest(),
        "tensors_bytes": len(data),
    }
    return json.dumps({**header, "sha256": _checksum(header)}, indent=1).encode()


def _not_finite(value: object, path: str) -> str | None:
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    items: list[tuple[object, object]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list | tuple):
        items = list(enumerate(value))
    found = (_not_finite(item, f"{path}[{name!r}]") for name, item in items)
    return next((where for where in found if where), None)


def _checksum(header: dict[str, Any]) -> str:
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _opened(directory: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise DamagedError(directory, f"{HEADER} is not JSON or is truncated") from error
    written = header.get("format") if isinstance(header, dict) else None
    if not isinstance(written, str) or not written.startswith(_OURS):
        raise DamagedError(directory, f"{HEADER} is foreign: it was not written by ancl")
    version = written.removeprefix(_OURS)
    if version != str(FORMAT):
        age = (
            "an older" if re.fullmatch(r"\d{1,9}", version) and int(version) < FORMAT else "a newer"
        )
        shown = printable(version, 20)
        raise DamagedError(directory, f"it has {age} format, {shown}; this version reads {FORMAT}")
    claimed = header.pop("sha256", None)
    try:
        intact = claimed == _checksum(header)
    except ValueError:  # NaN, which we never write
        intact = False
    if not intact:
        raise DamagedError(directory, f"the checksum of {HEADER} does not fit: it was changed")
    # Whoever forges an entry writes the checksum that fits, too.
    if any(type(header.get(name)) is not kind for name, kind in _FIELDS.items()):
        raise DamagedError(directory, f"{HEADER} lacks a field, or has one of another type")
    return dict(header)


def _again(read: Callable[[], _T]) -> _T:
    # A writer may replace the directory between our two opens: only what fails again is damaged.
    for _ in range(_READS - 1):
        with suppress(DamagedError):
            return read()
    return read()


def _compared(directory: Path, key: str | None) -> tuple[dict[str, Any], bytes]:
    """The header and the bytes of the tensors, which fit each other."""
    place = current(directory)
    try:
        # The tensors are opened before the header is read: an open file outlives its removal.
        with open_plain(place / TENSORS) as file:
            header = _opened(directory, read_plain(place / HEADER))
            if key is not None and header["key"] != key:
                raise DamagedError(directory, f"it was written as {printable(header['key'], 64)}")
            size = os.fstat(file.fileno()).st_size
            if size != header["tensors_bytes"]:
                raise DamagedError(directory, _truncated(size, header["tensors_bytes"]))
            data = file.read()
    except OSError as error:
        raise DamagedError(directory, _why(error)) from error
    if hashlib.sha256(data).hexdigest() != header["tensors_sha256"]:
        raise DamagedError(directory, f"the checksum of {TENSORS} does not fit")
    return header, data


def _why(error: OSError) -> str:
    name = Path(error.filename).name if error.filename else "a file"
    if isinstance(error, FileNotFoundError):
        return f"{name} is missing"
    return f"{name} cannot be read ({error.strerror})"


def _truncated(found: int, expected: int) -> str:
    return f"{TENSORS} has {found} bytes instead of {expected}: it was truncated or changed"


def _temporary(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.tmp")


def _aside(directory: Path) -> Path:
    return directory.with_name(f".{directory.name}.old")


def _write(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(new: Path, directory: Path) -> None:
    aside = _aside(directory)
    if os.path.lexists(directory):
        _discard(aside)
        directory.rename(aside)
    new.rename(directory)
    _flush(directory.parent)
    _discard(aside)


def _discard(path: Path) -> None:
    # Renamed first: what is half removed must not have a name that somebody reads.
    gone = _temporary(path)
    with suppress(FileNotFoundError):
        path.rename(gone)
        delete(gone)
