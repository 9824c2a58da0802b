"""DER: one feature extractor for every task, and one classifier on all.  Equation: [der]."""

import copy
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.data import Samples
from ancl.errors import MethodError
from ancl.losses import CrossEntropy, Over, TaskLoss
from ancl.methods.finishing import Align
from ancl.methods.growing.masks import (
    mask_blocks,
    masked_convolutions,
    pruned,
    set_scale,
    used_share,
)
from ancl.methods.method import Finish, Method
from ancl.methods.rehearsal import EXEMPLARS
from ancl.methods.work import TaskWork
from ancl.networks import Backbone, Growth, as_backbone
from ancl.seeding import generator, seeded
from ancl.store.entry import StageResult
from ancl.training.config import Training
from ancl.training.loop import trained
from ancl.training.objective import Extra, Objective
from ancl.types import Params, Step

SIDE = "side"
"""Logits of the side head: one for all old classes, then one for each of the task's own."""
USED = "used"
"""The share of the newest extractor's weights that its masks leave in use."""


@dataclass(frozen=True)
class Extractors(Growth):
    """A new extractor for every task; those before it never learn again.  Equation: [der].

    Args:
        reuse: Whether the classifier's old part is kept when a task begins, with weights of 0 for
            new features, or the whole of it is drawn anew.
        bias: Whether the side head has biases.
        mask_scale: The largest scale s of the masks on the inner channels of residual blocks,
            from the second extractor on; no masks if left out.
    """

    reuse: bool = False
    bias: bool = False
    mask_scale: float | None = None

    def around(self, backbone: nn.Module, feature_size: int) -> nn.Module:
        """The list of extractors, of which the backbone is the first."""
        if self.mask_scale is not None:
            mask_blocks(copy.deepcopy(backbone))  # refuses one that has no residual blocks
        return ExtractorList(backbone, feature_size, self)


class ExtractorList(Backbone):
    """Features of all extractors side by side, and the side head on the newest one's alone.

    The side head is not part of inference: the next task makes a new one.

    Args:
        extractor: The first extractor.
        feature_size: The number of features that each of them yields.
        growth: How they grow.
    """

    def __init__(self, extractor: nn.Module, feature_size: int, growth: Extractors) -> None:
        super().__init__()
        self.extractors = nn.ModuleList([extractor])
        self.side: nn.Linear | None = None
        self.fresh_head = not growth.reuse
        self.feature_size = self._each = feature_size
        self._growth, self._tasks = growth, 0

    def add_task(self, classes: int) -> None:
        """From the second task on, append a copy of the newest extractor and freeze all others."""
        if self._tasks:
            newest = copy.deepcopy(self.extractors[-1])
            self.extractors.requires_grad_(False)
            self.extractors.append(newest)
            if self._growth.mask_scale is not None:
                mask_blocks(newest)
            self.side = nn.Linear(self._each, classes + 1, bias=self._growth.bias)
        as_backbone(self.extractors[-1]).add_task(classes)
        self.feature_size = len(self.extractors) * self._each
        self._tasks += 1

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, extractors · features of each)."""
        return torch.cat([extractor(x) for extractor in self.extractors], dim=1)

    def with_side(self, x: Tensor) -> tuple[Tensor, Params]:
        """The same, and what the terms of the loss read besides."""
        features = [extractor(x) for extractor in self.extractors]
        side: Params = {}
        if self.side is not None:
            side[SIDE] = self.side(features[-1])
            if self._growth.mask_scale is not None:
                side[USED] = used_share(self.extractors[-1]).unsqueeze(0)
        return torch.cat(features, dim=1), side

    def at(self, epoch: int, batch: int, batches: int) -> None:
        """Set the scale of the newest extractor's masks."""
        if self._growth.mask_scale is not None:
            set_scale(self.extractors[-1], self._growth.mask_scale, batch, batches)

    def stored(self) -> int:
        """The number of parameters that features are computed from: none of masked channels."""
        return sum(
            parameter.numel()
            for extractor in self.extractors
            for parameter in inference_copy(extractor).parameters()
        )

    def folded(self) -> nn.Module:
        """A copy for inference: no side head, no masked channels, every extractor folded."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        twin.side = None
        for index, extractor in enumerate(twin.extractors):
            twin.extractors[index] = as_backbone(inference_copy(extractor)).folded()
        return twin


def inference_copy(extractor: nn.Module) -> nn.Module:
    """An extractor without its masked channels; itself where it has no masks."""
    return pruned(extractor) if masked_convolutions(extractor) else extractor


@dataclass(frozen=True)
class SideLoss:
    """Cross-entropy of the side head: all old classes are one, the task's own follow.

    Equation: [der].
    """

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        return F.cross_entropy(step.out.side[SIDE], side_labels(step.y, step.current))


def side_labels(y: Tensor, current: slice) -> Tensor:
    """0 for every class before the task's, then 1, 2, … for its own.

    >>> side_labels(torch.tensor([3, 49, 50, 59]), slice(50, 60)).tolist()
    [0, 0, 1, 10]
    """
    first: int = current.start
    return (y - first + 1).clamp(min=0)


@dataclass(frozen=True)
class UsedWeights:
    """The share of the newest extractor's weights that its masks leave in use."""

    def __call__(self, step: Step) -> Tensor:
        """The share, the same for every image."""
        return step.out.side[USED].mean()


@dataclass(frozen=True)
class Tempered:
    """A task loss of logits divided by δ.

    Args:
        loss: The task loss.
        temperature: δ.
    """

    loss: TaskLoss
    temperature: float

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        logits = step.out.logits / self.temperature
        return self.loss(step.with_output(step.out._replace(logits=logits)))


