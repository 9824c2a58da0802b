"""What is asked of a learner: to forget images, to rename classes, to let several be one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, NamedTuple

from ancl.data import ImageView, Label
from ancl.data.caches import remove_holding
from ancl.errors import ScenarioError, SpecError, counted, did_you_mean, one_line
from ancl.learner.edit import (
    FORGET,
    MERGE_CLASSES,
    RENAME,
    Edit,
    edited,
    weights_saw,
    what_it_means,
)
from ancl.learner.image_list import ListedImage
from ancl.learner.images import image_ids, pixel_hashes
from ancl.learner.inputs import Data
from ancl.learner.retrain import retrained
from ancl.learner.version_writing import LEARNED_FROM
from ancl.store.store import Store

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

_SHORTEST = 8
"""The fewest characters of a hash that name an image."""
_SHOWN = 5


class Selection(NamedTuple):
    """Which images are to be forgotten; see ``Learner.forget``.

    Args:
        images: The images themselves.
        classes: Labels.
        ids: What images are called.
        elsewhere: What other versions of the learner know.
    """

    images: Data | None = None
    classes: Iterable[Label] | None = None
    ids: Iterable[str] | None = None
    elsewhere: Sequence[ListedImage] = ()


class EditReport(NamedTuple):
    """What was changed.

    Args:
        kind: ``forget``, ``rename`` or ``merge-classes``.
        title: The same in a few words, without anything of what was forgotten.
        images: The number of images that were forgotten.
        classes: The labels that are gone: of classes without images, or replaced by others.
        exact: Whether the learner is, to the bit, as if it had been taught so from the start.
        meaning: What was done, and what was not, in words.
        unknown: What those of the given images are called that were never learned.
        entries: How many entries of stores were removed.
        caches: How many caches of pixels were removed.
    """

    kind: str
    title: str
    images: int
    classes: tuple[Label, ...]
    exact: bool
    meaning: str
    unknown: tuple[str, ...] = ()
    entries: int = 0
    caches: int = 0


# -- forget ----------------------------------------------------------------------------------


def forget_images(
    learner: Learner, wanted: Selection, *, retrain: bool, keep_networks: bool, allow_again: bool
) -> EditReport:
    """See ``Learner.forget``."""
    learner._learned()
    if all(part is None for part in wanted[:3]):
        raise SpecError(
            "Say what is to be forgotten: images=, classes= or ids= (--images PATH, --class NAME "
            "or --id ID)."
        )
    here = learner.images
    listed = [*here, *wanted.elsewhere]
    view, rows, names = _given(learner, wanted.images)
    known = {bytes.fromhex(image.sha256) for image in listed}
    whole = _of_classes(listed, wanted.classes, learner.classes)
    removed = {row for row in rows if row in known} | whole | _called(listed, wanted.ids)
    before = learner._forgotten.mask(rows)
    columns = zip(rows, names, before, strict=True)
    unknown = tuple(name for row, name, was in columns if row not in known and not was)
    if not removed and not any(before):
        raise _never_learned(unknown, listed)
    forgotten = learner._forgotten
    forgotten = forgotten.without({*rows, *removed}) if allow_again else forgotten.added(removed)
    called = {image.id for image in listed if bytes.fromhex(image.sha256) in removed}
    if not removed:  # a command that was killed may have left caches
        learner._forgotten = forgotten
        caches = len(remove_holding(names, {*rows}))
        explanation = _already(allow_again)
        return EditReport(FORGET, "", 0, (), True, explanation, unknown, caches=caches)
    edit = Edit(
        FORGET,
        frozenset(removed),
        images=view,
        keep_networks=keep_networks,
        whole=frozenset(whole),
        allow_again=allow_again,
    )
    concerned = any(bytes.fromhex(image.sha256) in removed for image in here)
    after = _changed(learner, edit, retrain) if concerned else copy(learner)
    entries = _remove_entries(learner, after)
    caches = len(remove_holding({*called, *names}, removed))
    after._forgotten, after._removals = forgotten, (*learner._removals, edit)
    gone = tuple(label for label in learner.classes if label not in after.classes)
    n, meaning = len(removed), what_it_means(learner, removed, retrain)
    report = EditReport(FORGET, counted(n, "image"), n, gone, *meaning, unknown)
    learner._become(after)
    return report._replace(entries=entries, caches=caches)


def _remove_entries(learner: Learner, after: Learner) -> int:
    """Remove what was computed for a learner from its stores, but not what it now is."""
    anew = {key for keys in after._stored.values() for key in keys}
    return sum(Store(root).remove(keys - anew) for root, keys in learner._stored.items())


def _changed(learner: Learner, edit: Edit, retrain: bool) -> Learner:
    """The learner after an edit, which is noted."""
    again = retrain and not learner.method.trains_nothing
    after = retrained(learner, edit) if again else edited(learner, edit)
    after._since = (*learner._since, edit.kind)
    if edit.removed and not again:
        after._stored = {}
    tainted = bool(edit.removed) and weights_saw(learner, edit.removed)
    marks = (*learner._marks, LEARNED_FROM) if tainted else learner._marks
    after._marks = () if again else tuple(dict.fromkeys(marks))
    return after


def _already(allow_again: bool) -> str:
    if allow_again:
        return "They were forgotten before, and may be learned again from now on."
    return "They were forgotten before: the learner holds nothing of them."


def _given(
    learner: Learner, images: Data | None
) -> tuple[ImageView | None, list[bytes], tuple[str, ...]]:
    """Given images in the learner's form: themselves, their hashes, and what they are called."""
    if images is None:
        return None, [], ()
    x = learner._images(images)
    view = x if isinstance(x, ImageView) else ImageView.of(x)
    return view, pixel_hashes(view), image_ids(images, None, len(view))


