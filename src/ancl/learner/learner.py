"""Incremental classifier: learn tasks, predict, save and load."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ancl.checks import checked
from ancl.data import (
    Augment,
    ImageView,
    Label,
    Normalization,
    channel_statistics,
    chosen_normalization,
    raw_floats,
)
from ancl.errors import ScenarioError, SpecError, counted
from ancl.inference import InferenceInputs
from ancl.learner.answers import Answers
from ancl.learner.card import Measured, model_card, network_title
from ancl.learner.edit import Edit
from ancl.learner.edit_requests import (
    EditReport,
    Selection,
    forget_images,
    merge_into,
    rename_classes,
)
from ancl.learner.export import Exported, ImageClassifier, export_learner
from ancl.learner.form import Form
from ancl.learner.held import HeldChanges, HeldOut, held_by
from ancl.learner.image_list import ListedImage, listed_images
from ancl.learner.images import (
    Forgotten,
    LearnedImages,
    arrival,
    check_not_forgotten,
    hash_rows,
    ids_of,
    image_ids,
)
from ancl.learner.inputs import Data, read_labelled
from ancl.learner.learning import learn_task
from ancl.learner.ledger import LedgerEntry, ledger_entries
from ancl.learner.loading import Learned, checked_scorer, explained, read_learner
from ancl.learner.lock import claimed, learner_place
from ancl.learner.measures import Size, sizes
from ancl.learner.next_task import next_task
from ancl.learner.notices import Warner, class_notes, recall_notes, reporting
from ancl.learner.relearn import merge_learners, statistics_of
from ancl.learner.saving import save_version
from ancl.learner.scorer import Scorer, built, make_scorer, numbers
from ancl.learner.supplied_code import SuppliedCode
from ancl.learner.versions import StoredKeys, descends
from ancl.memory import Exemplars, Memory
from ancl.methods.method import Method
from ancl.methods.variants import drop_zero_terms
from ancl.networks import Network, network_maker
from ancl.picture import PictureRule
from ancl.recipe.build import make_setting
from ancl.recipe.recipe import DEFAULT_METHOD, GENERAL, Layer, Recipe, RunSpec
from ancl.recipe.request import dotted_settings
from ancl.recipe.resolve import CALL, resolve_recipe
from ancl.runtime import resolve_device
from ancl.stages.events import Events
from ancl.stages.final_state import FinalState
from ancl.stages.runner import MemoryStore, StageStorage
from ancl.stages.setting import Setting
from ancl.state import CHOICE, CLASSIFIER, StateKeys
from ancl.statistics import Choice
from ancl.store.entry import StageResult
from ancl.store.store import Store
from ancl.training.config import Training
from ancl.types import strip_prefix
from ancl.wording import byte_size

HELD = 20
"""How many validation images of each class a learner keeps, at most."""


class Learner(Answers):
    """Learns tasks one after another, with any method, and answers with the user's own labels.

    Args:
        method: A name such as ``a-lwf``, a ``Method``, or a ``Recipe``, which says all settings.
            Left out it is ``auto``: a classifier computed on a network that never learns.
        network: A name such as ``resnet32``, ``timm:NAME`` or ``torchvision:NAME``; left out, the
            installed pretrained ``efficientnet_lite0`` for methods that compute their classifier,
            and ``resnet32`` for those that train; ``path/file.py:NAME`` or
            ``package.module:NAME``, see ``ancl.networks.architecture``; or a module that
            yields features (B, D).
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
        size: Height and width that all images are resized to, arrays too, as bytes. Left out, it
            is that of pretrained weights for methods that compute their classifier, and else the
            first task's images decide it.
        resize: How: ``stretch``, which it is if left out; ``crop`` and ``fit`` keep proportions,
            and cut off what is too long or fill up with the background.
        background: The colour that transparent pixels are laid on; white if left out.
        device: ``auto``, ``cpu``, ``cuda`` …
        store: A directory in which finished and interrupted training is kept.
        held: How many validation images of each class are kept beside what is learned, at most.
            Nothing is trained on them: probabilities and reports are measured on them. 0 keeps
            none, and where ``val_fraction`` is 0 there are none. Methods that compute their
            classifier hold all of them, as features.
        verbose: Whether progress is shown while learning; left out, a bar on a terminal.
        events: Receives every stage and epoch, and all warnings. Without one, warnings are
            Python's.
        settings: The method's own settings, such as ``lamb``.
    """

    def __init__(
        self,
        method: str | Method | Recipe = DEFAULT_METHOD,
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
        if held != HELD and recipe.make_method().infer.holds is not None:
            raise SpecError(
                f"held is {held}, but this method holds a share of all images, as features: "
                f"val_fraction. Leave held out, or give val_fraction=0 to hold none."
            )
        self._recipe, self._most_held, self._device = recipe, held, device
        self._events, self._verbose = events, verbose
        self._say, self._said = (events or Warner()).say, set[str]()
        self.method = recipe.make_method()
        self.scenario, self.seed = recipe.data.scenario, recipe.seed
        self._memory = MemoryStore()
        self._store: StageStorage = Store(Path(store), self._say) if store else self._memory
        self._setting: Setting | None = None
        self._state: StateKeys = {}
        self._opened = 0  # the number of tasks that were learned elsewhere
        self._scorer: Scorer | None = None
        self._held: Exemplars | None = None
        self._history: tuple[LearnedImages | None, ...] = ()
        self._changes = HeldChanges()
        self._measured: tuple[Measured | None, ...] = ()
        self._fitted = {}
        self._descent = set[str]()  # the digests of all that it was read from or saved as
        self._forgotten, self._marks = Forgotten(), tuple[str, ...]()
        self._stored: StoredKeys = {}
        self._since: tuple[str, ...] = ()  # what was done since it was read or saved, by kind
        self._removals: tuple[Edit, ...] = ()  # what earlier versions do not know yet
        self.accepted_changes: tuple[str, ...] = ()
        """Parts whose code differs from what was trained with, as the caller accepted."""

    def __repr__(self) -> str:
        """What it is, what it knows and how large it is."""
        network = network_title(self._recipe)
        start = f"<Learner {self.method.name} on {network}, {self.scenario}: "
        if self._setting is None:
            return f"{start}nothing learned>"
        memory, held = self._exemplars(), self._held_out()
        parts = [
            f"{len(self.classes)} classes in {counted(len(self._tasks), 'task')}",
            f"images {'x'.join(map(str, self._setting.architecture.input_shape))}",
            *([f"{len(memory.samples)} in memory"] if memory else []),
            *([f"{len(held.y)} held"] if held else []),
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
    def resizes_to(self) -> int | None:
        """Height and width that all images are resized to; none where they must be of one size."""
        return self._recipe.data.size

    @property
    def picture_rule(self) -> PictureRule:
        """How images of any form become those of its form: what another program must do, too."""
        return self._recipe.data.pictures

    def learn(
        self,
        data: Data,
        labels: Any = None,
        *,
        ids: Iterable[str] | None = None,
        accept: "Callable[[Learner], bool] | None" = None,
    ) -> dict[str, Any]:
        """Learn a task: images of new classes, of known ones that come again, or of both.

        In ``dil`` every task has images of all classes. The first task decides the size of images
        and whether they are bytes or floats. Later ones, and images to predict, are converted to
        it where that is certain; files and Pillow images are resized, too, and with ``size`` all
        images are.

        Args:
            data: Images and ``labels``: an array, a tensor, or a list of arrays, of Pillow images,
                of files or of their contents. Or both in one: a ``Dataset`` or ``DataLoader``.
            labels: The label of each image: whole numbers or texts.
            ids: What each image is called; its file, or its position, if left out.
            accept: Decides on the learner as it would be, which it is given. If it returns
                something false, this one stays as it was, and ``candidate`` is the other.

        Returns:
            Its number (``task``), new ``classes``, known ones that came again (``returning``), the
            main network's ``epochs``, ``held``: what changed on held images, and ``accepted``.
        """
        spec = self._recipe.data
        x, given = self._read(data, labels)
        names = image_ids(data, ids, len(x))
        if self._forgotten:
            check_not_forgotten(hash_rows(x.digests()), names, self._forgotten)
        arrived = arrival(x, given, names, self._history, self.classes, self._held)
        task = next_task(*arrived.part(), self._tasks, self._recipe)
        sized = spec.size is not None
        form = self._form.widened(x) if self._form else Form.of(x, spec.pictures, resized=sized)
        setting = self._setting or self._first_setting(x, form)
        with reporting(self._events, self._verbose) as events:
            for note in class_notes(given, self.classes):
                events.say(note)
            log, candidate = learn_task(self, task, setting, form, arrived, events)
            candidate._since = (*self._since, "learn")
            for note in recall_notes(candidate._changes.recalls, candidate.classes):
                events.say(note)
        accepted = accept is None or bool(accept(candidate))
        if accepted:
            self._become(candidate)
        else:
            self._memory.keep_only(self._state.values())
        return {
            "task": task.index,
            "classes": list(task.names),
            "returning": candidate.returning[-1],
            "epochs": log,
            "held": list(candidate._changes.groups),
            "accepted": accepted,
            **({} if accepted else {"candidate": candidate}),
        }

    def _read(self, data: Data, labels: Any) -> tuple[ImageView, list[Label]]:
        """Images and labels, in the learner's form or in that which its first task will have."""
        form = (self._form, self._say, self._recipe.data, self._in_colour)
        return read_labelled(data, labels, *form)

    @property
    def ledger(self) -> tuple[LedgerEntry, ...]:
        """Every image that was learned or held, of methods that train nothing; no pixel is kept.

        With ``keep=sums`` these are the held images alone.

        Raises:
            ScenarioError: The method keeps no such list.
        """
        return ledger_entries(statistics_of(self), self.classes, ids_of(self._history))

    @property
    def choice(self) -> Choice | None:
        """What held images have chosen of the classifier, if there was something to choose."""
        piece = self._state.get(CLASSIFIER)
        found = self._obtain(piece).meta.get(CHOICE) if piece else None
        return None if found is None else checked(Choice, found)

    def merge(self, other: "Learner") -> None:
        """Take over all that another learner has learned: to the bit as one that saw all images.

        Its tasks follow the own ones. A class that both know is one class, and an image that both
        saw is one image. The other learner stays as it is.

        Args:
            other: A learner with the same method, network, weights, seed and grid.

        Raises:
            SpecError: They differ in one of these, or train a network.
            ScenarioError: Their tasks cannot follow each other.
        """
        merge_learners(self, other)

    @property
    def images(self) -> tuple[ListedImage, ...]:
        """Every image that it learned, where that is known, and every one that it keeps.

        Each has what it is called, its hash, its month (task), its label, and where it is kept.
        """
        parts = {part: entry.tensors for part, entry in self._entries().items()}
        parts |= {"held": self._held.tensors()} if self._held else {}
        return tuple(listed_images(self._history, self.classes, parts))

    def forget(
        self,
        images: Data | None = None,
        *,
        classes: Iterable[Label] | None = None,
        ids: Iterable[str] | None = None,
        retrain: bool = False,
        keep_networks: bool = False,
        allow_again: bool = False,
    ) -> EditReport:
        """Forget images: those given, all of some classes, or those called so.

        Methods that compute their classifier are then, to the bit, as if they had never seen them.
        Of a trained network the images are no longer stored, but it has learned from them. They
        are refused if they come again. Earlier versions lose them when it is saved where it was.

        Args:
            images: The images themselves, see ``learn``; they are known by their pixels.
            classes: Labels; with all of its images a class is gone.
            ids: What images are called, or the beginnings of their hashes: see ``images``.
            retrain: Whether a network that was trained begins anew, with what is kept.
            keep_networks: Whether earlier versions stay whose network learned from them; these
                are marked, and no longer hold them.
            allow_again: Whether they may be learned again later, also where they were forgotten.

        Raises:
            ScenarioError: None of them is known, too little would be left, or what it needs is
                not kept.
        """
        wanted = Selection(images, classes, ids)
        return forget_images(
            self, wanted, retrain=retrain, keep_networks=keep_networks, allow_again=allow_again
        )

    def rename(self, names: Mapping[Label, Label]) -> EditReport:
        """Give classes other names, the new ones by the old ones; all answers stay.

        Raises:
            ScenarioError: A class is not known, or two would have one name.
        """
        return rename_classes(self, names)

    def merge_classes(
        self, classes: Iterable[Label], *, into: Label | None = None, retrain: bool = False
    ) -> EditReport:
        """Let several classes be one: as if its images had come with one label from the start.

        Args:
            classes: The labels.
            into: What the class is called; as the first of them if left out.
            retrain: Whether a network that was trained begins anew, with what is kept: else two
                outputs of it cannot become one.

        Raises:
            ScenarioError: A class is not known, or the method cannot merge them.
        """
        return merge_into(self, classes, into, retrain=retrain)

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
            features=len(statistics_of(self).ledger) if self.method.infer.holds else 0,
            choice=str(self.choice or ""),
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
        descends(place, self._descent, overwrite=overwrite)
        with claimed(place, self._say):
            save_version(self, place, overwrite=overwrite)

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
        version: int | None = None,
    ) -> Self:
        """Read a saved learner; a network, method or augmentation of your own is given again.

        What is given is compared with what the learner was trained with, and refused where it
        differs. ``accept_changed`` accepts it; ``accepted_changes`` then says so, for good.
        ``version`` is the number of an earlier version, see ``ancl.versions``.

        Raises:
            StoreError: The directory is not a saved learner, or is damaged, or has no such version.
        """
        supplied = SuppliedCode(
            Path(path), "Learner.load", method, network, augment, accept_changed
        )
        opened = {"device": device, "store": store, "verbose": verbose, "events": events}
        return cls._of(read_learner(supplied, version), supplied.path, **opened)

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

    def _setting_for(
        self, shape: Sequence[int], moments: Normalization | None, pixels: bool
    ) -> Setting:
        device = resolve_device(self._device)
        return make_setting(self._recipe, self.method, shape, moments, device, pixels=pixels)

    def _first_setting(self, x: ImageView, form: Form) -> Setting:
        """What decides the stages of all tasks besides the recipe: the first task's images."""
        asked = self._recipe.data.normalization
        for note in raw_floats(x, asked):
            self._say_once("floats", note)
        moments = chosen_normalization(asked, x, channel_statistics(x))
        return self._setting_for(form.shape, moments, x.dtype == torch.uint8)

    def _become(self, other: "Learner") -> None:
        """Know what another learner knows, which is this one after something was learned."""
        vars(self).update(vars(other))

    def _held_out(self) -> HeldOut | None:
        if self._setting is None:
            return None
        return held_by(self.method, self._tasks, self._entries(), self._held)

    @property
    def _in_colour(self) -> bool:
        """Whether grey images get three channels: pretrained weights read all images so."""
        name = self._recipe.network["name"]
        library = network_maker(name).library if isinstance(name, str) else None
        return library is not None and self.method.infer.holds is not None

    def _learned(self) -> Setting:
        if self._setting is None:
            raise ScenarioError("This learner has not learned anything yet. Call learn() first.")
        return self._setting

    def _score(self, x: Tensor | ImageView) -> Tensor:
        return numbers(self._made_scorer()(x))

    def _made_scorer(self) -> Scorer:
        if self._scorer is None:
            self._scorer = make_scorer(self.method, self._built()[1])
        return self._scorer

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
        setting = self._setting_for(state.input_shape, state.moments, state.pixels)
        if self.method.all_classes:
            setting = replace(setting, rows=tasks[-1].classes.stop)
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
        self._history = learned.images or (None,) * len(tasks)
        self._forgotten, self._marks = learned.forgotten, learned.marks
        self._stored = learned.stored
        fitted, held = learned.calibration, self._held
        if fitted and held and (fitted.images, fitted.basis) == (len(held.samples), self._basis):
            self._fitted[self.scenario == "til"] = fitted
        parts = (entries, *self._built(), self._form, len(tasks))
        self._scorer = checked_scorer(self.method, *parts)  # what does not fit is refused now
