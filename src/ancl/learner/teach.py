"""Teach a learner on disk, and save what it learned as its next version.

What is computed while teaching is kept in a store until the learner is saved, so the same call
resumes what was stopped, and a call that was finished before only says so.
"""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ancl.data import ImageView, Label, Samples
from ancl.data.registry import named_size
from ancl.errors import ScenarioError, SpecError, StoreError
from ancl.learner.gate import GateConditions, GateResult, compare_on_test
from ancl.learner.images import check_never_learned, image_ids, pixel_hashes
from ancl.learner.inputs import source_images
from ancl.learner.learner import Learner
from ancl.learner.lock import check_outside_learners, claimed, is_saved, learner_place
from ancl.learner.next_task import next_task
from ancl.learner.opening import is_run, open_learner
from ancl.learner.saving import save_version
from ancl.learner.version_writing import Note, judge_again
from ancl.learner.versions import Version, read_versions
from ancl.methods.method import Method
from ancl.recipe.recipe import DEFAULT_METHOD, GENERAL, Layer, Recipe, dotted
from ancl.recipe.resolve import resolve_recipe, unused_auxiliary
from ancl.stages.events import Events
from ancl.store.places import check_replaceable
from ancl.store.store import Store


class LearnOutcome(NamedTuple):
    """What was learned, and where it was saved.

    Attributes:
        learner: The learner, with the task; where it was refused, the candidate.
        directory: Where it is.
        found: Whether it had learned these images before, so that nothing was done.
        version: The version that it is.
        test: What was measured on test images, before and after, where some were given.
    """

    learner: Learner
    directory: Path
    found: bool
    version: Version
    test: GateResult | None = None

    @property
    def refused(self) -> tuple[str, ...]:
        """The conditions that it did not meet; the directory then answers as it did before."""
        return () if self.found else self.version.refused


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
    test: str | None = None,
    min_accuracy: float | None = None,
    max_drop: float | None = None,
    min_recall: Mapping[Label, float] | None = None,
    keep_versions: int | None = None,
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
        test: Test images, such as ``folder:test-photos``, which are measured on before and after.
        min_accuracy: The new version is taken only if this share of them gets the right label.
        max_drop: And only if, on classes known before, this share falls by no more than that.
        min_recall: And only if this share of a class's images gets its label, by class.
        keep_versions: How many versions are kept from now on; all if it was never said.
        store: Where stages are kept; by default beside ``output`` until it is saved.
        data_root: Where data is; see ``ancl.data.data_root``.
        device: ``auto``, ``cpu``, ``cuda`` …
        wait: How many seconds to wait for another process that changes the learner, and whose
            tasks this one then learns on from; without end if left out.
        events: Receives progress; silent by default.

    Raises:
        SpecError: All wrong settings, each on its own line.
        ScenarioError: It cannot learn these images, or a test image is one that it learns from.
        StoreError: A directory cannot be read or written.
    """
    target = learner_place(learner if output is None else output)
    origin = target if output is None else Path(learner)
    if output is None and is_run(origin):
        raise StoreError(
            f"{origin} is a run, which stays as it is. Say where the learner goes: -o DIR "
            f"(output=DIR)."
        )
    elsewhere = os.path.realpath(target) != os.path.realpath(origin)
    layer = settings if isinstance(settings, Layer) else Layer("settings", dict(settings or {}))
    conditions = GateConditions(min_accuracy, max_drop, min_recall or {})
    _check_conditions(conditions, test, keep_versions)
    request = _Request(
        origin, data, method, network, augment, layer, accept_changed, device, data_root
    )
    if is_saved(target) or elsewhere:
        check_replaceable(target, overwrite=overwrite)
    _check_store(store, target)
    say = (events or Events()).say
    with claimed(target, say, wait) as working:
        if is_saved(target) or elsewhere:  # again: it may have changed while this one waited
            check_replaceable(target, overwrite=overwrite)
        outcome = request.learned_before(target, events)
        if outcome is None:
            if elsewhere and is_saved(target) and not overwrite:
                raise StoreError(
                    f"{target} holds another learner, and it is not replaced. Give a new "
                    f"directory, or allow it: overwrite=True (--overwrite)."
                )
            saving = _Saving(target, overwrite, keep_versions, in_place=not elsewhere)
            opened = request.opened(Path(store) if store else working, events)
            outcome = request.teach(opened, saving, test, conditions, events)
        if store is None:
            Store(working).clear()
    return outcome


def _check_conditions(conditions: GateConditions, test: str | None, keep: int | None) -> None:
    if conditions and test is None:
        raise SpecError(
            "A condition is measured on test images, and none are given. Give them: --test "
            "folder:PATH (test=)."
        )
    if keep is not None and (not isinstance(keep, int) or keep < 1):
        raise SpecError(f"keep_versions is {keep!r}; it is a whole number, 1 or more.")


def _check_store(store: str | Path | None, target: Path) -> None:
    """Refuse a store inside the learner's directory, which is replaced as a whole."""
    if store is None:
        return
    root, inside = Path(os.path.realpath(store)), Path(os.path.realpath(target))
    if root == inside or inside in root.parents:
        raise StoreError(
            f"The store {store} is inside {target}, which is replaced as a whole when it learns. "
            f"Give a directory outside it."
        )
    check_outside_learners(Path(store))