def _of_classes(
    listed: Sequence[ListedImage], classes: Iterable[Label] | None, names: Sequence[Label]
) -> set[bytes]:
    """All images of some classes."""
    possible = list(dict.fromkeys([*names, *(image.label for image in listed)]))
    labels = known_labels(possible, [classes] if isinstance(classes, str) else classes or ())
    return {bytes.fromhex(image.sha256) for image in listed if image.label in labels}


def known_labels(names: Sequence[Label], given: Iterable[Label]) -> list[Label]:
    """The labels that are meant: a number may come as text.

    Raises:
        ScenarioError: Some are not known.
    """
    texts = {str(name): name for name in names}
    labels, wrong = [], []
    for label in given:
        if label in names:
            labels.append(label)
        elif str(label) in texts:
            labels.append(texts[str(label)])
        else:
            wrong.append(label)
    if wrong:
        raise ScenarioError(
            "\n".join(
                f"The class {label!r} was never learned.{did_you_mean(str(label), texts)}"
                for label in wrong[:_SHOWN]
            )
            + f"\nKnown classes: {_some(list(texts))}. Nothing was changed."
        )
    return labels


def _called(listed: Sequence[ListedImage], ids: Iterable[str] | None) -> set[bytes]:
    """The images that are called so, or whose hash begins so."""
    hashes, wrong = set[bytes](), []
    names = {image.id for image in listed if image.id}
    for text in [ids] if isinstance(ids, str) else ids or ():
        by_hash = len(text) >= _SHORTEST
        rows = {
            image.sha256
            for image in listed
            if image.id == text or (by_hash and image.sha256.startswith(text.lower()))
        }
        hashes |= {bytes.fromhex(row) for row in rows}
        if not rows:
            wrong.append(text)
    if wrong:
        raise ScenarioError(
            "\n".join(
                f"No learned image is called {one_line(text)}.{did_you_mean(text, names)}"
                for text in wrong[:_SHOWN]
            )
            + "\nGive the name or the sha256 of an image (its first 8 characters, or more): "
            "learner.images, or ancl versions LEARNER --images N, lists all. Nothing was changed."
        )
    return hashes


