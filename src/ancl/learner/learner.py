"""Incremental classifier: learn tasks, predict, save and load."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from torch import Tensor, nn

from ancl.checks import checked
from ancl.data import Augment, ImageView, Label
from ancl.inference import InferenceInputs
from ancl.learner.answers import Answers, nothing_learned
from ancl.learner.beginning import HELD, begin_recipe, reads_in_colour
from ancl.learner.card import Measured, card_of, one_line_summary
from ancl.learner.edit import Edit
from ancl.learner.edit_requests import (
    EditReport,
    Selection,
    forget_images,
    merge_into,
    rename_classes,
)
from ancl.learner.export import Exported, ImageClassifier, export_learner, module_of
from ancl.learner.held import HeldChanges, HeldOut, held_by
from ancl.learner.image_list import ListedImage, images_of
from ancl.learner.images import Forgotten, LearnedImages, ids_of
from ancl.learner.inputs import Data, read_labelled
from ancl.learner.learning import learn_images
from ancl.learner.ledger import LedgerEntry, ledger_entries, statistics_of
from ancl.learner.loading import read_learner, restored
from ancl.learner.measures import Size, size_of
from ancl.learner.notices import Warner
from ancl.learner.relearn import merge_learners
from ancl.learner.saving import save_learner
from ancl.learner.scorer import Scorer, built, make_scorer, numbers
from ancl.learner.supplied_code import SuppliedCode
from ancl.learner.versions import StoredKeys
from ancl.memory import Exemplars, Memory
from ancl.methods.method import Method
from ancl.networks import Network
from ancl.picture import PictureRule
from ancl.recipe.recipe import DEFAULT_METHOD, GENERAL, Recipe
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
        recipe = begin_recipe(method, given, held)
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
        return one_line_summary(self)

    def size(self) -> Size:
        """The bytes of what is saved and of what is kept in memory, in all and by part."""
        return size_of(self)

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
            main network's ``epochs``, ``held``: what changed on held images, ``drift``: how far the
            network moved, see ``drifts``, and ``accepted``.
        """
        return learn_images(self, data, labels, ids, accept)

    def _read(self, data: Data, labels: Any) -> tuple[ImageView, list[Label]]:
        """Images and labels, in the learner's form or in that which its first task will have."""
        colour = reads_in_colour(self._recipe, self.method)
        return read_labelled(data, labels, self._form, self._say, self._recipe.data, colour)

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
        stored = self._obtain(piece).meta.get(CHOICE) if piece else None
        return None if stored is None else checked(Choice, stored)

    def merge(self, other: "Learner") -> None:
        """Take over all that another learner has learned: to the bit as one that saw all images.

        Its tasks follow the own ones. A class that both know is one class, and an image that both
        saw is one image. The other learner stays as it is.

        Args:
            other: A learner with the same method, network, weights, seed and grid.

        Raises:
            SpecError: They differ in one of these, or their networks moved apart.
            ScenarioError: Their tasks cannot follow each other.
        """
        merge_learners(self, other)

    @property
    def images(self) -> tuple[ListedImage, ...]:
        """Every image that it learned, where that is known, and every one that it keeps.

        Each has what it is called, its hash, its month (task), its label, and where it is kept.
        """
        return images_of(self)

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

        Methods that compute their classifier are then, to the bit, as if they had never seen them,
        if no weight learned from them. Of a trained network the images are no longer stored, but
        it has learned from them. They are refused if they come again. Earlier versions lose them
        when it is saved where it was.

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
        return module_of(self)

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
        return card_of(self, file)

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
        save_learner(self, path, overwrite=overwrite)

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
        return restored(cls, read_learner(supplied, version), supplied.path, **opened)

    # -- inside ------------------------------------------------------------------------------

    def _say_once(self, subject: str, message: str) -> None:
        if subject not in self._said:
            self._said.add(subject)
            self._say(message)

    def _become(self, other: "Learner") -> None:
        """Know what another learner knows, which is this one after something was learned."""
        vars(self).update(vars(other))

    def _held_out(self) -> HeldOut | None:
        if self._setting is None:
            return None
        return held_by(self.method, self._tasks, self._entries(), self._held)

    def _learned(self) -> Setting:
        if self._setting is None:
            raise nothing_learned()
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
