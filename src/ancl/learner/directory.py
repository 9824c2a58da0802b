"""Learners on disk: open a saved one or a finished run, or teach one and save it.

What is computed while teaching is kept in a store until the learner is saved, so the same call
resumes what was stopped, and a call that was finished before only says so.
"""

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ancl.data import Augment, ImageView, Label, labelled_part
from ancl.errors import ScenarioError, SpecError, StoreError
from ancl.experiments.read_results import read_run
from ancl.experiments.results import Places, RunResult
from ancl.files import STAGES
from ancl.learner.card import Measured
from ancl.learner.inputs import next_task
from ancl.learner.learner import Learner
from ancl.learner.place import check_outside_learners, claimed, is_saved, learner_place, tidy
from ancl.learner.saved import Learned, SuppliedCode, explained
from ancl.memory import Memory, RunMemory
from ancl.methods.method import Method
from ancl.metrics import learned_after
from ancl.recipe.build import affordable, make_setting
from ancl.recipe.recipe import GENERAL, Layer, Recipe, dotted
from ancl.recipe.resolve import resolve_recipe, unused_auxiliary
from ancl.stages.events import Events
from ancl.stages.final_state import FinalState
from ancl.store.entry import StageResult
from ancl.store.places import check_replaceable
from ancl.store.store import Store


def is_run(place: Path) -> bool:
    """Whether a directory is that of a run, finished or not."""
    return (place / STAGES).is_file() and (place / "spec.yaml").is_file()


def open_learner(
    directory: str | Path,
    *,
    method: str | Method | None = None,
    network: str | None = None,
    augment: Augment | None = None,
    accept_changed: bool = False,
    store: str | Path | None = None,
    device: str = GENERAL["device"].default,
    events: Events | None = None,
) -> Learner:
    """Open a saved learner or a finished run: see ``Learner.load`` and ``load_run``.

    Raises:
        StoreError: The directory is neither.
    """
    place = Path(directory)
    if not is_run(place) and not is_saved(place):
        there = (
            "is neither a finished run nor a saved learner" if place.exists() else "does not exist"
        )
        raise StoreError(
            f"{place} {there}. Give the directory of a run (ancl run), or of a learner "
            f"(ancl learn, Learner.save)."
        )
    if not is_run(place):
        tidy(place, (events or Events()).say)
    opened = load_run if is_run(place) else Learner.load
    return opened(
        place,
        method=method,
        network=network,
        augment=augment,
        accept_changed=accept_changed,
        store=store,
        device=device,
        events=events,
    )


def load_run(
    directory: str | Path,
    *,
    store: str | Path | None = None,
    method: str | Method | None = None,
    network: str | None = None,
    augment: Augment | None = None,
    accept_changed: bool = False,
    device: str = GENERAL["device"].default,
    verbose: bool | None = None,
    events: Events | None = None,
) -> Learner:
    """Open a finished run as a learner that predicts, evaluates, saves and learns more.

    Its labels are the names of the classes in the run's data. No data is read.

    Args:
        directory: The directory of the run, as ``run`` and ``ancl run`` write it.
        store: The store that holds its stages, and keeps what is learned later; by default
            ``.store`` beside the run.
        method: The method again, where the run has one from outside the package: a ``Method``,
            or ``path/file.py:NAME``. It is compared with the run's.
        network: The same for the network: ``path/file.py:NAME`` or ``package.module:NAME``.
        augment: The same for the augmentation: a function, or ``path/file.py:NAME``.
        accept_changed: Whether they may differ from those of the run; it is recorded in
            ``accepted_changes`` of the learner, and saved with it.
        device: ``auto``, ``cpu``, ``cuda`` …
        verbose: Whether progress is shown while learning; left out, a bar on a terminal.
        events: Receives every stage and epoch, and all warnings.

    Raises:
        StoreError: The directory is not a finished run, or the store lacks what it left behind.
        SpecError: The network is from outside, and is not given or not the same.
        MethodError: The same for the method.
    """
    place = Path(directory)
    result = read_run(place)
    spec, state = result.spec, result.state
    if state is None:
        raise StoreError(
            f"{place} cannot be opened: its result.json does not say what was learned. Its stages "
            f"were not stored, or an earlier version wrote it. Run it again: {_again(place)}"
        )
    at = Places.of(place.absolute().parent, store).store
    supplied = SuppliedCode(place, "ancl.load_run", method, network, augment, accept_changed)
    remedy = f"Run it again: {_again(place)}"
    with explained(place, remedy):
        recipe, changes = supplied.recipe(spec.shared(), state)
        recipe = _with_memory(recipe, spec.memory, state)
        entries, measured = _stored(state, at, place), _measured(result)
        learned = Learned(recipe, state, entries, measured, changes, remedy=remedy)
    return Learner._of(learned, place, device=device, store=at, verbose=verbose, events=events)


