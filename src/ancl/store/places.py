"""The place of an entry: whose it is, how it is replaced, and what killed writers left beside it.

To replace an entry, the names of two directories are exchanged, so that a reader finds the old one
or the new one at every moment. Where a file system cannot exchange names, the old entry is renamed
to ``.NAME.old`` first: a crash between the two loses nothing, and readers look there too.
"""

import ctypes
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ancl.errors import StoreError, printable
from ancl.files import carries_mark, open_plain, read_plain

HEADER, TENSORS, PARTS = "entry.json", "tensors.safetensors", "parts"
OURS = "ancl-store "
"""What the format of every header begins with."""
_BEGINS = f'{{\n "format": "{OURS}'.encode()
_AT_WORKING_DIRECTORY, _EXCHANGE = -100, 2  # of Linux: AT_FDCWD and RENAME_EXCHANGE


def check_replaceable(directory: Path, *, overwrite: bool = False) -> None:
    """Refuse a place that holds anything that we did not write, and name it.

    Args:
        directory: Where an entry is to be written; it need not exist.
        overwrite: Allow it anyway.

    Raises:
        StoreError: Something else is there.
    """
    if overwrite or not os.path.lexists(directory) or is_ours(directory):
        return
    if directory.is_symlink() or not directory.is_dir():
        raise StoreError(
            f"{directory} exists, and ancl did not write it, so it is not replaced. Give a new "
            "name, or allow it: overwrite=True (--overwrite)."
        )
    names = strangers(directory)
    shown = ", ".join(printable(name, 80) for name in names[:3]) + (", …" if names[3:] else "")
    raise StoreError(
        f"{directory} exists, and ancl did not write it as it is ({shown}), so it is not replaced. "
        "Move these files elsewhere, give a new name, or allow it: overwrite=True (--overwrite)."
    )


def has_header(directory: Path) -> bool:
    """Whether a directory is an entry, as far as the beginning of its header tells."""
    try:
        with open_plain(directory / HEADER) as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except OSError:
        return False


def is_ours(directory: Path) -> bool:
    """Whether a directory holds nothing but what we write, so that it may be removed.

    An entry is known by its header. A directory without one is ours where a writer left it.
    """
    return directory.is_dir() and not directory.is_symlink() and not strangers(directory)


def strangers(directory: Path) -> list[str]:
    """The names in a directory of all that we did not write as it is."""
    names = sorted(os.listdir(directory))
    left = directory.name.endswith((".tmp", ".old"))
    if HEADER not in names:
        return [] if left and names == [TENSORS] else names
    try:
        raw = read_plain(directory / HEADER)
    except OSError:
        return names
    # A killed writer may have written a part of the header, and nothing after it.
    if not raw.startswith(_BEGINS) and not (left and names == [HEADER] and _BEGINS.startswith(raw)):
        return names
    header = _loaded(raw) if len(names) > 2 or PARTS in names else {}
    parts, inside = header.get("parts"), list[str]()
    below = directory / PARTS
    if isinstance(parts, list) and below.is_dir() and not below.is_symlink():
        names.remove(PARTS)
        inside = sorted(os.listdir(below))
    plain = {HEADER} if isinstance(parts, list) else {HEADER, TENSORS}
    texts = header.get("beside")
    texts = texts if texts is None or isinstance(texts, dict) else {}
    return [
        *(n for n in names if not _as_written(directory / n, plain, texts, left)),
        *(f"{PARTS}/{n}" for n in inside if n not in (parts or ()) or not _is_plain(below / n)),
    ]


def _loaded(raw: bytes) -> dict[str, Any]:
    """A header as JSON; nothing where it is none: what it says is compared when it is read."""
    with suppress(ValueError, RecursionError):
        header = json.loads(raw)
        return header if isinstance(header, dict) else {"beside": {}}
    return {"beside": {}}


def _is_plain(file: Path) -> bool:
    return stat.S_ISREG(file.lstat().st_mode)


def _as_written(
    file: Path, plain: Collection[str], texts: Mapping[str, str] | None, left: bool
) -> bool:
    """Whether a file of an entry is plain and, if it is for readers, as it was written.

    Args:
        file: The file.
        plain: The names of files that are compared when they are read.
        texts: The digests of what is for readers; none where an earlier version noted none.
        left: Whether a writer that was killed may have written a part of it.
    """
    if not _is_plain(file):
        return False
    if file.name in plain:
        return True
    if texts is None:
        return carries_mark(file)
    if file.name not in texts:
        return False
    data = read_plain(file)
    return (left and not data) or hashlib.sha256(data).hexdigest() == texts[file.name]


def current(directory: Path) -> Path:
    """Where the entry is: in its place, or renamed if a writer stopped half-way."""
    aside = aside_of(directory)
    return aside if not directory.exists() and aside.exists() else directory


