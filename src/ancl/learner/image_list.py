"""Every image that a learner has learned or keeps, as a list for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ancl.data import Label
from ancl.learner.images import USES, VALIDATED, History, learned_history, pixel_hashes
from ancl.learner.ledger import read_statistics
from ancl.learner.loading import AGAIN, explained
from ancl.learner.versions import read_version
from ancl.memory import Exemplars
from ancl.stages.final_state import FinalState
from ancl.state import STATISTICS
from ancl.types import Params, strip_prefix

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


class ListedImage(NamedTuple):
    """An image that a version learned.

    Args:
        task: The task that it came with, from 1.
        id: What it is called.
        label: Its class.
        use: ``train``, ``validate``, or ``measure``: it was held already.
        sha256: The hash of its pixels in the learner's form.
        kept: Where it is kept: ``memory`` and ``held`` as pixels, ``statistics`` as features.
    """

    task: int
    id: str
    label: Label
    use: str
    sha256: str
    kept: tuple[str, ...]


def list_images(directory: Path, version: int | None = None) -> list[ListedImage]:
    """Every image that a version learned, the current one if none is named.

    Raises:
        StoreError: The directory is not a saved learner, or is damaged, or has no such version.
    """
    saved, tensors = read_version(directory, version)
    with explained(directory, AGAIN):
        state = FinalState.read(saved.learner["state"])
        domains = len(state.tasks) > 1 and state.tasks[1].start == 0
        names = [name for task in state.tasks[: 1 if domains else None] for name in task.names]
        history = learned_history(tensors, len(state.tasks), len(names))
        return listed_images(history, names, tensors)


def images_of(learner: Learner) -> tuple[ListedImage, ...]:
    """See ``Learner.images``."""
    parts = {part: entry.tensors for part, entry in learner._entries().items()}
    parts |= {"held": learner._held.tensors()} if learner._held else {}
    return tuple(listed_images(learner._history, learner.classes, parts))


def listed_images(
    history: History, names: Sequence[Label], tensors: Mapping[str, Params]
) -> list[ListedImage]:
    """Every image that is listed, and then those that are kept of tasks whose images are not.

    Args:
        history: The images of every task.
        names: The labels, by position.
        tensors: What is stored, by part.
    """
    stored, rows, listed = kept_images(tensors), list[ListedImage](), set[bytes]()

    def where(row: bytes) -> tuple[str, ...]:
        return tuple(part for part, images in stored.items() if row in images)

    for task, images in enumerate(history, start=1):
        if images:
            columns = (images.ids, images.y.tolist(), images.use.tolist(), images.rows())
            for name, y, use, row in zip(*columns, strict=True):
                listed.add(row)
                rows.append(ListedImage(task, name, names[y], USES[use], row.hex(), where(row)))
    for part in stored.values():
        for row, (number, y, use) in part.items():
            if row not in listed:
                listed.add(row)
                image = (number + 1, "", names[y], USES[use], row.hex(), where(row))
                rows.append(ListedImage(*image))
    return rows


def kept_images(tensors: Mapping[str, Params]) -> dict[str, dict[bytes, tuple[int, int, int]]]:
    """The images that are kept, by part: task, class and use of each, by its hash."""
    by_part = {}
    for part, inside in (("memory", "memory"), ("held", "")):
        if part in tensors:
            images = Exemplars.of(strip_prefix(inside, tensors[part]) if inside else tensors[part])
            hashes = pixel_hashes(images.samples.x)
            use = (images.held * VALIDATED).tolist()
            columns = (images.task.tolist(), images.samples.y.tolist(), use)
            by_part[part] = dict(zip(hashes, zip(*columns, strict=True), strict=True))
    if STATISTICS in tensors:
        ledger = read_statistics(tensors[STATISTICS]).ledger
        use = (ledger.held * VALIDATED).tolist()
        columns = (ledger.tasks.tolist(), ledger.y.tolist(), use)
        hashes = [bytes.fromhex(text) for text in ledger.hex()]
        by_part[STATISTICS] = dict(zip(hashes, zip(*columns, strict=True), strict=True))
    return by_part
