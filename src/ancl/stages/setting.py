"""What decides the stages of a task besides its method: the setting of a run, and its trainings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ancl.data import Augment, Normalization, Task, bounded_size, check_augmentation
from ancl.memory import Memory
from ancl.methods.method import MainTrainer, Method
from ancl.methods.parts import AuxiliaryTraining, ImageFormat, TaskImages
from ancl.methods.task_history import ClassHistory, kept_counts
from ancl.methods.variants import drop_zero_terms
from ancl.networks import Architecture
from ancl.stages.windows import Windows
from ancl.training.config import Training
from ancl.training.lambda_rules import weight_at
from ancl.training.objective import Auxiliary, Extra
from ancl.training.renewal import Renewal


@dataclass(frozen=True, eq=False)
class Setting:
    """All that decides a run besides its method and its tasks.

    Args:
        architecture: The network.
        training: How the main network is trained.
        auxiliary: How the auxiliary network is trained.
        normalization: Of images; none for other inputs.
        augment: The augmentation of training images.
        memory: What is kept of earlier tasks' images; nothing if left out.
        task_aware: Whether the task of a sample is known at test time (TIL).
        seed: Where all randomness comes from.
        device: Where to compute.
        rows: The number of classes of a head that has all of them from the start; none if it grows.
        renewed: Whether the memory takes every batch of a task that is learned, and not the task.
        windows: How tasks are learned piece by piece, where they are parts of a stream that comes
            once.
    """

    architecture: Architecture
    training: Training
    auxiliary: Training
    normalization: Normalization | None
    augment: Augment = "none"
    memory: Memory | None = None
    task_aware: bool = True
    seed: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    rows: int | None = None
    renewed: bool = False
    windows: Windows | None = None

    def __post_init__(self) -> None:
        check_augmentation(self.augment, self.architecture.input_shape, self.normalization)

    @property
    def images(self) -> ImageFormat:
        """How images become batches where nothing is trained."""
        size = bounded_size(self.training.batch_size, self.architecture.input_shape)
        return ImageFormat(self.normalization, size)


class TaskTrainings:
    """How the networks of one task are trained, as fields of their stages.

    Args:
        method: The method; what has λ = 0 is left out of it.
        tasks: All so far; the last is learned.
        setting: All that decides the run besides.
    """

    def __init__(self, method: Method, tasks: Sequence[Task], setting: Setting) -> None:
        self.method, self.tasks, self.setting = drop_zero_terms(method), tasks, setting
        self.task, self.history = tasks[-1], ClassHistory.of(tasks, setting.rows)
        self.first = self.task.index == 0
        self.kept = kept_counts(setting.memory, method.hold_out, self.history)
        self.data = TaskImages(self.task.key, self.kept[1])
        # One batch size for all that is not trained, whatever network it is of.
        self.varied = replace(setting.images, augment=setting.augment)
        if self.method.enlarge and not self.first:
            self.varied = replace(setting.images, versions=True)

    @property
    def trainer(self) -> MainTrainer | None:
        """The method's own training, where it has one for this task."""
        trainer = self.method.trainer
        return trainer if trainer and (trainer.first or not self.first) else None

    def training_parts(self, of: AuxiliaryTraining, *, task_aware: bool) -> dict[str, Any]:
        """What any training on the task's images depends on."""
        return {
            "task_loss": self.method.task_loss,
            "training": of.training,
            "watcher": of.watcher,
            "frozen_blocks": of.frozen_blocks,
            "constrain": self.method.constrain,
            "data": self.data,
            "images": self.varied,
            "task_aware": task_aware,
        }

    def main_parts(self) -> dict[str, Any]:
        """What the main network learns from, and how: in the first task by no other term."""
        method, first = self.method, self.first
        blocks, backbone = self.frozen_parts()
        training = self.training(self.setting.training, first)
        of = AuxiliaryTraining(training, method.watcher, blocks)
        # Among one task's classes nothing needs to be known, and there is nothing to hold to.
        parts = self.training_parts(of, task_aware=self.setting.task_aware and not first) | {
            "frozen_backbone": backbone,
            "earlier": tuple(t.key for t in self.tasks[:-1]) if method.data == "all" else (),
            "task_weight": 1.0,
            "extras": self.extras(lambda extra: extra.first),
            **dict.fromkeys(("old", "auxiliary", "alternating", "correction")),
        }
        return parts if first else parts | self.terms()

    def terms(self) -> dict[str, Any]:
        """The other terms, with the numbers their λ stand for in this task."""
        method, counts = self.method, self.history.counts
        terms: dict[str, Any] = {
            "task_weight": weight_at(method.task_weight, *counts),
            "extras": self.extras(lambda e: self.history.adds_classes or not e.new_classes),
            "correction": method.infer if method.infer.changes_learning else None,
        }
        # What it moves is there once a second group of classes let the network grow.
        if method.outer and self.setting.memory and len(self.history.blocks) > 1:
            terms["outer"] = replace(method.outer, memory=self.chooser(self.setting.memory))
        if method.replays and self.setting.memory:
            terms |= {"replay": self.setting.memory.batch, "retrieve": method.retrieve}
            if self.setting.renewed:
                rule = self.setting.memory.selection
                terms["renewal"] = Renewal(rule, self.kept[0], method.records)
        if method.old:
            terms["old"] = replace(method.old, lamb=weight_at(method.old.lamb, *counts))
        if method.auxiliary:
            lamb_a = weight_at(method.auxiliary.lamb_a, *counts)
            terms["auxiliary"] = replace(method.auxiliary, lamb_a=lamb_a)
            if method.auxiliary.renewed == "epoch":
                terms["alternating"] = self.auxiliary_training(method.auxiliary)
        return terms

    def measured(self) -> dict[str, Any]:
        """After how many epochs the main network is tested, and on which images."""
        every = self.setting.training.evaluate_every
        tests = tuple(task.test_key for task in self.tasks if task.is_column)
        return {"evaluate_every": every, "tests": tests} if every else {}

    def extras(self, wanted: Callable[[Extra], bool]) -> tuple[Extra, ...]:
        """The method's extra terms that mean something in this task."""
        told = self.setting.task_aware
        return tuple(e for e in self.method.extras if wanted(e) and (e.told or not told))

    def auxiliary_training(self, auxiliary: Auxiliary) -> AuxiliaryTraining:
        """How the auxiliary network is trained: on this task, with the task loss alone."""
        combined = auxiliary.data == "combined"
        blocks = self.frozen_parts()[0] if combined else self.history.earlier_blocks
        training = self.training(self.setting.auxiliary, True)
        return AuxiliaryTraining(
            training,
            self.method.auxiliary_watcher,
            blocks,
            combined,
            auxiliary.trains,
            auxiliary.start == "zero",
        )

    def training(self, training: Training, task_loss_alone: bool) -> Training:
        """A training with the values of this task, and what patience judges by decided.

        Where the loss is the task loss alone, two values mean the same: stages share one.
        """
        by = training.select_by or self.method.select_by
        if task_loss_alone and by == "task_loss":
            by = "loss"
        # What is measured on the way is a matter of the main network's stage.
        return replace(training.at(self.task.index), select_by=by, evaluate_every=None)

    def frozen_parts(self) -> tuple[int, bool]:
        """How many of the head's first blocks the main network leaves alone, and its backbone."""
        method, blocks = self.method, self.history.earlier_blocks
        over = getattr(method.task_loss, "over", None)
        rehearses = self.setting.memory is not None or method.data == "all"
        if self.history.returning and not self.setting.task_aware:
            rehearses = rehearses or over != "own_task"
        # As in FACIL: without images of old classes nothing should move their rows.
        alone = not rehearses and over != "seen"
        leaves = method.trains == "new rows" or (method.trains != "everything" and alone)
        return blocks if leaves else 0, method.trains == "head" and not self.first

    def chooser(self, memory: Memory) -> Memory:
        """How exemplars are chosen, without their number: that is another field."""
        return Memory(selection=memory.selection)
