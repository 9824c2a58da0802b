"""The shell people hold: a classifier that learns new classes today and again next month."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from ancl.data import (
    Label,
    Normalization,
    Samples,
    Task,
    as_images,
    as_labels,
    channel_statistics,
    read_dataset,
    task_from,
)
from ancl.device import resolve_device
from ancl.errors import MethodError, ScenarioError, SpecError, StoreError, unknown
from ancl.files import Entry, write_entry
from ancl.identity import describe, digest
from ancl.infer import Answer
from ancl.memory import Memory
from ancl.method import Method
from ancl.naming import MethodRef
from ancl.networks import NETWORKS, architecture
from ancl.runner import Layered, MemoryStore, Reporter, Runner, Storage
from ancl.saved import KIND, given_again, read_saved, task_again, task_meta, training_again
from ancl.stages import Pieces, Setting, check_exemplars, plan_task
from ancl.store import Store
from ancl.training import Training
from ancl.types import Output, prefixed, under
from ancl.workbench import Job, known

Data = Any
"""Images as an array or tensor, or a map-style torch ``Dataset`` of (image, label)."""

Answering = tuple[Answer, Callable[[Output], Tensor]]


class Learner:
    """Learns tasks one after another, with any method, and answers with the user's own labels.

    Args:
        method: A name such as ``a-lwf``, or a ``Method``.
        network: A name such as ``resnet32``, or a module that yields features (B, D).
        scenario: ``cil`` answers among all classes; with ``til`` the task is told.
        seed: Where all randomness comes from.
        training: How networks are trained.
        auxiliary: How the auxiliary network is trained; as ``training`` where left out.
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
        scenario: Literal["til", "cil"] = "cil",
        seed: int = 0,
        training: Training | None = None,
        auxiliary: Training | None = None,
        network_options: Mapping[str, Any] | None = None,
        memory: Memory | None = None,
        val_fraction: float = 0.1,
        augment: str = "none",
        device: str = "auto",
        store: str | Path | None = None,
        reporter: Reporter | None = None,
        **settings: Any,
    ) -> None:
        if scenario not in ("til", "cil"):
            raise SpecError(unknown("scenario", scenario, ("til", "cil")))
        self._method_name, self.method = _method(method, settings)
        self._settings = settings
        self._network, self._network_options = network, dict(network_options or {})
        self._exemplars = memory or self.method.memory or Memory()
        self.scenario, self.seed = scenario, seed
        self._training = training or Training()
        self._auxiliary = auxiliary or self._training
        self._val_fraction, self._augment, self._device = val_fraction, augment, device
        self._check_training()
        self._reporter = reporter or Reporter()
        self._memory = MemoryStore()
        self._store: Storage = Store(Path(store), self._reporter.say) if store else self._memory
        self._setting: Setting | None = None
        self._tasks: tuple[Task, ...] = ()
        self._pieces: Pieces = {}
        self._answering: Answering | None = None

    @property
    def classes(self) -> list[Label]:
        """The labels of all classes learned, in the order of the network's answers."""
        return [name for task in self._tasks for name in task.names]

    @property
    def tasks(self) -> list[list[Label]]:
        """The labels learned in each task."""
        return [list(task.names) for task in self._tasks]

    def learn(self, data: Data, labels: Any = None) -> dict[str, Any]:
        """Learn a task: images of classes not learned before.

        Args:
            data: Images and ``labels``, or a ``Dataset`` of both.
            labels: The label of each image: whole numbers or texts.

        Returns:
            The epochs of the main network's training.
        """
        x, given = _read(data, labels)
        names = self._new_names(given)
        offset = len(self.classes)
        position = {name: offset + index for index, name in enumerate(names)}
        samples = Samples(x, torch.tensor([position[name] for name in given]))
        setting = self._setting or self._first_setting(samples)
        self._check_shape(samples, setting)
        task = task_from(
            samples,
            index=len(self._tasks),
            classes=slice(offset, offset + len(names)),
            names=tuple(names),
            seed=self.seed,
            val_fraction=self._val_fraction,
            test=None,
        )
        return self._learn_task(task, setting)

    def predict(self, data: Data, task: int | None = None) -> list[Label]:
        """The label of each image, among all classes or among those of one task."""
        names = self.classes
        return [names[index] for index in self.scores(data, task).argmax(dim=1).tolist()]

    def evaluate(self, data: Data, labels: Any = None, task: int | None = None) -> float:
        """The share of images that get their own label."""
        x, given = _read(data, labels)
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
        samples = Samples(x, torch.zeros(len(x), dtype=torch.long))
        self._check_shape(samples, setting)
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
            "method": self._method_name,
            "settings": self._settings,
            "method_digest": digest(describe(self.method)),
            "network": self._network if isinstance(self._network, str) else None,
            "network_options": self._network_options,
            "memory": dataclasses.asdict(self._exemplars),
            "scenario": self.scenario,
            "seed": self.seed,
            "training": dataclasses.asdict(self._training),
            "auxiliary": dataclasses.asdict(self._auxiliary),
            "val_fraction": self._val_fraction,
            "augment": self._augment,
            "input_shape": list(setting.architecture.input_shape),
            "normalization": describe(setting.normalization),
            "tasks": [task_meta(task) for task in self._tasks],
            "pieces": dict(self._pieces),
        }
        try:
            write_entry(Path(path), Entry(tensors, meta))
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
        reporter: Reporter | None = None,
    ) -> Self:
        """Read a saved learner; a network or method of one's own is given again.

        Raises:
            StoreError: The directory is not a saved learner, or is damaged.
        """
        entry = read_saved(path)
        meta = entry.meta
        learner = cls(
            given_again("method", meta["method"], method),
            given_again("network", meta["network"], network),
            scenario=meta["scenario"],
            seed=meta["seed"],
            training=training_again(meta["training"]),
            auxiliary=training_again(meta["auxiliary"]),
            network_options=meta["network_options"],
            memory=Memory(**meta["memory"]),
            val_fraction=meta["val_fraction"],
            augment=meta["augment"],
            device=device,
            store=store,
            reporter=reporter,
            **meta["settings"],
        )
        if method is not None and digest(describe(learner.method)) != meta["method_digest"]:
            raise MethodError(
                f"The method given to load is not the one {path} was saved with. Give the same "
                f"parts and values."
            )
        learner._continue_from(entry)
        return learner

    # -- inside ------------------------------------------------------------------------------

    def _learn_task(self, task: Task, setting: Setting) -> dict[str, Any]:
        tasks = (*self._tasks, task)
        self._check_memory(task, tasks, setting)
        stages, pieces = plan_task(self.method, tasks, setting, self._pieces)
        job = Job(self.method, tasks, setting, self._reporter.say)
        unstored = next((stage.unstored for stage in stages if stage.unstored), "")
        if unstored and self._store is not self._memory:
            self._reporter.say(f"What is learned is not stored: {unstored}")
        storage = self._memory if unstored else self._store
        runner = Runner(stages, job, Layered(self._memory, storage), self._reporter)
        entries = {part: runner.obtain(key) for part, key in pieces.items()}
        main = next(stage.key for stage in stages if stage.name == "main")
        log = [epoch for epoch in runner.obtain(main).meta["log"] if epoch["role"] == "main"]
        # Only now: a task that fails or is interrupted leaves the learner as it was.
        for part, key in pieces.items():
            self._memory.save(key, entries[part])
        self._memory.keep_only(pieces.values())
        self._setting, self._tasks, self._pieces, self._answering = setting, tasks, pieces, None
        return {"task": task.index, "classes": list(task.names), "epochs": log}

    def _new_names(self, given: Sequence[Label]) -> list[Label]:
        names = sorted(set(given), key=lambda name: (isinstance(name, str), name))
        again = [str(name) for name in names if name in set(self.classes)]
        if again:
            raise ScenarioError(
                f"The classes {', '.join(again[:5])} were learned before. A task brings new "
                f"classes only: leave out their images, or give them other labels."
            )
        if len(names) < 2 and (self.scenario == "til" or not self._tasks):
            raise ScenarioError(
                f"This task has only the class {names[0]!r}, and there is nothing to tell it "
                f"from. Give at least 2 classes."
            )
        return names

    def _first_setting(self, samples: Samples) -> Setting:
        normalization = channel_statistics(samples.x)
        return self._make_setting(samples.input_shape, normalization)

    def _make_setting(
        self, input_shape: Sequence[int], normalization: Normalization | None
    ) -> Setting:
        return Setting(
            architecture=architecture(
                self._network,
                input_shape,
                head=self.method.head,
                head_options=self.method.head_options,
                **self._all_network_options(),
            ),
            training=self._training,
            auxiliary=self._auxiliary,
            normalization=normalization,
            augment=self._augment,
            memory=self._exemplars if self._exemplars.size else None,
            task_aware=self.scenario == "til",
            seed=self.seed,
            device=resolve_device(self._device),
        )

    def _check_training(self) -> None:
        problems = self._training.problems() + self._auxiliary.problems()
        if self._training.schedule == "patience" and self._val_fraction == 0:
            problems.append("schedule=patience needs val_fraction above 0, or use cosine.")
        if problems:
            raise SpecError("\n".join(problems))

    def _all_network_options(self) -> dict[str, Any]:
        """The options given, and what the method decides of them."""
        named = self._network if isinstance(self._network, str) else ""
        if self.method.last_relu or named not in NETWORKS:
            return self._network_options
        known = inspect.signature(NETWORKS[named]).parameters
        own = {"last_relu": False} if "last_relu" in known else {}
        return own | self._network_options

    def _check_memory(self, task: Task, tasks: tuple[Task, ...], setting: Setting) -> None:
        classes = task.classes.stop
        problems = self._exemplars.problems(classes)
        problems = problems or self.method.problems(self.scenario, setting.memory, classes)
        if problems:
            raise SpecError("\n".join(problems))
        check_exemplars(self.method, tasks, setting)

    def _check_shape(self, samples: Samples, setting: Setting) -> None:
        wanted = setting.architecture.input_shape
        if samples.input_shape != wanted:
            raise ScenarioError(
                f"The images have shape {samples.input_shape} (channels first), but this learner "
                f"began with {wanted}. Resize them to it."
            )

    def _learned(self) -> Setting:
        if self._setting is None:
            raise ScenarioError("This learner has not learned anything yet. Call learn() first.")
        return self._setting

    def _answers(self) -> Answering:
        """The network's output for samples, and the scores of an output."""
        setting = self._learned()
        if self._answering is None:
            network = setting.architecture.build([len(task.names) for task in self._tasks])
            network.load(under("network", self._obtain(self._pieces["network"]).tensors))
            network.to(setting.device)
            pieces = {part: self._obtain(key) for part, key in self._pieces.items()}
            read = {part: pieces[part] for part in self.method.infer.reads if part in pieces}
            looked = known(network, setting, len(self.classes), read)
            self._answering = (looked.answer, self.method.infer.scorer(looked))
        return self._answering

    def _obtain(self, key: str) -> Entry:
        entry = self._memory.load(key)
        assert entry is not None
        return entry

    def _continue_from(self, entry: Entry) -> None:
        meta = entry.meta
        given = meta["normalization"]
        normalization = given and Normalization(tuple(given["mean"]), tuple(given["std"]))
        self._setting = self._make_setting(meta["input_shape"], normalization)
        self._tasks = tuple(task_again(index, each) for index, each in enumerate(meta["tasks"]))
        self._pieces = meta["pieces"]
        for part, key in self._pieces.items():
            self._memory.save(key, Entry(under(part, entry.tensors), {}))


def _method(method: str | Method, settings: dict[str, Any]) -> tuple[str | None, Method]:
    if isinstance(method, Method):
        if settings:
            raise SpecError(
                f"{', '.join(settings)}: a Method has its settings already. Set them where it is "
                f"made, or give the method's name."
            )
        return None, method
    ref = MethodRef(method)
    return ref.name, ref.make(ref.check(settings))


def _read(data: Data, labels: Any) -> tuple[Tensor, list[Label]]:
    if isinstance(data, Dataset) and labels is None:
        x, y = read_dataset(data)
        return as_images(x), as_labels(y)
    if labels is None:
        raise ScenarioError(
            f"Images of type {type(data).__name__} came without labels. Give both, or a torch "
            f"Dataset of (image, label)."
        )
    x, y = as_images(data), as_labels(labels)
    if len(x) != len(y):
        raise ScenarioError(f"There are {len(x)} images and {len(y)} labels. Give one a each.")
    return x, y