@dataclass(frozen=True)
class FreshClassifier(Finish):
    """Draw the classifier anew and train it alone, on equally many images of every class.

    The images are drawn at random from the task's and the memory's: of each class as many as the
    smallest has. The backbone rests in eval mode.

    Args:
        epochs: Number of epochs; the rate is divided by 10 after half of them.
        lr: The learning rate at the start; optimizer, batch and weight decay are the training's.
        temperature: δ, by which logits are divided.
    """

    name = "classifier"
    reads = ("memory",)
    epochs: int = 30
    lr: float = 0.1
    temperature: float = 5.0

    def run(self, work: TaskWork) -> StageResult:
        """The network with a classifier that prefers no task."""
        network = work.network()
        network.backbone.requires_grad_(False)
        with seeded(work.seed, work.index, self.name):
            network.head.reset()
        images_of_task, *exemplars = work.training_parts()[0]
        if not exemplars:
            raise MethodError(
                "A fresh classifier learns old classes from exemplars, and there are none. Give "
                "memory.per_class or memory.total."
            )
        images = sampled_evenly([images_of_task, *exemplars], (work.seed, work.index))
        objective = Objective(Tempered(work.task_loss, self.temperature))
        fit = work.fit(network, objective, images, [], self._training(work.training), self.name)
        return trained(fit, work.drive(fit))

    def _training(self, training: Training) -> Training:
        half = self.epochs // 2
        return replace(
            training,
            epochs=self.epochs,
            lr=self.lr,
            lr_search=False,
            schedule="multistep" if half else "constant",
            milestones=(half,) if half else (),
            gamma=0.1,
            warmup=0.0,
        )


def sampled_evenly(parts: list[Samples], path: tuple[int, int]) -> list[Samples]:
    """As many images of every class as the smallest class has, drawn by (seed, task)."""
    whole = Samples.concatenate(parts)
    order = torch.randperm(len(whole), generator=generator(*path, "balanced"))
    classes = sorted(set(whole.y.tolist()))
    least = min(len(whole.of_class(label)) for label in classes)
    shuffled = whole.y[order]
    keep = [order[(shuffled == label).nonzero().squeeze(1)[:least]] for label in classes]
    chosen = torch.cat(keep).sort().values
    current = chosen < len(parts[0])
    return [whole.take(chosen[current]), whole.take(chosen[~current])]


_NO_OMEGA = (
    "it has no regularizer to hold to an auxiliary network, and its new extractor already is the "
    "part for plasticity"
)
_ALL_NEW = (
    "every weight of it that learns is new, and carries no old task that it would be weighed "
    "against"
)


def der(
    *,
    side: Annotated[float, Ge(0)] = 1.0,
    reuse: bool = False,
    classifier: Literal["balanced", "align", "none"] = "balanced",
    balanced_epochs: Annotated[int, Ge(1)] = 30,
    balanced_lr: Annotated[float, Gt(0)] = 0.1,
    temperature: Annotated[float, Gt(0)] = 5.0,
    bias: bool = False,
    sparsity: Annotated[float, Ge(0)] = 0.0,
    mask_scale: Annotated[float, Gt(1)] = 100.0,
    loss_over: Over = "auto",
) -> Method:
    """DER: a new feature extractor for every task beside frozen ones. Dark replay is ``dark-er``.

    Args:
        side: Weight of the side head's loss, which tells the task's classes from each other and
            from all old ones by the new features alone; 0 leaves it out.
        reuse: Whether a task begins with the classifier's old part (the paper), or with a fresh
            classifier (the released code).
        classifier: At the end of a task it is initialised again and trained on equally many images
            of every class (balanced), its new rows are scaled to the old ones' (align, PyCIL), or
            it stays (none).
        balanced_epochs: Epochs of the balanced training.
        balanced_lr: Its learning rate, divided by 10 after half of them.
        temperature: δ, by which its logits are divided; 1 in the original for ImageNet.
        bias: Whether classifier and side head have biases.
        sparsity: λ_s, the weight of the share of weights in use; above 0, channels inside residual
            blocks have masks from the second task on, and those that end at 0 are cut off.
        mask_scale: s_max, the scale of masks at the end of every epoch.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
    """
    extras = [Extra("side", SideLoss(), side, True)] if side else []
    if sparsity:
        extras.append(Extra("sparsity", UsedWeights(), sparsity, True))
    finish: dict[str, tuple[Finish, ...]] = {
        "balanced": (FreshClassifier(balanced_epochs, balanced_lr, temperature),),
        "align": (Align(),),
        "none": (),
    }
    needs = {"cil": "its classifier learns old classes from exemplars alone"}
    if classifier == "balanced" or not reuse:
        needs["til"] = (
            "a fresh classifier needs images of all classes; reuse=true with classifier=none "
            "does without"
        )
    return Method(
        "der",
        CrossEntropy(loss_over),
        extras=tuple(extras),
        head="linear" if bias else "unbiased",
        memory=EXEMPLARS,
        finish=finish[classifier],
        refused={
            "dil": "it adds an extractor for new classes, and there are none",
            "cir": "extractors of earlier tasks rest, so that new images cannot change what they "
            "make of known classes",
        },
        growth=Extractors(reuse, bias, mask_scale if sparsity else None),
        needs_memory=needs,
        no_variants={"a": _NO_OMEGA, "afec": _ALL_NEW},
    )