def _with_memory(recipe: Recipe, memory: RunMemory, state: FinalState) -> Recipe:
    """A run's recipe with the memory that it had in the end, where weights took room from it."""
    if not memory.fair:
        return recipe
    device = torch.device("cpu")
    setting = make_setting(recipe, recipe.make_method(), state.input_shape, None, device)
    sizes = [len(task.names) for task in state.tasks]
    # Images are kept as bytes, other inputs as numbers of 4 bytes.
    image_bytes = math.prod(state.input_shape) * (1 if state.pixels else 4)
    left = affordable(memory, setting.architecture, sizes, image_bytes)
    fields = ("per_class", "total", "selection", "batch")
    plain = Memory(*(getattr(left, name) for name in fields)) if left else Memory()
    return recipe.model_copy(update={"memory": plain})


def _measured(result: RunResult) -> tuple[Measured, ...]:
    """The rows of the matrix that counts."""
    rows, begins = result.counted.tolist(), learned_after(result.counted)
    shares = [[None if math.isnan(share) else share for share in row] for row in rows]
    counts = [sum(begin <= number for begin in begins) for number in range(len(rows))]
    return tuple(
        Measured("test images of the run", tuple(row[:count]))
        for row, count in zip(shares, counts, strict=True)
    )


def _stored(state: FinalState, root: Path, place: Path) -> dict[str, StageResult]:
    """The entries of a state.

    Raises:
        StoreError: One of them is missing or damaged.
    """
    store, problems = Store(root, lambda message: None), []
    found: dict[str, StageResult] = {}
    for part, key in state.keys.items():
        entry = store.load(key)
        if entry is None:
            problems.append(f"{part} ({key[:12]}, {'damaged' if store.has(key) else 'missing'})")
        else:
            found[part] = entry
    if problems:
        raise StoreError(
            f"The store {root} does not hold what {place} left behind: {', '.join(problems)}. Give "
            f"another directory with store=, or compute it again: {_again(place)} --store {root}"
        )
    return found


def _again(place: Path) -> str:
    """The command that completes a run's results and its store."""
    return f"ancl run --config {place / 'spec.yaml'} --runs {place.parent}"


# -- teach -----------------------------------------------------------------------------------


class LearnOutcome(NamedTuple):
    """What was learned, and where it was saved.

    Attributes:
        learner: The learner, with the task.
        directory: Where it is.
        found: Whether it had learned these images before, so that nothing was done.
    """

    learner: Learner
    directory: Path
    found: bool


