"""Learning a task: the learner that knows it is made beside the one of before, which stays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ancl.data import Task
from ancl.learner.beginning import first_setting
from ancl.learner.card import Measured
from ancl.learner.form import Form
from ancl.learner.held import (
    KNOWN,
    Answering,
    Change,
    HeldChanges,
    HeldOut,
    compare_held,
    hold_out_images,
    task_accuracies,
)
from ancl.learner.images import (
    TRAINED,
    Arrival,
    LearnedImages,
    arrival,
    check_not_forgotten,
    image_ids,
    known_hashes,
    pixel_hashes,
)
from ancl.learner.inputs import Data
from ancl.learner.moves import TaskMove, tracks_moves
from ancl.learner.next_task import check_learnable, next_task
from ancl.learner.notices import announce, class_notes, recall_notes, reporting
from ancl.learner.versions import StoredKeys
from ancl.memory import Exemplars
from ancl.stages.events import Events
from ancl.stages.final_state import TaskState
from ancl.stages.plan import plan_task
from ancl.stages.runner import Layered, MemoryStore, Runner
from ancl.stages.setting import Setting
from ancl.stages.stage import Stage
from ancl.state import NETWORK, StateKeys
from ancl.store.entry import StageResult
from ancl.store.store import Store

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


def learn_images(
    learner: Learner,
    data: Data,
    labels: Any,
    ids: Iterable[str] | None,
    accept: Callable[[Learner], bool] | None,
) -> dict[str, Any]:
    """See ``Learner.learn``."""
    spec = learner._recipe.data
    x, given = learner._read(data, labels)
    names = image_ids(data, ids, len(x))
    if learner._forgotten:
        check_not_forgotten(pixel_hashes(x), names, learner._forgotten)
    arrived = arrival(x, given, names, learner._history, learner.classes, learner._held)
    task = next_task(*arrived.part(), learner._tasks, learner._recipe)
    before, sized = learner._form, spec.size is not None
    form = before.widened(x) if before else Form.of(x, spec.pictures, resized=sized)
    setting = learner._setting or first_setting(learner, x, form)
    with reporting(learner._events, learner._verbose) as events:
        for note in class_notes(given, learner.classes):
            events.say(note)
        log, candidate = learn_task(learner, task, setting, form, arrived, events)
        candidate._since = (*learner._since, "learn")
        for note in recall_notes(candidate._changes.recalls, candidate.classes):
            events.say(note)
        drift = candidate.drifts[-1]
        if drift:
            events.note(str(drift))
    accepted = accept is None or bool(accept(candidate))
    if accepted:
        learner._become(candidate)
    else:
        learner._memory.keep_only(learner._state.values())
    return {
        "task": task.index,
        "classes": list(task.names),
        "returning": candidate.returning[-1],
        "epochs": log,
        "held": list(candidate._changes.groups),
        "drift": drift,
        "accepted": accepted,
        **({} if accepted else {"candidate": candidate}),
    }


def learn_task(
    learner: Learner,
    task: Task,
    setting: Setting,
    form: Form,
    arrived: Arrival,
    events: Events,
) -> tuple[list[dict[str, Any]], Learner]:
    """Learn a task: the main network's epochs, and the learner that knows it.

    Args:
        learner: The learner; it stays as it is.
        task: The task.
        setting: What else decides its stages.
        form: What images are, with those of the task.
        arrived: All images that came.
        events: Receives progress.
    """
    tasks, method = (*learner._tasks, task), learner.method
    check_learnable(learner._recipe, method, tasks, setting)
    stages, state = plan_task(method, tasks, setting, learner._state)
    unstored = next((stage.unstored for stage in stages if stage.unstored), "")
    if unstored and learner._store is not learner._memory:
        events.say(f"What is learned is not stored: {unstored}")
    announce(method, learner.scenario, tasks, setting, stages, events)
    layered = Layered(learner._memory, learner._memory if unstored else learner._store)
    runner = Runner(stages, tasks, setting.device, layered, events)
    entries = {part: runner.obtain(key) for part, key in state.items()}
    # A method without a main training has the auxiliary network's before it, or none at all.
    log: list[dict[str, Any]] = []
    for stage in [stage for stage in stages if stage.name in ("auxiliary", "main")][-1:]:
        epochs = runner.obtain(stage.key).meta["log"]
        log = [epoch for epoch in epochs if epoch["role"] == stage.name]
    split, classes = task.load(), learner.classes
    classes += [name for name in task.names if name not in classes]
    history = (*learner._history, arrived.learned(classes, split))
    images = learner._held
    if not method.holds_features:
        trained = known_hashes(history, TRAINED)
        images = hold_out_images(tasks, split.val, learner._most_held, images, trained)
    if method.data == "current":  # else its images are read again with every task
        tasks = (*learner._tasks, TaskState.of(task).task(task.index))
    after = learner_after(learner, setting, form, tasks, state, entries, images, history)
    if tracks_moves(method):
        results = {stage.name: runner.obtain(stage.key) for stage in stages if _tells_moves(stage)}
        move = TaskMove.of(results.pop("grow"), {**results, NETWORK: entries[NETWORK]})
        after._moves = (*learner._moves, move)
    if isinstance(learner._store, Store) and not unstored:
        after._stored = _with_keys(learner._stored, learner._store, stages)
    return log, after


def _tells_moves(stage: Stage) -> bool:
    """Whether a stage makes the network that a task begins with, or measures how far it moved."""
    return stage.name in ("grow", "transport")


def _with_keys(stored: StoredKeys, store: Store, stages: Sequence[Stage]) -> StoredKeys:
    """What a learner has in stores, with the stages of a task."""
    root = os.path.realpath(store.root)
    return {**stored, root: stored.get(root, frozenset()) | {stage.key for stage in stages}}


def learner_after(
    before: Learner,
    setting: Setting,
    form: Form | None,
    tasks: tuple[Task, ...],
    state: StateKeys,
    entries: Mapping[str, StageResult],
    images: Exemplars | None,
    history: tuple[LearnedImages | None, ...],
) -> Learner:
    """The learner that knows this, measured.

    Args:
        before: The learner of before; it stays as it is.
        setting: What else decides stages.
        form: What images are.
        tasks: All tasks.
        state: The keys of what they left behind, by piece.
        entries: The same, by piece.
        images: The images that are held as they are.
        history: The images of every task.
    """
    after = copy(before)
    after._memory = MemoryStore()
    if before._store is before._memory:
        after._store = after._memory
    for part, key in state.items():
        after._memory.save(key, entries[part])
    after._setting, after._form, after._tasks, after._state = setting, form, tasks, state
    after._held, after._history, after._fitted = images, history, {}
    after._descent, after._scorer = set(before._descent), None
    held, right, after._changes = after._held_out(), None, HeldChanges()
    if held:
        answering = _answering(after)
        with torch.no_grad():
            scores = held.scores(answering.scorer)
        after._held_answers = answering.scorer, scores
        right = answering.judged(held, scores)
        after._changes = _changes(before, after, held, right)
    row = task_accuracies(right, held, tasks)
    # Where no task was added, earlier rows were measured with other images or classes.
    rows = before._measured if len(tasks) > len(before._tasks) else ()
    new = (None,) * (len(tasks) - len(rows) - 1)
    after._measured = (*rows, *new, Measured("held images", row) if held else None)
    return after


def _changes(before: Learner, after: Learner, held: HeldOut, right: Tensor) -> HeldChanges:
    """What changed on held images; without a number of before where classes are others."""
    if before.classes != after.classes[: len(before.classes)]:
        return HeldChanges((Change(KNOWN, len(right), None, float(right.double().mean())),))
    was = _answering(before) if before._tasks else None
    return compare_held(held, before._held_out(), was, right)


def _answering(learner: Learner) -> Answering:
    return Answering(learner._made_scorer(), learner._tasks, learner.scenario == "til")
