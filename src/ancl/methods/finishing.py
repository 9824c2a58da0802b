"""What follows the main network's training: correction, alignment, tuning, GDumb's training."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor, nn

from ancl.data import Samples
from ancl.errors import MethodError
from ancl.losses import CrossEntropy, View
from ancl.memory import Exemplars, oversampled
from ancl.methods.memory_update import memory_after
from ancl.methods.method import Finish
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.networks.heads import IdentityHead
from ancl.seeding import generator
from ancl.state import MEMORY, NETWORK
from ancl.store.entry import StageResult
from ancl.training.config import Training
from ancl.training.lambda_rules import weight_at
from ancl.training.loop import Fit, trained
from ancl.training.objective import Extra, Objective, PenaltyTerm, anchor_for
from ancl.types import Params, Step, prefixed


@dataclass(frozen=True)
class BiasCorrection(Finish):
    """Learn α z + β for the newest classes' logits on held-out images.  Equation: [bic].

    The images are equally many of each class and were never trained on; the network itself is
    frozen and in eval mode.

    Differs: the released code leaves batch norm in training mode here, by accident.

    Args:
        epochs: Over the held-out images.
        lr: The learning rate at the start.
        milestones: Epochs after which it is divided by 10.
        decay: Weight of β²/2 in the loss.
        augment: Whether the images are augmented like training images.
    """

    name = "bias"
    new_classes = True
    reads = ("memory", "bias")
    yields = ("bias",)
    epochs: int = 200
    lr: float = 0.1
    milestones: tuple[int, ...] = (60, 120, 160, 180)
    decay: float = 0.1
    augment: bool = False

    def run(self, work: TaskWork) -> StageResult:
        """Two numbers, kept as a scale and a shift of every class's logit."""
        held, classes = self._held(work), work.history.current
        student = work.infer.student(work.correction)
        network = work.network().eval()

        @torch.no_grad()
        def answer(x: Tensor) -> Tensor:
            output = network(x)
            return (student(output) if student else output).logits

        correction = Correction(classes.start, answer if self.augment else None)
        if not self.augment:  # the same logits in every epoch
            logits = [answer(batch.x).cpu() for batch in work.batches([held]).in_order()]
            held = Samples(torch.cat(logits), held.y)
        log = work.drive(self._fit(work, correction.to(work.device), held))
        alpha, beta = correction.alpha.item(), correction.beta.item()
        before, new = work.correction if student else {}, classes.stop - classes.start
        tensors = extended(before, classes.start, new, alpha, beta)
        return StageResult(prefixed("bias", tensors), {"log": log, "alpha": alpha, "beta": beta})

    def _held(self, work: TaskWork) -> Samples:
        """The held-out images of all classes, equally many of each."""
        memory = truncated(work).part(held=True)
        images = Samples.concatenate([work.held, memory])
        return as_many(work, images, work.kept[1], self.name)

    def _fit(self, work: TaskWork, correction: "Correction", samples: Samples) -> Fit:
        training = Training(
            epochs=self.epochs,
            lr=self.lr,
            lr_first=None,
            weight_decay=0.0,
            schedule="multistep",
            milestones=self.milestones,
        )
        augment = work.augment if self.augment else "none"
        return Fit(
            Network(correction, IdentityHead(work.history.current.stop)),
            Objective(CrossEntropy("seen"), extras=(Extra("shift", Shift(self.decay)),)),
            work.batches([samples], augment=augment, size=training.batch_size),
            None,
            View(work.history.tasks, task_aware=False),
            training,
            (work.seed, work.index, self.name),
        )


