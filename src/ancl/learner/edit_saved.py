"""Forget images, rename classes or merge them in a learner on disk, wherever something is kept.

What is computed for a learner, and can be computed again, goes first: entries of stores, pixels in
caches, exported files. The learner itself is replaced last and as a whole. So a command that is
killed leaves the old learner or the new one, and the same command finishes the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ancl.data import Label
from ancl.errors import AnclError, StoreError
from ancl.learner.edit import RENAME
from ancl.learner.edit_requests import EditReport, Selection, forget_images
from ancl.learner.export import Exported, is_export
from ancl.learner.file_answers import image_files
from ancl.learner.image_list import list_images
from ancl.learner.learner import Learner
from ancl.learner.lock import claimed, learner_place
from ancl.learner.opening import is_run, open_learner
from ancl.learner.saving import save_version
from ancl.learner.version_writing import Note
from ancl.learner.versions import Version, read_versions
from ancl.methods.method import Method
from ancl.recipe.recipe import GENERAL
from ancl.stages.events import Events
from ancl.store.store import Store


class EditOutcome(NamedTuple):
    """What was changed in a learner on disk, and what went with it.

    Attributes:
        learner: The learner after it.
        directory: Where it is.
        version: The version that it is.
        report: What was changed.
        dropped: The numbers of versions that are gone: their network learned from what was
            forgotten, or too little was left of them.
        changed: The numbers of versions that were made once more without it.
        exports: The exported files that were removed.
        exported: The file that was exported anew, if one was.
    """

    learner: Learner
    directory: Path
    version: Version
    report: EditReport
    dropped: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()
    exports: tuple[Path, ...] = ()
    exported: Exported | None = None


def forget(
    learner: str | Path,
    *,
    images: Iterable[str | Path] | None = None,
    classes: Iterable[Label] | None = None,
    ids: Iterable[str] | None = None,
    retrain: bool = False,
    keep_networks: bool = False,
    allow_again: bool = False,
    export: str | Path | None = None,
    exports: Sequence[str | Path] = (),
    **opening: Any,
) -> EditOutcome:
    """Forget images in a learner on disk, and wherever something of them is kept for it.

    They leave its memory, held images, ledger and lists, of all its versions; entries that it has
    in stores; pixels in caches; and exported files. Your photos stay where they are.

    Args:
        learner: Its directory.
        images: Files, and folders of them.
        classes: See ``Learner.forget``, also for the settings that follow.
        ids: What images are called.
        retrain: Whether a trained network begins anew.
        keep_networks: Whether versions stay whose network learned from the images.
        allow_again: Whether the images may be learned again later.
        export: A file to export the learner to afterwards.
        exports: Files that it may have been exported to: those that an export wrote are removed.
        opening: ``method``, ``network``, ``augment`` and ``accept_changed`` as in
            ``Learner.load``, ``device``, ``wait`` and ``events`` as in ``teach``.

    Raises:
        ScenarioError: None of the images is known, too little would be left, or what is needed is
            not kept.
        StoreError: The directory is not a saved learner, or something cannot be removed.
    """
    files = None if images is None else list(image_files([Path(image) for image in images]))

    def change(opened: Learner) -> EditReport:
        target = learner_place(learner)
        numbers = read_versions(target).kept
        elsewhere = [image for number in numbers for image in list_images(target, number)]
        return forget_images(
            opened,
            Selection(files, classes, ids, elsewhere),
            retrain=retrain,
            keep_networks=keep_networks,
            allow_again=allow_again,
        )

    return _edit(learner, change, export, exports, **opening)


def rename(learner: str | Path, names: Mapping[Label, Label], **opening: Any) -> EditOutcome:
    """Give classes of a learner on disk other names, the new ones by the old ones.

    Args:
        learner: Its directory.
        names: New names by the old ones.
        opening: See ``forget``; with ``export`` and ``exports``.
    """
    return _edit(learner, lambda opened: opened.rename(names), **opening)


def merge_classes(
    learner: str | Path,
    classes: Iterable[Label],
    *,
    into: Label | None = None,
    retrain: bool = False,
    **opening: Any,
) -> EditOutcome:
    """Let several classes of a learner on disk be one: see ``Learner.merge_classes``.

    Args:
        learner: Its directory.
        classes: The labels.
        into: What the class is called; as the first of them if left out.
        retrain: Whether a trained network begins anew.
        opening: See ``forget``; with ``export`` and ``exports``.
    """

    def change(opened: Learner) -> EditReport:
        return opened.merge_classes(classes, into=into, retrain=retrain)

    return _edit(learner, change, **opening)


def _edit(
    directory: str | Path,
    change: Callable[[Learner], EditReport],
    export: str | Path | None = None,
    exports: Sequence[str | Path] = (),
    *,
    method: str | Method | None = None,
    network: str | None = None,
    augment: str | None = None,
    accept_changed: bool = False,
    device: str = GENERAL["device"].default,
    wait: float | None = None,
    events: Events | None = None,
) -> EditOutcome:
    """Change a learner on disk; nobody else changes it meanwhile."""
    target = learner_place(directory)
    if is_run(target):
        raise StoreError(
            f"{target} is a run, which stays as it is. Make a learner of it first: ancl learn "
            f"{target} --data … -o LEARNER, or delete the run."
        )
    read_versions(target)  # before a lock is made beside what is not a learner
    with claimed(target, (events or Events()).say, wait) as working:
        opened = open_learner(
            target,
            method=method,
            network=network,
            augment=augment,
            accept_changed=accept_changed,
            device=device,
            store=working,
            events=events,
        )
        before = read_versions(target)
        report = change(opened)
        outcome = EditOutcome(opened, target, before.of(before.current or 1, target), report)
        if report.kind != RENAME:  # a month that was stopped may hold what is forgotten
            Store(working).clear()
        if report.images and not export:
            outcome = outcome._replace(exports=_removed_exports(exports))
        version = save_version(opened, target, overwrite=False, note=Note(report.title))
        outcome = outcome._replace(version=version)
        after = read_versions(target).kept
        outcome = outcome._replace(
            dropped=tuple(number for number in before.kept if number not in after),
            changed=tuple(n for n, v in before.kept.items() if n in after and after[n] != v),
        )
        if export:
            outcome = outcome._replace(exported=_exported(opened, Path(export), exports))
    return outcome


def _exported(learner: Learner, file: Path, earlier: Sequence[str | Path]) -> Exported:
    """Export a learner; where that fails, no file stays that answers as it did before."""
    try:
        return learner.export(file)
    except AnclError:
        _removed_exports(earlier)
        raise


def _removed_exports(files: Sequence[str | Path]) -> tuple[Path, ...]:
    """Remove files that an export wrote: their answers depend on what was forgotten."""
    gone = []
    for file in map(Path, files):
        if os.path.lexists(file) and is_export(file):
            with suppress(FileNotFoundError):
                file.unlink()
                file.with_name(f"{file.name}.md").unlink()
            gone.append(file)
    return tuple(gone)
