"""Incremental classifier: learn tasks, predict, save and load."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ancl.data import (
    Augment,
    ImageView,
    Normalization,
    Task,
    channel_statistics,
    chosen_normalization,
    raw_floats,
)
from ancl.errors import ScenarioError, SpecError, StoreError, counted
from ancl.inference import InferenceInputs
from ancl.learner.answers import (
    Answers,
    Scorer,
    built,
    hold_out_images,
    make_scorer,
    measured,
    numbers,
)
from ancl.learner.card import CARD, Measured, model_card, network_title
from ancl.learner.export import Exported, ImageClassifier, export_learner
from ancl.learner.inputs import Data, Form, check_learnable, next_task, read_labelled
from ancl.learner.measures import Size, sizes
from ancl.learner.notices import Warner, announce, reporting
from ancl.learner.place import check_descent, claimed, learner_place
from ancl.learner.saved import (
    KIND,
    Learned,
    SuppliedCode,
    checked_scorer,
    explained,
    read_learner,
)
from ancl.memory import Exemplars, Memory
from ancl.methods.method import Method
from ancl.methods.variants import drop_zero_terms
from ancl.networks import Network
from ancl.picture import PictureRule
from ancl.recipe.build import make_setting
from ancl.recipe.recipe import GENERAL, Layer, Recipe, RunSpec
from ancl.recipe.request import dotted_settings
from ancl.recipe.resolve import CALL, resolve_recipe
from ancl.runtime import resolve_device
from ancl.stages.events import Events
from ancl.stages.final_state import FinalState, TaskState
from ancl.stages.plan import Setting, plan_task
from ancl.stages.runner import Layered, MemoryStore, Runner, Storage
from ancl.state import StateKeys
from ancl.store.entry import StageResult, write_entry
from ancl.store.store import Store
from ancl.training.config import Training
from ancl.types import prefixed, strip_prefix
from ancl.wording import byte_size

HELD = 20
"""How many validation images of each class a learner keeps, at most."""


class Learner(Answers):
    """Learns tasks one after another, with any method, and answers with the user's own labels.

    Args:
        method: A name such as ``a-lwf``, a ``Method``, or a ``Recipe``, which says all settings.
        network: A name such as ``resnet32``, which it is if left out, ``timm:NAME`` or
            ``torchvision:NAME``; ``path/file.py:NAME`` or ``package.module:NAME``, see
            ``ancl.networks.architecture``; or a module that yields features (B, D).
        scenario: ``cil``, which it is if left out, answers among all classes; with ``til`` the
            task is known; with ``dil`` every task has the first one's classes, in another domain.
        seed: Where all randomness comes from; 0 if left out.
        training: How networks are trained: a ``Training``, or its settings, ``dict(epochs=3)``.
        auxiliary: How the auxiliary network is trained; if left out as ``training``, but with
            what the method decides, which is a weight decay of 5e-4 for ``a-NAME``.
        network_options: Options of a named network, such as ``width``.
        memory: What is kept of earlier tasks' images: a ``Memory``, its settings, or a number of
            images per class; as the method says if left out, and ``Memory()`` keeps nothing.
        val_fraction: Share of each class's images kept for validation; a tenth if left out.
        augment: Augmentation of training images, none if left out: a name, or your own function of
            a batch of uint8 images (N, H, W, C), or of a batch and a ``torch.Generator``.
        normalization: ``moments`` (each channel's own in the first task), ``none``, or numbers:
            (mean, std), or every channel's mean, then every std. Left out, bytes have moments, or
            what pretrained weights expect, and floats are read as they are.
        size: Height and width that pictures (files, their contents, Pillow images) are resized
            to; left out, those of the first task have one size, which all later ones come to.
        resize: How: ``stretch``, which it is if left out; ``crop`` and ``fit`` keep proportions,
            and cut off what is too long or fill up with the background.
        background: The colour that transparent pixels are laid on; white if left out.
        device: ``auto``, ``cpu``, ``cuda`` …
        store: A directory in which finished and interrupted training is kept.
        held: How many validation images of each class are kept beside what is learned, at most.
            Nothing is trained on them: probabilities and reports are measured on them. 0 keeps
            none, and where ``val_fraction`` is 0 there are none.
        verbose: Whether progress is shown while learning; left out, a bar on a terminal.
        events: Receives every stage and epoch, and all warnings. Without one, warnings are
            Python's.
        settings: The method's own settings, such as ``lamb``.
    """

    def __init__(
        self,
        method: str | Method | Recipe,
        network: str | nn.Module | None = None,
        *,
        scenario: Literal["til", "cil", "dil"] | None = None,
        seed: int | None = None,
        training: Training | Mapping[str, Any] | None = None,
        auxiliary: Training | Mapping[str, Any] | None = None,
        network_options: Mapping[str, Any] | None = None,
        memory: Memory | Mapping[str, Any] | int | None = None,
        val_fraction: float | None = None,
        augment: Augment | None = None,
        normalization: str | tuple[float, ...] | None = None,
        size: int | None = None,
        resize: Literal["stretch", "crop", "fit"] | None = None,
        background: str | None = None,
        device: str = GENERAL["device"].default,
        store: str | Path | None = None,
        held: int = HELD,
        verbose: bool | None = None,
        events: Events | None = None,
        **settings: Any,
    ) -> None:
        given = {
            "seed": seed,
            "network": network_options,
            "memory": memory,
            "training": training,
            "auxiliary": auxiliary,
            "network.name": network,
            "data.scenario": scenario,
            "data.val_fraction": val_fraction,
            "data.augment": augment,
            "data.normalization": normalization,
            "data.size": size,
            "data.resize": resize,
            "data.background": background,
        }
        given = {name: value for name, value in given.items() if value is not None} | settings
        if isinstance(method, RunSpec):
            raise SpecError(
                "A learner is given its images when it learns, and a run's spec names them. Give "
                "the method and settings; ancl.load_run opens a finished run as a learner."
            )
        if isinstance(method, Recipe):
            if given:
                raise SpecError(f"{', '.join(given)}: a recipe has its settings already.")
            recipe = method
        else:
            recipe = resolve_recipe(method, [Layer(CALL, dotted_settings(given))])
        if held < 0:
            raise SpecError(f"held is {held}; it must be 0 or more.")
        self._recipe, self._most_held, self._device = recipe, held, device
        self._events, self._verbose = events, verbose
        self._say, self._said = (events or Warner()).say, set[str]()
        self.method = recipe.make_method()
        self.scenario, self.seed = recipe.data.scenario, recipe.seed
        self._memory = MemoryStore()
        self._store: Storage = Store(Path(store), self._say) if store else self._memory
        self._setting: Setting | None = None
        self._state: StateKeys = {}
        self._opened = 0  # the number of tasks that were learned elsewhere
        self._scorer: Scorer | None = None
        self._measured: tuple[Measured | None, ...] = ()
        self._fitted = {}
        self._descent = set[str]()  # the digests of all that it was read from or saved as
        self.accepted_changes: tuple[str, ...] = ()
        """Parts whose code differs from what was trained with, as the caller accepted."""

    def __repr__(self) -> str:
        """What it is, what it knows and how large it is."""
        network = network_title(self._recipe)
        start = f"<Learner {self.method.name} on {network}, {self.scenario}: "
        if self._setting is None:
            return f"{start}nothing learned>"
        memory = self._exemplars()
        parts = [
            f"{len(self.classes)} classes in {counted(len(self._tasks), 'task')}",
            f"images {'x'.join(map(str, self._setting.architecture.input_shape))}",
            *([f"{len(memory.samples)} in memory"] if memory else []),
            *([f"{len(self._held.samples)} held"] if self._held else []),
            byte_size(self.size().disk),
        ]
        return f"{start}{', '.join(parts)}>"

    def size(self) -> Size:
        """The bytes of what is saved and of what is kept in memory, in all and by part."""
        pixels = math.prod(self._learned().architecture.input_shape)
        each = pixels * (1 if self._form and self._form.pixels else 4)
        kept = self._tasks[self._opened :] if self.method.data == "all" else ()
        images = each * sum(sum(task.sizes) for task in kept)
        return sizes(self._entries(), self._held, images, self._scorer is not None)

    @property
    def input_shape(self) -> tuple[int, ...] | None:
        """The shape of a sample, channels first; none before the first task."""
        return self._setting.architecture.input_shape if self._setting else None

    @property
    def picture_rule(self) -> PictureRule:
        """How pictures become images of its form."""
        return self._recipe.data.pictures

    def learn(self, data: Data, labels: Any = None) -> dict[str, Any]:
        """Learn a task: images of new classes, of known ones that come again, or of both.

        In ``dil`` every task has images of all classes. The first task decides the size of images
        and whether they are bytes or floats. Later ones, and images to predict, are converted to
        it where that is certain; files and Pillow images are resized, too.

        Args:
            data: Images and ``labels``: an array, a tensor, or a list of arrays, of Pillow images,
                of files or of their contents. Or both in one: a ``Dataset`` or ``DataLoader``.
            labels: The label of each image: whole numbers or texts.

        Returns:
            Its number, new classes, known ones that came again, and the main network's epochs.
        """
        spec = self._recipe.data
        x, given = read_labelled(data, labels, self._form, self._say, spec)
        task = next_task(x, given, self._tasks, self._recipe)
        form = self._form.widened(x) if self._form else Form.of(x, spec.pictures)
        setting = self._setting
        if setting is None:
            asked = spec.normalization
            for note in raw_floats(x, asked):
                self._say_once("floats", note)
            moments = chosen_normalization(asked, x, channel_statistics(x))
            setting = self._setting_for(form.shape, moments)
        with reporting(self._events, self._verbose) as events:
            return self._learn_task(task, setting, form, events)

    @property
    def module(self) -> ImageClassifier:
        """A plain module on the CPU, from images to scores: see ``ImageClassifier``."""
        network, looked = self._built()
        infer = self.method.infer
        fixed = infer.fixed(looked)
        return ImageClassifier(network, infer, fixed, self._learned().normalization)

    def export(
        self, path: str | Path, *, format: str | None = None, overwrite: bool = False
    ) -> Exported:
        """Write one file that answers as the learner does, and a model card beside it.

        The file is compared with the learner on 100 images, half of them from the memory where
        there is one, before it is put in its place. An earlier export is replaced.

        Args:
            path: The file.
            format: ``onnx``, which any ONNX runtime answers with, or ``pt2`` (``torch.export``);
                by default as the path ends.
            overwrite: Whether any other file that is there is replaced, too.

        Raises:
            SpecError: There is no such format, or its packages are not installed.
            ExportError: The network cannot be exported, or the file answers otherwise.
            StoreError: The file cannot be written, or another is there.
        """
        return export_learner(self, Path(path), format, overwrite)

    def card(self, file: str = "") -> str:
        """The model card, as Markdown; ``file`` are lines on an exported file."""
        network, _ = self._built()
        kept = self._exemplars()
        return model_card(
            self._recipe,
            self._final_state(),
            self._measured,
            parameters=sum(each.numel() for each in network.parameters()),
            kept=len(kept.samples) if kept else 0,
            accepted=self.accepted_changes,
            file=file,
        )

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything needed to answer and to learn more, elsewhere, into one directory.

        Its ``README.md`` is a model card, for readers. The learner that this one was loaded from,
        or saved as, is replaced; anything else is left alone, also what another process made of
        it meanwhile. Another process that changes the directory now is waited for.

        Args:
            path: The directory.
            overwrite: Whether anything else that is there is replaced, too.

        Raises:
            StoreError: The directory cannot be written, or holds something else.
        """
        place = learner_place(path)
        self._learned()
        check_descent(place, self._descent, overwrite=overwrite)
        with claimed(place, self._say):
            self._save(place, overwrite=overwrite)

    def _save(self, place: Path, *, overwrite: bool) -> None:
        """Write it; the caller has claimed the place."""
        check_descent(place, self._descent, overwrite=overwrite)
        tensors: dict[str, Tensor] = {}
        for part, entry in self._entries().items():
            tensors |= prefixed(part, entry.tensors)
        if self._held:
            tensors |= prefixed("held", self._held.tensors())
        meta = {
            "kind": KIND,
            "accepted_changes": list(self.accepted_changes),
            "recipe": self._recipe.values(),
            "held": self._most_held,
            "calibration": asdict(self.calibration()) if self._held else None,
            "state": self._final_state().model_dump(mode="json"),
            "measured": [None if row is None else row._asdict() for row in self._measured],
            "values": self._form.values if self._form else None,
            "metas": {part: entry.meta for part, entry in self._entries().items()},
        }
        try:
            digest = write_entry(
                place, StageResult(tensors, meta), overwrite=overwrite, beside={CARD: self.card()}
            )
        except OSError as error:
            raise StoreError(
                f"The learner cannot be written to {place} ({error.strerror}). Give a directory "
                f"that can be written; nothing was changed."
            ) from error
        self._descent.add(digest)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        network: str | nn.Module | None = None,
        method: str | Method | None = None,
        augment: Augment | None = None,
        accept_changed: bool = False,
        device: str = GENERAL["device"].default,
        store: str | Path | None = None,
        verbose: bool | None = None,
        events: Events | None = None,
    ) -> Self:
        """Read a saved learner; a network, method or augmentation of your own is given again.

        What is given is compared with what the learner was trained with, and refused where it
        differs. ``accept_changed`` accepts it; ``accepted_changes`` then says so, for good.

        Raises:
            StoreError: The directory is not a saved learner, or is damaged.
        """
        supplied = SuppliedCode(
            Path(path), "Learner.load", method, network, augment, accept_changed
        )
        opened = {"device": device, "store": store, "verbose": verbose, "events": events}
        return cls._of(read_learner(supplied), supplied.path, **opened)

    @classmethod
    def _of(cls, learned: Learned, path: Path, **opened: Any) -> Self:
        """The door: a learner of what another one, or a run, left behind at a path.

        Args:
            learned: What it left behind.
            path: Where that is, for messages.
            opened: ``device``, ``store``, ``verbose`` and ``events``.

        Raises:
            StoreError: Its parts do not fit together.
        """
        held = HELD if learned.most_held is None else learned.most_held
        learner = cls(learned.recipe, held=held, **opened)
        for change in learned.changes:
            learner._say(f"Accepted, although its code has changed: {change}.")
        learner.accepted_changes = tuple(dict.fromkeys([*learned.accepted, *learned.changes]))
        with explained(path, learned.remedy):
            learner._continue_from(learned)
        learner._descent |= {learned.digest} if learned.digest else set()
        return learner

    # -- inside ------------------------------------------------------------------------------

    def _say_once(self, subject: str, message: str) -> None:
        if subject not in self._said:
            self._said.add(subject)
            self._say(message)

    def _setting_for(self, shape: Sequence[int], moments: Normalization | None) -> Setting:
        device = resolve_device(self._device)
        return make_setting(self._recipe, self.method, shape, moments, device)

    def _learn_task(
        self, task: Task, setting: Setting, form: Form, events: Events
    ) -> dict[str, Any]:
        tasks = (*self._tasks, task)
        check_learnable(self._recipe, self.method, tasks, setting.memory)
        stages, state = plan_task(self.method, tasks, setting, self._state)
        unstored = next((stage.unstored for stage in stages if stage.unstored), "")
        if unstored and self._store is not self._memory:
            events.say(f"What is learned is not stored: {unstored}")
        announce(self.method, self.scenario, tasks, setting, stages, events)
        layered = Layered(self._memory, self._memory if unstored else self._store)
        runner = Runner(stages, tasks, setting.device, layered, events)
        entries = {part: runner.obtain(key) for part, key in state.items()}
        # A method without a main training has the auxiliary network's before it, or none at all.
        log: list[dict[str, Any]] = []
        for stage in [stage for stage in stages if stage.name in ("auxiliary", "main")][-1:]:
            epochs = runner.obtain(stage.key).meta["log"]
            log = [epoch for epoch in epochs if epoch["role"] == stage.name]
        scorer = make_scorer(self.method, *built(self.method, setting, tasks, entries))
        held = hold_out_images(tasks, self._most_held, self._held)
        if self.method.data == "current":  # else its images are read again with every task
            tasks = (*self._tasks, TaskState.of(task).task(task.index))
        with torch.no_grad():
            answers = scorer(held.samples.x) if held else torch.empty(0)
        row = measured(held, answers, tasks, task_known=self.scenario == "til")
        # Only now: a task that fails or is interrupted leaves the learner as it was.
        for part, key in state.items():
            self._memory.save(key, entries[part])
        self._memory.keep_only(state.values())
        self._setting, self._form, self._tasks, self._state = setting, form, tasks, state
        self._scorer, self._held, self._fitted = scorer, held, {}
        self._held_answers = (held, numbers(answers)) if held else None
        self._measured = (*self._measured, Measured("held images", row) if held else None)
        found = {"classes": list(task.names), "returning": self.returning[-1], "epochs": log}
        return {"task": task.index, **found}

    def _learned(self) -> Setting:
        if self._setting is None:
            raise ScenarioError("This learner has not learned anything yet. Call learn() first.")
        return self._setting

    def _score(self, x: Tensor | ImageView) -> Tensor:
        if self._scorer is None:
            self._scorer = make_scorer(self.method, *self._built())
        return numbers(self._scorer(x))

    def _built(self) -> tuple[Network, InferenceInputs]:
        """The network as it was learned, and what inference may look at."""
        return built(self.method, self._learned(), self._tasks, self._entries())

    def _entries(self) -> dict[str, StageResult]:
        """What was learned, by part."""
        return {part: self._obtain(key) for part, key in self._state.items()}

    def _exemplars(self) -> Exemplars | None:
        if "memory" not in self._state:
            return None
        return Exemplars.of(strip_prefix("memory", self._obtain(self._state["memory"]).tensors))

    def _final_state(self) -> FinalState:
        return FinalState.of(self.method, self._tasks, self._learned(), self._state)

    def _obtain(self, key: str) -> StageResult:
        entry = self._memory.load(key)
        assert entry is not None
        return entry

    def _continue_from(self, learned: Learned) -> None:
        """Take over what was learned.

        Raises:
            ValueError: Its parts do not belong together.
        """
        state, entries = learned.state, learned.entries
        tasks = state.learned(self.scenario)
        setting = self._setting_for(state.input_shape, state.moments)
        wanted = {
            "importance": drop_zero_terms(self.method).needs_importance,
            "memory": setting.memory is not None and self.method.data == "current",
            "first rate": setting.training.lr_search,
        }
        absent = [part for part, read in wanted.items() if read and part not in state.keys]
        if absent:
            raise ValueError(f"the state of {self.method.name} lacks: {', '.join(absent)}")
        for part, key in state.keys.items():
            self._memory.save(key, entries[part])
        self._setting, self._tasks, self._state = setting, tasks, dict(state.keys)
        self._form, self._held = learned.form, learned.held
        self._measured, self._opened = learned.measured, len(tasks)
        fitted = learned.calibration
        if (
            fitted
            and self._held
            and (fitted.images, fitted.basis)
            == (
                len(self._held.samples),
                self._basis,
            )
        ):
            self._fitted[self.scenario == "til"] = fitted
        parts = (entries, *self._built(), self._form, len(tasks))
        self._scorer = checked_scorer(self.method, *parts)  # what does not fit is refused now
