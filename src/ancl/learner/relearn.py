"""A learner whose statistics change without learning a task: its classifier is computed anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ancl.data import Task
from ancl.hashing import digest
from ancl.learner.form import Form
from ancl.learner.held import held_together, renumbered
from ancl.learner.images import LearnedImages, check_not_forgotten
from ancl.learner.learning import learner_after
from ancl.learner.ledger import (
    Site,
    check_mergeable,
    merged_statistics,
    merged_tasks,
    statistics_of,
)
from ancl.learner.notices import reporting
from ancl.memory import Exemplars
from ancl.stages.plan import plan_again, plan_grown
from ancl.stages.runner import Layered, Runner
from ancl.state import STATISTICS, StateKeys
from ancl.store.entry import StageResult
from ancl.types import Params, prefixed

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


def relearn(
    learner: Learner,
    pieces: Mapping[str, Params],
    tasks: tuple[Task, ...],
    form: Form | None,
    held: Exemplars | None,
    history: tuple[LearnedImages | None, ...],
    why: Any,
) -> Learner:
    """The learner with other pieces of its state, and with what is computed from them anew.

    Args:
        learner: The learner; it stays as it is.
        pieces: The tensors of each piece that changes: statistics, the memory.
        tasks: The tasks; no image of them is read.
        form: What its images are.
        held: The images that are held as they are.
        history: The images of every task.
        why: What the pieces were made of, as JSON: it names them.
    """
    setting, keys = learner._learned(), {name: digest({name: why}) for name in pieces}
    memory = learner._memory
    state: StateKeys = {**learner._state, **keys}
    for name, tensors in pieces.items():
        memory.save(keys[name], StageResult(prefixed(name, tensors), {}))
    try:
        with reporting(learner._events, learner._verbose) as events:
            known = len(learner._tasks)
            stages, state = plan_grown(learner.method, tasks, setting, state, known)
            if STATISTICS in pieces:
                more, state = plan_again(learner.method, tasks, setting, state, STATISTICS)
                stages += more
            runner = Runner(stages, tasks, setting.device, Layered(memory, memory), events)
            entries = {part: runner.obtain(of) for part, of in state.items()}
        return learner_after(learner, setting, form, tasks, state, entries, held, history)
    finally:
        memory.keep_only(learner._state.values())


def merge_learners(learner: Learner, other: Learner) -> None:
    """See ``Learner.merge``."""
    here, there = _site(learner), _site(other)
    check_mergeable(here, there)
    tasks, numbers = merged_tasks(here, there)
    known = merged_statistics(here, there, tasks, numbers)
    keys = [side._state[STATISTICS] for side in (learner, other)]
    forms = learner._form, other._form
    others = [images and images.renumbered(numbers) for images in other._history]
    form = forms[0] and forms[1] and forms[0].joined(forms[1])
    for one, two in ((learner, other), (other, learner)):
        for images in one._history:
            if images:
                check_not_forgotten(images.rows(), images.ids, two._forgotten)
    history, why = (*learner._history, *others), ["merge", *keys, numbers]
    pieces = {STATISTICS: known.tensors()}
    held = other._held
    if held:
        order = range(len(learner._tasks), len(tasks))
        held = renumbered(held, numbers, order)
    held = held_together(learner._held, held)
    merged = relearn(learner, pieces, tasks, form, held, history, why)
    merged._moves = (*learner._moves, *other._moves)
    merged._forgotten = learner._forgotten.joined(other._forgotten)
    merged._since = (*learner._since, "merge")
    learner._become(merged)


def _site(learner: Learner) -> Site:
    known, setting = statistics_of(learner), learner._learned()
    if not setting.architecture.learns:  # earlier versions counted tasks that moved nothing
        known = replace(known, moves=0)
    recipe, method, entries = learner._recipe, learner.method, learner._entries()
    return Site(recipe, method, setting, learner._tasks, entries, known)
