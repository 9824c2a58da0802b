"""The next version of a saved learner, and back to an earlier one: how its directory changes."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ancl.errors import StoreError
from ancl.files import MARK
from ancl.learner.card import CARD
from ancl.learner.images import Forgotten
from ancl.learner.lock import claimed, is_saved, learner_place
from ancl.learner.versions import (
    KIND,
    StoredKeys,
    Version,
    VersionHistory,
    read_version,
    read_versions,
)
from ancl.store.bundle import part_name, write_bundle
from ancl.store.entry import encoded
from ancl.store.places import check_replaceable
from ancl.types import Params

STRIPPED = "without images that were forgotten later"
"""What is marked on a version that was made once more, without them."""
LEARNED_FROM = "its network learned from images that were forgotten later"
"""What is marked on a version whose network stays."""
_UNTAKEN = f"<!-- A model card, {MARK}. -->\n\nNo version of this learner was taken yet.\n"


class Note(NamedTuple):
    """What is noted of a new version besides what was learned; see ``Version``."""

    data: str = ""
    refused: tuple[str, ...] = ()
    images: tuple[tuple[int | str, int], ...] = ()
    held: tuple[tuple[str | int, int, float | None, float], ...] = ()
    test: dict[str, Any] | None = None
    kind: str = "learn"
    marks: tuple[str, ...] = ()


class Rewritten(NamedTuple):
    """What becomes of a learner besides its new version.

    Args:
        versions: The versions that are kept, by number; none where they stay as they are.
        files: New parts of these, by name.
        forgotten: Which images must not come again.
        forgets: Whether nobody goes back before the new version.
        stored: What was computed for it: keys, by the directory of a store.
    """

    versions: Mapping[int, Version] | None = None
    files: Mapping[str, bytes] = MappingProxyType({})
    forgotten: Forgotten = Forgotten()
    forgets: bool = False
    stored: StoredKeys = MappingProxyType({})


def add_version(
    directory: Path,
    meta: Mapping[str, Any],
    parts: Mapping[str, Params],
    note: Note,
    card: str,
    *,
    replace: bool = False,
    overwrite: bool = False,
    keep: int | None = None,
    rewritten: Rewritten | None = None,
) -> Version:
    """Write a new version, and make it the current one unless it was refused.

    What is equal to the current version is no new version. Whoever calls has claimed the place.

    Args:
        directory: The learner's.
        meta: All that is not a tensor.
        parts: Tensors by part: a part that a kept version has too is stored once.
        note: What is noted of it.
        card: The model card.
        replace: Begin anew: all versions that are there are dropped.
        overwrite: Whether anything else that is there is replaced too.
        keep: How many versions are kept from now on, if that changes.
        rewritten: What becomes of all else; it stays as it is if left out.

    Raises:
        OSError: It cannot be written.
    """
    before = None if replace or not is_saved(directory) else read_versions(directory)
    number = before.following if before else 1
    named, data = encode_parts(parts)
    version = Version(
        number=number,
        parent=before.current if before else None,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        ancl=installed("ancl"),
        learner=as_read(meta),
        parts=named,
        card=card,
        **note._asdict(),
    )
    if before and before.now and before.now.digest == version.digest and not note.refused:
        version = before.now
    # What the current version has is there: who calls has read and compared it.
    there = set(before.now.parts.values()) if before and before.now else set[str]()
    files = {name: content for name, content in data.items() if name not in there}
    if rewritten:
        files |= rewritten.files
    history = _next_history(before, version, keep, rewritten, refused=bool(note.refused))
    _write(directory, history, files, overwrite=overwrite)
    return version


def encode_parts(parts: Mapping[str, Params]) -> tuple[dict[str, str], dict[str, bytes]]:
    """The names of the files of parts, and what these hold by name."""
    data = {part: encoded(tensors) for part, tensors in parts.items()}
    names = {part: part_name(content, "safetensors") for part, content in data.items()}
    return names, {names[part]: content for part, content in data.items()}


def as_read(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Values as they are read again from JSON: no tuples, no keys that are numbers."""
    values: dict[str, Any] = json.loads(json.dumps(meta, allow_nan=False))
    return values


def _next_history(
    before: VersionHistory | None,
    version: Version,
    keep: int | None,
    rewritten: Rewritten | None,
    *,
    refused: bool,
) -> VersionHistory:
    """All versions with one that was made now, or that was there and is equal to it."""
    now: int | None = version.number
    if before is None:
        history = VersionHistory(None if refused else now, keep, version.number + 1, {})
    else:
        following = max(before.following, version.number + 1)
        current = before.current if refused else now
        history = before._replace(current=current, keep=keep or before.keep, following=following)
    if rewritten:
        history = history._replace(
            floor=version.number if rewritten.forgets else history.floor,
            forgotten=rewritten.forgotten,
            stored=rewritten.stored,
        )
        if rewritten.versions is not None:
            history = history._replace(kept=dict(rewritten.versions))
    return history._replace(kept={**history.kept, version.number: version})


