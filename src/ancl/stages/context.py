"""What a stage works with: networks from its inputs, the task's images, batches, trainings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor

from ancl.data import Batches, Samples, Split, Task
from ancl.inference import Known
from ancl.memory import Exemplars, select
from ancl.methods.method import Auxiliary, Method, Term, weight_at
from ancl.networks import Network
from ancl.regularizers import Evidence, Regularizer, Watcher, WeightRegularizer
from ancl.seeding import generator, seeded
from ancl.stages.plan import (
    Setting,
    Stage,
    block_sizes,
    class_counts,
    drop_zero_terms,
    extras_of,
    frozen_parts,
    held_count,
    old_classes,
)
from ancl.store.entry import StageResult
from ancl.training.config import Training
from ancl.training.loop import Epoch, Fit, Saved, View
from ancl.training.objective import Objective, PenaltyTerm, anchor_for
from ancl.types import Anchor, Importance, Output, Params, prefixed, read_importance, strip_prefix

Inputs = Mapping[str, StageResult]


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


class Workbench:
    """One stage's method, task and inputs, and what it makes of them."""

    def __init__(self, stage: Stage, job: Job, inputs: Inputs) -> None:
        self.method, self.setting = drop_zero_terms(job.method), job.setting
        self.inputs, self.say = inputs, job.say
        self.tasks = list(job.tasks[: stage.task + 1])
        self.index, self.task = stage.task, job.tasks[stage.task]
        self.view = View(tuple(task.classes for task in self.tasks), self.setting.task_aware)
        self.seed = self.setting.seed

    # -- networks ----------------------------------------------------------------------------

    def network(self, part: str = "network", sizes: Sequence[int] | None = None) -> Network:
        """A network from one of the inputs."""
        with seeded(self.seed, self.index, "build"):
            network = self.setting.architecture.build(
                block_sizes(self.tasks) if sizes is None else sizes
            )
        network.load(strip_prefix("network", self.inputs[part].tensors))
        return network.to(self.setting.device)

    def old_network(self) -> Network:
        """The network as the last task left it (with new rows that nobody asks, if any)."""
        if "old" in self.inputs:
            return self.network("old", block_sizes(self.tasks[:-1]))
        return self.network("start")

    def main_network(self) -> Network:
        """The network to be trained, with what the method leaves alone frozen."""
        network = self.network("start")
        freeze(network, *frozen_parts(self.method, self.tasks, self.setting))
        return network

    def auxiliary_network(self) -> Network:
        """The network the auxiliary training begins with."""
        network = self.network("start")
        carried = self.inputs.get("carried")
        if carried:
            name = "carried" if _has("carried", carried.tensors) else "network"
            network.load(network.tensors() | strip_prefix(name, carried.tensors))
        blocks = len(block_sizes(self.tasks)) - 1
        combined = self.method.auxiliary is not None and self.method.auxiliary.data == "combined"
        freeze(
            network, frozen_parts(self.method, self.tasks, self.setting)[0] if combined else blocks
        )
        return network

    # -- images ------------------------------------------------------------------------------

    @cached_property
    def split(self) -> Split:
        """The task's images, without those held out for the memory's validation part."""
        split = self.task.load()
        kept, _ = self._parted(split.train)
        return replace(split, train=kept)

    @cached_property
    def held(self) -> Samples:
        """The task's images that nothing is trained on (BiC)."""
        return self._parted(self.task.load().train)[1]

    @cached_property
    def exemplars(self) -> Exemplars | None:
        """The memory that earlier tasks left."""
        found = self.inputs.get("memory")
        return Exemplars.of(strip_prefix("memory", found.tensors)) if found else None

    def _parted(self, train: Samples) -> tuple[Samples, Samples]:
        count = held_count(self.method, self.tasks, self.setting)
        order = torch.randperm(len(train), generator=generator(self.seed, self.index, "held out"))
        shuffled = train.y[order]
        held = torch.zeros(len(train), dtype=torch.bool)
        for label in sorted(set(train.y.tolist())) if count else ():
            held[order[(shuffled == label).nonzero().squeeze(1)[:count]]] = True
        return (
            train.take((~held).nonzero().squeeze(1)),
            train.take(held.nonzero().squeeze(1)),
        )

    def training_parts(self) -> tuple[list[Samples], list[Samples]]:
        """Images to train and to validate the main network on: this task's first, then others."""
        train, val = [self.split.train], [self.split.val]
        if self.method.data == "all":
            earlier = [task.load() for task in self.tasks[:-1]]
            train += [split.train for split in earlier]
            val += [split.val for split in earlier]
        elif self.exemplars:
            train.append(self.exemplars.part(held=False))
        return train, val

    def batches(
        self, parts: Sequence[Samples], *, augment: str = "none", size: int | None = None
    ) -> Batches:
        """The current task's samples, then any others, which are marked."""
        return Batches(
            Samples.concatenate(parts),
            size or self.setting.training.batch_size,
            self.setting.normalization,
            augment,
            self.setting.device,
            exemplars=sum(map(len, parts[1:])),
        )

    def varied(self, parts: Sequence[Samples], size: int, role: str) -> Batches:
        """Batches to train on: augmented as the run says, or the method's fixed versions."""
        batches = self.batches(parts, augment=self.setting.augment, size=size)
        if not (self.method.enlarge and self.index):
            return batches
        return batches.enlarged(generator(self.seed, self.index, role, "versions"))

    def validation(self, parts: Sequence[Samples]) -> Batches | None:
        """Batches to validate on, where there is anything to."""
        return self.batches(parts) if sum(map(len, parts)) else None

    def answer(self, network: Network) -> Callable[[Samples], Output]:
        """A function from samples to all their outputs, in eval mode, on the CPU."""
        return answering(network, self.setting)

    def chosen(self, network: Network, count: int) -> Exemplars:
        """So many exemplars of each of the task's classes, as the memory chooses them."""
        assert self.setting.memory is not None
        return select(
            self.setting.memory,
            self.split.train,
            self.answer(network),
            task=self.index,
            count=count,
            randomness=generator(self.seed, self.index, "memory"),
        )

    def known(self, network: Network) -> Known:
        """What inference may look at."""
        return known(network, self.setting, self.task.classes.stop, self.inputs)

    # -- trainings ---------------------------------------------------------------------------

    def rate(self, training: Training) -> Training:
        """The training with the rate that was found, where it is searched."""
        resolved = training.at(self.index)
        if resolved.lr_search and "rate" in self.inputs:
            return replace(resolved, lr=self.inputs["rate"].meta["lr"])
        return resolved

    def fit(
        self,
        network: Network,
        objective: Objective,
        train: Sequence[Samples],
        val: Sequence[Samples],
        training: Training,
        role: str,
        watcher: Watcher | None = None,
    ) -> Fit:
        """A training of the method's kind on any images."""
        return Fit(
            network,
            objective,
            self.varied(train, training.batch_size, role),
            self.validation(val),
            self.view,
            training,
            (self.seed, self.index, role),
            watcher,
            self.method.constrain,
        )

    def auxiliary_fit(self, network: Network, training: Training, *, validated: bool) -> Fit:
        """The auxiliary network's training: the task loss alone."""
        auxiliary = self.method.auxiliary
        combined = auxiliary is not None and auxiliary.data == "combined"
        train = [self.split.train]
        if combined and self.exemplars:
            train.append(self.exemplars.part(held=False))
        fit = self.fit(
            network,
            Objective(self.method.task_loss, own_classes=not combined),
            train,
            [self.split.val] if validated else [],
            training,
            "auxiliary",
            self.method.auxiliary_watcher(),
        )
        if not combined:
            fit.view = View(self.view.tasks, task_aware=True)
        return fit

    def objective(self) -> Objective:
        """The main network's loss; in the first task the task loss alone."""
        method = self.method
        if self.index == 0:
            return Objective(method.task_loss)
        return Objective(
            method.task_loss,
            self.pulls(),
            task_weight=weight_at(method.task_weight, *class_counts(self.task)),
            extras=extras_of(method, self.task),
            correct=method.infer.student(self.bias),
        )

    def pulls(self) -> tuple[PenaltyTerm, ...]:
        """The terms of old and auxiliary network."""
        found: list[PenaltyTerm] = []
        old, auxiliary = self.method.old, self.method.auxiliary
        if old:
            found.append(self.old_pull(old))
        if auxiliary and auxiliary.renewed == "task":
            importance = self.importance_of("auxiliary importance")
            found.append(self.auxiliary_pull(auxiliary, self.network("auxiliary"), importance))
        return tuple(found)

    def old_pull(self, old: Term) -> PenaltyTerm:
        """The old network's term."""
        network, importance = self.old_network(), self.importance_of("importance")
        anchor = anchor_for(old.regularizer, network, old_classes(self.task), importance)
        lamb = weight_at(old.lamb, *class_counts(self.task))
        return PenaltyTerm("old", lamb, old.regularizer, self.corrected(anchor))

    @cached_property
    def bias(self) -> Params:
        """The correction the last task ended with; empty where there is none."""
        found = strip_prefix("bias", self.inputs["bias"].tensors) if "bias" in self.inputs else {}
        return {name: value.to(self.setting.device) for name, value in found.items()}

    def corrected(self, anchor: Anchor) -> Anchor:
        """An anchor whose answers have the correction the last task ended with."""
        forward, correct, bias = anchor.forward, self.method.infer.correct, self.bias
        if forward is None or not bias:
            return anchor
        return replace(anchor, forward=lambda x, maps: correct(forward(x, maps), bias))

    def auxiliary_pull(
        self, auxiliary: Auxiliary, network: Network, importance: Importance
    ) -> PenaltyTerm:
        """The auxiliary network's term."""
        start = self.task.classes.start if auxiliary.classes == "new" else 0
        classes = slice(start, self.task.classes.stop)
        anchor = anchor_for(auxiliary.regularizer, network, classes, importance)
        if auxiliary.classes == "all":
            anchor = self.corrected(anchor)
        lamb_a = weight_at(auxiliary.lamb_a, *class_counts(self.task))
        steady = auxiliary.renewed == "task"
        return PenaltyTerm("auxiliary", lamb_a, auxiliary.regularizer, anchor, steady)

    # -- importance --------------------------------------------------------------------------

    def estimate(
        self, omega: Regularizer, network: Network, watched: Params, role: str, epoch: int = 0
    ) -> Importance:
        """Importance of a trained network's weights, from this task's own images."""
        assert isinstance(omega, WeightRegularizer)
        batches = self.varied([self.split.train], self.setting.training.batch_size, role)
        path = (self.seed, self.index, role, "importance", epoch)

        def images(augmented: bool) -> Iterator[tuple[Tensor, Tensor]]:
            for batch in batches.shuffled(generator(*path), augmented=augmented):
                yield batch.x, batch.y

        weights = {n: w for n, w in network.weights().items() if w.requires_grad}
        watched = {name: value.to(self.setting.device) for name, value in watched.items()}
        with seeded(*path):
            return omega.importance(
                Evidence(network, weights, self.start, images, self.view.tasks, watched)
            )

    @cached_property
    def start(self) -> Params:
        """The backbone's weights as the task began with them."""
        return {n: w.detach() for n, w in self.network("start").weights().items()}

    def importance_of(self, part: str) -> Importance:
        """Importance from one of the inputs; empty where it is not there."""
        if part not in self.inputs:
            return {}
        found = read_importance(self.inputs[part].tensors)
        device = self.setting.device
        return {kind: {n: t.to(device) for n, t in each.items()} for kind, each in found.items()}