def replace_directory(new: Path, directory: Path, *, overwrite: bool = False) -> None:
    """Put a new entry into its place at once, and remove the one that was there.

    Args:
        new: The new entry, under the name that ``temporary`` gave.
        directory: Its place.
        overwrite: Whether what somebody put there meanwhile is removed too; else it goes along.
    """
    try:
        replaced = _swap(new, directory)
    except BaseException:
        _remove_replaced(new, directory, overwrite)
        raise
    _remove_replaced(replaced, directory, overwrite)
    remove_leftover(aside_of(directory))


def remove_entry(directory: Path) -> None:
    """Remove an entry; a reader sees all of it or nothing."""
    if is_ours(aside_of(directory)):
        _discard(aside_of(directory))
    _discard(directory)


def delete(path: Path) -> None:
    """Remove a file or a directory, as far as possible; it need not exist.

    The header goes last: what is half removed when the process is killed is still known as ours.
    """
    if path.is_dir() and not path.is_symlink():
        for name in sorted(os.listdir(path), key=lambda name: name == HEADER):
            with suppress(OSError):
                delete(path / name)
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


def leftovers(directory: Path) -> list[Path]:
    """What killed writers of an entry may have left beside it, by the names alone."""
    name = re.escape(directory.name)
    pattern = re.compile(rf"\.({name}|\.{name}\.old)\.[0-9a-f]{{32}}\.tmp")
    beside = _directories(directory.parent)
    directories = [directory.with_name(other) for other in beside if pattern.fullmatch(other)]
    aside = aside_of(directory)
    return [*directories, *([aside] if aside.name in beside and directory.exists() else [])]


def remove_leftover(path: Path) -> bool:
    """Remove what a killed writer left, where it carries our mark; whether it is gone."""
    # Tensors without a header carry none.
    if is_ours(path) and os.listdir(path) != [TENSORS]:
        _discard(path)
    return not os.path.lexists(path)


def _directories(parent: Path) -> list[str]:
    try:
        with os.scandir(parent) as entries:
            return [item.name for item in entries if item.is_dir(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def temporary(directory: Path) -> Path:
    """A new name beside a directory, which nobody reads."""
    return directory.with_name(f".{directory.name}.{uuid.uuid4().hex}.tmp")


def aside_of(directory: Path) -> Path:
    """Where a replaced entry is for a moment, where names cannot be exchanged."""
    return directory.with_name(f".{directory.name}.old")


def flush(directory: Path) -> None:
    """Have the disk keep the names in a directory."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _swap(new: Path, directory: Path) -> Path:
    """Put a new entry into its place; gives where the replaced one is, if there was one."""
    if not os.path.lexists(directory):
        new.rename(directory)
        flush(directory.parent)
        return new
    if _exchange(new, directory):
        flush(directory.parent)
        return new
    aside = aside_of(directory)
    if os.path.lexists(aside):
        check_replaceable(aside)
        _discard(aside)
    directory.rename(aside)
    new.rename(directory)
    flush(directory.parent)
    return aside


def _exchange(one: Path, other: Path) -> bool:
    """Exchange two names at once; false where the system or the file system cannot.

    Raises:
        OSError: It can, but not these.
    """
    rename = _renameat2()
    if rename is None:
        return False
    here = _AT_WORKING_DIRECTORY
    if not rename(here, os.fsencode(one), here, os.fsencode(other), _EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
        return False
    raise OSError(number, os.strerror(number), str(other))


@cache
def _renameat2() -> Callable[[int, bytes, int, bytes, int], int] | None:
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, TypeError, AttributeError):  # not Linux, or an old library
        return None
    name = ctypes.c_char_p
    rename.argtypes = (ctypes.c_int, name, ctypes.c_int, name, ctypes.c_uint)
    function: Callable[[int, bytes, int, bytes, int], int] = rename
    return function


def _remove_replaced(replaced: Path, directory: Path, overwrite: bool) -> None:
    """Remove an entry that is no longer in its place, and nothing that somebody put into it."""
    if not os.path.lexists(replaced):
        return
    if not overwrite and replaced.is_dir() and not replaced.is_symlink():
        for name in strangers(replaced):
            # It came after the place was checked: it goes along.
            if directory.is_dir() and not os.path.lexists(directory / name):
                (replaced / name).rename(directory / name)
    if overwrite or is_ours(replaced):
        _discard(replaced)


def _discard(path: Path) -> None:
    # Renamed first: what is half removed must not have a name that somebody reads.
    gone = path if path.name.endswith(".tmp") else temporary(path)
    with suppress(FileNotFoundError):
        if gone != path:
            path.rename(gone)
        delete(gone)