def _write(
    directory: Path,
    versions: VersionHistory,
    files: Mapping[str, bytes],
    *,
    overwrite: bool = False,
) -> None:
    """Write versions, the oldest left out where there are too many."""
    newest = _newest(versions)
    documents = {
        part_name(version.document, "json"): version.document for version in newest.values()
    }
    used = {name for version in newest.values() for name in version.parts.values()}
    meta = {
        "kind": KIND,
        "current": versions.current,
        "keep": versions.keep,
        "following": versions.following,
        "versions": list(documents),
        "floor": versions.floor,
        "forgotten": versions.forgotten,
        "stored": {root: sorted(keys) for root, keys in versions.stored.items()},
    }
    new = {name: data for name, data in files.items() if name in used} | documents
    beside = {CARD: versions.now.card if versions.now else _UNTAKEN}
    write_bundle(directory, meta, new, used - new.keys(), overwrite=overwrite, beside=beside)


def _newest(versions: VersionHistory) -> dict[int, Version]:
    if versions.keep is None:
        return versions.kept
    others = [number for number in versions.kept if number != versions.current]
    stay = {versions.current, *others[max(len(others) - versions.keep + 1, 0) :]}
    return {number: version for number, version in versions.kept.items() if number in stay}


def undo(
    directory: str | Path,
    to: int | None = None,
    *,
    wait: float | None = None,
    say: Callable[[str], None] = print,
) -> Version:
    """Go back to the version that the current one was made from, or to any that is kept.

    Nothing is lost: the version that was current can be gone back to, too. What was forgotten does
    not come back: nobody goes back before a version that forgot something.

    Args:
        directory: The learner's.
        to: The number of the version; that before the current one if left out.
        wait: How many seconds to wait for another process that changes the learner.
        say: Is told who is waited for.

    Raises:
        StoreError: There is no such version, or the directory cannot be written.
    """
    target = learner_place(directory)
    read_versions(target)  # before a lock is made beside what is not a learner
    with claimed(target, say, wait):
        versions = read_versions(target)
        number = to or (versions.now.parent if versions.now else None)
        if number is None:
            raise StoreError(f"{target} has no version before the one that it is at.")
        if number < versions.floor:
            raise StoreError(
                f"{target} cannot go back to version {number}: version {versions.floor} forgot "
                f"images, and what was forgotten does not come back. Possible: "
                f"{', '.join(str(n) for n in versions.kept if n >= versions.floor)}. To look at "
                f"an earlier version that is kept, open it: --version N."
            )
        version = versions.of(number, target)
        _rewrite(target, versions._replace(current=number))
    return version


def judge_again(directory: Path, number: int, note: Note) -> Version:
    """Note what was measured of a version that was refused, and take it if it is no longer.

    Whoever calls has claimed the place.
    """
    versions = read_versions(directory)
    judged = versions.of(number, directory)._replace(refused=note.refused, test=note.test)
    current = versions.current if note.refused else number
    by_number = {**versions.kept, number: judged}
    _rewrite(directory, versions._replace(current=current, kept=by_number))
    return judged


def _rewrite(directory: Path, versions: VersionHistory) -> None:
    try:
        _write(directory, versions, {})
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written ({error.strerror}). Nothing was changed."
        ) from error


def descends(directory: Path, known: Collection[str], *, overwrite: bool) -> bool:
    """Whether a learner came from the one that is there, so that it is its next version.

    Args:
        directory: Where it is to be saved; it need not exist.
        known: The digests of all that it was read from or saved as.
        overwrite: Allow that it did not: what is there is replaced.

    Raises:
        StoreError: Something else is there: a task would be lost.
    """
    check_replaceable(directory, overwrite=overwrite)
    if not is_saved(directory):
        return False
    with suppress(StoreError):  # what is damaged is nobody's
        if read_versions(directory).current is None or read_version(directory)[0].digest in known:
            return True
    if overwrite:
        return False
    raise StoreError(
        f"{directory} holds another learner, or it has changed since this one was read from it, "
        f"so it is not replaced. Load it and learn there, give another directory, or allow it: "
        f"overwrite=True (--overwrite). To learn on from an earlier version, go back to it first: "
        f"ancl undo {directory} --to N."
    )
