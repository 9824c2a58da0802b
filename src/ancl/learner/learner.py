"""Incremental classifier: learn tasks, predict, save, load, or open a finished run."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ancl.checks import checked
from ancl.data import Augment, Label, Samples, Task, as_images, channel_statistics
from ancl.errors import AnclError, ScenarioError, StoreError
from ancl.experiments.results import Places, read_run
from ancl.experiments.spec import DEFAULT_NETWORK, GENERAL, DataSpec
from ancl.experiments.state import FinalState
from ancl.files import check_place
from ancl.inference import Answer
from ancl.learner.config import (
    KIND,
    Given,
    LearnerConfig,
    config_of_meta,
    config_of_spec,
    decided_memory,
    decided_trainings,
    named_method,
    read_saved,
)
from ancl.learner.new_task import Data, next_task, read_labelled
from ancl.memory import Memory
from ancl.methods.method import Method
from ancl.methods.task_history import ClassHistory, adds_classes
from ancl.runtime import resolve_device
from ancl.stages.events import Events
from ancl.stages.plan import Setting, StateKeys, drop_zero_terms, lasting, plan_notes, plan_task
from ancl.stages.runner import Layered, MemoryStore, Runner, Storage
from ancl.stages.work import known
from ancl.store.entry import StageResult, write_entry
from ancl.store.store import Store
from ancl.training.config import Training
from ancl.types import Output, prefixed, strip_prefix

Answering = tuple[Answer, Callable[[Output], Tensor]]


class Learner:
    """Learns tasks one after another, with any method, and answers with the user's own labels.

    Args:
        method: A name such as ``a-lwf``, or a ``Method``.
        network: A name such as ``resnet32``, ``timm:NAME`` or ``torchvision:NAME``;
            ``path/file.py:NAME`` or ``package.module:NAME``, see ``ancl.networks.architecture``;
            or a module that yields features (B, D).
        scenario: ``cil`` answers among all classes; with ``til`` the task is known; with ``dil``
            every task has the first one's classes, in another domain.
        seed: Where all randomness comes from.
        training: How networks are trained.
        auxiliary: How the auxiliary network is trained; where left out as ``training``, but with
            what the method decides, which is a weight decay of 5e-4 for ``a-NAME``.
        network_options: Options of a named network, such as ``width``.
        memory: What is kept of earlier tasks' images; as the method says where left out, and
            ``Memory()`` keeps nothing.
        val_fraction: Share of each class's images kept for validation.
        augment: Augmentation of training images: a name, or your own function of a batch of uint8
            images (N, H, W, C), or of a batch and a ``torch.Generator``.
        device: ``auto``, ``cpu``, ``cuda`` …
        store: A directory in which finished and interrupted training is kept.
        events: Receives every stage and epoch; silent by default.
        settings: The method's own settings, such as ``lamb``.
    """

    def __init__(
        self,
        method: str | Method,
        network: str | nn.Module = DEFAULT_NETWORK,
        *,
        scenario: Literal["til", "cil", "dil"] = "cil",
        seed: int = GENERAL["seed"].default,
        training: Training | None = None,
        auxiliary: Training | None = None,
        network_options: Mapping[str, Any] | None = None,
        memory: Memory | None = None,
        val_fraction: float = DataSpec.val_fraction,
        augment: Augment = DataSpec.augment,
        device: str = GENERAL["device"].default,
        store: str | Path | None = None,
        events: Events | None = None,
        **settings: Any,
    ) -> None:
        name, made = named_method(method, settings)
        both = decided_trainings(made, training, auxiliary)
        config = LearnerConfig(
            method=made,
            method_name=name,
            settings=settings,
            network=network,
            network_options=dict(network_options or {}),
            memory=memory or decided_memory(made),
            scenario=scenario,
            seed=seed,
            training=both[0],
            auxiliary=both[1],
            val_fraction=val_fraction,
            augment=augment,
        )
        self._begin(config, device, store, events)

    def _begin(
        self, config: LearnerConfig, device: str, store: str | Path | None, events: Events | None
    ) -> None:
        """Nothing is learned yet."""
        self._config, self._device, self._events = config, device, events or Events()
        self.method, self.scenario, self.seed = config.method, config.scenario, config.seed
        self._memory = MemoryStore()
        self._store: Storage = Store(Path(store), self._events.say) if store else self._memory
        self._setting: Setting | None = None
        self._tasks: tuple[Task, ...] = ()
        self._state: StateKeys = {}
        self._answering: Answering | None = None
        self.accepted_changes: tuple[str, ...] = ()
        """Parts whose code differs from what was trained with, as the caller accepted."""

    @property
    def classes(self) -> list[Label]:
        """The labels of all classes learned, in the order of the network's answers."""
        return [name for task in self._tasks if adds_classes(task) for name in task.names]

    @property
    def tasks(self) -> list[list[Label]]:
        """The labels learned in each task."""
        return [list(task.names) for task in self._tasks]

    def learn(self, data: Data, labels: Any = None) -> dict[str, Any]:
        """Learn a task: images of classes not learned before, or in ``dil`` of all of them again.

        Args:
            data: Images and ``labels``, or a ``Dataset`` of both.
            labels: The label of each image: whole numbers or texts.

        Returns:
            The epochs of the main network's training.
        """
        x, given = read_labelled(data, labels)
        config = self._config
        task = next_task(
            x,
            given,
            self._tasks,
            scenario=config.scenario,
            seed=config.seed,
            val_fraction=config.val_fraction,
        )
        shape = _unlabelled(x).input_shape
        device = resolve_device(self._device)
        setting = self._setting or config.setting(shape, channel_statistics(x), device)
        _check_shape(shape, setting)
        return self._learn_task(task, setting)

    def predict(self, data: Data, task: int | None = None) -> list[Label]:
        """The label of each image, among all classes or among those of one task."""
        names = self.classes
        return [names[index] for index in self.scores(data, task).argmax(dim=1).tolist()]

    def evaluate(self, data: Data, labels: Any = None, task: int | None = None) -> float:
        """The share of images that get their own label."""
        x, given = read_labelled(data, labels)
        strangers = sorted({str(name) for name in given} - {str(name) for name in self.classes})
        if strangers:
            raise ScenarioError(
                f"The labels {', '.join(strangers[:5])} were never learned. Known are: "
                f"{', '.join(map(str, self.classes))}."
            )
        answers = self.predict(x, task)
        return sum(a == b for a, b in zip(answers, given, strict=True)) / len(given)

    @torch.no_grad()
    def scores(self, data: Data, task: int | None = None) -> Tensor:
        """The score of every class, the larger the better; minus infinity outside a given task."""
        answer, scorer = self._answers()
        setting = self._learned()
        x = data if isinstance(data, Tensor) and data.dtype == torch.float32 else as_images(data)
        samples = _unlabelled(x)
        _check_shape(samples.input_shape, setting)
        scores = scorer(answer(samples))
        if task is None:
            return scores
        if not 0 <= task < len(self._tasks):
            raise ScenarioError(
                f"There is no task {task}. Learned are 0 to {len(self._tasks) - 1}."
            )
        masked = torch.full_like(scores, float("-inf"))
        own = self._tasks[task].classes
        masked[:, own] = scores[:, own]
        return masked

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write everything needed to answer and to learn on, elsewhere, into one directory.

        A learner that was saved there before is replaced; anything else is left alone.

        Args:
            path: The directory.
            overwrite: Whether anything else that is there is replaced, too.

        Raises:
            StoreError: The directory cannot be written, or holds something else.
        """
        place, setting = check_place(path, "a learner"), self._learned()
        tensors: dict[str, Tensor] = {}
        for part, key in self._state.items():
            tensors |= prefixed(part, self._obtain(key).tensors)
        meta = {
            "kind": KIND,
            "accepted_changes": list(self.accepted_changes),
            **self._config.meta(),
            "state": FinalState.of(self.method, self._tasks, setting, self._state).model_dump(
                mode="json"
            ),
            "metas": {part: self._obtain(key).meta for part, key in self._state.items()},
        }
        try:
            write_entry(place, StageResult(tensors, meta), overwrite=overwrite)
        except OSError as error:
            raise StoreError(
                f"The learner cannot be written to {path} ({error.strerror}). Give a directory "
                f"that can be written; nothing was changed."
            ) from error

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
        events: Events | None = None,
    ) -> Self:
        """Read a saved learner; a network, method or augmentation of your own is given again.

        What is given is compared with what the learner was trained with, and refused where it
        differs. ``accept_changed`` accepts it; ``accepted_changes`` then says so, for good.

        Raises:
            StoreError: The directory is not a saved learner, or is damaged.
        """
        entry = read_saved(Path(path))
        meta = entry.meta
        given = Given(Path(path), "Learner.load", method, network, augment, accept_changed)
        with _explained(given.path, "Give a directory that Learner.save wrote."):
            state = FinalState.read(meta["state"])
            config = config_of_meta(meta, given, state)
            changes = config.check_given(given, state, meta["network"])
            learner = cls.__new__(cls)
            learner._begin(config, device, store, events)
            learner._accept(changes, checked(list[str], meta["accepted_changes"]))
            parts = {
                part: StageResult(strip_prefix(part, entry.tensors), meta["metas"][part])
                for part in state.keys
            }
            learner._continue_from(state, parts)
        return learner

    # -- inside ------------------------------------------------------------------------------

    def _accept(self, changes: Sequence[str], before: Sequence[str] = ()) -> None:
        """Record parts that differ from what was trained with."""
        for change in changes:
            self._events.say(f"Accepted, although its code has changed: {change}.")
        self.accepted_changes = tuple(dict.fromkeys([*before, *changes]))

    def _learn_task(self, task: Task, setting: Setting) -> dict[str, Any]:
        tasks = (*self._tasks, task)
        self._config.check_tasks(tasks, setting)
        stages, planned = plan_task(self.method, tasks, setting, self._state)
        state = lasting(planned)
        notes = plan_notes(self.method, tasks, setting) if task.index == 1 else []
        for note in (*notes, *(setting.architecture.notes if task.index == 0 else ())):
            self._events.say(note)
        unstored = next((stage.unstored for stage in stages if stage.unstored), "")
        if unstored and self._store is not self._memory:
            self._events.say(f"What is learned is not stored: {unstored}")
        storage = self._memory if unstored else self._store
        layered = Layered(self._memory, storage)
        runner = Runner(stages, tasks, setting.device, layered, self._events)
        entries = {part: runner.obtain(key) for part, key in state.items()}
        main = next(stage.key for stage in stages if stage.name == "main")
        log = [epoch for epoch in runner.obtain(main).meta["log"] if epoch["role"] == "main"]
        # Only now: a task that fails or is interrupted leaves the learner as it was.
        for part, key in state.items():
            self._memory.save(key, entries[part])
        self._memory.keep_only(state.values())
        self._setting, self._tasks, self._state, self._answering = setting, tasks, state, None
        return {"task": task.index, "classes": list(task.names), "epochs": log}

    def _learned(self) -> Setting:
        if self._setting is None:
            raise ScenarioError("This learner has not learned anything yet. Call learn() first.")
        return self._setting

    def _answers(self) -> Answering:
        """The network's output for samples, and the scores of an output."""
        setting = self._learned()
        if self._answering is None:
            blocks = ClassHistory.of(self._tasks).blocks
            found = strip_prefix("network", self._obtain(self._state["network"]).tensors)
            network = setting.architecture.restore(blocks, found)
            network.to(setting.device)
            reads = self.method.infer.reads
            read = {part: self._obtain(k) for part, k in self._state.items() if part in reads}
            classes = len(self.classes)
            looked = known(network, setting.images, setting.device, classes, read)
            self._answering = (looked.answer, self.method.infer.scorer(looked))
        return self._answering

    def _obtain(self, key: str) -> StageResult:
        entry = self._memory.load(key)
        assert entry is not None
        return entry

    def _continue_from(self, state: FinalState, entries: Mapping[str, StageResult]) -> None:
        """Take over what was learned; ``entries`` are the results that the state's keys name."""
        tasks = state.learned(self.scenario)
        setting = self._config.setting(
            state.input_shape, state.moments, resolve_device(self._device)
        )
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
        self._answers()  # what does not fit the network is refused now


