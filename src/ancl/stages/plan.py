"""Learning a task as a chain of stages, each with a key: the hash of what decides its numbers.

A plan is made without loading a weight. Keys hold the rule, never the outcome, and nothing a
stage does not read: the first task's training has no λ, the auxiliary network's has no λ_a.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

import torch

from ancl.data import Normalization, Task
from ancl.errors import ScenarioError
from ancl.hashing import UnstorableError, describe, digest
from ancl.memory import Memory
from ancl.methods.method import Auxiliary, Finish, Method, weight_at
from ancl.networks import Architecture
from ancl.regularizers import Regularizer, WeightRegularizer
from ancl.runtime import numerics
from ancl.training.config import TRIALS, Training
from ancl.training.objective import Extra

_PROCESS = uuid.uuid4().hex
"""Stands for code without a source file: such a key is found by no other process."""

_UNSTORED: dict[int, object] = {}
"""Such code by its id, kept alive so that no later object gets the same id, and with it the key."""


@dataclass(frozen=True, eq=False)
class Setting:
    """All that decides a run besides its method and its tasks.

    Args:
        architecture: The network.
        training: How the main network is trained.
        auxiliary: How the auxiliary network is trained.
        normalization: Of images; none for other inputs.
        augment: The augmentation of training images.
        memory: What is kept of earlier tasks' images; nothing where left out.
        task_aware: Whether the task of a sample is told at test time (TIL).
        seed: Where all randomness comes from.
        device: Where to compute.
    """

    architecture: Architecture
    training: Training
    auxiliary: Training
    normalization: Normalization | None
    augment: str = "none"
    memory: Memory | None = None
    task_aware: bool = True
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(frozen=True, eq=False)
class Stage:
    """One pure step of learning a task.

    Args:
        name: ``grow``, ``rate trial``, ``rate``, ``auxiliary``, ``auxiliary importance``,
            ``main``, the method's finishing stages, ``importance``, ``memory``, ``evaluate``.
        task: The task's index.
        key: The hash of ``settings``, the inputs' keys and the numerics.
        inputs: The keys of what it reads, by the part they play.
        settings: What else decides its numbers, as JSON.
        unstored: Why its result must not be stored; empty where it may be.
    """

    name: str
    task: int
    key: str
    inputs: Mapping[str, str]
    settings: Mapping[str, Any]
    unstored: str = ""


StateKeys = Mapping[str, str]
"""The keys of what the next task starts from: network, importance, memory and so on, by name."""


def drop_zero_terms(method: Method) -> Method:
    """The method without terms whose λ is the number 0: nothing is trained or kept for them."""
    old = None if method.old and method.old.lamb == 0 else method.old
    auxiliary = method.auxiliary
    if auxiliary and auxiliary.lamb_a == 0:
        auxiliary = None
    return replace(method, old=old, auxiliary=auxiliary)


def plan(method: Method, tasks: Sequence[Task], setting: Setting) -> tuple[Stage, ...]:
    """All stages of learning a stream, in an order in which they can be computed."""
    return plan_each([method] * len(tasks), tasks, setting)


def plan_each(
    methods: Sequence[Method], tasks: Sequence[Task], setting: Setting
) -> tuple[Stage, ...]:
    """The same for as many tasks as there are methods, one for each."""
    stages: list[Stage] = []
    pieces: StateKeys = {}
    for index, method in enumerate(methods):
        of_task, pieces = plan_task(method, tasks[: index + 1], setting, pieces)
        stages.extend(of_task)
    return tuple(stages)


def plan_task(
    method: Method, tasks: Sequence[Task], setting: Setting, pieces: StateKeys
) -> tuple[tuple[Stage, ...], StateKeys]:
    """The stages of learning the last of ``tasks``, and the pieces the next one starts from."""
    planner = _Planner(drop_zero_terms(method), tasks, setting)
    return planner.plan(pieces)


def plan_kept(
    method: Method,
    tasks: Sequence[Task],
    setting: Setting,
    ends: Mapping[str, str],
    pieces: StateKeys,
) -> tuple[tuple[Stage, ...], StateKeys]:
    """What a method keeps of a network that another one trained (``network, main, start``)."""
    planner = _Planner(drop_zero_terms(method), tasks, setting)
    kept = planner.keep(ends, pieces)
    return tuple(planner.stages), {"network": ends["network"], **kept}


class _Planner:
    """Collects the stages of one task."""

    def __init__(self, method: Method, tasks: Sequence[Task], setting: Setting) -> None:
        self.method, self.tasks, self.setting = method, tasks, setting
        self.task = tasks[-1]
        self.first = self.task.index == 0
        self.enlarged = method.enlarge and not self.first
        self.stages: list[Stage] = []
        self.numerics = numerics(setting.device)
        self.unstored = ""
        # Before the first stage: where one of them cannot be described, none of the run is stored.
        for part in method.parts:
            self.describe(part)

    def plan(self, pieces: StateKeys) -> tuple[tuple[Stage, ...], StateKeys]:
        """Every stage in order, and the pieces after the last."""
        method, auxiliary = self.method, self.method.auxiliary
        grown = self.grow(pieces)
        after: dict[str, str] = {}
        shared = {"start": grown}
        if self.setting.training.lr_search:
            shared["rate"], after["first rate"] = self.rate(grown, pieces)
        inputs = {**shared, **self.old_inputs(pieces)}
        if auxiliary and not self.first:
            inputs |= self.auxiliary(auxiliary, shared, pieces)
        main = self.add("main", inputs, self.main())
        after["network"] = main
        if auxiliary and auxiliary.start == "carried" and not self.first:
            after["carried"] = main if auxiliary.renewed == "epoch" else inputs["auxiliary"]
        for part in method.finish if not self.first else ():
            key = self.finish(part, {**inputs, **after}, pieces)
            after |= dict.fromkeys(part.yields, key)
        after |= self.keep({"network": after["network"], "main": main, "start": grown}, pieces)
        read = {part: after[part] for part in ("network", *method.infer.reads) if part in after}
        self.add("evaluate", read, self.evaluation())
        return tuple(self.stages), after

    def keep(self, ends: Mapping[str, str], pieces: StateKeys) -> dict[str, str]:
        """Stages that keep what the next task reads of a trained network besides itself."""
        method, found = self.method, dict[str, str]()
        if method.old and method.needs_importance:
            found["importance"] = self.importance(method.old.regularizer, ends, pieces)
        if self.setting.memory and method.data == "current":
            found["memory"] = self.memory(ends["network"], ends["start"], pieces)
        return found

    def add(self, name: str, inputs: Mapping[str, str], settings: Mapping[str, Any]) -> str:
        """Append a stage and return its key."""
        decisive = {
            "stage": name,
            "task": self.task.index,
            "seed": self.setting.seed,
            "inputs": dict(inputs),
            "settings": settings,
            "numerics": self.numerics,
        }
        key = digest(decisive)
        self.stages.append(Stage(name, self.task.index, key, inputs, settings, self.unstored))
        return key

    def describe(self, part: object) -> Any:
        """A part as JSON; one without a source file keeps the result out of the store."""
        try:
            return describe(part)
        except UnstorableError as error:
            self.unstored = str(error)
            _UNSTORED[id(part)] = part
            return [_PROCESS, repr(type(part)), id(part)]

    # -- stages ------------------------------------------------------------------------------

    def grow(self, pieces: StateKeys) -> str:
        """The network to begin with: the last task's with new rows, or a fresh one."""
        settings = self.architecture()
        before: dict[str, str] = {}
        if self.method.start == "old" and not self.first:
            before = {"network": pieces["network"]}
            if self.method.imprint and brings_classes(self.task):
                settings |= {"imprint": [self.task.key, self.held()], **self.images()}
        return self.add("grow", before, settings)

    def rate(self, grown: str, pieces: StateKeys) -> tuple[str, str]:
        """Trials of fine-tuning, and the best of them: this task's rate and the first task's."""
        inputs = {"start": grown}
        if not self.first:
            inputs["first rate"] = pieces["first rate"]
        trials = {
            f"trial {index}": self.add(
                "rate trial", inputs, {"trial": index, **self.alone(self.setting.training)}
            )
            for index in range(TRIALS)
        }
        found = self.add("rate", trials, {})
        return found, found if self.first else pieces["first rate"]

    def auxiliary(
        self, auxiliary: Auxiliary, shared: Mapping[str, str], pieces: StateKeys
    ) -> dict[str, str]:
        """Stages that make the auxiliary network, and what the main training reads of them."""
        extra: dict[str, str] = {}
        if auxiliary.start == "carried" and "carried" in pieces:
            extra["carried"] = pieces["carried"]
        if auxiliary.data == "combined" and "memory" in pieces:
            extra["memory"] = pieces["memory"]
        if auxiliary.renewed == "epoch":
            return extra
        key = self.add("auxiliary", {**shared, **extra}, self.auxiliary_training(auxiliary))
        found = {"auxiliary": key}
        if isinstance(auxiliary.regularizer, WeightRegularizer):
            found["auxiliary importance"] = self.add(
                "auxiliary importance",
                {"network": key, "start": shared["start"]},
                self.estimation(auxiliary.regularizer),
            )
        return found

    def finish(self, part: Finish, inputs: Mapping[str, str], pieces: StateKeys) -> str:
        """A finishing stage; it may read whatever the main training read."""
        read = {n: k for n, k in {**pieces, **inputs}.items() if n in part.reads}
        read |= {"network": inputs["network"], "start": inputs["start"]}
        return self.add(part.name, read, {"part": self.describe(part), **self.main()})

    def importance(self, omega: Regularizer, ends: Mapping[str, str], pieces: StateKeys) -> str:
        """The stage that adds this task's importance to that of the tasks before."""
        before = {"before": pieces["importance"]} if not self.first else {}
        return self.add("importance", {**ends, **before}, self.estimation(omega))

    def memory(self, network: str, grown: str, pieces: StateKeys) -> str:
        """The stage that keeps exemplars."""
        before = {"memory": pieces["memory"]} if not self.first else {}
        settings = {
            "selection": self.setting.memory and self.setting.memory.selection,
            "counts": kept_counts(self.method, self.tasks, self.setting),
            "data": [self.task.key],
            "classes": self.classes(),
            "normalization": describe(self.setting.normalization),
        }
        return self.add("memory", {"network": network, **before}, settings)

    # -- what decides them -------------------------------------------------------------------

    def old_inputs(self, pieces: StateKeys) -> dict[str, str]:
        """What the main training reads of earlier tasks."""
        if self.first:
            return {}
        found = {}
        if self.method.needs_importance:
            found["importance"] = pieces["importance"]
        if self.method.start == "fresh" and self.method.old:
            found["old"] = pieces["network"]
        if "memory" in pieces:
            found["memory"] = pieces["memory"]
        if "bias" in pieces and "bias" in self.method.infer.reads:
            found["bias"] = pieces["bias"]
        return found

    def architecture(self) -> dict[str, Any]:
        """The network and how many classes it answers for."""
        identity = self.setting.architecture.identity()
        if not identity["stored"]:
            self.unstored = str(identity["why"])
            identity = {**identity, "process": _PROCESS}
        return {"architecture": identity, "blocks": block_sizes(self.tasks)}

    def main(self) -> dict[str, Any]:
        """What the main network learns from, and how."""
        used = self.tasks if self.method.data == "all" else self.tasks[-1:]
        found = {
            "loss": self.describe(self.method.task_loss),
            "training": describe(self.setting.training.at(self.task.index)),
            "data": [task.key for task in used],
            "held out": self.held(),
            "frozen": frozen_parts(self.method, self.tasks, self.setting),
            "watched": self.describe(type(self.method.watcher())),
            "constrain": self.describe(self.method.constrain),
            "classes": self.classes(),
            # Among one task's classes nothing needs to be told.
            "task_aware": None if self.first else self.setting.task_aware,
            **self.images(),
        }
        return found if self.first else found | self.pulls()

    def pulls(self) -> dict[str, Any]:
        """The other terms, with the numbers their λ stand for in this task."""
        method, counts = self.method, class_counts(self.task)
        found: dict[str, Any] = {
            "task_weight": weight_at(method.task_weight, *counts),
            "extras": self.describe(extras_of(method, self.task)),
            "old": None,
            "auxiliary": None,
        }
        if method.old:
            lamb = weight_at(method.old.lamb, *counts)
            found["old"] = [self.describe(method.old.regularizer), lamb]
        if method.auxiliary:
            aux = method.auxiliary
            lamb_a = weight_at(aux.lamb_a, *counts)
            found["auxiliary"] = [self.describe(aux.regularizer), lamb_a, aux.classes]
            if aux.renewed == "epoch":
                found["ahead"] = self.auxiliary_training(aux)
        return found

    def auxiliary_training(self, auxiliary: Auxiliary) -> dict[str, Any]:
        """What the auxiliary network learns from: this task, by the task loss alone."""
        combined = auxiliary.data == "combined"
        return {
            **self.alone(self.setting.auxiliary),
            "watched": self.describe(type(self.method.auxiliary_watcher())),
            "combined": [self.classes(), self.setting.task_aware] if combined else None,
        }

    def alone(self, training: Training) -> dict[str, Any]:
        """What training on the task's own images and classes depends on."""
        return {
            "loss": self.describe(self.method.task_loss),
            "training": describe(training.at(self.task.index)),
            "data": [self.task.key],
            "held out": self.held(),
            "constrain": self.describe(self.method.constrain),
            "classes": describe(self.task.classes),
            **self.images(),
        }

    def estimation(self, omega: Regularizer) -> dict[str, Any]:
        """What an estimate of importance depends on."""
        return {
            "regularizer": self.describe(omega),
            "data": [self.task.key],
            "held out": self.held(),
            "batch_size": self.setting.training.batch_size,
            "classes": self.classes(),
            **self.images(),
        }

    def evaluation(self) -> dict[str, Any]:
        """What accuracy depends on."""
        return {
            "test": [task.test_key for task in self.tasks],
            "val": [task.key for task in self.tasks],
            "infer": self.describe(self.method.infer),
            "classes": self.classes(),
            "normalization": describe(self.setting.normalization),
        }

    def images(self) -> dict[str, Any]:
        """How images become inputs."""
        return {
            "augment": "versions" if self.enlarged else self.setting.augment,
            "normalization": describe(self.setting.normalization),
        }

    def classes(self) -> list[Any]:
        """The classes of every task so far."""
        return [describe(task.classes) for task in self.tasks]

    def held(self) -> int:
        """How many images a class nothing is trained on."""
        return held_count(self.method, self.tasks, self.setting)


