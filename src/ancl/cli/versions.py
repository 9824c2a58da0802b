"""``ancl versions`` and ``ancl undo``: what a learner was, and back to it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.cli.flags import with_flags

if TYPE_CHECKING:
    from ancl.learner.versions import Version, VersionHistory


@with_flags
def versions(learner: Path, *, images: int | None = None, as_json: bool = False) -> None:
    """The versions of a learner: when each was made, from what, and how well it answers."""
    from ancl.learner.versions import read_versions

    kept = read_versions(learner)
    if images is not None:
        _print_images(learner, images, as_json)
    elif as_json:
        print(json.dumps({"current": kept.current, "versions": [*map(_json, kept.kept.values())]}))
    else:
        print(_text(learner, kept))


@with_flags
def undo(learner: Path, *, to: int | None = None, wait: float | None = None) -> None:
    """Go back to the version before, or to any that is kept; nothing is lost."""
    from ancl.errors import one_line
    from ancl.learner.version_writing import undo as go_back

    version = go_back(learner, to, wait=wait, say=lambda message: print(message, file=sys.stderr))
    source = f" from {one_line(version.data)}" if version.data else ""
    print(f"{learner} is now at version {version.number}, made {_when(version.made)}{source}.")


def _json(version: Version) -> dict[str, Any]:
    return {**version.facts(), "images": [list(pair) for pair in version.images]}


def _when(made: str) -> str:
    from ancl.errors import one_line

    return one_line(made[:16].replace("T", " "))


def _text(learner: Path, kept: VersionHistory) -> str:
    from ancl.errors import counted, one_line
    from ancl.learner.versions import sizes_on_disk, unshared
    from ancl.wording import byte_size, table

    sizes, found = sizes_on_disk(learner), list(kept.kept.values())
    rows = [
        [
            f"{'*' if version.number == kept.current else ' '}{version.number}",
            str(version.parent or ""),
            _when(version.made),
            one_line(version.kind),
            one_line(version.data),
            str(len(version.images)),
            f"{sum(count for _, count in version.images):,}",
            _held(version),
            _share(version.test["accuracy"] if version.test else None),
            byte_size(unshared(version, [v for v in found if v is not version], sizes)),
            "refused" if version.refused else "",
        ]
        for version in found
    ]
    head = ["version", "from", "made (UTC)", "by", "data", "classes", "images", "held %", "test %"]
    notes = [
        "* answers now. images: all that were learned until then. held: accuracy on held images, "
        "old and new together.",
        "test: accuracy on images that were given with --test. size: what this version alone "
        "needs; the rest is shared.",
    ]
    for version in found:
        notes += [f"Version {version.number} was refused: {one_line(w)}" for w in version.refused]
        notes += [f"Version {version.number}: {one_line(mark)}." for mark in version.marks]
    if kept.floor:
        notes.append(
            f"Version {kept.floor} forgot images: ancl undo does not go back before it. Refused "
            f"if they come again: {counted(len(kept.forgotten), 'image')}."
        )
    return "\n".join([table([*head, "size", ""], rows, "lllllrrrrrl"), *notes])


def _held(version: Version) -> str:
    images = sum(count for _, count, _, _ in version.held)
    return _share(sum(n * after for _, n, _, after in version.held) / images if images else None)


def _share(share: float | None) -> str:
    from ancl.wording import percent

    return "" if share is None else percent(share)


def _print_images(learner: Path, number: int, as_json: bool) -> None:
    """Every image that a version learned."""
    from ancl.errors import one_line
    from ancl.learner.image_list import list_images
    from ancl.wording import table

    rows = list_images(learner, number)
    if as_json:
        print(json.dumps({"images": [row._asdict() for row in rows]}))
        return
    cells = [
        [
            str(row.task),
            one_line(row.id),
            one_line(row.label),
            row.use,
            ", ".join(row.kept),
            row.sha256[:16],
        ]
        for row in rows
    ]
    head = ["task", "image", "label", "used to", "kept in", "sha256 of pixels"]
    print(table(head, cells, "rlllll"))
