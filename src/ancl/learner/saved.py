"""What a learner leaves on disk, read back: checked, never trusted, and no code of it executed."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

import torch
from annotated_types import Ge
from torch import Tensor, nn

from ancl.checks import checked
from ancl.data import Augment, Label, find_augmentation
from ancl.errors import AnclError, MethodError, SpecError, StoreError
from ancl.hashing import describe, digest
from ancl.inference import InferenceInputs
from ancl.learner.card import Measured, read_measured
from ancl.learner.held import Scorer, make_scorer
from ancl.learner.images import (
    USES,
    VALIDATED,
    Forgotten,
    History,
    LearnedImages,
    hash_rows,
)
from ancl.learner.inputs import Form
from ancl.learner.measures import Calibration
from ancl.learner.versions import StoredKeys, read_version, read_versions
from ancl.memory import Exemplars
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef
from ancl.networks import Network, network_maker
from ancl.outside import is_outside
from ancl.recipe.recipe import Layer, Recipe, dotted
from ancl.recipe.resolve import resolve_recipe
from ancl.regularizers import WeightRegularizer
from ancl.stages.final_state import FinalState, augment_digest
from ancl.state import STATISTICS, read_importance
from ancl.statistics import Statistics
from ancl.store.entry import StageResult
from ancl.types import Params, strip_prefix

Count = Annotated[int, Ge(0)]
_AGAIN = "Give a directory that Learner.save wrote."


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
    remedy: str = _AGAIN

    @property
    def form(self) -> Form:
        """What its images are."""
        data, shape = self.recipe.data, self.state.input_shape
        size = data.size
        if size is not None and (not self.state.pixels or shape[1:] != (size, size)):
            raise ValueError("the images do not have the size that they are resized to")
        resized = size is not None
        return Form(shape, self.state.pixels, self.values, data.pictures, resized)


def read_learner(supplied: "SuppliedCode", version: int | None = None) -> Learned:
    """A saved learner; code of the user's own is supplied again.

    Args:
        supplied: That code, and where the learner is.
        version: The number of the version; the current one if left out.

    Raises:
        StoreError: The directory is not a saved learner, or is damaged, or has no such version.
    """
    saved, tensors = read_version(supplied.path, version)
    meta, versions = saved.learner, read_versions(supplied.path)
    with explained(supplied.path, _AGAIN):
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
            images=tuple(
                LearnedImages.of(tensors[part], classes) if part in tensors else None
                for part in map(images_part, range(len(state.tasks)))
            ),
            forgotten=versions.forgotten,
            stored=versions.stored,
            marks=saved.marks,
        )
        held = tensors.get("held", {})
        return learned._replace(held=read_held(held, learned.form, classes, len(state.tasks)))


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
    with explained(directory, _AGAIN):
        state = FinalState.read(saved.learner["state"])
        domains = len(state.tasks) > 1 and state.tasks[1].start == 0
        names = [name for task in state.tasks[: 1 if domains else None] for name in task.names]
        parts = map(images_part, range(len(state.tasks)))
        history = [
            LearnedImages.of(tensors[part], len(names)) if part in tensors else None
            for part in parts
        ]
        return listed_images(history, names, tensors)


def listed_images(
    history: History, names: Sequence[Label], tensors: Mapping[str, Params]
) -> list[ListedImage]:
    """Every image that is listed, and then those that are kept of tasks whose images are not.

    Args:
        history: The images of every task.
        names: The labels, by position.
        tensors: What is stored, by part.
    """
    kept, rows, listed = kept_images(tensors), list[ListedImage](), set[bytes]()

    def where(row: bytes) -> tuple[str, ...]:
        return tuple(part for part, images in kept.items() if row in images)

    for task, images in enumerate(history, start=1):
        if images:
            columns = (images.ids, images.y.tolist(), images.use.tolist(), images.rows())
            for name, y, use, row in zip(*columns, strict=True):
                listed.add(row)
                rows.append(ListedImage(task, name, names[y], USES[use], row.hex(), where(row)))
    for part in kept.values():
        for row, (number, y, use) in part.items():
            if row not in listed:
                listed.add(row)
                image = (number + 1, "", names[y], USES[use], row.hex(), where(row))
                rows.append(ListedImage(*image))
    return rows


def kept_images(tensors: Mapping[str, Params]) -> dict[str, dict[bytes, tuple[int, int, int]]]:
    """The images that are kept, by part: task, class and use of each, by its hash."""
    kept = {}
    for part, inside in (("memory", "memory"), ("held", "")):
        if part in tensors:
            images = Exemplars.of(strip_prefix(inside, tensors[part]) if inside else tensors[part])
            hashes = hash_rows(images.samples.x.digests())
            use = (images.held * VALIDATED).tolist()
            columns = (images.task.tolist(), images.samples.y.tolist(), use)
            kept[part] = dict(zip(hashes, zip(*columns, strict=True), strict=True))
    if STATISTICS in tensors:
        ledger = Statistics.read(strip_prefix(STATISTICS, tensors[STATISTICS])).ledger
        use = (ledger.held * VALIDATED).tolist()
        columns = (ledger.tasks.tolist(), ledger.y.tolist(), use)
        hashes = [bytes.fromhex(text) for text in ledger.hex()]
        kept[STATISTICS] = dict(zip(hashes, zip(*columns, strict=True), strict=True))
    return kept


def images_part(task: int) -> str:
    """The part that lists the images of a task."""
    return f"images of task {task + 1}"


# -- code that is given again ----------------------------------------------------------------


@dataclass(frozen=True)
class SuppliedCode:
    """Parts that a caller gives again: what a directory names is never executed.

    Args:
        path: The directory that is read.
        call: The call that they are given to, for messages.
        method: The method, or where its code lies.
        network: The network, or where its code lies.
        augment: The augmentation, or where its code lies.
        accept_changed: Whether they may differ from those that were trained with.
    """

    path: Path
    call: str
    method: str | Method | None = None
    network: str | nn.Module | None = None
    augment: Augment | None = None
    accept_changed: bool = False

    def method_or(self, saved: str | None) -> str | Method:
        """The method given, or one of ours by its saved name.

        Raises:
            MethodError: Both are ours, and not the same.
        """
        if self.method is None:
            return self._ours("method", saved)
        names = [each for each in (self.method, saved) if isinstance(each, str)]
        if len(names) == 2 and not any(map(is_outside, names)) and not self.accept_changed:
            given, own = (MethodRef(name).name for name in names)
            if given != own:
                raise MethodError(
                    f"The method given to {self.call} is not the one that {self.path} was trained "
                    f"with ({own}). Leave it out, or begin a new learner in another directory."
                )
        return self.method

    def network_or(self, saved: str | None) -> str | nn.Module:
        """The network given, or one of ours by its saved name."""
        return self.network if self.network is not None else self._ours("network", saved)

    def augment_or(self, saved: str | None) -> Augment:
        """The augmentation given, or one of ours by its saved name."""
        return self.augment if self.augment is not None else self._ours("augment", saved)

    def _ours(self, part: str, saved: str | None) -> str:
        if saved is not None and not is_outside(saved):
            return saved
        noun = {"augment": "augmentation"}.get(part, part)
        own = f"the {noun} {saved}" if saved else f"{noun} code of your own"
        example = f"{saved!r}" if saved else "…"
        raise SpecError(
            f"{self.path} was trained with {own}. Code from outside is executed only where you "
            f"name it yourself. Give it again: {self.call}(path, {part}={example})."
        )

    def recipe(self, saved: Any, state: FinalState) -> tuple[Recipe, tuple[str, ...]]:
        """What was learned with, from JSON values, and what differs from it, as is accepted.

        Once there is a state, a file of weights is known by its hash: what was learned is stored,
        and no file that a directory names is read.

        Args:
            saved: The recipe that the state was learned with.
            state: What was learned.

        Raises:
            SpecError: A part is not given again, or not the same, or has no such setting or not
                of this value.
            MethodError: The method is not the same.
        """
        values = dotted(saved)
        method = self.method_or(saved["method"])
        network = self.network_or(values["network.name"])
        augment = self.augment_or(values["data.augment"])
        changes = self._changed_augment(augment, state, values["data.augment"])
        changes += self._changed_network(network, state, values["network.name"])
        if isinstance(method, Method):
            values = {key: value for key, value in values.items() if key not in saved["options"]}
        library = network_maker(network).library if isinstance(network, str) else None
        if library and not library.starts_random(values.get("network.weights")):
            if state.pretrained is None:
                raise ValueError("the network has weights whose hash is not there")
            values["network.weights"] = f"sha256:{state.pretrained}"
        values |= {"network.name": network, "data.augment": augment}
        recipe = resolve_recipe(method, [Layer(str(self.path), values)])
        return recipe, (*self._changed_method(recipe.make_method(), state), *changes)

    def _changed_method(self, method: Method, state: FinalState) -> list[str]:
        """Refuse a method that is another one; where that is accepted, name it."""
        if self.method is None or digest(describe(method, complete=False)) == state.method:
            return []
        if not self.accept_changed:
            raise MethodError(
                f"The method given to {self.call} is not the one that {self.path} was trained "
                f"with. Give the same parts and values, from the same code, or accept_changed=True."
            )
        return [f"method, trained as {state.method[:12]}"]

    def _changed_network(
        self, network: str | nn.Module, state: FinalState, named: str | None
    ) -> list[str]:
        """The same of a network, which was learned by this name."""
        if self.network is None:
            return []
        source, same = None, named is None
        if isinstance(network, str):
            code = network_maker(network).code
            source = code.sources.digest if code else None
            same = network == named or (
                code is not None and code.attribute == (named or "").rpartition(":")[2]
            )
        if source == state.network and same:
            return []
        shown = named or "a module of your own"
        if not self.accept_changed:
            raise SpecError(
                f"The network given to {self.call} is not the one that {self.path} was "
                f"trained with ({shown}): its name or its code differs. Give the same network, "
                f"from the same code, or accept_changed=True."
            )
        return [f"network {shown}, trained as {(state.network or 'a module')[:12]}"]

    def _changed_augment(self, augment: Augment, state: FinalState, named: str | None) -> list[str]:
        """The same of an augmentation."""
        if self.augment is None:
            return []
        ours = any(isinstance(each, str) and not is_outside(each) for each in (augment, named))
        same = augment_digest(find_augmentation(augment)) == state.augment
        if augment == named if ours else same:
            return []
        shown = named or "code of your own"
        if not self.accept_changed:
            raise SpecError(
                f"The augmentation given to {self.call} is not the one that {self.path} was "
                f"trained with ({shown}): its name or its code differs. Give the same one, leave "
                f"it out if it is not code of your own, or accept_changed=True (--accept-changed)."
            )
        return [f"augmentation, trained as {(state.augment or shown)[:12]}"]


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
        known = Statistics.read(strip_prefix(piece, entries[piece].tensors))
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
    found: Calibration = checked(Calibration, values)
    errors = [found.error or 0.0, found.error_before or 0.0]
    if not 0 < found.temperature < math.inf or not all(0 <= error <= 1 for error in errors):
        raise ValueError("the temperature that was fitted is none")
    return found


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
