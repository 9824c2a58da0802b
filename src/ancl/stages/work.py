"""What a stage works with: networks from its inputs, the task's images, batches, trainings.

All of it is made of the stage's own fields, of its inputs and of the context.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ancl.data import Augment, Batches, Samples, Split
from ancl.data.samples import hold_out, unlike
from ancl.inference import Argmax, Infer, Known
from ancl.memory import Exemplars, Memory, drawn, select
from ancl.methods.lambda_rules import weight_at
from ancl.methods.method import Auxiliary, Term
from ancl.networks import Network
from ancl.regularizers import Evidence, Watcher, WeightRegularizer
from ancl.seeding import generator, seeded
from ancl.stages.features import with_features
from ancl.stages.importance import read_importance
from ancl.stages.stage import (
    AuxiliaryTraining,
    ImageFormat,
    ImageStage,
    Inputs,
    MainLearning,
    StageContext,
    TaskStage,
    TrainingStage,
)
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.auto import Auto
from ancl.training.config import Training
from ancl.training.loop import Drive, Fit
from ancl.training.objective import Objective, PenaltyTerm, anchor_for
from ancl.training.outer import OuterStep
from ancl.training.view import View
from ancl.types import Anchor, Classes, Importance, Output, Params, strip_prefix


def known(
    network: Network, images: ImageFormat, device: torch.device, classes: int, state: Inputs
) -> Known:
    """What inference may look at, of the state that a task left behind."""
    memory, bias = state.get("memory"), state.get("bias")
    return Known(
        images.answering(network, device),
        classes,
        _exemplars(memory, network.reads_features) if memory else None,
        strip_prefix("bias", bias.tensors) if bias else {},
    )


def _exemplars(memory: StageResult, features: bool) -> Exemplars:
    """A memory; its features only where the network reads them."""
    found = strip_prefix("memory", memory.tensors)
    if not features:
        found.pop("features", None)
    return Exemplars.of(found)


class StageWork:
    """One stage's networks and images."""

    def __init__(self, stage: TaskStage, inputs: Inputs, context: StageContext) -> None:
        self._stage, self.inputs, self._context = stage, inputs, context
        self.seed, self.index, self.history = stage.seed, stage.task, stage.history
        self.device = context.device
        self.images = with_features(context.images, inputs)
        known = stage.history.present
        self.present = None if known is None else torch.tensor(known, device=self.device)

    @property
    def drive(self) -> Drive:
        """Runs a training to its end."""
        return self._context.drive

    def say(self, message: str) -> None:
        """A message for the user."""
        self._context.say(message)

    def network(self, part: str = "network", sizes: Sequence[int] | None = None) -> Network:
        """A network from one of the inputs."""
        blocks = self.history.blocks if sizes is None else sizes
        with seeded(self.seed, self.index, "build"):
            found = strip_prefix("network", self.inputs[part].tensors)
            return self._stage.architecture.restore(blocks, found).to(self.device)

    @cached_property
    def exemplars(self) -> Exemplars | None:
        """The memory that earlier tasks left."""
        found = self.inputs.get("memory")
        return _exemplars(found, self._stage.architecture.fixed) if found else None

    def batches(
        self, parts: Sequence[Samples], *, augment: Augment = "none", size: int | None = None
    ) -> Batches:
        """The current task's samples, then any others, which are marked."""
        return Batches(
            Samples.concatenate(parts),
            size or self._stage.images.batch_size,
            self._stage.images.normalization,
            augment,
            self.device,
            exemplars=sum(map(len, parts[1:])),
        )

    def answer(self, network: Network) -> Callable[[Samples], Output]:
        """A function from samples to all their outputs, in eval mode, on the CPU."""
        return self._stage.images.answering(network, self.device)

    def known(self, network: Network) -> Known:
        """What inference may look at."""
        images, classes = self._stage.images, self.history.current.stop
        return known(network, images, self.device, classes, self.inputs)

    def importance_of(self, part: str) -> Importance:
        """Importance from one of the inputs; empty where it is not there."""
        found = self.inputs.get(part)
        return read_importance(found, self.device) if found else {}

    def tensors(self, part: str) -> Params:
        """What a finishing stage stored under its own name; empty where it is not there."""
        found = self.inputs.get(part)
        return strip_prefix(part, found.tensors) if found else {}