class Correction(nn.Module):
    """Logits with α z + β for all classes from ``start`` on.

    Args:
        start: The first class to be corrected.
        answer: From images to logits; if left out, logits are what is given.
    """

    def __init__(self, start: int, answer: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        # A function is not a submodule: its network is neither trained nor put into training mode.
        self.start, self._answer = start, answer
        self.alpha, self.beta = nn.Parameter(torch.ones(())), nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        """The corrected logits."""
        logits = self._answer(x) if self._answer else x
        new = self.alpha * logits[:, self.start :] + self.beta
        return torch.cat([logits[:, : self.start], new], dim=1)


@dataclass(frozen=True)
class Shift:
    """decay · β²/2: an L2 penalty on β."""

    decay: float

    def __call__(self, step: Step) -> Tensor:
        """The term, the same for every batch."""
        return self.decay / 2 * step.weights["beta"].square()


def extended(before: Params, start: int, new: int, alpha: float, beta: float) -> Params:
    """Scale and shift of every class: those before (else none), then α and β for the new ones."""
    tensors = {name: value.cpu() for name, value in before.items()}
    scale, shift = tensors.get("scale", torch.ones(start)), tensors.get("shift", torch.zeros(start))
    return {
        "scale": torch.cat([scale, torch.full((new,), alpha)]),
        "shift": torch.cat([shift, torch.full((new,), beta)]),
    }


@dataclass(frozen=True)
class Align(Finish):
    """Scale new classes' rows of the head to the old ones' mean length.  Equation: [wa].

    Biases stay, so that the logits are scaled too only where the head has none.
    """

    name = "align"
    new_classes = True
    reads = ()

    @torch.no_grad()
    def run(self, work: TaskWork) -> StageResult:
        """The network with its newest rows scaled by γ."""
        network = work.network()
        blocks = network.head.row_blocks()
        if not blocks:
            raise MethodError(
                f"Alignment scales a class's row, and a {type(network.head).__name__} has no one "
                f"row per class. Use head='unbiased' or 'linear'."
            )
        gamma = alignment(torch.cat(blocks[:-1]), blocks[-1])
        blocks[-1].mul_(gamma)
        return StageResult(prefixed("network", network.tensors()), {"gamma": float(gamma)})


def alignment(old: Tensor, new: Tensor) -> Tensor:
    """γ: the mean length of old rows over that of new ones."""
    least = torch.finfo(new.dtype).eps  # rows of zeros stay what they are
    gamma: Tensor = old.norm(dim=1).mean() / new.norm(dim=1).mean().clamp(min=least)
    return gamma


@dataclass(frozen=True)
class BalancedTuning(Finish):
    """Tune on equally many images of every class: the memory's and new exemplars.

    Args:
        epochs: Number of epochs.
        lr: The learning rate at the start; optimizer, batch and weight decay are the training's.
        factor: The same over the task's own rate; ``lr`` counts if left out.
        milestones: Epochs after which it is divided by 10; never if left out.
        trains: ``everything``, or the ``head``'s rows alone: batch norm then keeps its
            statistics, η stays, and an Ω on features or maps has no gradient.
        keeps: What it is held to besides the task loss, by the method's own Ω and λ: the
            network as it was ``before`` the tuning, for all classes (EEIL: old heads and, for
            the time being, the newest); the ``old`` network as in training; or ``nothing``.
    """

    name = "balanced_tuning"
    reads = ("memory", "old", "importance", "bias", "rate")
    epochs: int = 30
    lr: float = 0.01
    milestones: tuple[int, ...] = ()
    trains: Literal["everything", "head"] = "everything"
    keeps: Literal["before", "old", "nothing"] = "nothing"
    factor: float | None = None

    def run(self, work: TaskWork) -> StageResult:
        """The network after the tuning."""
        network = work.network()
        images = self._balanced(work, network)
        objective = Objective(work.task_loss, self._terms(work))
        if self.trains == "head":
            network.backbone.requires_grad_(False)
            for parameter in network.head.shared():
                parameter.requires_grad_(False)
        fit = work.fit(network, objective, images, [], self._training(work), self.name)
        return trained(fit, work.drive(fit))

    def _training(self, work: TaskWork) -> Training:
        training = work.training
        return replace(
            training,
            epochs=self.epochs,
            lr=self.lr if self.factor is None else self.factor * training.lr,
            lr_search=False,
            schedule="multistep" if self.milestones else "constant",
            milestones=self.milestones,
            gamma=0.1,
            warmup=0.0,
        )

    def _balanced(self, work: TaskWork, network: Network) -> list[Samples]:
        count = work.kept[0]
        old = truncated(work).part(held=False)
        parts = [work.chosen(network, count).samples, old]
        return [as_many(work, part, count, self.name) for part in parts]

    def _terms(self, work: TaskWork) -> tuple[PenaltyTerm, ...]:
        old = work.old
        if old is None or self.keeps == "nothing":
            return ()
        if self.keeps == "old":
            return (work.old_term(old),)
        classes, importance = slice(0, work.history.current.stop), work.importance_of("importance")
        anchor = anchor_for(old.regularizer, work.network(), classes, importance)
        lamb = weight_at(old.lamb, *work.history.counts)
        return (PenaltyTerm("old", lamb, old.regularizer, anchor),)


@dataclass(frozen=True)
class TrainOnMemory(Finish):
    """Train the network on what the memory holds from now on, and on nothing else (GDumb).

    It yields the memory too: where a rule of choice asks a network, that is the one it begins with.

    Args:
        epochs: Passes over the memory.
        lr: The largest learning rate.
        lr_min: The rate that a cycle of the schedule falls to.
        batch_size: Images per step.
        weight_decay: Added by the optimizer.
        clip: Largest norm of the gradient.
    """

    name = "memory_training"
    first = True
    yields = (NETWORK, MEMORY)
    equal_classes = False
    epochs: int = 256
    lr: float = 0.05
    lr_min: float = 0.0005
    batch_size: int = 16
    weight_decay: float = 1e-6
    clip: float = 10.0

    def run(self, work: TaskWork) -> StageResult:
        """The network after the training."""
        network = work.network()
        old, *new = memory_after(work, network)
        images = [part.samples for part in (*new, old) if len(part.samples)]
        objective, training = Objective(work.task_loss), self._training(work)
        fit = work.fit(network, objective, images, [], training, self.name)
        result = trained(fit, work.drive(fit))
        memory = Exemplars.joined([old, *new]).tensors()
        return StageResult(result.tensors | prefixed(MEMORY, memory), result.meta)

    def _training(self, work: TaskWork) -> Training:
        return replace(
            work.training,
            epochs=self.epochs,
            lr=self.lr,
            lr_min=self.lr_min,
            lr_search=False,
            batch_size=self.batch_size,
            optimizer="sgd",
            momentum=0.9,
            weight_decay=self.weight_decay,
            schedule="restarts",
            warmup=0.0,
            clip=self.clip,
        )


def truncated(work: TaskWork) -> Exemplars:
    """The memory of earlier tasks, cut to what each class may keep from now on.

    Of classes that come again nothing: their exemplars are chosen among the task's.
    """
    if work.exemplars is None:
        raise MethodError(
            "A stage after training reads exemplars, and there is no memory. Give one with "
            "memory.per_class or memory.total."
        )
    exemplars = work.exemplars.truncated(*work.kept)
    return exemplars.of_classes(work.history.returning, inside=False)


def as_many(work: TaskWork, samples: Samples, count: int, role: str) -> Samples:
    """Equally many images of each class, some drawn again where known classes come again."""
    if not work.history.returning:
        return samples
    return oversampled(samples, count, generator(work.seed, work.index, role, "again"))
