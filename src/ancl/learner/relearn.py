"""A learner whose statistics change without learning a task: its classifier is computed anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ancl.data import Task
from ancl.errors import ScenarioError
from ancl.hashing import digest
from ancl.learner.images import LearnedImages
from ancl.learner.inputs import Form
from ancl.learner.learning import learner_after
from ancl.learner.ledger import (
    Site,
    check_mergeable,
    merged_statistics,
    merged_tasks,
)
from ancl.learner.notices import reporting
from ancl.stages.plan import plan_again
from ancl.stages.runner import Layered, Runner
from ancl.state import STATISTICS
from ancl.statistics import Statistics
from ancl.store.entry import StageResult
from ancl.types import prefixed, strip_prefix

if TYPE_CHECKING:
    from ancl.learner.learner import Learner


def statistics_of(learner: Learner) -> Statistics:
    """The statistics of all images that a learner has learned or holds.

    Raises:
        ScenarioError: Its method keeps none.
    """
    learner._learned()
    piece = learner.method.infer.holds
    if piece is None:
        raise ScenarioError(
            f"{learner.method.name} trains a network, which does not know what it has of which "
            f"image. Methods that compute their classifier do: auto, ncm, slda, ridge, knn …"
        )
    entry = learner._obtain(learner._state[piece])
    return Statistics.read(strip_prefix(piece, entry.tensors))


def relearn(
    learner: Learner,
    known: Statistics,
    tasks: tuple[Task, ...],
    form: Form | None,
    history: tuple[LearnedImages | None, ...],
    why: Any,
) -> None:
    """Let a learner know these statistics, those of these tasks, and compute what follows.

    What fails on the way leaves it as it was.

    Args:
        learner: The learner.
        known: The statistics.
        tasks: The tasks; no image of them is read.
        form: What its images are.
        history: The images of every task.
        why: What the statistics were made of, as JSON: it names them.
    """
    setting, key = learner._learned(), digest({STATISTICS: why})
    memory = learner._memory
    memory.save(key, StageResult(prefixed(STATISTICS, known.tensors()), {}))
    try:
        with reporting(learner._events, learner._verbose) as events:
            changed = {**learner._state, STATISTICS: key}
            stages, state = plan_again(learner.method, tasks, setting, changed, STATISTICS)
            runner = Runner(stages, tasks, setting.device, Layered(memory, memory), events)
            entries = {part: runner.obtain(of) for part, of in state.items()}
        held = learner._held
        learner._become(learner_after(learner, setting, form, tasks, state, entries, held, history))
    finally:
        memory.keep_only(learner._state.values())


def merge_learners(learner: Learner, other: Learner) -> None:
    """See ``Learner.merge``."""
    here, there = _site(learner), _site(other)
    check_mergeable(here, there)
    tasks, numbers = merged_tasks(here, there)
    known = merged_statistics(here, there, tasks, numbers)
    keys = [each._state[STATISTICS] for each in (learner, other)]
    forms = learner._form, other._form
    others = [images and images.renumbered(numbers) for images in other._history]
    form = forms[0] and forms[1] and forms[0].joined(forms[1])
    history = (*learner._history, *others)
    relearn(learner, known, tasks, form, history, ["merge", *keys, numbers])


def _site(learner: Learner) -> Site:
    known, setting = statistics_of(learner), learner._learned()
    recipe, method, entries = learner._recipe, learner.method, learner._entries()
    return Site(recipe, method, setting, learner._tasks, entries, known)