class ImageWork(StageWork):
    """One stage's networks, and the images of its task."""

    def __init__(self, stage: ImageStage, inputs: Inputs, context: StageContext) -> None:
        super().__init__(stage, inputs, context)
        self._data = stage.data

    @cached_property
    def split(self) -> Split:
        """The task's images, without those held out for the memory's validation part."""
        split = self.images(self._data.key)
        return replace(split, train=self._parted[0])

    @cached_property
    def held(self) -> Samples:
        """Images of the task's classes that nothing is trained on (BiC)."""
        if not self.history.returning:
            return self._parted[1]
        trained = Samples.concatenate([self._parted[0], self._again(held=False)])
        both = Samples.concatenate([self._parted[1], self._again(held=True)])
        randomness = generator(self.seed, self.index, "held again")
        return drawn(unlike(both, trained), self._data.held, randomness)

    @cached_property
    def pool(self) -> Samples:
        """What exemplars of the task's classes are chosen from: its images, and those kept."""
        if not self.history.returning:
            return self.split.train
        kept, none = self._again(held=False), self.split.train.take(torch.arange(0))
        return unlike(Samples.concatenate([self.split.train, kept]), none)

    def _again(self, *, held: bool) -> Samples:
        """Exemplars of the classes that come again."""
        if self.exemplars is None:
            return self.split.train.take(torch.arange(0))
        return self.exemplars.of_classes(self.history.returning, inside=True).part(held=held)

    @cached_property
    def _parted(self) -> tuple[Samples, Samples]:
        train = self.images(self._data.key).train
        return hold_out(train, self._data.held, (self.seed, self.index))

    def varied(self, parts: Sequence[Samples], size: int, role: str) -> Batches:
        """Batches to train on: augmented as the run says, or the method's fixed versions."""
        batches = self.batches(parts, augment=self._stage.images.augment, size=size)
        if not self._stage.images.versions:
            return batches
        return batches.enlarged(generator(self.seed, self.index, role, "versions"))

    def select(self, memory: Memory, network: Network, count: int) -> Exemplars:
        """This number of exemplars of each of the task's classes, as the memory chooses them."""
        return select(
            memory,
            self.pool,
            self.answer(network),
            task=self.index,
            count=count,
            randomness=generator(self.seed, self.index, "memory"),
        )

    def estimate(
        self,
        omega: WeightRegularizer,
        network: Network,
        watched: Params,
        role: str,
        epoch: int = 0,
    ) -> Importance:
        """Importance of a trained network's weights, from this task's own images."""
        batches = self.varied([self.split.train], self._stage.images.batch_size, role)
        path = (self.seed, self.index, role, "importance", epoch)

        def images(augmented: bool) -> Iterator[tuple[Tensor, Tensor]]:
            for batch in batches.shuffled(generator(*path), augmented=augmented):
                yield batch.x, batch.y

        weights = {n: w for n, w in network.weights().items() if w.requires_grad}
        start = {n: w.detach() for n, w in self.network("start").weights().items()}
        watched = {name: value.to(self.device) for name, value in watched.items()}
        with seeded(*path):
            return omega.importance(
                Evidence(network, weights, start, images, self.history.tasks, watched, self.present)
            )