def load_run(
    directory: str | Path,
    *,
    store: str | Path | None = None,
    method: str | Method | None = None,
    network: str | None = None,
    augment: Augment | None = None,
    accept_changed: bool = False,
    device: str = GENERAL["device"].default,
    events: Events | None = None,
) -> Learner:
    """Open a finished run as a learner that predicts, evaluates, saves and learns on.

    Its labels are the names of the classes in the run's data. No data is read.

    Args:
        directory: The directory of the run, as ``run`` and ``ancl run`` write it.
        store: The store that holds its stages, and keeps what is learned on; by default
            ``.store`` beside the run.
        method: The method again, where the run has one from outside the package: a ``Method``,
            or ``path/file.py:NAME``. It is compared with the run's.
        network: The same for the network: ``path/file.py:NAME`` or ``package.module:NAME``.
        augment: The same for the augmentation: a function, or ``path/file.py:NAME``.
        accept_changed: Whether they may differ from those of the run; it is recorded in
            ``accepted_changes`` of the learner, and saved with it.
        device: ``auto``, ``cpu``, ``cuda`` …
        events: Receives progress; silent by default.

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
    given = Given(place, "ancl.load_run", method, network, augment, accept_changed)
    with _explained(place, f"Run it again: {_again(place)}"):
        config = config_of_spec(spec, given, state)
        changes = config.check_given(given, state, str(spec.network["name"]))
        learner = Learner.__new__(Learner)
        learner._begin(config, device, at, events)
        learner._accept(changes)
        learner._continue_from(state, _stored(state, at, place))
    return learner


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


@contextmanager
def _explained(path: Path, remedy: str) -> Iterator[None]:
    """Refuse what does not fit together, as an error a user understands."""
    try:
        yield
    except AnclError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise StoreError(
            f"{path} cannot be opened ({type(error).__name__}: {error}). {remedy}"
        ) from error


def _unlabelled(x: Tensor) -> Samples:
    return Samples(x, torch.zeros(len(x), dtype=torch.long))


def _check_shape(shape: tuple[int, ...], setting: Setting) -> None:
    wanted = setting.architecture.input_shape
    if shape != wanted:
        raise ScenarioError(
            f"The images have shape {shape} (channels first), but this learner began with "
            f"{wanted}. Resize them to it."
        )