def teach(
    learner: str | Path,
    data: str,
    *,
    output: str | Path | None = None,
    method: str | Method | None = None,
    network: str | None = None,
    augment: str | None = None,
    settings: Mapping[str, Any] | Layer | None = None,
    accept_changed: bool = False,
    overwrite: bool = False,
    store: str | Path | None = None,
    data_root: str | Path | None = None,
    device: str = GENERAL["device"].default,
    wait: float | None = None,
    events: Events | None = None,
) -> LearnOutcome:
    """Learn the images of a source as the next task of a learner, or as the first of a new one.

    Nobody else changes the learner from the moment it is read until it is saved.

    Args:
        learner: The directory of a saved learner, or of a finished run, which is never changed;
            or a new directory, for a new learner.
        data: The images to learn, such as ``folder:photos``: all images of the folder, or those
            below its ``train``. They are resized to the size that the learner began with.
        output: Where the learner is saved; by default where it was.
        method: The method of a new learner; or that of the learner again, if it is from outside.
        network: The same for its network.
        augment: The same for the augmentation of its training images.
        settings: Of a new learner, by dotted key: ``training.epochs``, ``memory.per_class`` … A
            layer says, besides, what messages call them.
        accept_changed: See ``Learner.load``.
        overwrite: Whether another learner, or anything else, is replaced at ``output``.
        store: Where stages are kept; by default beside ``output`` until it is saved.
        data_root: Where data is; see ``ancl.data.data_root``.
        device: ``auto``, ``cpu``, ``cuda`` …
        wait: How many seconds to wait for another process that changes the learner, and whose
            tasks this one then learns on from; without end if left out.
        events: Receives progress; silent by default.

    Raises:
        SpecError: All wrong settings, each on its own line.
        ScenarioError: It cannot learn these images.
        StoreError: A directory cannot be read or written.
    """
    target = learner_place(learner if output is None else output)
    place = target if output is None else Path(learner)
    if output is None and is_run(place):
        raise StoreError(
            f"{place} is a run, which stays as it is. Say where the learner goes: -o DIR "
            f"(output=DIR)."
        )
    elsewhere = os.path.realpath(target) != os.path.realpath(place)
    layer = settings if isinstance(settings, Layer) else Layer("settings", dict(settings or {}))
    asked = _Asked(place, data, method, network, augment, layer, accept_changed, device)
    if is_saved(target) or elsewhere:
        check_replaceable(target, overwrite=overwrite)
    _check_store(store, target)
    say = (events or Events()).say
    with claimed(target, say, wait) as working:
        if is_saved(target) or elsewhere:  # again: it may have changed while this one waited
            check_replaceable(target, overwrite=overwrite)
        before = asked.learned_before(target, data_root, events)
        if before is None:
            if elsewhere and is_saved(target) and not overwrite:
                raise StoreError(
                    f"{target} holds another learner, and it is not replaced. Give a new "
                    f"directory, or allow it: overwrite=True (--overwrite)."
                )
            taught = asked.opened(Path(store) if store else working, events)
            taught.learn(*_images(taught, data, data_root, say))
            taught._save(target, overwrite=overwrite)
        if store is None:
            _clear(working)
    return LearnOutcome(before or taught, target, found=before is not None)


def _images(
    learner: Learner, data: str, data_root: str | Path | None, say: Callable[[str], None]
) -> tuple[ImageView, list[Label]]:
    """The images of a source, as the learner has pictures."""
    spec = learner._recipe.data
    return labelled_part(
        data, "train", data_root, learner.input_shape, say, size=spec.size, rule=spec.pictures
    )


def _check_store(store: str | Path | None, target: Path) -> None:
    """Refuse a store inside the learner's directory, which is replaced as a whole."""
    if store is None:
        return
    place, inside = Path(os.path.realpath(store)), Path(os.path.realpath(target))
    if place == inside or inside in place.parents:
        raise StoreError(
            f"The store {store} is inside {target}, which is replaced as a whole when it learns. "
            f"Give a directory outside it."
        )
    check_outside_learners(Path(store))