class TrainingWork(ImageWork):
    """What a stage that trains works with."""

    def __init__(self, stage: TrainingStage, inputs: Inputs, context: StageContext) -> None:
        super().__init__(stage, inputs, context)
        self._learning = stage
        self.task_loss = stage.task_loss
        # Where known classes come again: over all classes, or within their own heads (TIL).
        again = self.present is not None
        rehearses = not stage.task_aware if again else self._rehearses()
        self.view = View(self.history.tasks, stage.task_aware, rehearses, self.present)
        self.alone = View(self.history.tasks, True, present=self.present, alone=again)

    @property
    def augment(self) -> Augment:
        """The run's augmentation."""
        return self._stage.images.augment

    def _rehearses(self) -> bool:
        """Whether images of earlier tasks are learned from too."""
        return "memory" in self.inputs

    @property
    def training(self) -> Training:
        """The stage's training, with the rate that was found where it is searched."""
        return self.with_rate(self._learning.training)

    def with_rate(self, training: Training) -> Training:
        """A training with the rate that was found, where it is searched."""
        if training.lr_search and "rate" in self.inputs:
            return replace(training, lr=self.inputs["rate"].meta["lr"])
        return training

    def fit(
        self,
        network: Network,
        objective: Objective,
        train: Sequence[Samples],
        val: Sequence[Samples],
        training: Training,
        role: str,
        watcher: Watcher | None = None,
        constrain: Constraint | None = None,
    ) -> Fit:
        """A training of the method's kind on any images; it may bring a constraint of its own.

        Patience without a validation image, as where every class has one image, judges by the
        images that are trained on.
        """
        if training.schedule == "patience" and not sum(map(len, val)):
            self.say(
                f"Task {self.index + 1} has no images to validate on, so patience judges the "
                f"{role} network by those it is trained on. Give more images of each class, or use "
                f"training.schedule=cosine."
            )
            val = train
        return Fit(
            network,
            objective,
            self.varied(train, training.batch_size, role),
            self.batches(val) if sum(map(len, val)) else None,
            self.view,
            training,
            (self.seed, self.index, role),
            watcher,
            constrain or self._learning.constrain,
        )

    def auxiliary_fit(self, of: AuxiliaryTraining, training: Training, *, validated: bool) -> Fit:
        """The auxiliary network's training: the task loss alone."""
        train = [self.split.train]
        if of.combined and self.exemplars:
            train.append(self.exemplars.part(held=False))
        fit = self.fit(
            self.auxiliary_network(of.frozen_blocks),
            Objective(self.task_loss, own_classes=not of.combined),
            train,
            [self.split.val] if validated else [],
            training,
            "auxiliary",
            of.watcher() if of.watcher else None,
        )
        if not of.combined:
            fit.view = self.alone
        return fit

    def auxiliary_network(self, frozen_blocks: int) -> Network:
        """The network the auxiliary training begins with."""
        network = self.network("start")
        carried = self.inputs.get("carried")
        if carried:
            name = "carried" if _has("carried", carried.tensors) else "network"
            network.load(network.tensors() | strip_prefix(name, carried.tensors))
        freeze(network, self.absent(frozen_blocks))
        return network

    def absent(self, blocks: int) -> list[int]:
        """Those of the head's first blocks of which no class comes again."""
        return [block for block in self.history.absent_blocks if block < blocks]


