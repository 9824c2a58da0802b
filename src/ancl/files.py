"""Files: only plain ones are read, and only our own are replaced or removed."""

import errno
import hashlib
import json
import os
import re
import stat
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from ancl.errors import StoreError, one_line, printable

MARK = "written by ancl"
"""What a file begins with, within its first bytes, where this library wrote it."""
STAGES = "stages.json"
"""The file of a run, search or analysis that names the keys of its stages, and marks it as ours."""
MOST_TEXT = 1 << 30
_START = 4096
_LONGEST = 4000


def read_plain(path: Path, most: int = MOST_TEXT) -> bytes:
    """The content of a plain file.

    A pipe or a device is refused at once: reading it might never end.

    Raises:
        OSError: It cannot be read, is not a plain file, or is larger than ``most`` bytes.
    """
    with open_plain(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read(most + 1)


def open_plain(path: Path) -> BinaryIO:
    """A plain file, open for reading.

    Raises:
        OSError: It cannot be read, or is not a plain file.
    """
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "no file has such a name", str(path))
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0))
    try:
        # Asked before a file is made of it: that of a directory is refused without its name.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def file_mark(path: str) -> str:
    """The size and the time of a file: what changes when the file does.

    Raises:
        OSError: There is none.
    """
    try:
        status = os.stat(path)
    except OSError:  # a link that leads nowhere: reading it says so
        status = os.lstat(path)
    return f"{status.st_size} {status.st_mtime_ns}"


def read_json(path: Path) -> Any:
    """The content of a JSON file.

    Raises:
        OSError: It cannot be read.
        ValueError: It is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(read_plain(path).decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def replace_text(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        OSError: It cannot be written; what was there is unchanged.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_place(path: str | Path, what: str) -> Path:
    """A directory to write to.

    Raises:
        StoreError: It is not a name, the current directory, or the root of the disk.
    """
    place = Path(path)
    if "\0" in str(place) or len(os.fsencode(place)) > _LONGEST:
        shown = printable(str(place), 80)
        raise StoreError(
            f"{shown!r} is too long, or not a name, for {what}. Give another directory."
        )
    absolute = Path(os.path.abspath(place))
    if absolute in (Path.cwd(), Path(absolute.anchor)):
        given = str(path) or '""'
        raise StoreError(
            f"{given} is not a place for {what}: it holds other files. Give a directory of its own."
        )
    return place


def store_place(runs: str | Path, store: str | Path | None = None) -> Path:
    """Where stages are kept: ``.store`` below the results, unless a directory is named."""
    return Path(store) if store else Path(runs) / ".store"


def carries_mark(file: Path) -> bool:
    """Whether this library wrote a file."""
    try:
        with open_plain(file) as opened:
            return MARK.encode() in opened.read(_START)
    except OSError:
        return False


def claim(
    directory: Path, names: Iterable[str], marked_by: Iterable[str], *, overwrite: bool = False
) -> None:
    """Refuse to replace files that this library did not write.

    Args:
        directory: Where files are about to be written; it need not exist.
        names: The files, relative to it.
        marked_by: Files of it, each of which shows that the directory is ours.
        overwrite: Allow it anyway.

    Raises:
        StoreError: One of the files is there and is not ours.
    """
    if overwrite or any(carries_mark(directory / name) for name in marked_by):
        return
    taken = sorted({name for name in names if os.path.lexists(directory / name)})
    if taken:
        shown = ", ".join(taken[:3]) + (", …" if len(taken) > 3 else "")
        raise StoreError(
            f"{directory} holds files that ancl did not write ({shown}), and they are not "
            "replaced. Move them, or give another directory. To replace them all the same, give "
            "overwrite=True (--overwrite) where there is such an option."
        )


@contextmanager
def writing(directory: Path, what: str, advice: str) -> Iterator[None]:
    """Make a directory, and write to it within the block.

    Raises:
        StoreError: It cannot be written: what was to be written, and what to do.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StoreError(
            f"{what} cannot be written to {directory} ({error.strerror}). {advice}"
        ) from error


def write_stages(directory: Path, keys: Iterable[str]) -> None:
    """Note the keys of stages in a directory, which marks it as ours.

    Raises:
        OSError: It cannot be written.
    """
    noted = [*keys]
    content = {"format": f"stages, {MARK}", "sha256": _keys_digest(noted), "keys": noted}
    replace_text(directory / STAGES, json.dumps(content))


def read_stages(directory: Path) -> frozenset[str]:
    """The keys that ``write_stages`` noted.

    Files from before their hash was noted are compared with the keys in ``result.json``, if the
    directory has one.

    Raises:
        OSError: There are none.
        ValueError: The file is damaged: these are not the keys that were noted.
    """
    stages = read_json(directory / STAGES)
    keys = stages.get("keys") if isinstance(stages, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise ValueError(f"{STAGES} is damaged")
    if odd := next((key for key in keys if not re.fullmatch("[0-9a-f]{64}", key)), None):
        raise ValueError(f"{STAGES} is damaged: {printable(odd, 80)!r} is no key")
    if "sha256" in stages:
        if stages["sha256"] != _keys_digest(keys):
            raise ValueError(f"{STAGES} is damaged: its keys are not those that were written")
    elif (directory / "result.json").is_file():
        result = read_json(directory / "result.json")
        others = result.get("keys", keys) if isinstance(result, dict) else None
        if not isinstance(others, list) or {*map(str, others)} != {*keys}:
            raise ValueError(f"{STAGES} is damaged: result.json names other keys")
    return frozenset(keys)


def _keys_digest(keys: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(keys).encode()).hexdigest()


def csv_cell(value: Any) -> Any:
    """A cell that a spreadsheet does not take for a formula; numbers are left as they are.

    A text is one line, and shows control characters instead of having them.

    >>> csv_cell("=1+1"), csv_cell("-0.5"), csv_cell("a-lwf")
    ("'=1+1", '-0.5', 'a-lwf')
    """
    if not isinstance(value, str):
        return value
    text = one_line(value)
    if not value.startswith(("=", "+", "-", "@", "\t", "\r")):
        return text
    try:
        float(value)
    except ValueError:
        return f"'{text}"
    return text
