"""The versions of a saved learner: each can be gone back to, as long as it is kept.

A learner's directory is a bundle. A version is one of its parts, a JSON document, which names the
other parts that hold its tensors. What two versions have in common is one file.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar

from annotated_types import Ge
from pydantic import StringConstraints

from ancl.checks import checked
from ancl.errors import StoreError
from ancl.files import MARK
from ancl.learner.card import CARD
from ancl.learner.images import Forgotten
from ancl.learner.lock import claimed, is_saved, learner_place
from ancl.store.bundle import Bundle, part_name, read_bundle, write_bundle
from ancl.store.entry import DamagedError, checksum, decoded, encoded
from ancl.store.places import PARTS, check_replaceable, current
from ancl.types import Params

KIND = "learner 7"
"""What the header of a learner's directory calls it: raised with the form of what it holds."""
Number = Annotated[int, Ge(1)]
StageKey = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
STRIPPED = "without images that were forgotten later"
"""What is marked on a version that was made once more, without them."""
LEARNED_FROM = "its network learned from images that were forgotten later"
"""What is marked on a version whose network stays."""
StoredKeys = Mapping[str, frozenset[str]]
"""The keys of all that was computed for a learner, by the directory of the store that has them."""
_T = TypeVar("_T")
_UNTAKEN = f"<!-- A model card, {MARK}. -->\n\nNo version of this learner was taken yet.\n"
_FIELDS = (
    *("number", "parent", "made", "ancl", "kind", "data"),
    *("refused", "images", "held", "test", "marks"),
)