class _Saving(NamedTuple):
    """Where what is learned is saved, and whether that is where the learner was."""

    target: Path
    overwrite: bool
    keep: int | None
    in_place: bool


class _Gate:
    """Measures a learner before and after on test images, and decides.

    Args:
        before: The learner before.
        x: Test images.
        labels: Their labels.
        conditions: What must hold.
    """

    def __init__(
        self, before: Learner, x: ImageView, labels: Sequence[Label], conditions: GateConditions
    ) -> None:
        self._before = before if before.classes else None
        self._x, self._labels, self._conditions = x, labels, conditions
        self.measured: GateResult | None = None
        self.refused: tuple[str, ...] = ()

    def __call__(self, candidate: Learner) -> bool:
        """Whether all conditions hold of a candidate."""
        self.measured = compare_on_test(self._before, candidate, self._x, self._labels)
        self.refused = self._conditions.unmet(self.measured)
        return not self.refused


class _Request(NamedTuple):
    """Which learner is to learn, and what."""

    place: Path
    data: str
    method: str | Method | None
    network: str | None
    augment: str | None
    settings: Layer
    accept_changed: bool
    device: str
    data_root: str | Path | None

    def teach(
        self,
        learner: Learner,
        saving: _Saving,
        test: str | None,
        conditions: GateConditions,
        events: Events | None,
    ) -> LearnOutcome:
        """Learn, measure and save; a refused version is saved too, and is not the current one."""
        say = (events or Events()).say
        x, labels = source_images(learner, self.data, "train", self.data_root, say)
        gate = self._gate(learner, test, conditions, x, labels, say)
        if gate and saving.in_place:
            judged = self._judged_again(saving.target, learner, gate, x, labels, events)
            if judged:
                return judged
        outcome = learner.learn(x, labels, accept=gate)
        taught = learner if outcome["accepted"] else outcome["candidate"]
        note = _noted(self.data, gate)
        version = save_version(
            taught, saving.target, overwrite=saving.overwrite, note=note, keep=saving.keep
        )
        return LearnOutcome(taught, saving.target, False, version, gate.measured if gate else None)

    def _gate(
        self,
        learner: Learner,
        test: str | None,
        conditions: GateConditions,
        x: ImageView,
        labels: Sequence[Label],
        say: Any,
    ) -> _Gate | None:
        """What decides on the new version, once test images are known to be some.

        Raises:
            ScenarioError: One of them is learned from, or has a label that is never learned.
        """
        if test is None:
            return None
        shape = Samples(x, _no_labels(x)).input_shape
        images, test_labels = source_images(learner, test, "test", self.data_root, say, shape)
        given, _ = learner._read(x, labels)
        tested, test_labels = learner._read(images, test_labels)
        ids = image_ids(images, None, len(images))
        now = dict(zip(pixel_hashes(given), image_ids(x, None, len(x)), strict=True))
        check_never_learned(pixel_hashes(tested), ids, learner._history, now)
        unknown = sorted({*test_labels} - {*learner.classes, *labels}, key=str)
        if unknown:
            raise ScenarioError(
                f"The test images have labels that are never learned: "
                f"{', '.join(map(repr, unknown[:5]))}. Remove them, or learn these classes."
            )
        conditions.check_classes(test_labels)
        if (
            conditions.max_drop is not None
            and learner.classes
            and not {*test_labels} & {*learner.classes}
        ):
            raise ScenarioError(
                "max_drop: there are no test images of classes known before. Add some."
            )
        return _Gate(learner, tested, test_labels, conditions)

    def _judged_again(
        self,
        target: Path,
        learner: Learner,
        gate: _Gate,
        x: ImageView,
        labels: Sequence[Label],
        events: Events | None,
    ) -> LearnOutcome | None:
        """What was learned from these images in the same way and refused, measured again."""
        if not is_saved(target):
            return None
        versions = read_versions(target)
        for number, version in reversed(versions.kept.items()):
            if not version.refused or version.parent != versions.current:
                continue
            candidate = self._open(target, None, events, number)
            alike = candidate._recipe.values() == learner._recipe.values()
            if alike and _has_learned(candidate, x, labels, last=True):
                gate(candidate)
                judged = judge_again(target, number, _noted(self.data, gate))
                return LearnOutcome(candidate, target, False, judged, gate.measured)
        return None

    def learned_before(self, target: Path, events: Events | None) -> LearnOutcome | None:
        """The learner at the target, where it has learned exactly these images."""
        if not is_saved(target) or (now := read_versions(target).now) is None:
            return None
        there = self._open(target, None, events)
        say = Events().say  # said once: when the images are learned
        x, labels = source_images(there, self.data, "train", self.data_root, say)
        if not _has_learned(there, x, labels):
            return None
        self._check_settings_of(there)
        return LearnOutcome(there, target, True, now)

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
        request = self._replace(method=method, network=network, augment=augment)
        given, began = dotted(request.recipe().values()), dotted(recipe.values())
        if differing := [key for key in keys if given[key] != began[key]]:
            raise SpecError(
                f"{self._named(differing)}: {self.place} keeps the settings that it began with, "
                f"and has learned exactly these images before. Leave these out, or begin a new "
                f"learner in another directory."
            )

    def opened(self, store: Path, events: Events | None) -> Learner:
        """The learner that is there, or a new one."""
        begun = is_saved(self.place) and read_versions(self.place).now is not None
        if begun or is_run(self.place):
            if self.settings.values:
                raise SpecError(
                    f"{self._named(self.settings.values)}: {self.place} keeps the "
                    f"settings that it began with. Leave these out, or begin a new learner in "
                    f"another directory."
                )
            return self._open(self.place, None if is_run(self.place) else store, events)
        if os.path.lexists(self.place) and not is_saved(self.place):
            raise StoreError(
                f"{self.place} is neither a saved learner nor a finished run. Give the directory "
                f"of one, or a new name to begin one."
            )
        recipe = self.recipe()
        (events or Events()).say(
            f"{self.place} is new, and begins with {recipe.method} on {recipe.network['name']}."
        )
        return Learner(recipe, device=self.device, store=store, events=events)

    def _open(
        self, directory: Path, store: Path | None, events: Events | None, version: int | None = None
    ) -> Learner:
        return open_learner(
            directory,
            method=self.method,
            network=self.network,
            augment=self.augment,
            accept_changed=self.accept_changed,
            store=store,
            device=self.device,
            events=events,
            version=version,
        )

    def recipe(self) -> Recipe:
        """What a new learner is made of."""
        method = DEFAULT_METHOD if self.method is None else self.method
        if not isinstance(method, str):
            raise SpecError(
                "A new learner on disk is made from the name of a method: give one, such as "
                "'icarl' or 'path/file.py:NAME'. ancl.Learner takes the method itself."
            )
        parts = {"network.name": self.network, "data.augment": self.augment}
        begin: dict[str, Any] = {name: part for name, part in parts.items() if part is not None}
        if named_size(self.data) is not None:  # the name of the folder decides it
            begin["data.size"] = None
        recipe = resolve_recipe(method, (Layer("settings", begin), self.settings))
        if problems := unused_auxiliary([self.settings], recipe):
            raise SpecError("\n".join(problems))
        return recipe

    def _named(self, keys: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(self._shown(key) for key in keys))

    def _shown(self, key: str) -> str:
        label = self.settings.labels.get(key, key)
        return key if label == "--set" else label


