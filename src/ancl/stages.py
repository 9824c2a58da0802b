"""Learning a task as a chain of stages, each with a key: the hash of what decides its numbers.

A plan is made without loading a weight. Keys hold the rule, never the outcome, and nothing a
stage does not read: the first task's training has no λ, the auxiliary network's has no λ_a.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ancl.data import Normalization, Task
from ancl.identity import UnstorableError, describe, digest
from ancl.method import Auxiliary, Method, weight_at
from ancl.networks import Architecture
from ancl.numerics import numerics
from ancl.regularizers import Regularizer, WeightRegularizer
from ancl.training import Training

_PROCESS = uuid.uuid4().hex
"""Stands for code without a source file: such a key is found by no other process."""


@dataclass(frozen=True, eq=False)
class Setting:
    """All that decides a run besides its method and its tasks.

    Args:
        architecture: The network.
        training: How the main network is trained.
        auxiliary: How the auxiliary network is trained.
        normalization: Of images; none for other inputs.
        augment: The augmentation of training images.
        task_aware: Whether the task of a sample is told at test time (TIL).
        seed: Where all randomness comes from.
        device: Where to compute.
    """

    architecture: Architecture
    training: Training
    auxiliary: Training
    normalization: Normalization | None
    augment: str = "none"
    task_aware: bool = True
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))


@dataclass(frozen=True, eq=False)
class Stage:
    """One pure step of learning a task.

    Args:
        name: ``grow``, ``auxiliary``, ``auxiliary importance``, ``main``, ``importance`` or
            ``evaluate``.
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


Pieces = Mapping[str, str]
"""The keys of what the next task starts from: network, importance, carried auxiliary network."""


def effective(method: Method) -> Method:
    """The method without terms whose λ is the number 0: nothing is trained or kept for them."""
    old = None if method.old and method.old.lamb == 0 else method.old
    auxiliary = method.auxiliary
    if auxiliary and auxiliary.lamb_a == 0:
        auxiliary = None
    return replace(method, old=old, auxiliary=auxiliary)


def plan(method: Method, tasks: Sequence[Task], setting: Setting) -> tuple[Stage, ...]:
    """All stages of learning a stream, in an order in which they can be computed."""
    stages: list[Stage] = []
    pieces: Pieces = {}
    for index in range(len(tasks)):
        of_task, pieces = plan_task(method, tasks[: index + 1], setting, pieces)
        stages.extend(of_task)
    return tuple(stages)


def plan_task(
    method: Method, tasks: Sequence[Task], setting: Setting, pieces: Pieces
) -> tuple[tuple[Stage, ...], Pieces]:
    """The stages of learning the last of ``tasks``, and the pieces the next one starts from."""
    planner = _Planner(effective(method), tasks, setting)
    return planner.plan(pieces)


