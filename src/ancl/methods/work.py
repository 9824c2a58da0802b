"""What a method's own trainer, a stage after training and all other stages work with.

It is made of the parts that a stage holds, of what other stages computed, and of a context that
decides no number: what reads nothing else cannot find the result of other settings in the store.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import torch
from torch import Tensor

from ancl.data import Augment, Batches, ReplayStream, Samples, Split
from ancl.data.samples import hold_out, not_in
from ancl.errors import MethodError
from ancl.inference import Argmax, Infer, InferenceInputs
from ancl.losses import TaskLoss, View
from ancl.memory import Exemplars, Memory, sampled, select
from ancl.methods.parts import (
    AuxiliaryTraining,
    Inputs,
    StageContext,
    TaskParts,
    inference_inputs,
    read_base,
    read_exemplars,
    with_features,
)
from ancl.networks import Network
from ancl.networks.adapters import clear_adapters
from ancl.networks.learnable import narrow
from ancl.regularizers import Evidence, Watcher, WeightRegularizer
from ancl.seeding import generator, seeded
from ancl.state import (
    AUXILIARY,
    AUXILIARY_IMPORTANCE,
    CARRIED,
    IMPORTANCE,
    LAMB,
    MEMORY,
    NETWORK,
    OLD,
    RATE,
    START,
    read_importance,
)
from ancl.step_hooks import Constraint
from ancl.training.config import Training
from ancl.training.lambda_rules import Auto, weight_at
from ancl.training.loop import Drive, Fit
from ancl.training.objective import Auxiliary, Objective, PenaltyTerm, Term, anchor_for
from ancl.training.outer import OuterStep
from ancl.types import Anchor, Classes, Importance, Output, Params, strip_prefix


class TaskWork:
    """The networks, images, batches, trainings and terms of one task.

    What earlier stages computed is read by its name: ``work.network("start")``,
    ``work.state("covariance")``. ``ancl.state`` has the names; a stage of a method reads those
    that it declares in ``reads``.

    Args:
        index: The task's index, from 0.
        seed: Where all randomness comes from.
        parts: What the stage holds; to read another part is an error.
        inputs: The results that the stage reads.
        context: Where to compute and whom to tell.
        lamb: The λ that the main training ended with, in stages that follow it.

    Attributes:
        history: The classes of every task so far.
        present: The classes whose images the task brings, where known ones come again.
        images: Gives a task's images by their key.
    """

    def __init__(
        self,
        index: int,
        seed: int,
        parts: TaskParts,
        inputs: Inputs,
        context: StageContext,
        lamb: float | None = None,
    ) -> None:
        self.index, self.seed, self.inputs = index, seed, inputs
        self._parts, self._context, self._lamb = parts, context, lamb
        self.history, self.device = parts.history, context.device
        self.images = with_features(context.images, inputs)
        present = parts.history.present
        self.present = None if present is None else torch.tensor(present, device=self.device)

    @property
    def drive(self) -> Drive:
        """Runs a training to its end, from a checkpoint if there is one; returns its log."""
        return self._context.drive

    def say(self, message: str) -> None:
        """A message for the user."""
        self._context.say(message)

    # -- what other stages computed ----------------------------------------------------------

    def network(self, name: str = NETWORK, blocks: Sequence[int] | None = None) -> Network:
        """A network from one of the inputs; with other blocks of its head than now, if given."""
        sizes = self.history.blocks if blocks is None else blocks
        with seeded(self.seed, self.index, "build"):
            tensors = strip_prefix(NETWORK, self.inputs[name].tensors)
            return self._parts.architecture.restore(sizes, tensors, self._base, device=self.device)

    @cached_property
    def _base(self) -> Params:
        """What all networks of the task share."""
        return {name: tensor.to(self.device) for name, tensor in read_base(self.inputs).items()}

    def state(self, name: str) -> Params:
        """A piece of the state as named tensors; empty where it is not there."""
        result = self.inputs.get(name)
        return strip_prefix(name, result.tensors) if result else {}

    def importance_of(self, name: str) -> Importance:
        """Importance of weights from one of the inputs; empty where it is not there."""
        result = self.inputs.get(name)
        return read_importance(result.tensors, self.device) if result else {}

    @cached_property
    def exemplars(self) -> Exemplars | None:
        """The memory that earlier tasks left."""
        memory = self.inputs.get(MEMORY)
        return read_exemplars(memory, self._parts.architecture.fixed) if memory else None

    @cached_property
    def correction(self) -> Params:
        """What the last task left to correct answers by; empty where there is nothing."""
        pieces = self.infer.reads if self.infer.changes_learning else ()
        tensors = {name: value for piece in pieces for name, value in self.state(piece).items()}
        return {name: value.to(self.device) for name, value in tensors.items()}

    # -- images ------------------------------------------------------------------------------

    @cached_property
    def split(self) -> Split:
        """The task's images, without those held out for the memory's validation part."""
        train, piece = self._held_out[0], self._parts.data.piece
        if piece is not None:
            train = train.take(self.arrival(len(train))[slice(*piece)])
        return replace(self.images(self._parts.data.key), train=train)

    @cached_property
    def held(self) -> Samples:
        """Images of the task's classes that nothing is trained on (BiC)."""
        if not self.history.returning:
            return self._held_out[1]
        trained = Samples.concatenate([self._held_out[0], self._again(held=False)])
        both = Samples.concatenate([self._held_out[1], self._again(held=True)])
        randomness = generator(self.seed, self.index, "held again")
        return sampled(not_in(both, trained), self._parts.data.held, randomness)

    @property
    def kept(self) -> tuple[int, int]:
        """Images per class that the memory keeps from now on: to train on, to validate on."""
        return self._parts.kept

    @property
    def memory(self) -> Memory | None:
        """How exemplars are chosen, where there is a memory."""
        return self._parts.memory

    def chosen(self, network: Network, count: int) -> Exemplars:
        """This number of exemplars of each of the task's classes, as the memory chooses them."""
        if self._parts.memory is None:
            raise MethodError(
                "A stage after training chooses exemplars, and there is no memory. Give one with "
                "memory.per_class or memory.total."
            )
        return self._chosen_by(self._parts.memory, network, count)

    def _chosen_by(self, memory: Memory, network: Network, count: int) -> Exemplars:
        answer, randomness = self.answer(network), generator(self.seed, self.index, "memory")
        pool = self._newest_first if memory.selection == "ring" else self._pool
        return select(memory, pool, answer, task=self.index, count=count, randomness=randomness)

    def arrival(self, count: int) -> Tensor:
        """The order in which images of the task come."""
        return torch.randperm(count, generator=generator(self.seed, self.index, "arrival"))

    @property
    def _newest_first(self) -> Samples:
        """The pool: the task's images, the last to come first, then those that were kept."""
        pool, none = self._pool, self.split.train.take(torch.arange(0))
        again = self.history.returning
        count = len(not_in(self.split.train, none)) if again else len(pool)
        newest = self.arrival(count).flip(0)
        return pool.take(torch.cat([newest, torch.arange(count, len(pool))]))

    @property
    def _pool(self) -> Samples:
        """What exemplars of the task's classes are chosen from: its images, and those kept."""
        if not self.history.returning:
            return self.split.train
        exemplars, none = self._again(held=False), self.split.train.take(torch.arange(0))
        return not_in(Samples.concatenate([self.split.train, exemplars]), none)

    def _again(self, *, held: bool) -> Samples:
        """Exemplars of the classes that come again."""
        if self.exemplars is None:
            return self.split.train.take(torch.arange(0))
        return self.exemplars.of_classes(self.history.returning, inside=True).part(held=held)

    @cached_property
    def _held_out(self) -> tuple[Samples, Samples]:
        train, held = self.images(self._parts.data.key).train, self._parts.data.held
        return hold_out(train, held, (self.seed, self.index))

    def training_parts(self) -> tuple[list[Samples], list[Samples]]:
        """Images to train and to validate the main network on: this task's first, then others."""
        train, val = [self.split.train], [self.split.val]
        for key in self._parts.earlier:
            split = self.images(key)
            train.append(split.train)
            val.append(split.val)
        if self.exemplars and not self._parts.earlier:
            exemplars = self.exemplars.part(held=False)
            if self._parts.replay is None:
                train.append(exemplars)
            elif exemplars.features is None:  # both are read in one pass
                train = [replace(self.split.train, features=None)]
        return train, val

    def batches(
        self, parts: Sequence[Samples], *, augment: Augment = "none", size: int | None = None
    ) -> Batches:
        """The current task's samples, then any others, which are marked."""
        return Batches(
            Samples.concatenate(parts),
            size or self._parts.images.batch_size,
            self._parts.images.normalization,
            augment,
            self.device,
            exemplars=sum(map(len, parts[1:])),
        )

    def _training_batches(self, parts: Sequence[Samples], size: int, role: str) -> Batches:
        """Batches to train on: augmented as the run says, or the method's fixed versions."""
        batches = self.batches(parts, augment=self.augment, size=size)
        randomness = generator(self.seed, self.index, role, "versions")
        return batches.enlarged(randomness) if self._parts.images.versions else batches

    def replay_stream(self) -> ReplayStream | None:
        """Batches of the memory beside the task's, where the loss reads them."""
        if self._parts.replay is None or self.exemplars is None:
            return None
        exemplars, read = self.exemplars.marked(held=False), self.split.train.features is not None
        samples = exemplars.samples if read else replace(exemplars.samples, features=None)
        parts, renewal = [samples], self._parts.renewal
        if renewal:
            parts.append(self.split.train if read else replace(self.split.train, features=None))
        batches = self._training_batches(parts, self._parts.replay, "replay")
        batches = replace(batches, exemplars=len(batches.samples))
        if renewal:
            return renewal.stream(batches, exemplars.extra, len(samples), self.seed)
        return ReplayStream(batches, exemplars.extra)

    @property
    def augment(self) -> Augment:
        """The run's augmentation."""
        return self._parts.images.augment

    def answer(self, network: Network) -> Callable[[Samples], Output]:
        """A function from samples to all their outputs, in eval mode, on the CPU."""
        return self._parts.images.answering(network, self.device)

    def features(self, network: Network) -> Callable[[Samples], Tensor]:
        """A function from samples to their features, which do not depend on what else is asked."""
        compute = self._parts.images.exactly(network, self.device)
        return lambda samples: compute(samples) if samples.features is None else samples.features

    def inference_inputs(self, network: Network) -> InferenceInputs:
        """What inference may look at."""
        images, classes = self._parts.images, self.history.current.stop
        return inference_inputs(network, images, self.device, classes, self.inputs)

    # -- training ----------------------------------------------------------------------------

    @property
    def task_loss(self) -> TaskLoss:
        """The method's task loss."""
        return self._parts.task_loss

    @property
    def training(self) -> Training:
        """The stage's training in this task, with the rate that was found where it is searched."""
        training = self._parts.training
        if training.lr_search and RATE in self.inputs:
            return replace(training, lr=self.inputs[RATE].meta["lr"])
        return training

    @property
    def infer(self) -> Infer:
        """How the method chooses a class, where that changes what is learned."""
        return self._parts.correction or Argmax()

    @property
    def task_aware(self) -> bool:
        """Whether classes compete only within their task."""
        return self._parts.task_aware

    @property
    def view(self) -> View:
        """How a step sees classes."""
        task_aware, again = self._parts.task_aware, self.present is not None
        earlier = "earlier" in self._parts.held and bool(self._parts.earlier)
        # Where known classes come again: over all classes, or within their own heads (TIL).
        rehearses = not task_aware if again else earlier or MEMORY in self.inputs
        return View(self.history.tasks, task_aware, rehearses, self.present)

    @property
    def alone(self) -> View:
        """The same for a network that learns this task alone."""
        again = self.present is not None
        return View(self.history.tasks, True, present=self.present, alone=again)

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
            self._training_batches(train, training.batch_size, role),
            self.batches(val) if sum(map(len, val)) else None,
            self.view,
            training,
            (self.seed, self.index, role, *self._piece),
            watcher,
            constrain or self._parts.constrain,
        )

    @property
    def _piece(self) -> tuple[str, ...]:
        """Where randomness of a piece of the task comes from."""
        piece = self._parts.data.piece
        return () if piece is None else (f"from {piece[0]}",)

    def auxiliary_fit(self, of: AuxiliaryTraining, training: Training, *, validated: bool) -> Fit:
        """The auxiliary network's training: the task loss alone."""
        train = [self.split.train]
        if of.combined and self.exemplars:
            train.append(self.exemplars.part(held=False))
        fit = self.fit(
            self.auxiliary_network(of),
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

    def auxiliary_network(self, of: AuxiliaryTraining) -> Network:
        """The network the auxiliary training begins with."""
        network = self.network(START)
        if CARRIED in self.inputs:
            carried = self.state(CARRIED) or strip_prefix(NETWORK, self.inputs[CARRIED].tensors)
            network.load(network.tensors() | carried)
        if of.cleared:
            clear_adapters(network.backbone)
        network.freeze(self._absent(of.frozen_blocks))
        narrow(network.backbone, of.trains)
        return network

    def _absent(self, blocks: int) -> list[int]:
        """Those of the head's first blocks of which no class comes again."""
        return [block for block in self.history.absent_blocks if block < blocks]

    def main_network(self) -> Network:
        """The network to be trained, with what the method leaves alone frozen."""
        network, blocks = self.network(START), self._absent(self._parts.frozen_blocks)
        network.freeze(blocks, backbone=self._parts.frozen_backbone)
        return network

    def estimate(
        self,
        omega: WeightRegularizer,
        network: Network,
        watched: Params,
        role: str,
        epoch: int = 0,
        start: Network | None = None,
    ) -> Importance:
        """Importance of a trained network's weights, from this task's own images.

        Weights that learned nothing in it, as the auxiliary network's may, have none.
        """
        batches = self._training_batches([self.split.train], self._parts.images.batch_size, role)
        path: list[int | str] = [self.index, role, *self._piece, "importance", epoch]

        def images(augmented: bool) -> Iterator[tuple[Tensor, Tensor]]:
            for batch in batches.shuffled(generator(self.seed, *path), augmented=augmented):
                yield batch.x, batch.y

        weights = {n: w for n, w in network.weights().items() if w.requires_grad}
        began = (self.network(START) if start is None else start).weights()
        before = {n: w.detach() for n, w in began.items()}
        watched = {name: value.to(self.device) for name, value in watched.items()}
        seen = (self.history.tasks, watched, self.present)
        with seeded(self.seed, *path):
            importance = omega.importance(Evidence(network, weights, before, images, *seen))
        still = [n for n, w in began.items() if w.requires_grad and n not in weights]
        none = {name: torch.zeros_like(before[name]) for name in still}
        return (
            {kind: {**values, **none} for kind, values in importance.items()}
            if none
            else importance
        )

    # -- the main network's loss -------------------------------------------------------------

    @property
    def old(self) -> Term | None:
        """The old network's term, its λ the number of this task."""
        old = self._parts.old
        return old if old is None or self._lamb is None else replace(old, lamb=self._lamb)

    def objective(self) -> Objective:
        """The main network's loss; in the first task the task loss alone."""
        parts = self._parts
        return Objective(
            parts.task_loss,
            self._terms(),
            task_weight=parts.task_weight,
            extras=parts.extras,
            correct=self.infer.student(self.correction),
        )

    def outer_step(self, network: Network) -> OuterStep | None:
        """What moves some of the network's parameters between epochs, on balanced images."""
        outer = self._parts.outer
        if outer is None or self.exemplars is None:
            return None
        exemplars, train = self.exemplars.part(held=False), self.split.train
        new = sorted(set(train.y.tolist()))
        known = sorted({*exemplars.y.tolist()}.difference(new))
        others = [exemplars.of_class(label) for label in known]
        count = min(map(len, (*map(train.of_class, new), *others)))
        parts = [self._chosen_by(outer.memory, network, count).samples]
        if others:
            parts.append(exemplars.take(torch.cat([index[:count] for index in others])))
        batches = self._training_batches(parts, self.training.batch_size, "outer")
        return OuterStep(outer, network, batches, (self.seed, self.index, "main"))

    def _terms(self) -> tuple[PenaltyTerm, ...]:
        """The terms of old and auxiliary network."""
        terms: list[PenaltyTerm] = []
        old, auxiliary = self._parts.old, self._parts.auxiliary
        if old:
            terms.append(self.old_term(old))
        if auxiliary and auxiliary.regularizer and auxiliary.renewed == "task":
            importance = self.importance_of(AUXILIARY_IMPORTANCE)
            terms.append(self.auxiliary_term(auxiliary, self.network(AUXILIARY), importance))
        return tuple(terms)

    def old_term(self, old: Term) -> PenaltyTerm:
        """The old network's term."""
        lamb = weight_at(old.lamb, *self.history.counts)
        if isinstance(lamb, Auto) and LAMB in self.inputs:
            lamb = replace(lamb, last=self.inputs[LAMB].meta["lambs"][OLD])
        return PenaltyTerm(OLD, lamb, old.regularizer, self._corrected(self._old_anchor(old)))

    def _old_anchor(self, old: Term) -> Anchor:
        if old.stored:
            classes = self.history.stored_classes
            if self._parts.renewal:  # answers for new classes are stored in the task itself
                classes = slice(0, max(classes.stop, self.history.current.stop))
            return Anchor(classes, stored=True)
        # As the last task left it; rows for new classes, if it has any, are not used.
        before = (OLD, self.history.blocks_before) if OLD in self.inputs else (START, None)
        classes, copied = self.history.old_classes, self._parts.old_task
        if copied is not None:
            then = self.history.up_to(copied)
            before = (OLD, then.blocks)
            classes = classes if copied == self.index else slice(0, then.current.stop)
        network, importance = self.network(*before), self.importance_of(IMPORTANCE)
        return anchor_for(old.regularizer, network, classes, importance)

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
            anchor = self._corrected(anchor)
        lamb_a = weight_at(auxiliary.lamb_a, *self.history.counts)
        steady = auxiliary.renewed == "task"
        return PenaltyTerm(AUXILIARY, lamb_a, auxiliary.omega, anchor, steady)

    def _corrected(self, anchor: Anchor) -> Anchor:
        """An anchor whose answers have the correction the last task ended with."""
        forward, correct, extra = anchor.forward, self.infer.correct, self.correction
        if forward is None or not extra:
            return anchor
        return replace(anchor, forward=lambda x, maps: correct(forward(x, maps), extra))
