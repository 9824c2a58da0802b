"""A trained learner that begins anew, and learns again from the images that it has kept."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from ancl.data import ImageView, Label, Samples, Split, canonical
from ancl.errors import MethodError, ScenarioError
from ancl.hashing import digest
from ancl.learner.beginning import first_setting
from ancl.learner.edit import Edit, check_enough
from ancl.learner.form import Form
from ancl.learner.held import KNOWN, Change, HeldChanges
from ancl.learner.images import Arrival, ids_of, pixel_hashes
from ancl.learner.learning import learn_task
from ancl.learner.next_task import next_task
from ancl.learner.notices import reporting
from ancl.memory import Exemplars
from ancl.stages.events import Events
from ancl.stages.runner import MemoryStore

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


class _KeptTask(NamedTuple):
    """What is kept of a task: images to train on and held ones, with their labels."""

    train: ImageView
    train_labels: list[Label]
    held: ImageView | None
    held_labels: list[Label]


def retrained(learner: Learner, edit: Edit) -> Learner:
    """The learner as a new one that is taught what is kept after an edit, task by task.

    Images that are held stay held: nothing is trained on them.

    Raises:
        ScenarioError: Not enough is kept.
    """
    form, ids = learner._form, ids_of(learner._history)
    assert form is not None
    tasks = _kept_tasks(learner, edit)
    check_enough({label for task in tasks for label in task.train_labels})
    after = _beginner(learner)
    with reporting(learner._events, learner._verbose) as events:
        for task in tasks:
            after = _learned(after, task, form, ids, events)
    groups = after._changes.groups
    if images := sum(group.images for group in groups):
        right = sum(group.images * group.after for group in groups)
        after._changes = HeldChanges((Change(KNOWN, images, None, right / images),))
    return after


def _beginner(learner: Learner) -> Learner:
    """The same learner before its first task."""
    new = copy(learner)
    new._setting, new._form, new._tasks, new._state, new._opened = None, None, (), {}, 0
    new._scorer, new._held, new._history, new._measured = None, None, (), ()
    new._moves = ()
    new._changes, new._fitted, new._held_answers = HeldChanges(), {}, None
    new._memory, new._stored = MemoryStore(), {}
    if learner._store is learner._memory:
        new._store = new._memory
    return new


def _kept_tasks(learner: Learner, edit: Edit) -> list[_KeptTask]:
    """The images that are kept of every task."""
    labels = edit.labels(learner.classes)
    memory, held = learner._exemplars(), learner._held
    tasks = []
    for number, before in enumerate(learner._tasks):
        if learner.method.data == "all":
            split = _all_images(learner, before.load)
            parts = [_chosen(samples, labels, edit) for samples in (split.train, split.val)]
        else:
            parts = [_of_task(images, number, labels, edit) for images in (memory, held)]
        (train, train_labels), (other, others) = parts
        lost = [label for label in dict.fromkeys(others) if label not in train_labels]
        if train is None and other is None:
            continue  # all of it is forgotten
        if train is None or lost:
            names = ", ".join(map(repr, (lost or list(dict.fromkeys(others)))[:5]))
            raise ScenarioError(
                f"{learner.method.name} keeps no images to train on of {names} (task "
                f"{number + 1}), so it cannot learn it again. Begin a new learner with the images "
                f"that remain, or use a method that keeps some (--memory-per-class), or one that "
                f"trains nothing, such as auto."
            )
        tasks.append(_KeptTask(train, train_labels, other, others))
    if not tasks:
        raise ScenarioError(
            f"{learner.method.name} keeps no images, so there is nothing to learn again from. "
            f"Begin a new learner with the images that remain."
        )
    return tasks


def _all_images(learner: Learner, load: object) -> Split:
    assert callable(load)
    try:
        split = load()
    except MethodError as error:
        raise ScenarioError(
            f"{learner.method.name} learns from the images of all tasks, and they were not saved. "
            f"Begin a new learner with the images that remain."
        ) from error
    assert isinstance(split, Split)
    return split


def _of_task(
    images: Exemplars | None, number: int, labels: Sequence[Label], edit: Edit
) -> tuple[ImageView | None, list[Label]]:
    if images is None:
        return None, []
    return _chosen(images.take((images.task == number).nonzero().squeeze(1)).samples, labels, edit)


def _chosen(
    samples: Samples, labels: Sequence[Label], edit: Edit
) -> tuple[ImageView | None, list[Label]]:
    """The images that are not forgotten, with their new labels."""
    stay = edit.kept(pixel_hashes(samples.x)).nonzero().squeeze(1)
    if not len(stay):
        return None, []
    rest = samples.take(stay)
    return rest.x, [labels[y] for y in rest.y.tolist()]


def _learned(
    learner: Learner,
    kept: _KeptTask,
    form: Form,
    ids: dict[str, tuple[str, ...]],
    events: Events,
) -> Learner:
    """The learner with one more task, split as it was before."""
    views = [kept.train, *([kept.held] if kept.held else [])]
    x, labels = ImageView.joined(views), [*kept.train_labels, *kept.held_labels]
    task = next_task(x, labels, learner._tasks, learner._recipe)
    classes = list(task.names) if learner.scenario == "dil" else [*learner.classes, *task.names]
    y = torch.tensor([classes.index(label) for label in labels])
    n = len(kept.train_labels)
    whole, rest = Samples(x, y), torch.arange(len(labels))
    train, val = canonical(whole.take(rest[:n])), canonical(whole.take(rest[n:]))
    split = Split(train, val, whole.take(rest[:0]))
    counts = tuple(int((train.y == position).sum()) for position in task.present)
    task = replace(
        task,
        key=digest({"kept": [task.key, n]}),
        sizes=(n, len(labels) - n, 0),
        counts=counts,
        load=lambda: split,
    )
    names = tuple(
        (ids.get(row.hex()) or (f"task {task.index + 1}, image {index + 1}",))[0]
        for index, row in enumerate(pixel_hashes(x))
    )
    arrived = Arrival(x, labels, names, rest)
    setting = learner._setting or first_setting(learner, train.x, form)
    return learn_task(learner, task, setting, form, arrived, events)[1]
