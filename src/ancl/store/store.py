"""The store: the result of every finished stage, by key, never half written.

Entries are in ``entries/ab/abcdef.../``, checkpoints of unfinished stages in ``checkpoints/``, and
the locks that keep two processes from computing the same stage in ``locks/``. ``index.json`` makes
listings quick.
"""

import errno
import math
import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self, TypeVar

from filelock import FileLock, Timeout

from ancl.errors import StoreError
from ancl.store.entry import (
    DamagedError,
    StageResult,
    check_entry,
    mark_use,
    read_entry,
    read_header,
    size_of,
    stats,
    usage,
    write_entry,
)
from ancl.store.index import Index, Info
from ancl.store.places import (
    HEADER,
    current,
    delete,
    entry_names,
    is_ours,
    remove_entry,
    temporaries,
)

__all__ = ["DamagedError", "Info", "StageResult", "Store", "read_entry", "write_entry"]

_T = TypeVar("_T")
_STALE_SECONDS = 3600.0
_READERS = 4
"""Entries verified at the same time: disk and checksums work while Python parses a header."""


def _to_standard_error(message: str) -> None:
    print(message, file=sys.stderr)


class Store:
    """Stages on disk by key; nothing is created before it is needed.

    Args:
        root: The directory; it need not exist.
        say: Receives what a user should know: a damaged entry, a wait for another process.
    """

    def __init__(self, root: str | Path, say: Callable[[str], None] = _to_standard_error) -> None:
        self.root, self._say = Path(root), say

    def check(self) -> None:
        """Write and remove a small file, so that a bad directory is known before training.

        Raises:
            StoreError: The store cannot be written.
        """
        for part in ("entries", "checkpoints", "locks"):
            probe = self.root / part / f".{os.getpid()}.probe"
            with self._explained("is not writable"):
                probe.parent.mkdir(parents=True, exist_ok=True)
                try:
                    probe.write_bytes(bytes(4096))
                finally:
                    probe.unlink(missing_ok=True)

    def existing(self) -> Self:
        """The same store.

        Raises:
            StoreError: There is none.
        """
        if not self.root.is_dir():
            raise StoreError(
                f"There is no store at {self.root}. Give another directory with --store DIR or "
                "--runs DIR."
            )
        return self

    def has(self, key: str) -> bool:
        """Whether there is an entry, intact or not."""
        return (current(self._entry(key)) / HEADER).is_file()

    def load(self, key: str) -> StageResult | None:
        """The entry of a key; None if it is absent, or damaged, which is reported."""
        return self._load(self._entry(key), lambda path: read_entry(path, key))

    def load_meta(self, key: str) -> Mapping[str, Any] | None:
        """What an entry holds besides tensors, which are not read; None as in ``load``.

        Tensors of another size are damage too. Whoever needs tensors loads and compares them.
        """
        header = self._load(self._entry(key), lambda path: read_header(path, key))
        return None if header is None else header["meta"]

    def save(self, key: str, entry: StageResult) -> None:
        """Write the entry of a key, atomically; the caller holds its lock.

        Raises:
            StoreError: The disk is full or cannot be written; an older entry stays as it was.
        """
        self._save(self._entry(key), entry)

    def load_checkpoint(self, key: str) -> StageResult | None:
        """The state of an unfinished stage, or nothing where it is absent or damaged."""
        return self._load(self._checkpoint(key), lambda path: read_entry(path, key))

    def checkpoint_meta(self, key: str) -> Mapping[str, Any] | None:
        """What the state of an unfinished stage holds besides tensors; None as in ``load``."""
        header = self._load(self._checkpoint(key), lambda path: read_header(path, key))
        return None if header is None else header["meta"]

    def save_checkpoint(self, key: str, entry: StageResult) -> None:
        """Replace the state of an unfinished stage; the caller holds the lock of its key.

        Raises:
            StoreError: The disk is full or cannot be written; the older state stays as it was.
        """
        self._save(self._checkpoint(key), entry)

    def drop_checkpoint(self, key: str) -> None:
        """Remove the state of a stage that is finished."""
        with self._explained("cannot be written"):
            remove_entry(self._checkpoint(key))

    @contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the lock of a key, waiting for its holder; the system frees it if the holder dies.

        Raises:
            StoreError: The lock file cannot be written.
        """
        lock = FileLock(self._lock(key))
        with self._explained("cannot be written"):
            self._lock(key).parent.mkdir(parents=True, exist_ok=True)
            try:
                lock.acquire(timeout=0)
            except Timeout:
                self._say(f"Waiting for another process that computes {key[:12]} ({self.root}).")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def entries(self) -> Iterator[Info]:
        """All entries in the order of their keys, without reading a tensor."""
        index = Index(self.root)
        for key in self._keys():
            with suppress(OSError):  # removed by another process meanwhile, or not ours to see
                yield index.info(self._entry(key), key)
        index.save()

    def verify(self, told: Callable[[int, int], None] | None = None) -> list[tuple[str, str]]:
        """Compare every checksum: key and reason of each entry that is damaged.

        Args:
            told: Receives the number of entries compared so far, and of all, after each.
        """
        keys = self._keys()
        damaged, readers = [], ThreadPoolExecutor(_READERS)
        try:
            for done, reason in enumerate(readers.map(self._damage, keys), 1):
                if reason:
                    damaged.append((keys[done - 1], reason))
                if told:
                    told(done, len(keys))
        finally:
            readers.shutdown(cancel_futures=True)
        return damaged

    def _damage(self, key: str) -> str:
        try:
            check_entry(self._entry(key), key)
        except DamagedError as error:
            return error.reason
        return ""

    def prune(
        self,
        keep: Collection[str],
        max_bytes: int | None = None,
        *,
        dry_run: bool = False,
        stale_seconds: float = _STALE_SECONDS,
    ) -> tuple[int, int]:
        """Remove entries that are not kept, with checkpoints and leftovers that are not needed.

        Args:
            keep: Keys that stay, whatever the size.
            max_bytes: Remove the least recently used first, and only until the store fits.
            dry_run: Only count what would be removed.
            stale_seconds: From which age on what a writer left half-way counts as left.

        Returns:
            How many entries are removed, and how many bytes are freed in all.

        Raises:
            StoreError: The store cannot be written.
        """
        wanted, removed = frozenset(keep), 0
        with self._explained("cannot be written"):
            used = size_of(self.root / "checkpoints")
            of_checkpoints, of_shards = self._prune_leftovers(wanted, dry_run, stale_seconds)
            entries = sorted(self._used())
            used += sum(size for _, _, size in entries) - of_checkpoints
            over = math.inf if max_bytes is None else used - max_bytes
            freed = of_checkpoints + of_shards
            for _, key, size in entries:
                if key in wanted or over <= 0:
                    continue
                if self._remove(self._entry(key), dry_run):
                    removed, freed, over = removed + 1, freed + size, over - size
            if not dry_run:
                self._prune_locks()
        return removed, freed

    def remove(self, keys: Collection[str]) -> int:
        """Remove entries and checkpoints by their keys, and return how many there were.

        Raises:
            StoreError: The store cannot be written, or another process computes one of them now.
        """
        removed = 0
        with self._explained("cannot be written"):
            for key in sorted(keys):
                for directory in (self._entry(key), self._checkpoint(key)):
                    if not current(directory).exists():
                        continue
                    if not self._remove(directory, dry_run=False):
                        raise StoreError(
                            f"{directory} cannot be removed: another process computes it now, or "
                            f"it holds files that ancl did not write. Give the command again."
                        )
                    removed += 1
            for shard in [*self._shards(), self.root / "checkpoints"]:
                self._prune_temporaries(shard, dry_run=False, stale_seconds=_STALE_SECONDS)
        return removed

    def clear(self) -> None:
        """Remove all of a store that nobody else writes to, and nothing that is not ours."""
        self.prune((), stale_seconds=0.0)
        for directory, _, _ in os.walk(self.root, topdown=False):
            with suppress(OSError):  # it holds a file that is not ours
                os.rmdir(directory)

    def _used(self) -> Iterator[tuple[float, str, int]]:
        """When each entry was last used, its key and its bytes, from the disk alone."""
        for key in self._keys():
            with suppress(OSError):  # removed by another process meanwhile
                size, modified = usage(self._entry(key), stats(self._entry(key)))
                yield modified, key, size

    def _prune_leftovers(
        self, kept: frozenset[str], dry_run: bool, stale_seconds: float
    ) -> tuple[int, int]:
        """Bytes freed among the checkpoints, and in the shards of entries."""
        checkpoints = self.root / "checkpoints"
        freed = self._prune_temporaries(checkpoints, dry_run, stale_seconds)
        for key in entry_names(checkpoints):
            size = size_of(current(checkpoints / key))
            needed = key in kept and not self.has(key)
            if not needed and self._remove(checkpoints / key, dry_run):
                freed += size
        shards = self._shards()
        return freed, sum(self._prune_temporaries(s, dry_run, stale_seconds) for s in shards)

    def _prune_temporaries(self, parent: Path, dry_run: bool, stale_seconds: float) -> int:
        freed = 0
        for path in temporaries(parent):
            with suppress(FileNotFoundError):  # its writer may have finished meanwhile
                if time.time() - path.stat().st_mtime >= stale_seconds and is_ours(path):
                    freed += size_of(path)
                    if not dry_run:
                        delete(path)
        return freed

    def _prune_locks(self) -> None:
        for path in sorted((self.root / "locks").glob("*.lock")):
            with self._held(path.stem) as held:
                if held and path.is_file() and not path.stat().st_size:  # as a lock is
                    path.unlink(missing_ok=True)

    def _remove(self, directory: Path, dry_run: bool) -> bool:
        """Whether the entry may be removed, and is unless this is a dry run."""
        with self._held(directory.name) as held:
            place = current(directory)
            removable = held and place.is_dir() and is_ours(place)
            if removable and not dry_run:
                remove_entry(directory)
        return removable

    @contextmanager
    def _held(self, key: str) -> Iterator[bool]:
        # Without a lock file the key is free, and a listing need not create thousands.
        if not self._lock(key).exists():
            yield True
            return
        lock = FileLock(self._lock(key))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def _load(self, directory: Path, read: Callable[[Path], _T]) -> _T | None:
        if not current(directory).exists():
            return None
        try:
            entry = read(directory)
        except DamagedError as error:
            self._say(f"{directory} is damaged: {error.reason}; it is computed again.")
            return None
        mark_use(directory)
        return entry

    def _save(self, directory: Path, entry: StageResult) -> None:
        with self._explained("cannot be written"):
            write_entry(directory, entry)

    @contextmanager
    def _explained(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise StoreError(
                f"The store {self.root} {what}: {error.strerror or error}{where}. {_remedy(error)} "
                "Everything finished before is kept, and the same command resumes from there."
            ) from error

    def _entry(self, key: str) -> Path:
        return self.root / "entries" / key[:2] / key

    def _checkpoint(self, key: str) -> Path:
        return self.root / "checkpoints" / key

    def _lock(self, key: str) -> Path:
        return self.root / "locks" / f"{key}.lock"

    def _shards(self) -> list[Path]:
        return [self.root / "entries" / name for name in entry_names(self.root / "entries")]

    def _keys(self) -> list[str]:
        with self._explained("cannot be read"):
            shards = self._shards()
            return [key for s in shards for key in entry_names(s) if key[:2] == s.name]


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "Free some space ('ancl store prune' removes what no run needs)."
    return "Choose a directory that you may write to with --store DIR, or change its permissions."