def brings_classes(task: Task) -> bool:
    """Whether a task has classes that none had before (domains do not)."""
    return task.index == 0 or task.classes.start > 0


def block_sizes(tasks: Sequence[Task]) -> list[int]:
    """The number of classes of every block of the head."""
    return [task.classes.stop - task.classes.start for task in tasks if brings_classes(task)]


def old_classes(task: Task) -> slice:
    """The classes the old network speaks for: those before, or all where none is new."""
    return slice(0, task.classes.start or task.classes.stop)


def class_counts(task: Task) -> tuple[int, int]:
    """How many classes the old network speaks for, and how many the task adds to them."""
    new = task.classes.stop - task.classes.start if brings_classes(task) else 0
    return old_classes(task).stop, new


def extras_of(method: Method, task: Task) -> tuple[Extra, ...]:
    """The extra terms that mean something in a task."""
    return tuple(e for e in method.extras if brings_classes(task) or not e.new_classes)


def frozen_parts(method: Method, tasks: Sequence[Task], setting: Setting) -> tuple[int, bool]:
    """How many of the head's first blocks the main network leaves alone, and if its backbone."""
    blocks = len(block_sizes(tasks)) - 1
    alone = setting.memory is None and method.data == "current" and setting.task_aware
    leaves = method.trains == "new rows" or (method.trains != "everything" and alone)
    return blocks if leaves else 0, method.trains == "head" and tasks[-1].index > 0


def kept_counts(method: Method, tasks: Sequence[Task], setting: Setting) -> tuple[int, int]:
    """How many images of each class the memory keeps to train on, and to validate on alone."""
    if setting.memory is None:
        return 0, 0
    domains = 1 + sum(not brings_classes(task) for task in tasks)
    quota = setting.memory.quota(sum(block_sizes(tasks)) * domains)
    held = ceil(method.hold_out * quota)
    return quota - held, held


def check_exemplars(method: Method, tasks: Sequence[Task], setting: Setting) -> None:
    """Refuse a memory that is to keep more images of a class of the last task than it has.

    Raises:
        ScenarioError: Naming the class.
    """
    if setting.memory is None or method.data == "all":
        return
    task, wanted = tasks[-1], sum(kept_counts(method, tasks, setting))
    least = task.counts.index(min(task.counts))
    if task.counts[least] < wanted:
        raise ScenarioError(
            f"The memory is to keep {wanted} images a class, but class {task.names[least]!r} "
            f"has {task.counts[least]} to train on. Lower memory.per_class or memory.total."
        )


def held_count(method: Method, tasks: Sequence[Task], setting: Setting) -> int:
    """How many images of each of a task's classes nothing is trained on."""
    return kept_counts(method, tasks, setting)[1]
