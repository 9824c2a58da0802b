"""Teach a learner on disk: start or open it, learn the images of a source, save it.

What is computed is kept in a store until the learner is saved, so the same call resumes what was
stopped, and a call that was finished before only says so.
"""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ancl.data import Label, labelled_part
from ancl.errors import ScenarioError, SpecError, StoreError
from ancl.learner.learner import Learner
from ancl.learner.new_task import next_task
from ancl.learner.opening import is_run, learner_of, open_learner
from ancl.learner.place import check_outside_learners, claimed, is_saved, learner_place
from ancl.methods.method import Method
from ancl.recipe.recipe import GENERAL, Layer, RunSpec
from ancl.recipe.request import Request
from ancl.stages.events import Events
from ancl.store.places import check_replaceable
from ancl.store.store import Store

_OF_STREAMS = (
    *("data.source", "data.tasks", "data.classes", "data.first", "data.order", "data.domains"),
    *("data.per_class", "data.test_per_class"),
)
"""Settings that cut a stream of tasks from a source."""


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
            taught.learn(*labelled_part(data, "train", data_root, taught.input_shape, say))
            taught._save(target, overwrite=overwrite)
        if store is None:
            _clear(working)
    return LearnOutcome(before or taught, target, found=before is not None)


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
        x, labels = labelled_part(self.data, "train", data_root, there.input_shape, say)
        if not _has_learned(there, x, labels):
            return None
        self._check_settings_of(there)
        return there

    def _check_settings_of(self, there: Learner) -> None:
        """Refuse settings that the learner did not begin with: nothing is done with them.

        Those that it began with may be given, as when the same command is repeated.
        """
        saved, keys = there._config.meta(), self.settings.values
        method, network = self.method or saved["method"], self.network or saved["network"]
        if not keys or not isinstance(method, str) or network is None:
            return
        asked = self._replace(method=method, network=network)
        given = _dotted(learner_of(asked._spec())._config.meta())
        began = _dotted(saved)
        if differing := [key for key in keys if given.get(key) != began.get(key)]:
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
        return learner_of(self._spec(), device=self.device, store=store, events=events)

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

    def _spec(self) -> RunSpec:
        """What a new learner is made of, checked as a run is."""
        wrong = [key for key in self.settings.values if key in _OF_STREAMS]
        if wrong:
            raise SpecError(
                f"{self._named(wrong)}: a learner learns all images that it is given as one task. "
                f"Leave these out."
            )
        begin = {"data.source": self.data, "data.tasks": 1, "data.scenario": "cil"}
        if self.network is not None:
            begin["network.name"] = self.network
        if self.augment is not None:
            begin["data.augment"] = self.augment
        if self.settings.values.get("data.scenario") == "dil":
            # A run makes domains of one source; a learner is given images of each.
            begin["data.domains"] = "rotation"
        if not isinstance(self.method, str):
            raise SpecError(
                "A new learner on disk is made from the name of a method: give one, such as "
                "'icarl' or 'path/file.py:NAME'. ancl.Learner takes the method itself."
            )
        layers = (Layer("settings", begin), self.settings)
        return Request(self.method, None, layers).resolve()[0].spec

    def _named(self, keys: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(self._shown(key) for key in keys))

    def _shown(self, key: str) -> str:
        label = self.settings.labels.get(key, key)
        return key if label == "--set" else label


def _dotted(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What a learner was made of, by the key of each setting."""
    sections = {name: saved[name] for name in ("memory", "training", "auxiliary")}
    sections["network"] = saved["network_options"]
    values = {f"{name}.{key}": v for name, part in sections.items() for key, v in part.items()}
    data = {f"data.{name}": saved[name] for name in ("scenario", "val_fraction", "normalization")}
    dotted: dict[str, Any] = {"seed": saved["seed"], **data, **values, **saved["settings"]}
    # As JSON: what was read back has lists where tuples were given.
    return {key: json.dumps(value) for key, value in dotted.items()}


def _has_learned(learner: Learner, x: Tensor, labels: Sequence[Label]) -> bool:
    """Whether one of its tasks is of exactly these images and labels.

    Not the last alone: other commands may have come between one that was killed and its repetition.
    """
    config, tasks = learner._config, learner._tasks
    for number, task in enumerate(tasks):
        if sum(task.sizes[:2]) != len(labels):
            continue
        with suppress(ScenarioError):  # other classes
            again = next_task(
                x,
                labels,
                tasks[:number],
                scenario=config.scenario,
                seed=config.seed,
                val_fraction=config.val_fraction,
            )
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