class _Planner:
    """Collects the stages of one task."""

    def __init__(self, method: Method, tasks: Sequence[Task], setting: Setting) -> None:
        self.method, self.tasks, self.setting = method, tasks, setting
        self.task = tasks[-1]
        self.first = self.task.index == 0
        self.stages: list[Stage] = []
        self.numerics = numerics(setting.device)
        self.unstored = ""

    def plan(self, pieces: Pieces) -> tuple[tuple[Stage, ...], Pieces]:
        """Every stage in order."""
        method, auxiliary = self.method, self.method.auxiliary
        before = {"network": pieces["network"]} if not self.first else {}
        grown = self.add("grow", before, self.architecture())
        inputs = {"start": grown}
        settings: dict[str, Any] = {"loss": self.describe(method.task_loss), **self.learning()}
        if not self.first:
            settings |= self.pulls()
            if method.needs_importance:
                inputs["importance"] = pieces["importance"]
            if auxiliary:
                inputs |= self.auxiliary(auxiliary, grown, pieces)
                if auxiliary.renewed == "epoch":
                    settings["ahead"] = self.auxiliary_training(auxiliary)
        main = self.add("main", inputs, settings)
        after = {"network": main}
        if method.needs_importance and method.old:
            after["importance"] = self.importance(method.old.regularizer, main, grown, pieces)
        if auxiliary and auxiliary.start == "carried" and not self.first:
            after["carried"] = main if auxiliary.renewed == "epoch" else inputs["auxiliary"]
        self.add("evaluate", {"network": main}, self.evaluation())
        return tuple(self.stages), after

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
            return [_PROCESS, repr(type(part)), id(part)]

    def architecture(self) -> dict[str, Any]:
        """The network and how many classes it answers for."""
        identity = self.setting.architecture.identity()
        if not identity["stored"]:
            self.unstored = str(identity["why"])
            identity = {**identity, "process": _PROCESS}
        return {"architecture": identity, "classes": [describe(t.classes) for t in self.tasks]}

    def learning(self) -> dict[str, Any]:
        """What the main network learns from, and how."""
        used = self.tasks if self.method.data == "all" else self.tasks[-1:]
        return {
            "training": describe(self.setting.training.at(self.task.index)),
            "data": [task.key for task in used],
            "frozen blocks": frozen_blocks(self.method, self.tasks, self.setting),
            "watched": self.describe(type(self.method.watcher())),
            **self.images(),
            **self.view(),
        }

    def images(self) -> dict[str, Any]:
        """How images become inputs."""
        return {
            "augment": self.setting.augment,
            "normalization": describe(self.setting.normalization),
        }

    def view(self) -> dict[str, Any]:
        """The classes of every task; among one task's classes nothing needs to be told."""
        classes = [describe(task.classes) for task in self.tasks]
        told = None if self.first else self.setting.task_aware
        return {"classes": classes, "task_aware": told}

    def pulls(self) -> dict[str, Any]:
        """The anchors' terms with the numbers their λ stand for in this task."""
        method, counts = self.method, class_counts(self.task)
        found: dict[str, Any] = {"old": None, "auxiliary": None}
        if method.old:
            found["old"] = [
                self.describe(method.old.regularizer),
                weight_at(method.old.lamb, *counts),
            ]
        if method.auxiliary:
            aux = method.auxiliary
            found["auxiliary"] = [
                self.describe(aux.regularizer),
                weight_at(aux.lamb_a, *counts),
                aux.classes,
            ]
        return found

    def auxiliary(self, auxiliary: Auxiliary, grown: str, pieces: Pieces) -> dict[str, str]:
        """Stages that make the auxiliary network, and what the main training reads of them."""
        inputs = {"start": grown}
        if auxiliary.start == "carried" and "carried" in pieces:
            inputs["carried"] = pieces["carried"]
        if auxiliary.renewed == "epoch":
            return {name: key for name, key in inputs.items() if name != "start"}
        key = self.add("auxiliary", inputs, self.auxiliary_training(auxiliary))
        found = {"auxiliary": key}
        if isinstance(auxiliary.regularizer, WeightRegularizer):
            found["auxiliary importance"] = self.add(
                "auxiliary importance",
                {"network": key, "start": grown},
                self.estimation(auxiliary.regularizer),
            )
        return found

    def auxiliary_training(self, auxiliary: Auxiliary) -> dict[str, Any]:
        """What the auxiliary network learns from: this task alone, by the task loss alone."""
        return {
            "loss": self.describe(self.method.task_loss),
            "training": describe(self.setting.auxiliary.at(self.task.index)),
            "data": [self.task.key],
            "watched": self.describe(type(self.method.auxiliary_watcher())),
            "classes": describe(self.task.classes),
            **self.images(),
        }

    def importance(self, omega: Regularizer, main: str, grown: str, pieces: Pieces) -> str:
        """The stage that adds this task's importance to that of the tasks before."""
        inputs = {"network": main, "start": grown}
        if not self.first:
            inputs["before"] = pieces["importance"]
        return self.add("importance", inputs, self.estimation(omega))

    def estimation(self, omega: Regularizer) -> dict[str, Any]:
        """What an estimate of importance depends on."""
        return {
            "regularizer": self.describe(omega),
            "data": [self.task.key],
            "batch_size": self.setting.training.batch_size,
            "classes": [describe(task.classes) for task in self.tasks],
            **self.images(),
        }

    def evaluation(self) -> dict[str, Any]:
        """What accuracy depends on."""
        return {
            "test": [task.test_key for task in self.tasks],
            "val": [task.key for task in self.tasks],
            "classes": [describe(task.classes) for task in self.tasks],
            "normalization": describe(self.setting.normalization),
        }


def class_counts(task: Task) -> tuple[int, int]:
    """How many classes came before a task, and how many it has."""
    return task.classes.start, task.classes.stop - task.classes.start


def frozen_blocks(method: Method, tasks: Sequence[Task], setting: Setting) -> int:
    """How many of the head's blocks the main network leaves alone."""
    leaves = method.trains == "scenario" and setting.task_aware and method.data == "current"
    return len(tasks) - 1 if leaves else 0