def _noted(data: str, gate: _Gate | None) -> Note:
    measured = gate.measured.json() if gate and gate.measured else None
    return Note(data, gate.refused if gate else (), test=measured)


def _no_labels(x: ImageView) -> Any:
    return x.index.new_zeros(len(x))


def _has_learned(
    learner: Learner, x: ImageView, labels: Sequence[Label], *, last: bool = False
) -> bool:
    """Whether one of its tasks is of exactly these images and labels, or the last one is.

    Not the last alone: other commands may have come between one that was killed and its repetition.
    """
    try:
        images, given = learner._read(x, labels)
    except ScenarioError:  # of another form
        return False
    wanted, names = Counter(zip(pixel_hashes(images), given, strict=True)), learner.classes
    numbers = range(len(learner._tasks))
    for number in numbers[-1:] if last else numbers:
        listed = learner._history[number]
        if listed is None:
            if _is_task_of_run(learner, number, images, given):
                return True
        elif wanted == Counter(zip(listed.rows(), (names[y] for y in listed.y), strict=True)):
            return True
    return False


def _is_task_of_run(learner: Learner, number: int, x: ImageView, labels: Sequence[Label]) -> bool:
    """Whether a task whose images are not listed is of these: its key tells."""
    task, before = learner._tasks[number], learner._tasks[:number]
    if sum(task.sizes[:2]) != len(labels):
        return False
    with suppress(ScenarioError):  # other classes
        again = next_task(x, labels, before, learner._recipe)
        # A key is of images and numbers of classes: their names are compared here.
        return (again.key, again.names) == (task.key, task.names)
    return False
