"""An index of headers, so that a listing reads only those that are new or changed.

It is a cache. A line counts for the one file that it was made from: the same inode, size and times
of change. A copied store, a replaced entry and an edited header have others, and are read again.
What is removed, loaded or verified never depends on it.
"""

import json
import os
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ancl.errors import StoreError
from ancl.files import MARK, claim, read_json, replace_text
from ancl.store.entry import DamagedError, read_header, stats, usage

INDEX = "index.json"
_SETTLED_NS = 2_000_000_000
"""A header that changed just now may change again within the same tick of the disk's clock."""


@dataclass(frozen=True)
class Info:
    """One line of a listing.

    Args:
        key: The stage's key.
        stage: The stage's name, or nothing where the entry does not say.
        task: The stage's task, where the entry says.
        bytes: What it takes on the disk.
        modified: When it was written or last used, in seconds since 1970.
        state: ``ok``, which says nothing of the tensors' content, or why it is damaged.
    """

    key: str
    stage: str
    task: int | None
    bytes: int
    modified: float
    state: str


class _Line(NamedTuple):
    """What a header says, and which file it is."""

    inode: int
    size: int
    modified_ns: int
    changed_ns: int
    tensors_bytes: int
    stage: str
    task: int | None

    def is_of(self, found: tuple[os.stat_result, ...]) -> bool:
        """Whether it was made from this header, and the tensors are plain and of the right size."""
        if not found or not all(stat.S_ISREG(stat_of.st_mode) for stat_of in found):
            return False
        return self[:4] == _file(found) and self.tensors_bytes == found[1].st_size


class Index:
    """The index of a store, read once; ``save`` writes it anew.

    Args:
        root: The store.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known = _read(root / INDEX)
        self._lines: dict[str, _Line] = {}

    def info(self, directory: Path, key: str) -> Info:
        """The line of a listing for an entry, whose header is read unless it is known.

        Raises:
            OSError: The entry is gone.
        """
        now, file_stats = time.time_ns(), stats(directory)
        line, state = self._known.get(key), "ok"
        if line is None or not line.is_of(file_stats):
            line, state = _look(directory, file_stats)
        if state == "ok" and file_stats and now - line.changed_ns > _SETTLED_NS:
            self._lines[key] = line
        size, modified = usage(directory, file_stats)
        return Info(key, line.stage, line.task, size, modified, state)

    def save(self) -> None:
        """Replace the file by what was asked for, as far as possible: it saves time, no more."""
        if self._lines == self._known:
            return
        content = {"format": f"index of a store, {MARK}", "lines": self._lines}
        with suppress(OSError, StoreError):
            claim(self._root, [INDEX], [INDEX])
            replace_text(self._root / INDEX, json.dumps(content))


def _look(directory: Path, found: tuple[os.stat_result, ...]) -> tuple[_Line, str]:
    """Read a header: what it says, and whether it is whole."""
    try:
        header = read_header(directory)
    except DamagedError as error:
        return _Line(0, 0, 0, 0, 0, "", None), error.reason
    meta: dict[str, Any] = header["meta"]
    task = meta.get("task")
    known = task if isinstance(task, int) else None
    return _Line(*_file(found), header["tensors_bytes"], str(meta.get("stage", "")), known), "ok"


def _file(found: tuple[os.stat_result, ...]) -> tuple[int, int, int, int]:
    """What tells a header from any other file, and from itself before a change."""
    if not found:
        return 0, 0, 0, 0
    header = found[0]
    return header.st_ino, header.st_size, header.st_mtime_ns, header.st_ctime_ns


def _read(file: Path) -> dict[str, _Line]:
    """The lines of an index; those that are damaged are left out, as if they had never been."""
    try:
        content = read_json(file)
    except (OSError, ValueError):
        return {}
    lines = content.get("lines") if isinstance(content, dict) else None
    if not isinstance(lines, dict):
        return {}
    return {key: _Line(*line) for key, line in lines.items() if _fits(line)}


def _fits(line: Any) -> bool:
    if not isinstance(line, list) or len(line) != len(_Line._fields):
        return False
    *numbers, stage, task = line
    whole = all(type(number) is int for number in numbers)
    return whole and type(stage) is str and (task is None or type(task) is int)