def answering(network: Network, setting: Setting) -> Callable[[Samples], Output]:
    """A function from samples to all their outputs, in eval mode, on the CPU."""

    @torch.no_grad()
    def answers(samples: Samples) -> Output:
        network.eval()
        size, device = setting.training.batch_size, setting.device
        batches = Batches(samples, size, setting.normalization, device=device)
        outputs = [network(batch.x) for batch in batches.in_order()]
        return Output(
            torch.cat([output.logits.cpu() for output in outputs]),
            torch.cat([output.features.cpu() for output in outputs]),
        )

    return answers


def known(network: Network, setting: Setting, classes: int, pieces: Inputs) -> Known:
    """What inference may look at, of the pieces that a task left behind."""
    memory, bias = pieces.get("memory"), pieces.get("bias")
    return Known(
        answering(network, setting),
        classes,
        Exemplars.of(strip_prefix("memory", memory.tensors)) if memory else None,
        strip_prefix("bias", bias.tensors) if bias else {},
    )


def trained(fit: Fit, log: list[dict[str, Any]], **lambs: float) -> StageResult:
    """What a training leaves behind."""
    tensors = prefixed("network", fit.network.tensors()) | prefixed("watched", fit.watched())
    return StageResult(tensors, {"log": log, "lambs": {**fit.objective.lambs, **lambs}})


def freeze(network: Network, blocks: int, backbone: bool = False) -> None:
    """Leave the head's first blocks alone, and the backbone too where asked."""
    for index in range(blocks):
        for parameter in network.head.block(index):
            parameter.requires_grad_(False)
    if backbone:
        network.backbone.requires_grad_(False)


def _has(prefix: str, tensors: Params) -> bool:
    return any(name.startswith(f"{prefix}/") for name in tensors)
