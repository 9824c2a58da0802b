"""The shell people hold: a classifier that learns new classes today and again next month."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from ancl.data import Label, Normalization, Samples, Task, as_images, channel_statistics
from ancl.errors import ScenarioError, StoreError
from ancl.hashing import describe
from ancl.inference import Answer
from ancl.learner.config import (
    LearnerConfig,
    decided_memory,
    decided_trainings,
    named_method,
)
from ancl.learner.new_task import Data, next_task, read_labelled
from ancl.learner.saving import KIND, arguments_again, read_saved, task_again, task_meta
from ancl.memory import Memory
from ancl.methods.method import Method
from ancl.methods.task_history import ClassHistory, adds_classes
from ancl.runtime import resolve_device
from ancl.stages.events import Events
from ancl.stages.plan import Setting, StateKeys, plan_notes, plan_task
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
        network: A name such as ``resnet32``; ``path/file.py:NAME`` or ``package.module:NAME``,
            see ``ancl.networks.architecture``; or a module that yields features (B, D).
        scenario: ``cil`` answers among all classes; with ``til`` the task is told; with ``dil``
            every task has the first one's classes, in another domain.
        seed: Where all randomness comes from.
        training: How networks are trained.
        auxiliary: How the auxiliary network is trained; where left out as ``training``, but with
            what the method decides, which is a weight decay of 5e-4 for ``a-NAME``.
        network_options: Options of a named network, such as ``width``.
        memory: What is kept of earlier tasks' images; as the method says where left out, and
            ``Memory()`` keeps nothing.
        val_fraction: Share of each class's images kept for validation.
        augment: Augmentation of training images.
        device: ``auto``, ``cpu``, ``cuda`` …
        store: A directory in which finished and interrupted training is kept.
        reporter: Told of every stage and epoch.
        settings: The method's own settings, such as ``lamb``.
    """

    def __init__(
        self,
        method: str | Method,
        network: str | nn.Module = "resnet32",
        *,
        scenario: Literal["til", "cil", "dil"] = "cil",
        seed: int = 0,
        training: Training | None = None,
        auxiliary: Training | None = None,
        network_options: Mapping[str, Any] | None = None,
        memory: Memory | None = None,
        val_fraction: float = 0.1,
        augment: str = "none",
        device: str = "auto",
        store: str | Path | None = None,
        reporter: Events | None = None,
        **settings: Any,
    ) -> None:
        name, self.method = named_method(method, settings)
        self.scenario, self.seed, self._device = scenario, seed, device
        both = decided_trainings(self.method, training, auxiliary)
        self._makeup = LearnerConfig(
            method=self.method,
            method_name=name,
            settings=settings,
            network=network,
            network_options=dict(network_options or {}),
            memory=memory or decided_memory(self.method),
            scenario=scenario,
            seed=seed,
            training=both[0],
            auxiliary=both[1],
            val_fraction=val_fraction,
            augment=augment,
        )
        self._reporter = reporter or Events()
        self._memory = MemoryStore()
        self._store: Storage = Store(Path(store), self._reporter.say) if store else self._memory
        self._setting: Setting | None = None
        self._tasks: tuple[Task, ...] = ()
        self._pieces: StateKeys = {}
        self._answering: Answering | None = None

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
        made = self._makeup
        task = next_task(
            x,
            given,
            self._tasks,
            scenario=made.scenario,
            seed=made.seed,
            val_fraction=made.val_fraction,
        )
        shape = _unlabelled(x).input_shape
        device = resolve_device(self._device)
        setting = self._setting or made.setting(shape, channel_statistics(x), device)
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

    def save(self, path: str | Path) -> None:
        """Write everything needed to answer and to learn on, elsewhere, into one directory."""
        setting = self._learned()
        tensors: dict[str, Tensor] = {}
        for part, key in self._pieces.items():
            tensors |= prefixed(part, self._obtain(key).tensors)
        meta = {
            "kind": KIND,
            **self._makeup.meta(),
            "input_shape": list(setting.architecture.input_shape),
            "normalization": describe(setting.normalization),
            "tasks": [task_meta(task) for task in self._tasks],
            "pieces": dict(self._pieces),
        }
        try:
            write_entry(Path(path), StageResult(tensors, meta))
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
        network: nn.Module | None = None,
        method: Method | None = None,
        device: str = "auto",
        store: str | Path | None = None,
        reporter: Events | None = None,
    ) -> Self:
        """Read a saved learner; a network or method of one's own is given again.

        Raises:
            StoreError: The directory is not a saved learner, or is damaged.
        """
        entry = read_saved(path)
        meta = entry.meta
        made = arguments_again(meta, method, network)
        learner = cls(**made, device=device, store=store, reporter=reporter)
        if method is not None:
            learner._makeup.check_method(meta["method_digest"], path)
        if network is None:
            learner._makeup.check_network(meta.get("network_source"), path)
        learner._continue_from(entry)
        return learner

    # -- inside ------------------------------------------------------------------------------

    def _learn_task(self, task: Task, setting: Setting) -> dict[str, Any]:
        tasks = (*self._tasks, task)
        self._makeup.check_tasks(tasks, setting)
        stages, pieces = plan_task(self.method, tasks, setting, self._pieces)
        if task.index == 1:
            for note in plan_notes(self.method, tasks, setting):
                self._reporter.say(note)
        unstored = next((stage.unstored for stage in stages if stage.unstored), "")
        if unstored and self._store is not self._memory:
            self._reporter.say(f"What is learned is not stored: {unstored}")
        storage = self._memory if unstored else self._store
        layered = Layered(self._memory, storage)
        runner = Runner(stages, tasks, setting.device, layered, self._reporter)
        entries = {part: runner.obtain(key) for part, key in pieces.items()}
        main = next(stage.key for stage in stages if stage.name == "main")
        log = [epoch for epoch in runner.obtain(main).meta["log"] if epoch["role"] == "main"]
        # Only now: a task that fails or is interrupted leaves the learner as it was.
        for part, key in pieces.items():
            self._memory.save(key, entries[part])
        self._memory.keep_only(pieces.values())
        self._setting, self._tasks, self._pieces, self._answering = setting, tasks, pieces, None
        return {"task": task.index, "classes": list(task.names), "epochs": log}

    def _learned(self) -> Setting:
        if self._setting is None:
            raise ScenarioError("This learner has not learned anything yet. Call learn() first.")
        return self._setting

    def _answers(self) -> Answering:
        """The network's output for samples, and the scores of an output."""
        setting = self._learned()
        if self._answering is None:
            network = setting.architecture.build(ClassHistory.of(self._tasks).blocks)
            network.load(strip_prefix("network", self._obtain(self._pieces["network"]).tensors))
            network.to(setting.device)
            pieces = {part: self._obtain(key) for part, key in self._pieces.items()}
            read = {part: pieces[part] for part in self.method.infer.reads if part in pieces}
            classes = len(self.classes)
            looked = known(network, setting.images, setting.device, classes, read)
            self._answering = (looked.answer, self.method.infer.scorer(looked))
        return self._answering

    def _obtain(self, key: str) -> StageResult:
        entry = self._memory.load(key)
        assert entry is not None
        return entry

    def _continue_from(self, entry: StageResult) -> None:
        meta = entry.meta
        given = meta["normalization"]
        normalization = given and Normalization(tuple(given["mean"]), tuple(given["std"]))
        device = resolve_device(self._device)
        self._setting = self._makeup.setting(meta["input_shape"], normalization, device)
        self._tasks = tuple(task_again(index, each) for index, each in enumerate(meta["tasks"]))
        self._pieces = meta["pieces"]
        for part, key in self._pieces.items():
            self._memory.save(key, StageResult(strip_prefix(part, entry.tensors), {}))


def _unlabelled(x: Tensor) -> Samples:
    return Samples(x, torch.zeros(len(x), dtype=torch.long))


def _check_shape(shape: tuple[int, ...], setting: Setting) -> None:
    wanted = setting.architecture.input_shape
    if shape != wanted:
        raise ScenarioError(
            f"The images have shape {shape} (channels first), but this learner began with "
            f"{wanted}. Resize them to it."
        )