def _never_learned(unknown: Collection[str], listed: Sequence[ListedImage]) -> ScenarioError:
    """None of the given images is known: of each, what a learned one of a similar name is."""
    names = {image.id for image in listed if image.id}
    lines = [f"{one_line(name)}{did_you_mean(name, names)}" for name in list(unknown)[:_SHOWN]]
    lines += [f"… and {len(unknown) - _SHOWN} more"] if len(unknown) > _SHOWN else []
    return ScenarioError(
        "None of these images was learned: images are known by their pixels.\n"
        + "\n".join(lines)
        + "\nIf a file has changed since, give the name that it was learned by (--id, ids=). "
        "Nothing was changed."
    )


def _some(names: Sequence[str]) -> str:
    more = f", … ({len(names)} in all)" if len(names) > 20 else ""
    return ", ".join(map(one_line, names[:20])) + more


# -- names -----------------------------------------------------------------------------------


def rename_classes(learner: Learner, names: Mapping[Label, Label]) -> EditReport:
    """See ``Learner.rename``."""
    learner._learned()
    known_labels(learner.classes, names)
    new = {
        known_labels(learner.classes, [old])[0]: _checked_name(name) for old, name in names.items()
    }
    new = {old: name for old, name in new.items() if name != old}
    if not new:
        raise ScenarioError("The new name is the old one: nothing was changed.")
    edit = Edit(RENAME, names=new)
    after = edit.labels(learner.classes)
    twice = sorted({str(name) for name in after if after.count(name) > 1})
    if twice:
        raise ScenarioError(
            f"Two classes would be called {', '.join(map(repr, twice))}. If they are one class, "
            f"merge them: ancl merge-classes LEARNER A B --into NAME (learner.merge_classes)."
        )
    learner._become(_changed(learner, edit, False))
    title = ", ".join(f"{one_line(old)} → {one_line(name)}" for old, name in new.items())
    meaning = f"{title}: all answers stay, with the new names."
    return EditReport(RENAME, title, 0, (*new,), True, meaning)


def _checked_name(name: Label) -> Label:
    if isinstance(name, bool) or not isinstance(name, str | int) or not str(name).strip():
        raise ScenarioError(f"{name!r} is no name of a class. Give a text or a whole number.")
    return name


def merge_into(
    learner: Learner, classes: Iterable[Label], into: Label | None, *, retrain: bool
) -> EditReport:
    """See ``Learner.merge_classes``."""
    learner._learned()
    labels = list(dict.fromkeys(known_labels(learner.classes, classes)))
    if len(labels) < 2:
        raise ScenarioError(
            "Give at least two classes that become one. To give one class another name: ancl "
            "rename LEARNER OLD NEW (learner.rename)."
        )
    name = labels[0] if into is None else _checked_name(into)
    if name in learner.classes and name not in labels:
        raise ScenarioError(
            f"{name!r} is another class of the learner. Name it among the classes that become "
            f"one, or choose another name."
        )
    if learner.scenario == "til" and len({_task_of(learner, label) for label in labels}) > 1:
        raise ScenarioError(
            "With scenario=til a class belongs to one task, and these are of several. Merge "
            "classes of one task."
        )
    if len(labels) == len(learner.classes):
        raise ScenarioError(
            "These are all classes: one would be left, and no other to tell it from."
        )
    edit = Edit(MERGE_CLASSES, names=dict.fromkeys(labels, name))
    rows = {bytes.fromhex(image.sha256) for image in learner.images if image.label in labels}
    again = retrain and not learner.method.trains_nothing
    exact = not again and not weights_saw(learner, rows)
    learner._become(_changed(learner, edit, retrain))
    title = f"{', '.join(map(one_line, labels))} → {one_line(name)}"
    how = "learned again from what is kept"
    if not again:
        how = (
            "to the bit as if they had been learned so from the start"
            if exact
            else "the classifier was computed again so; the network has learned from them as "
            "different classes"
        )
    meaning = f"{title}: {how}."
    gone = tuple(label for label in labels if label != name)
    return EditReport(MERGE_CLASSES, title, 0, gone, exact, meaning)


def _task_of(learner: Learner, label: Label) -> int:
    return next(number for number, names in enumerate(learner.tasks) if label in names)
