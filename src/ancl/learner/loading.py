"""What a learner left on disk, read back: checked, never trusted, and no code of it executed."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import torch
from annotated_types import Ge
from torch import Tensor

from ancl.checks import checked
from ancl.errors import AnclError, StoreError
from ancl.inference import InferenceInputs
from ancl.learner.beginning import HELD, setting_for
from ancl.learner.card import Measured, read_measured
from ancl.learner.form import Form
from ancl.learner.images import Forgotten, LearnedImages, learned_history
from ancl.learner.ledger import read_statistics
from ancl.learner.measures import Calibration
from ancl.learner.moves import TaskMove, read_moves
from ancl.learner.scorer import Scorer, make_scorer
from ancl.learner.supplied_code import SuppliedCode
from ancl.learner.versions import StoredKeys, read_version, read_versions
from ancl.memory import Exemplars
from ancl.methods.method import Method
from ancl.methods.variants import drop_zero_terms
from ancl.networks import Network
from ancl.recipe.recipe import Recipe
from ancl.regularizers import WeightRegularizer
from ancl.stages.final_state import FinalState
from ancl.stages.setting import Setting
from ancl.state import read_importance
from ancl.store.entry import StageResult
from ancl.types import Params, strip_prefix

if TYPE_CHECKING:
    from ancl.learner.learner import Learner

_L = TypeVar("_L", bound="Learner")
Count = Annotated[int, Ge(0)]
AGAIN = "Give a directory that Learner.save wrote."
"""What to do where a directory is not what a learner was saved to."""


class Learned(NamedTuple):
    """What a learner or a run left behind: all that a learner is made of again.

    Args:
        recipe: What decides its learning.
        state: What is known of what was learned.
        entries: The results that the state's keys name.
        measured: What was measured after each task.
        changes: Parts that differ from those it was trained with, as the caller accepts.
        accepted: Those that were accepted before.
        held: Its held images.
        most_held: How many images of each class it holds, at most; nothing where that is open.
        values: The smallest and the largest value learned from, where that is known.
        calibration: What was fitted on its held images, where that is known.
        digest: That of the version, where it is a learner's.
        images: The images of every task, where they are listed.
        forgotten: Which images must not come again.
        stored: What was computed for it: keys, by the directory of a store.
        marks: What is to be known of the version.
        moves: What was saved of the network's moves, task by task, if anything.
        remedy: What to do where its parts do not fit together.
    """

    recipe: Recipe
    state: FinalState
    entries: Mapping[str, StageResult]
    measured: tuple[Measured | None, ...]
    changes: Sequence[str] = ()
    accepted: Sequence[str] = ()
    held: Exemplars | None = None
    most_held: int | None = None
    values: tuple[float, float] | None = None
    calibration: Calibration | None = None
    digest: str | None = None
    images: tuple[LearnedImages | None, ...] | None = None
    forgotten: Forgotten = Forgotten()
    stored: StoredKeys = MappingProxyType({})
    marks: tuple[str, ...] = ()
    moves: Sequence[TaskMove | Mapping[str, Any]] = ()
    remedy: str = AGAIN

    @property
    def form(self) -> Form:
        """What its images are."""
        data, shape = self.recipe.data, self.state.input_shape
        size = data.size
        if size is not None and (not self.state.pixels or shape[1:] != (size, size)):
            raise ValueError("the images do not have the size that they are resized to")
        resized = size is not None
        return Form(shape, self.state.pixels, self.values, data.pictures, resized)


def read_learner(supplied: SuppliedCode, version: int | None = None) -> Learned:
    """A saved learner; code of the user's own is supplied again.

    Args:
        supplied: That code, and where the learner is.
        version: The number of the version; the current one if left out.

    Raises:
        StoreError: The directory is not a saved learner, or is damaged, or has no such version.
    """
    saved, tensors = read_version(supplied.path, version)
    meta, versions = saved.learner, read_versions(supplied.path)
    with explained(supplied.path, AGAIN):
        state = FinalState.read(meta["state"])
        recipe, changes = supplied.recipe(meta["recipe"], state)
        parts = {part: StageResult(tensors[part], meta["metas"][part]) for part in state.keys}
        classes = len({name for task in state.tasks for name in task.names})
        learned = Learned(
            recipe,
            state,
            parts,
            read_measured(meta["measured"], state.columns),
            changes,
            checked(list[str], meta["accepted_changes"]),
            most_held=checked(Count, meta["held"]),
            values=read_values(meta["values"]),
            calibration=read_calibration(meta.get("calibration")),
            digest=saved.digest,
            images=learned_history(tensors, len(state.tasks), classes),
            forgotten=versions.forgotten,
            stored=versions.stored,
            marks=saved.marks,
            moves=meta.get("moves", ()),  # earlier versions did not save them
        )
        held = tensors.get("held", {})
        return learned._replace(held=read_held(held, learned.form, classes, len(state.tasks)))


def restored(kind: type[_L], learned: Learned, path: Path, **opened: Any) -> _L:
    """The door: a learner of what another one, or a run, left behind at a path.

    Args:
        kind: The class of learners.
        learned: What it left behind.
        path: Where that is, for messages.
        opened: ``device``, ``store``, ``verbose`` and ``events``.

    Raises:
        StoreError: Its parts do not fit together.
    """
    held = HELD if learned.most_held is None else learned.most_held
    learner = kind(learned.recipe, held=held, **opened)
    for change in learned.changes:
        learner._say(f"Accepted, although its code has changed: {change}.")
    learner.accepted_changes = tuple(dict.fromkeys([*learned.accepted, *learned.changes]))
    with explained(path, learned.remedy):
        _continue_from(learner, learned)
    learner._descent |= {learned.digest} if learned.digest else set()
    return learner


def _continue_from(learner: Learner, learned: Learned) -> None:
    """Let a new learner take over what was learned.

    Raises:
        ValueError: Its parts do not belong together.
    """
    state, entries, method = learned.state, learned.entries, learner.method
    tasks = state.learned(learner.scenario)
    setting = setting_for(learner, state.input_shape, state.moments, state.pixels)
    if method.all_classes:
        setting = replace(setting, rows=tasks[-1].classes.stop)
    _check_complete(method, setting, state)
    for part, key in state.keys.items():
        learner._memory.save(key, entries[part])
    learner._setting, learner._tasks, learner._state = setting, tasks, dict(state.keys)
    learner._form, learner._held = learned.form, learned.held
    learner._measured, learner._opened = learned.measured, len(tasks)
    learner._history = learned.images or (None,) * len(tasks)
    learner._forgotten, learner._marks = learned.forgotten, learned.marks
    learner._stored = learned.stored
    learner._moves = read_moves(learned.moves, method, len(tasks))
    fitted, held = learned.calibration, learner._held
    if fitted and held and (fitted.images, fitted.basis) == (len(held.samples), learner._basis):
        learner._fitted[learner.scenario == "til"] = fitted
    parts = (entries, *learner._built(), learner._form, len(tasks))
    learner._scorer = checked_scorer(method, *parts)  # what does not fit is refused now


def _check_complete(method: Method, setting: Setting, state: FinalState) -> None:
    """Refuse a state without a part that the next task reads."""
    wanted = {
        "importance": drop_zero_terms(method).needs_importance,
        "memory": setting.memory is not None and method.data == "current",
        "first rate": setting.training.lr_search,
    }
    absent = [part for part, read in wanted.items() if read and part not in state.keys]
    if absent:
        raise ValueError(f"the state of {method.name} lacks: {', '.join(absent)}")


# -- what was read, checked ------------------------------------------------------------------


def read_held(tensors: Params, form: Form, classes: int, tasks: int) -> Exemplars | None:
    """Held images as they were saved, if there are any.

    Raises:
        ValueError: They are not images of this learner.
    """
    if not tensors:
        return None
    _check_numbers(tensors)
    held = Exemplars.of(tensors)
    _check_images(held, "held images", form, classes, tasks)
    if not bool(held.held.all()):
        raise ValueError("the held images are not all marked as held")
    return held


def checked_scorer(
    method: Method,
    entries: Mapping[str, StageResult],
    network: Network,
    looked: InferenceInputs,
    form: Form,
    tasks: int,
) -> Scorer:
    """The scorer of a learner that was read, whose parts belong together.

    Raises:
        ValueError: One of them does not belong to this network, these classes and these tasks.
    """
    _check_parts(method, entries, network, form, looked.classes, tasks)
    scorer = make_scorer(method, looked)
    shape = (1, *form.shape[1:], form.shape[0]) if form.pixels else (1, *form.shape)
    black = torch.zeros(shape, dtype=torch.uint8 if form.pixels else torch.float32)
    with torch.no_grad():
        if scorer(black).shape != (1, looked.classes):
            raise ValueError("the network does not answer with one score for each class")
    return scorer


def _check_parts(
    method: Method,
    entries: Mapping[str, StageResult],
    network: Network,
    form: Form,
    classes: int,
    tasks: int,
) -> None:
    for entry in entries.values():
        _check_numbers(entry.tensors)
    if "memory" in entries:
        memory = Exemplars.of(strip_prefix("memory", entries["memory"].tensors))
        _check_images(memory, "images of the memory", form, classes, tasks)
        if set(memory.extra) != {record.name for record in method.records}:
            raise ValueError("the memory does not hold what the method records of its images")
        features = memory.samples.features
        wanted = (len(memory.samples), network.head.feature_size)
        if features is not None and (features.shape != wanted or not features.is_floating_point()):
            raise ValueError("the features of the memory are not those of its images")
    if piece := method.infer.holds:
        known = read_statistics(entries[piece].tensors, piece)
        size = (known.sums.classes, known.ledger.rows.shape[1])
        if size != (classes, network.head.feature_size):
            raise ValueError("the statistics are not of the learner's classes and features")
        if not _inside(known.ledger.tasks, tasks):
            raise ValueError("the ledger has tasks that were not learned")
    if "importance" in entries:
        importance, weights = read_importance(entries["importance"].tensors), network.weights()
        omega = method.old and method.old.regularizer
        assert isinstance(omega, WeightRegularizer)
        for name, values in omega.curvature(importance).items():
            fits = name in weights and values.shape == weights[name].shape
            if not fits or not values.is_floating_point():
                raise ValueError(f"the importance of {name} is not that of a weight")


def _check_numbers(tensors: Params) -> None:
    for name, tensor in tensors.items():
        # What was recorded of exemplars is NaN where an earlier task had fewer columns.
        if not name.startswith("memory/extra/") and bool(tensor.isnan().any()):
            raise ValueError(f"{name} holds values that are not numbers")


def _check_images(images: Exemplars, what: str, form: Form, classes: int, tasks: int) -> None:
    x, n = images.samples.x, len(images.samples.x)
    kind = torch.uint8 if form.pixels else torch.float32
    if n == 0 or x.dtype != kind or images.samples.input_shape != form.shape:
        raise ValueError(f"the {what} are not of the learner's form")
    for values, most in ((images.samples.y, classes), (images.task, tasks)):
        if values.dtype != torch.long or values.shape != (n,) or not _inside(values, most):
            raise ValueError(f"the {what} have labels or tasks that were not learned")
    if images.held.dtype != torch.bool or images.held.shape != (n,):
        raise ValueError(f"the {what} are not all marked as held or as learned from")
    if any(len(rows) != n or not rows.is_floating_point() for rows in images.extra.values()):
        raise ValueError(f"what was recorded of the {what} is not a row of floats for each")


def _inside(values: Tensor, most: int) -> bool:
    return bool((values >= 0).all()) and bool((values < most).all())


def read_values(values: Any) -> tuple[float, float] | None:
    """The smallest and the largest value learned from, as they were saved.

    Raises:
        ValueError: They are not a range.
    """
    if values is None:
        return None
    low, high = checked(tuple[float, float], values)
    if not low <= high:
        raise ValueError("the values learned from are not a range")
    return low, high


def read_calibration(values: Any) -> Calibration | None:
    """What was fitted on held images, as it was saved; earlier versions did not save it.

    Raises:
        ValueError: It is not what was fitted.
    """
    if values is None:
        return None
    calibration: Calibration = checked(Calibration, values)
    errors = [calibration.error or 0.0, calibration.error_before or 0.0]
    if not 0 < calibration.temperature < math.inf or not all(0 <= error <= 1 for error in errors):
        raise ValueError("the temperature that was fitted is none")
    return calibration


_UNFIT = (
    *(ValueError, TypeError, LookupError, AttributeError, RuntimeError),
    *(ArithmeticError, AssertionError),
)
"""What is raised where values that were read do not fit together."""


@contextmanager
def explained(path: Path, remedy: str) -> Iterator[None]:
    """Refuse what does not fit together, as an error a user understands."""
    try:
        yield
    except AnclError:
        raise
    except _UNFIT as error:
        raise StoreError(
            f"{path} cannot be opened ({type(error).__name__}: {error}). {remedy}"
        ) from error
