"""Where a learner is kept: whose the directory is, who changes it now, what was left beside it.

Whoever changes a learner holds a lock from the moment it is read until it is replaced. The lock is
``.NAME.learning/lock`` beside the learner's directory, which itself is replaced as a whole. The
system frees it when its holder dies.
"""

import errno
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ancl.errors import StoreError, printable
from ancl.files import MARK, check_place, read_json
from ancl.store.places import HEADER, current, has_header, leftovers, remove_leftover

LOCK = "lock"
"""The file in the working directory of a learner that its holder locks."""
_POLL_SECONDS = 0.05


def learner_place(path: str | Path) -> Path:
    """The directory of a learner; a link is followed, so that all its names have one lock.

    Raises:
        StoreError: It is not a place for a learner.
    """
    directory = check_place(path, "a learner")
    if directory.is_symlink():
        linked = Path(os.path.realpath(directory))
        if not linked.exists():
            raise StoreError(
                f"{directory} is a link to {linked}, which does not exist. Give the directory "
                f"itself, or remove the link."
            )
        directory = check_place(linked, "a learner")
    check_outside_learners(directory)
    return directory


def check_outside_learners(path: Path) -> None:
    """Refuse to write into the directory of a saved learner, which is replaced as a whole.

    Raises:
        StoreError: A directory above is that of a saved learner.
    """
    for above in Path(os.path.realpath(path.parent) + os.sep + path.name).parents:
        if has_header(above):
            raise StoreError(
                f"{path} is inside the learner {above}, whose directory is replaced as a whole "
                f"when it learns. Give a name outside it."
            )


def is_saved(place: Path) -> bool:
    """Whether a directory is that of a saved learner, as far as its files tell."""
    return (current(place) / HEADER).is_file()


def working_directory(directory: Path) -> Path:
    """Where a learner's lock is, and what it computes until it is saved."""
    return directory.with_name(f".{directory.name}.learning")


@contextmanager
def claimed(
    directory: Path, say: Callable[[str], None], wait: float | None = None
) -> Iterator[Path]:
    """Be the only one who changes a learner; what a killed process left beside it is removed.

    Args:
        directory: The learner's, which need not exist.
        say: Is told once who is waited for, and what cannot be removed.
        wait: How many seconds to wait for another process; without end if left out.

    Yields:
        Its working directory.

    Raises:
        StoreError: Another process has it for too long, or the place cannot be written.
    """
    working = working_directory(directory)
    try:
        lock = _acquire(directory, working, say, wait)
    except OSError as error:
        raise StoreError(
            f"The learner {directory} cannot be changed: {error.filename or working}: "
            f"{error.strerror}. Give a directory that can be written; nothing was done."
        ) from error
    try:
        _remove_leftovers(directory, say)
        yield working
    finally:
        # While it is locked: whoever waits sees that this file is gone, and makes a new one.
        with suppress(OSError):
            (working / LOCK).unlink()
        with suppress(OSError):
            working.rmdir()  # unless it holds what the same command resumes
        os.close(lock)


def tidy(directory: Path, say: Callable[[str], None]) -> None:
    """Remove what a killed process left beside a learner, unless somebody changes it now."""
    if leftovers(directory):
        with suppress(StoreError), claimed(directory, say, wait=0):
            pass


def _acquire(directory: Path, working: Path, say: Callable[[str], None], wait: float | None) -> int:
    """The descriptor of the lock, once it is ours."""
    end, announced = None if wait is None else time.monotonic() + wait, False
    while (lock := _try(working)) is None:
        if end is not None and time.monotonic() >= end:
            raise StoreError(
                f"{directory} is being changed by {_holder(working)}; waited {wait:g} s. Nothing "
                f"was done. Give the same command later, or let it wait longer (--wait)."
            )
        if not announced:
            say(f"Waiting: {directory} is being changed by {_holder(working)}.")
            announced = True
        time.sleep(_POLL_SECONDS)
    return lock


def _try(working: Path) -> int | None:
    """The descriptor of the lock if it is free; its file then says who has it."""
    import fcntl

    if working.is_symlink() or (working.exists() and not working.is_dir()):
        raise _in_the_way(working)
    working.mkdir(parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        lock = os.open(working / LOCK, flags, 0o666)
    except FileNotFoundError:  # whoever had it has just removed the directory
        return None
    except OSError as error:
        if error.errno in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
            raise _in_the_way(working / LOCK) from error
        raise
    try:
        _check_lock(lock, working / LOCK)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not os.path.samestat(os.fstat(lock), os.stat(working / LOCK)):
            raise FileNotFoundError
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        os.ftruncate(lock, 0)
        os.pwrite(lock, json.dumps({"format": f"lock, {MARK}", **holder}).encode(), 0)
    except (BlockingIOError, FileNotFoundError):
        os.close(lock)
        return None
    except BaseException:
        os.close(lock)
        raise
    return lock


def _check_lock(lock: int, path: Path) -> None:
    """Refuse a file that is not a lock of ours: it would be written to, and removed."""
    status = os.fstat(lock)
    if not stat.S_ISREG(status.st_mode):
        raise _in_the_way(path)
    if status.st_size and MARK.encode() not in os.pread(lock, 4096, 0):
        raise _in_the_way(path)


def _in_the_way(path: Path) -> StoreError:
    return StoreError(
        f"{path} is in the way: ancl did not write it, and keeps what it computes under this "
        f"name. Move it, or give the learner another name."
    )


def _holder(working: Path) -> str:
    """Who has the lock, as far as its file tells."""
    try:
        holder = read_json(working / LOCK)
        parts = [printable(str(holder[name]), 80) for name in ("pid", "host", "since")]
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    return "process {} on {}, since {}".format(*parts)


def _remove_leftovers(directory: Path, say: Callable[[str], None]) -> None:
    stay = [str(path) for path in leftovers(directory) if not remove_leftover(path)]
    if stay:
        say(
            f"A process that was killed may have left {', '.join(stay)}. It holds something that "
            f"ancl did not write, so it stays: remove it if you do not need it."
        )
