"""The versions of a saved learner: each can be gone back to, as long as it is kept.

A learner's directory is a bundle. A version is one of its parts, a JSON document, which names the
other parts that hold its tensors. What two versions have in common is one file.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple, TypeVar

from annotated_types import Ge
from pydantic import StringConstraints

from ancl.checks import checked
from ancl.errors import StoreError
from ancl.learner.images import Forgotten
from ancl.store.bundle import Bundle, read_bundle
from ancl.store.entry import DamagedError, checksum, decoded
from ancl.store.places import PARTS, current
from ancl.types import Params

KIND = "learner 7"
"""What the header of a learner's directory calls it: raised with the form of what it holds."""
Number = Annotated[int, Ge(1)]
StageKey = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
StoredKeys = Mapping[str, frozenset[str]]
"""The keys of all that was computed for a learner, by the directory of the store that has them."""
_T = TypeVar("_T")
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
        by_number: dict[int, Version] = {}
        for name in checked(list[str], meta["versions"]):
            version = checked(Version, json.loads(bundle.part(name)))
            by_number[version.number] = version
        keep = checked(Number | None, meta["keep"])
        following = checked(Number, meta["following"])
        versions = VersionHistory(
            *(checked(Number | None, meta["current"]), keep, following, by_number),
            forgotten=checked(Forgotten, meta.get("forgotten", [()])),
            floor=checked(Annotated[int, Ge(0)], meta.get("floor", 0)),
            stored=checked(dict[str, frozenset[StageKey]], meta.get("stored", {})),
        )
        versions.forgotten.mask([b""])  # salts that are no numbers are refused here
        inside = versions.current is None or versions.current in by_number
        if not inside or max(by_number) >= following or list(by_number) != sorted(by_number):
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
