"""A learner written to its directory, as its next version."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.data import Label
from ancl.errors import ScenarioError, StoreError
from ancl.learner.images import LEFT_OUT
from ancl.learner.saved import images_part
from ancl.learner.versions import Note, Version, add_version, descends

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


def save_version(
    learner: Learner,
    place: Path,
    *,
    overwrite: bool,
    note: Note | None = None,
    keep: int | None = None,
) -> Version:
    """Write a learner as the next version; whoever calls has claimed the place.

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
        "values": learner._form.values if learner._form else None,
        "metas": {part: entry.meta for part, entry in entries.items()},
    }
    noted = (note or Note())._replace(
        images=tuple(_image_counts(learner).items()), held=learner._changes.groups
    )
    try:
        version = add_version(
            *(place, meta, parts, noted, learner.card()),
            replace=not follows,
            overwrite=overwrite,
            keep=keep,
        )
    except OSError as error:
        raise StoreError(
            f"The learner cannot be written to {place} ({error.strerror}). Give a directory "
            f"that can be written; nothing was changed."
        ) from error
    learner._descent.add(version.digest)
    return version


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
