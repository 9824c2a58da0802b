"""A learner written to its directory, as its next version."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.data import Label
from ancl.data.caches import remove_holding
from ancl.errors import AnclError, ScenarioError, StoreError
from ancl.learner.edit import Edit, edited, weights_saw
from ancl.learner.image_list import ListedImage, list_images
from ancl.learner.images import LEFT_OUT, images_part
from ancl.learner.loading import read_learner, restored
from ancl.learner.lock import claimed, learner_place, working_directory
from ancl.learner.supplied_code import SuppliedCode
from ancl.learner.version_writing import (
    LEARNED_FROM,
    STRIPPED,
    Note,
    Rewritten,
    add_version,
    as_read,
    descends,
    encode_parts,
)
from ancl.learner.versions import Version, read_versions
from ancl.outside import is_outside
from ancl.stages.events import Events
from ancl.types import Params

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

_REFUSED = "It was refused before images were forgotten."


def save_learner(learner: Learner, path: str | Path, *, overwrite: bool) -> None:
    """See ``Learner.save``."""
    target = learner_place(path)
    learner._learned()
    descends(target, learner._descent, overwrite=overwrite)
    with claimed(target, learner._say):
        save_version(learner, target, overwrite=overwrite)


def save_version(
    learner: Learner,
    place: Path,
    *,
    overwrite: bool,
    note: Note | None = None,
    keep: int | None = None,
) -> Version:
    """Write a learner as the next version; whoever calls has claimed the place.

    What it has forgotten leaves all other versions at the same moment.

    Args:
        learner: The learner.
        place: The directory.
        overwrite: Whether anything else that is there is replaced.
        note: What is noted of the version besides what the learner knows.
        keep: How many versions are kept from now on, if that changes.

    Raises:
        StoreError: It cannot be written, or something else is there.
    """
    follows = descends(place, learner._descent, overwrite=overwrite)
    kind = ", ".join(dict.fromkeys(learner._since)) or "learn"
    noted = (note or Note())._replace(
        kind=kind,
        marks=learner._marks,
        images=tuple(_image_counts(learner).items()),
        held=learner._changes.groups,
    )
    meta, parts = _contents(learner)
    try:
        version = add_version(
            *(place, meta, parts, noted, learner.card()),
            replace=not follows,
            overwrite=overwrite,
            keep=keep,
            rewritten=_rewritten(learner, place, follows),
        )
    except OSError as error:
        raise StoreError(
            f"The learner cannot be written to {place} ({error.strerror}). Give a directory "
            f"that can be written; nothing was changed."
        ) from error
    learner._descent.add(version.digest)
    if not noted.refused:
        learner._since, learner._removals = (), ()
    return version


def _contents(learner: Learner) -> tuple[dict[str, Any], dict[str, Params]]:
    """All that is not a tensor, and tensors by part."""
    entries = learner._entries()
    parts = {part: entry.tensors for part, entry in entries.items()}
    for number, images in enumerate(learner._history):
        parts |= {images_part(number): images.tensors()} if images else {}
    if learner._held:
        parts["held"] = learner._held.tensors()
    meta = {
        "accepted_changes": list(learner.accepted_changes),
        "recipe": learner._recipe.values(),
        "held": learner._most_held,
        "calibration": _fitted(learner),
        "state": learner._final_state().model_dump(mode="json"),
        "measured": [None if row is None else row._asdict() for row in learner._measured],
        "moves": [move.json() for move in learner._moves],
        "values": learner._form.values if learner._form else None,
        "metas": {part: entry.meta for part, entry in entries.items()},
    }
    return meta, parts


def _fitted(learner: Learner) -> dict[str, Any] | None:
    """What was fitted on held images; features that are held are as fast to fit anew."""
    if not learner._held:
        return None
    with suppress(ScenarioError):  # it has no answer to some of them, which is said when asked
        return asdict(learner.calibration())
    return None


def _image_counts(learner: Learner) -> dict[Label, int]:
    """The number of images learned of each class, where they are listed."""
    classes = learner.classes
    counts = dict.fromkeys(classes, 0)
    for images in learner._history:
        for position in images.y[images.use != LEFT_OUT].tolist() if images else ():
            counts[classes[position]] += 1
    return counts


# -- what was forgotten leaves other versions ----------------------------------------------------


def _rewritten(learner: Learner, directory: Path, follows: bool) -> Rewritten:
    """What becomes of all else that is there."""
    working = str(working_directory(directory))
    stored = {root: keys for root, keys in learner._stored.items() if root != working}
    whole = Rewritten(forgotten=learner._forgotten, stored=stored)
    if not learner._removals or not follows:
        return whole
    versions: dict[int, Version] = {}
    files: dict[str, bytes] = {}
    for number, version in read_versions(directory).kept.items():
        listed = {bytes.fromhex(image.sha256): image for image in list_images(directory, number)}
        edits = [_widened(edit, listed) for edit in learner._removals]
        edits = [edit for edit in edits if edit.removed & listed.keys()]
        for edit in edits:
            more = edit.removed & listed.keys()
            remove_holding([listed[row].id for row in more], more)
            if not edit.allow_again:
                whole = whole._replace(forgotten=whole.forgotten.added(more))
        if not edits:
            versions[number] = version
        elif changed := _without(learner, directory, version, edits):
            versions[number] = changed[0]
            files |= changed[1]
    learner._forgotten = whole.forgotten
    return whole._replace(versions=versions, files=files, forgets=True)


def _widened(edit: Edit, listed: Mapping[bytes, ListedImage]) -> Edit:
    """An edit with all that a version knows of the classes that are forgotten as a whole."""
    labels = {listed[row].label for row in edit.whole & listed.keys()}
    more = {row for row, image in listed.items() if image.label in labels}
    return edit._replace(removed=edit.removed | more)


def _without(
    learner: Learner, directory: Path, version: Version, edits: list[Edit]
) -> tuple[Version, Mapping[str, bytes]] | None:
    """A version without what was forgotten, and its new parts; nothing where it is dropped."""
    tainted = learner.method.infer.holds is None
    if tainted and not edits[-1].keep_networks:
        return None
    try:
        opened = _opened(learner, directory, version.number)
        for edit in edits:
            tainted = tainted or weights_saw(opened, edit.removed)
            opened = edited(opened, edit)
        if tainted and not edits[-1].keep_networks:
            return None
        meta, parts = _contents(opened)
        card = opened.card()
    except AnclError:  # too little is left of it, or it has an output for a class that is gone
        return None
    names, files = encode_parts(parts)
    mark = LEARNED_FROM if tainted else STRIPPED
    changed = version._replace(
        learner=as_read(meta),
        parts=names,
        card=card,
        images=tuple(_image_counts(opened).items()),
        held=opened._changes.groups,
        test=None,  # it was measured before, class by class
        refused=(_REFUSED,) if version.refused else (),
        marks=tuple(dict.fromkeys([*version.marks, mark])),
    )
    return changed, files


def _opened(learner: Learner, directory: Path, number: int) -> Learner:
    """Another version of a learner; code from outside is that of the learner."""
    recipe = learner._recipe
    parts = {
        "method": recipe.method,
        "network": recipe.network["name"],
        "augment": recipe.data.augment,
    }
    outside = {
        name: part for name, part in parts.items() if not isinstance(part, str) or is_outside(part)
    }
    supplied = SuppliedCode(directory, "Learner.load", **outside, accept_changed=True)
    learned = read_learner(supplied, number)
    return restored(
        type(learner), learned, directory, device=learner._device, verbose=False, events=Events()
    )