class MainWork(TrainingWork):
    """What a stage of the main network works with: its terms, and their anchors."""

    def __init__(self, stage: MainLearning, inputs: Inputs, context: StageContext) -> None:
        self._main, self.old = stage, stage.old
        super().__init__(stage, inputs, context)

    @property
    def infer(self) -> Infer:
        """How the method chooses a class, where that changes what is learned."""
        return self._main.correction or Argmax()

    def _rehearses(self) -> bool:
        return bool(self._main.earlier) or super()._rehearses()

    def old_network(self) -> Network:
        """The network as the last task left it; rows for new classes, if any, are not used."""
        if "old" in self.inputs:
            return self.network("old", self.history.blocks_before)
        return self.network("start")

    def main_network(self) -> Network:
        """The network to be trained, with what the method leaves alone frozen."""
        network = self.network("start")
        freeze(network, self.absent(self._main.frozen_blocks), self._main.frozen_backbone)
        return network

    def training_parts(self) -> tuple[list[Samples], list[Samples]]:
        """Images to train and to validate the main network on: this task's first, then others."""
        train, val = [self.split.train], [self.split.val]
        for key in self._main.earlier:
            split = self.images(key)
            train.append(split.train)
            val.append(split.val)
        if self.exemplars and not self._main.earlier:
            train.append(self.exemplars.part(held=False))
        return train, val

    def objective(self) -> Objective:
        """The main network's loss; in the first task the task loss alone."""
        stage = self._main
        return Objective(
            stage.task_loss,
            self.terms(),
            task_weight=stage.task_weight,
            extras=stage.extras,
            correct=self.infer.student(self.bias),
        )

    def outer_step(self, network: Network) -> OuterStep | None:
        """What moves some of the network's parameters between epochs, on balanced images."""
        outer = self._main.outer
        if outer is None or self.exemplars is None:
            return None
        kept, own = self.exemplars.part(held=False), self.split.train
        new = sorted(set(own.y.tolist()))
        others = [kept.of_class(label) for label in sorted({*kept.y.tolist()}.difference(new))]
        count = min(len(each) for each in (*map(own.of_class, new), *others))
        parts = [self.select(outer.memory, network, count).samples]
        if others:
            parts.append(kept.take(torch.cat([index[:count] for index in others])))
        batches = self.varied(parts, self.training.batch_size, "outer")
        return OuterStep(outer, network, batches, (self.seed, self.index, "main"))

    def terms(self) -> tuple[PenaltyTerm, ...]:
        """The terms of old and auxiliary network."""
        found: list[PenaltyTerm] = []
        old, auxiliary = self._main.old, self._main.auxiliary
        if old:
            found.append(self.old_term(old))
        if auxiliary and auxiliary.regularizer and auxiliary.renewed == "task":
            importance = self.importance_of("auxiliary importance")
            found.append(self.auxiliary_term(auxiliary, self.network("auxiliary"), importance))
        return tuple(found)

    def old_term(self, old: Term) -> PenaltyTerm:
        """The old network's term."""
        network, importance = self.old_network(), self.importance_of("importance")
        anchor = anchor_for(old.regularizer, network, self.history.old_classes, importance)
        lamb = weight_at(old.lamb, *self.history.counts)
        if isinstance(lamb, Auto) and "lamb" in self.inputs:
            lamb = replace(lamb, last=self.inputs["lamb"].meta["lambs"]["old"])
        return PenaltyTerm("old", lamb, old.regularizer, self.corrected(anchor))

    def auxiliary_term(
        self, auxiliary: Auxiliary, network: Network, importance: Importance
    ) -> PenaltyTerm:
        """The auxiliary network's term."""
        current = self.history.current
        classes: Classes = slice(current.start if auxiliary.classes == "new" else 0, current.stop)
        if self.present is not None and auxiliary.classes == "new":
            classes = self.present
        anchor = anchor_for(auxiliary.omega, network, classes, importance)
        if auxiliary.classes == "all":
            anchor = self.corrected(anchor)
        lamb_a = weight_at(auxiliary.lamb_a, *self.history.counts)
        steady = auxiliary.renewed == "task"
        return PenaltyTerm("auxiliary", lamb_a, auxiliary.omega, anchor, steady)

    @cached_property
    def bias(self) -> Params:
        """The correction the last task ended with; empty where there is none."""
        return {name: value.to(self.device) for name, value in self.tensors("bias").items()}

    def corrected(self, anchor: Anchor) -> Anchor:
        """An anchor whose answers have the correction the last task ended with."""
        forward, correct, bias = anchor.forward, self.infer.correct, self.bias
        if forward is None or not bias:
            return anchor
        return replace(anchor, forward=lambda x, maps: correct(forward(x, maps), bias))


def freeze(network: Network, blocks: Iterable[int], backbone: bool = False) -> None:
    """Leave these blocks of the head alone, and the backbone too where asked."""
    for index in blocks:
        for parameter in network.head.block(index):
            parameter.requires_grad_(False)
    if backbone:
        network.backbone.requires_grad_(False)


def _has(prefix: str, tensors: Mapping[str, Any]) -> bool:
    return any(name.startswith(f"{prefix}/") for name in tensors)
