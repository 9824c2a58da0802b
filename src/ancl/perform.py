"""What each stage does: a pure function of its inputs, the task's images and the settings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ancl.ahead import Ahead
from ancl.data import Batches, Samples, Split, Task
from ancl.files import Entry
from ancl.fit import Epoch, Fit, Saved, View, correct_answers
from ancl.method import Auxiliary, Method, weight_at
from ancl.networks import Network
from ancl.objective import Objective, Pull, anchor_for
from ancl.regularizers import Evidence, Regularizer, WeightRegularizer
from ancl.seeding import generator, seeded
from ancl.stages import Setting, Stage, class_counts, effective, frozen_blocks
from ancl.types import Importance, Params, prefixed, under

Inputs = Mapping[str, Entry]


class Trainer(Protocol):
    """What can be driven epoch by epoch and saved where it is settled."""

    settled: bool

    def __iter__(self) -> Iterator[Epoch]: ...
    def state(self) -> Saved: ...  # noqa: D102
    def restore(self, saved: Saved) -> None: ...  # noqa: D102
    def watched(self) -> Params: ...  # noqa: D102


Drive = Callable[[Trainer], list[dict[str, Any]]]
"""Runs a training to its end, from a checkpoint if there is one, and returns its log."""


@dataclass(frozen=True, eq=False)
class Job:
    """What stages have in common: method, tasks so far, settings, and a place for warnings."""

    method: Method
    tasks: Sequence[Task]
    setting: Setting
    say: Callable[[str], None]


def perform(stage: Stage, job: Job, inputs: Inputs, drive: Drive) -> Entry:
    """Compute one stage."""
    work = _Work(stage, job, inputs)
    if stage.name == "main":
        return work.train_main(drive)
    if stage.name == "auxiliary":
        return work.train_auxiliary(drive)
    return {
        "grow": work.grow,
        "auxiliary importance": work.auxiliary_importance,
        "importance": work.importance,
        "evaluate": work.evaluate,
    }[stage.name]()


class _Work:
    """One stage at work on one task."""

    def __init__(self, stage: Stage, job: Job, inputs: Inputs) -> None:
        self.method, self.setting = effective(job.method), job.setting
        self.inputs, self.say = inputs, job.say
        self.tasks = list(job.tasks[: stage.task + 1])
        self.index, self.task = stage.task, job.tasks[stage.task]
        self.view = View(tuple(task.classes for task in self.tasks), self.setting.task_aware)

    # -- stages ------------------------------------------------------------------------------

    def grow(self) -> Entry:
        """The network of the last task with a block for this task's classes."""
        with seeded(self.setting.seed, self.index, "grow"):
            network = self.setting.architecture.build(self.sizes()[:-1])
            if self.index:
                network.load(under("network", self.inputs["network"].tensors))
            network.head.grow(self.sizes()[-1])
        return Entry(prefixed("network", network.tensors()), {})

    def train_auxiliary(self, drive: Drive) -> Entry:
        """The auxiliary network: the task loss alone, on this task alone, to its end."""
        network = self.auxiliary_start()
        split = self.task.load()
        fit = self.auxiliary_fit(network, split, self.validation([split]))
        return self.trained(fit, drive(fit))

    def auxiliary_importance(self) -> Entry:
        """The auxiliary network's importance, fresh: nothing of earlier tasks is in it."""
        assert self.method.auxiliary is not None
        network = self.network("network")
        importance = self.estimate(
            self.method.auxiliary.regularizer, network, self.watched("network"), "auxiliary"
        )
        return Entry(flat(importance), {})

    def train_main(self, drive: Drive) -> Entry:
        """The main network: task loss, and the pulls to old and auxiliary network."""
        # Earlier tasks' images come last, where a batch marks them: they are another task's.
        earlier = self.tasks[:-1] if self.method.data == "all" else []
        splits = [task.load() for task in (self.task, *earlier)]
        network = self.network("start")
        freeze_blocks(network, frozen_blocks(self.method, self.tasks, self.setting))
        objective = Objective(self.method.task_loss, self.pulls())
        fit = Fit(
            network,
            objective,
            self.batches([split.train for split in splits], augment=self.setting.augment),
            self.validation(splits),
            self.view,
            self.setting.training.at(self.index),
            (self.setting.seed, self.index, "main"),
            self.method.watcher(),
        )
        self.warn_if_unstable(fit)
        auxiliary = self.method.auxiliary
        if not (auxiliary and auxiliary.renewed == "epoch" and self.index):
            return self.trained(fit, drive(fit))
        ahead_network = self.auxiliary_start()
        ahead = self.auxiliary_fit(ahead_network, splits[0], None)
        trainer = Ahead(fit, ahead, objective, self.renew(auxiliary, ahead_network))
        entry = self.trained(fit, drive(trainer))
        return Entry(entry.tensors | prefixed("carried", ahead_network.tensors()), entry.meta)

    def importance(self) -> Entry:
        """The old network's importance from now on: this task's, merged with those before."""
        assert self.method.old is not None
        omega = self.method.old.regularizer
        assert isinstance(omega, WeightRegularizer)
        network = self.network("network")
        now = self.estimate(omega, network, self.watched("network"), "main")
        before = self.importance_of("before") if "before" in self.inputs else None
        return Entry(flat(omega.merge(before, now)), {})

    @torch.no_grad()
    def evaluate(self) -> Entry:
        """Accuracy on every task so far, with the task told (taw) and not (tag)."""
        network = self.network("network").eval()
        rows: dict[str, list[float | None]] = {"taw": [], "tag": [], "taw_val": [], "tag_val": []}
        for task in self.tasks:
            split = task.load()
            for samples, suffix in ((split.test, ""), (split.val, "_val")):
                aware, agnostic = self.accuracy(network, samples)
                rows[f"taw{suffix}"].append(aware)
                rows[f"tag{suffix}"].append(agnostic)
        return Entry({}, rows)

    # -- pieces ------------------------------------------------------------------------------

    def sizes(self) -> list[int]:
        return [task.classes.stop - task.classes.start for task in self.tasks]

    def network(self, part: str) -> Network:
        """A network built from one of the inputs."""
        with seeded(self.setting.seed, self.index, "build"):
            network = self.setting.architecture.build(self.sizes())
        network.load(under("network", self.inputs[part].tensors))
        return network.to(self.setting.device)

    def auxiliary_start(self) -> Network:
        network = self.network("start")
        carried = self.inputs.get("carried")
        if carried:
            name = (
                "carried" if any(n.startswith("carried/") for n in carried.tensors) else "network"
            )
            network.load(network.tensors() | under(name, carried.tensors))
        freeze_blocks(network, len(self.tasks) - 1)
        return network

    def auxiliary_fit(self, network: Network, split: Split, val: Batches | None) -> Fit:
        return Fit(
            network,
            Objective(self.method.task_loss, own_classes=True),
            self.batches([split.train], augment=self.setting.augment),
            val,
            View(self.view.tasks, task_aware=True),
            self.setting.auxiliary.at(self.index),
            (self.setting.seed, self.index, "auxiliary"),
            self.method.auxiliary_watcher(),
        )

    def pulls(self) -> tuple[Pull, ...]:
        """The terms of old and auxiliary network; none in the first task."""
        found: list[Pull] = []
        if self.index == 0:
            return ()
        old, auxiliary, counts = self.method.old, self.method.auxiliary, class_counts(self.task)
        if old:
            importance = self.importance_of("importance")
            classes = slice(0, self.task.classes.start)
            anchor = anchor_for(old.regularizer, self.network("start"), classes, importance)
            found.append(Pull("old", weight_at(old.lamb, *counts), old.regularizer, anchor))
        if auxiliary and auxiliary.renewed == "task":
            found.append(
                self.auxiliary_pull(
                    auxiliary, self.network("auxiliary"), self.importance_of("auxiliary importance")
                )
            )
        return tuple(found)

    def auxiliary_pull(
        self, auxiliary: Auxiliary, network: Network, importance: Importance | None
    ) -> Pull:
        start = self.task.classes.start if auxiliary.classes == "new" else 0
        classes = slice(start, self.task.classes.stop)
        anchor = anchor_for(auxiliary.regularizer, network, classes, importance)
        lamb_a = weight_at(auxiliary.lamb_a, *class_counts(self.task))
        steady = auxiliary.renewed == "task"
        return Pull("auxiliary", lamb_a, auxiliary.regularizer, anchor, steady)

    def renew(self, auxiliary: Auxiliary, network: Network) -> Callable[[int], Pull]:
        def pull(epoch: int) -> Pull:
            importance = self.estimate(auxiliary.regularizer, network, {}, "auxiliary", epoch)
            return self.auxiliary_pull(auxiliary, network, importance)

        return pull

    def estimate(
        self, omega: Regularizer, network: Network, watched: Params, role: str, epoch: int = 0
    ) -> Importance:
        """Importance of a trained network's weights on this task's images."""
        assert isinstance(omega, WeightRegularizer)
        batches = self.batches([self.task.load().train], augment=self.setting.augment)
        path = (self.setting.seed, self.index, role, "importance", epoch)

        def images(augmented: bool) -> Iterator[tuple[Tensor, Tensor]]:
            for batch in batches.shuffled(generator(*path), augmented=augmented):
                yield batch.x, batch.y

        weights = network.weights()
        start = dict(self.network("start").weights()) if "start" in self.inputs else {}
        start = {name: weight.detach() for name, weight in start.items()}
        device = self.setting.device
        watched = {name: value.to(device) for name, value in watched.items()}
        with seeded(*path):
            return omega.importance(
                Evidence(network, weights, start, images, self.view.tasks, watched)
            )

    def importance_of(self, part: str) -> Importance:
        if part not in self.inputs:
            return {}
        device = self.setting.device
        found: Importance = {}
        for name, tensor in under("importance", self.inputs[part].tensors).items():
            kind, weight = name.split("/", 1)
            found.setdefault(kind, {})[weight] = tensor.to(device)
        return found

    def watched(self, part: str) -> Params:
        return under("watched", self.inputs[part].tensors)

    def batches(self, parts: Sequence[Samples], *, augment: str = "none") -> Batches:
        """The current task's samples, then any others."""
        return Batches(
            Samples.concatenate(parts),
            self.setting.training.batch_size,
            self.setting.normalization,
            augment,
            self.setting.device,
            exemplars=sum(map(len, parts[1:])),
        )

    def validation(self, splits: Sequence[Split]) -> Batches | None:
        parts = [split.val for split in splits]
        return self.batches(parts) if sum(map(len, parts)) else None

    def accuracy(self, network: Network, samples: Samples) -> tuple[float | None, float | None]:
        if not len(samples):
            return None, None
        aware = agnostic = 0
        for batch in self.batches([samples]).in_order():
            logits = network(batch.x).logits
            aware += int(correct_answers(logits, batch.y, View(self.view.tasks, True)))
            agnostic += int(correct_answers(logits, batch.y, View(self.view.tasks, False)))
        return aware / len(samples), agnostic / len(samples)

    def trained(self, fit: Fit, log: list[dict[str, Any]]) -> Entry:
        tensors = prefixed("network", fit.network.tensors()) | prefixed("watched", fit.watched())
        return Entry(tensors, {"log": log, "lambs": fit.objective.lambs})

    def warn_if_unstable(self, fit: Fit) -> None:
        training = fit.training
        reach, limit = training.lr * fit.steepest(), 2 * (1 + training.momentum)
        if training.penalty_step == "plain" and training.optimizer == "sgd" and reach > limit:
            self.say(
                f"Task {self.index}: lr · max(λF + λ_aF_aux) = {reach:.3g} is more than "
                f"2 (1 + momentum) = {limit:.3g}, so plain steps on the penalty may diverge. "
                f"Lower λ, λ_a or training.lr, or use --set training.penalty_step=proximal."
            )


def freeze_blocks(network: Network, count: int) -> None:
    """Leave the head's first blocks alone."""
    for index in range(count):
        for parameter in network.head.block(index):
            parameter.requires_grad_(False)


def flat(importance: Importance) -> Params:
    """Importance as named tensors."""
    return {
        f"importance/{kind}/{name}": tensor
        for kind, params in importance.items()
        for name, tensor in params.items()
    }