class _Asked(NamedTuple):
    """Which learner is asked for, and what it is to learn."""

    place: Path
    data: str
    method: str | Method | None
    network: str | None
    augment: str | None
    settings: Layer
    accept_changed: bool
    device: str

    def learned_before(
        self, target: Path, data_root: str | Path | None, events: Events | None
    ) -> Learner | None:
        """The learner at the target, where it has learned exactly these images."""
        if not is_saved(target):
            return None
        there = self._open(target, None, events)
        say = Events().say  # said once: when the images are learned
        x, labels = _images(there, self.data, data_root, say)
        if not _has_learned(there, x, labels):
            return None
        self._check_settings_of(there)
        return there

    def _check_settings_of(self, there: Learner) -> None:
        """Refuse settings that the learner did not begin with: nothing is done with them.

        Those that it began with may be given, as when the same command is repeated.
        """
        recipe, keys = there._recipe, self.settings.values
        method = self.method or recipe.method
        network = self.network or recipe.network["name"]
        augment = self.augment or recipe.data.augment
        named = isinstance(method, str) and isinstance(network, str)
        if not keys or not named or not isinstance(augment, str):
            return
        asked = self._replace(method=method, network=network, augment=augment)
        given, began = dotted(asked.recipe().values()), dotted(recipe.values())
        if differing := [key for key in keys if given[key] != began[key]]:
            raise SpecError(
                f"{self._named(differing)}: {self.place} keeps the settings that it began with, "
                f"and has learned exactly these images before. Leave these out, or begin a new "
                f"learner in another directory."
            )

    def opened(self, store: Path, events: Events | None) -> Learner:
        """The learner that is there, or a new one."""
        if is_saved(self.place) or is_run(self.place):
            if self.settings.values:
                raise SpecError(
                    f"{self._named(self.settings.values)}: {self.place} keeps the "
                    f"settings that it began with. Leave these out, or begin a new learner in "
                    f"another directory."
                )
            return self._open(self.place, None if is_run(self.place) else store, events)
        if os.path.lexists(self.place):
            raise StoreError(
                f"{self.place} is neither a saved learner nor a finished run. Give the directory "
                f"of one, or a new name to begin one."
            )
        if self.method is None:
            raise StoreError(
                f"There is no learner {self.place}. To begin one, give a method: --method icarl "
                f"(method='icarl'). ancl list methods shows all."
            )
        return Learner(self.recipe(), device=self.device, store=store, events=events)

    def _open(self, place: Path, store: Path | None, events: Events | None) -> Learner:
        return open_learner(
            place,
            method=self.method,
            network=self.network,
            augment=self.augment,
            accept_changed=self.accept_changed,
            store=store,
            device=self.device,
            events=events,
        )

    def recipe(self) -> Recipe:
        """What a new learner is made of."""
        if not isinstance(self.method, str):
            raise SpecError(
                "A new learner on disk is made from the name of a method: give one, such as "
                "'icarl' or 'path/file.py:NAME'. ancl.Learner takes the method itself."
            )
        parts = {"network.name": self.network, "data.augment": self.augment}
        begin = {name: part for name, part in parts.items() if part is not None}
        recipe = resolve_recipe(self.method, (Layer("settings", begin), self.settings))
        if problems := unused_auxiliary([self.settings], recipe):
            raise SpecError("\n".join(problems))
        return recipe

    def _named(self, keys: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(self._shown(key) for key in keys))

    def _shown(self, key: str) -> str:
        label = self.settings.labels.get(key, key)
        return key if label == "--set" else label


def _has_learned(learner: Learner, x: ImageView, labels: Sequence[Label]) -> bool:
    """Whether one of its tasks is of exactly these images and labels.

    Not the last alone: other commands may have come between one that was killed and its repetition.
    """
    tasks = learner._tasks
    for number, task in enumerate(tasks):
        if sum(task.sizes[:2]) != len(labels):
            continue
        with suppress(ScenarioError):  # other classes
            again = next_task(x, labels, tasks[:number], learner._recipe)
            # A key is of images and numbers of classes: their names are compared here.
            if (again.key, again.names) == (task.key, task.names):
                return True
    return False


def _clear(root: Path) -> None:
    """Remove a store of ours whose results were saved elsewhere, and nothing else.

    Nobody else writes to it: its learner is claimed.
    """
    Store(root, lambda message: None).prune((), stale_seconds=0.0)
    for directory, _, _ in os.walk(root, topdown=False):
        with suppress(OSError):  # it holds a file that is not ours
            os.rmdir(directory)