class Version(NamedTuple):
    """A version of a learner, as it was saved.

    Args:
        number: Its number, from 1; none is used twice.
        parent: The version that it was made from; none for the first.
        made: When it was saved, in UTC.
        ancl: The version of ``ancl`` that wrote it.
        data: What was learned: the source's name, where it has one.
        refused: The conditions that it did not meet; none where it was taken.
        images: The number of images learned of each class, until now.
        held: The accuracy on held images before and after: what, images, before, after.
        test: The same on test images, in all and class by class, where some were given.
        learner: All that is not a tensor: recipe, state, measurements.
        parts: The files of tensors, by name.
        card: The model card.
        kind: What made it: ``learn``, ``forget``, ``rename``, ``merge-classes``, or several.
        marks: What is to be known of it: that its network learned from what was forgotten.
    """

    number: Number
    parent: Number | None
    made: str
    ancl: str
    data: str
    refused: tuple[str, ...]
    images: tuple[tuple[int | str, int], ...]
    held: tuple[tuple[str | int, int, float | None, float], ...]
    test: dict[str, Any] | None
    learner: dict[str, Any]
    parts: dict[str, str]
    card: str
    kind: str = "learn"
    marks: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The hash of what was learned, whenever and from whatever."""
        return checksum({"learner": self.learner, "parts": self.parts})

    @property
    def document(self) -> bytes:
        """As it is written."""
        return json.dumps(self._asdict(), allow_nan=False, sort_keys=True).encode()

    def facts(self) -> dict[str, Any]:
        """What people ask of a version, as JSON values."""
        values = self._asdict()
        return {name: values[name] for name in _FIELDS}


class VersionHistory(NamedTuple):
    """All versions of a learner that are kept.

    Args:
        current: The number of the one that answers; none where all were refused.
        keep: How many are kept, at most; all if left out.
        following: The number of the next one.
        kept: By number.
        forgotten: Which images must not come again.
        floor: The number of the last version that forgot something: nobody goes back before it.
        stored: What was computed for it: keys, by the directory of a store.
    """

    current: int | None
    keep: int | None
    following: int
    kept: dict[int, Version]
    forgotten: Forgotten = Forgotten()
    floor: int = 0
    stored: StoredKeys = MappingProxyType({})

    @property
    def now(self) -> Version | None:
        """The version that answers, if one was taken."""
        return None if self.current is None else self.kept[self.current]

    def of(self, number: int, directory: Path) -> Version:
        """A version by its number.

        Raises:
            StoreError: It is not kept.
        """
        if number not in self.kept:
            there = ", ".join(map(str, self.kept))
            raise StoreError(f"{directory} has no version {number}. It has: {there}.")
        return self.kept[number]


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


# -- reading ---------------------------------------------------------------------------------


def read_versions(directory: Path) -> VersionHistory:
    """The versions of a learner, without any tensor.

    Raises:
        StoreError: The directory is not a saved learner, is damaged, or of another form.
    """
    return _read(directory, lambda bundle, versions: versions)


def read_version(directory: Path, number: int | None = None) -> tuple[Version, dict[str, Params]]:
    """A version of a learner, the current one if none is named, and its tensors by part.

    Raises:
        StoreError: The directory is not a saved learner, is damaged, or has no such version.
    """

    def read(bundle: Bundle, versions: VersionHistory) -> tuple[Version, dict[str, Params]]:
        wanted = versions.now if number is None else versions.of(number, directory)
        if wanted is None:
            last = max(versions.kept)
            raise StoreError(
                f"No version of {directory} was taken: version {last} was refused. Open it by its "
                f"number, version={last} (--version {last}), or take it all the same: ancl undo "
                f"{directory} --to {last}."
            )
        parts = {part: decoded(directory, bundle.part(name)) for part, name in wanted.parts.items()}
        return wanted, parts

    return _read(directory, read)


def _read(directory: Path, read: Callable[[Bundle, VersionHistory], _T]) -> _T:
    try:
        return read_bundle(directory, lambda bundle: read(bundle, _versions(bundle)))
    except DamagedError as error:
        raise StoreError(
            f"{directory} is not a saved learner: {error.reason}. Give a directory that "
            f"Learner.save wrote."
        ) from error


def _versions(bundle: Bundle) -> VersionHistory:
    meta, directory = bundle.meta, bundle.directory
    kind = str(meta.get("kind"))
    if re.fullmatch(r"learner \d{1,9}", kind) and kind != KIND:
        raise StoreError(
            f"{directory} was saved by another version of ancl ({kind}; this one reads {KIND}). "
            f"Open it with that version, or learn its images again with this one."
        )
    if kind != KIND:
        raise StoreError(f"{directory} holds no learner. Give a directory that Learner.save wrote.")
    try:
        kept: dict[int, Version] = {}
        for name in checked(list[str], meta["versions"]):
            version = checked(Version, json.loads(bundle.part(name)))
            kept[version.number] = version
        keep = checked(Number | None, meta["keep"])
        following = checked(Number, meta["following"])
        versions = VersionHistory(
            *(checked(Number | None, meta["current"]), keep, following, kept),
            forgotten=checked(Forgotten, meta.get("forgotten", [()])),
            floor=checked(Annotated[int, Ge(0)], meta.get("floor", 0)),
            stored=checked(dict[str, frozenset[StageKey]], meta.get("stored", {})),
        )
        versions.forgotten.mask([b""])  # salts that are no numbers are refused here
        inside = versions.current is None or versions.current in kept
        if not inside or max(kept) >= following or list(kept) != sorted(kept):
            raise ValueError("the versions do not follow each other")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        reason = f"its list of versions is not one ({type(error).__name__})"
        raise DamagedError(directory, reason) from error
    return versions


def versions(directory: str | Path) -> list[Version]:
    """All versions of a saved learner that are kept, the oldest first.

    Raises:
        StoreError: The directory is not a saved learner, is damaged, or of another form.
    """
    return list(read_versions(Path(directory)).kept.values())


# -- writing ---------------------------------------------------------------------------------


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
    data = {part: encoded(tensors) for part, tensors in parts.items()}
    named = {part: part_name(each, "safetensors") for part, each in data.items()}
    version = Version(
        number=number,
        parent=before.current if before else None,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        ancl=installed("ancl"),
        # Through JSON and back, as it is read: no tuples, no keys that are numbers.
        learner=json.loads(json.dumps(meta, allow_nan=False)),
        parts=named,
        card=card,
        **note._asdict(),
    )
    if before and before.now and before.now.digest == version.digest and not note.refused:
        version = before.now
    others = before.kept if before else {}
    if rewritten and rewritten.versions is not None:
        others = dict(rewritten.versions)
    kept = {**others, version.number: version}
    following = number + 1 if version.number == number else number
    current: int | None = version.number
    if note.refused:
        current = before.current if before else None
    keep = keep or (before.keep if before else None)
    # What the current version has is there: who calls has read and compared it.
    there = set(before.now.parts.values()) if before and before.now else set[str]()
    files = {name: data[part] for part, name in named.items() if name not in there}
    history = VersionHistory(current, keep, following, kept)
    if before:
        history = history._replace(floor=before.floor, forgotten=before.forgotten)
        history = history._replace(stored=before.stored)
    if rewritten:
        floor = version.number if rewritten.forgets else history.floor
        history = history._replace(floor=floor, forgotten=rewritten.forgotten)
        history = history._replace(stored=rewritten.stored)
        files |= rewritten.files
    _write(directory, history, files, overwrite=overwrite)
    return version


def _write(
    directory: Path,
    versions: VersionHistory,
    files: Mapping[str, bytes],
    *,
    overwrite: bool = False,
) -> None:
    """Write versions, the oldest left out where there are too many."""
    kept = _newest(versions)
    documents = {part_name(each.document, "json"): each.document for each in kept.values()}
    used = {name for version in kept.values() for name in version.parts.values()}
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
    place = learner_place(directory)
    read_versions(place)  # before a lock is made beside what is not a learner
    with claimed(place, say, wait):
        versions = read_versions(place)
        number = to or (versions.now.parent if versions.now else None)
        if number is None:
            raise StoreError(f"{place} has no version before the one that it is at.")
        if number < versions.floor:
            raise StoreError(
                f"{place} cannot go back to version {number}: version {versions.floor} forgot "
                f"images, and nobody goes back before that. Possible: "
                f"{', '.join(str(n) for n in versions.kept if n >= versions.floor)}. To look at "
                f"an earlier version that is kept, open it: --version N."
            )
        version = versions.of(number, place)
        _rewrite(place, versions._replace(current=number))
    return version


def judge_again(directory: Path, number: int, note: Note) -> Version:
    """Note what was measured of a version that was refused, and take it if it is no longer.

    Whoever calls has claimed the place.
    """
    versions = read_versions(directory)
    judged = versions.of(number, directory)._replace(refused=note.refused, test=note.test)
    current = versions.current if note.refused else number
    kept = {**versions.kept, number: judged}
    _rewrite(directory, versions._replace(current=current, kept=kept))
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


def sizes_on_disk(directory: Path) -> dict[str, int]:
    """The bytes of every part, by the name of its file."""
    sizes = {}
    with suppress(OSError):  # replaced while it is read
        for file in (current(directory) / PARTS).iterdir():
            sizes[file.name] = file.stat().st_size
    return sizes


def unshared(version: Version, others: Collection[Version], sizes: Mapping[str, int]) -> int:
    """The bytes that go with a version if it is dropped alone."""
    shared = {name for other in others for name in other.parts.values()}
    return sum(sizes.get(name, 0) for name in {*version.parts.values()} - shared)
