"""What a loss may look at: outputs, anchors, and the step that holds them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

Params = dict[str, Tensor]
"""Tensors by the name of the parameter they belong to."""

Classes = slice | Tensor
"""Positions of classes: a slice, or a tensor of ascending numbers where they are not in a row."""

Importance = dict[str, Params]
"""What a regularizer knows of each weight, by kind: ``{"fisher": {"conv1.weight": ...}}``."""


def prefixed(prefix: str, tensors: Params) -> Params:
    """Tensors under a common prefix, as in one file."""
    return {f"{prefix}/{name}": tensor for name, tensor in tensors.items()}


def strip_prefix(prefix: str, tensors: Params) -> Params:
    """The tensors of one prefix, without it."""
    start = f"{prefix}/"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def places(classes: Classes, y: Tensor) -> Tensor:
    """Where each class position stands among these classes."""
    if isinstance(classes, slice):
        first: int = classes.start
        return y - first
    below: Tensor = classes < y.unsqueeze(-1)
    return below.sum(dim=-1)


def positions(classes: Classes, index: Tensor) -> Tensor:
    """The class positions at these places among the classes: the way back."""
    return index + classes.start if isinstance(classes, slice) else classes[index]


class Output(NamedTuple):
    """One forward pass: logits of all classes seen so far, features, and maps where asked for.

    ``side`` has what else a backbone with a method ``with_side`` answers, by name: a term of the
    loss or an inference of the method's own reads it.
    """

    logits: Tensor
    features: Tensor
    maps: tuple[Tensor, ...] = ()
    side: Params = {}  # noqa: RUF012


def split_output(out: Output, count: int) -> tuple[Output, Output]:
    """The output of the first samples of a batch, and that of the others."""

    def of(rows: slice) -> Output:
        maps = tuple(stage[rows] for stage in out.maps)
        side = {name: tensor[rows] for name, tensor in out.side.items()}
        return Output(out.logits[rows], out.features[rows], maps, side)

    return of(slice(count)), of(slice(count, None))


@dataclass(frozen=True, eq=False)
class Anchor:
    """A frozen network to stay near, and the classes it knows.

    An Ω on weights reads ``weights`` and ``importance``; an Ω on answers reads ``forward``, and
    one on attention the head's ``rows`` too. Only what the Ω at hand reads is filled in.
    ``stored``: there is no network, and its answers are what the memory recorded of each image of
    the replay batch.
    """

    classes: Classes
    forward: Callable[[Tensor, bool], Output] | None = None
    weights: Params = field(default_factory=dict)
    importance: Importance = field(default_factory=dict)
    rows: Tensor | None = None
    stored: bool = False


class Step:
    """All that a loss may look at for one batch.

    Args:
        x: The batch as the networks read it.
        y: Class positions in global order.
        out: The main network's own output.
        weights: The main network's backbone parameters by name.
        tasks: The classes that every task so far was the first to bring, the current one last.
        task_aware: Whether the task of a sample is known at test time (task-incremental).
        exemplars: Which samples come from the memory; none if left out.
        rehearses: Whether images of earlier tasks are learned from too, in this batch or in
            others. If left out: if ``exemplars`` is given, or the task is not known.
        answers: Anchors' outputs already known for this batch (validation images never change).
        present: The classes whose images the task brings, where known ones come again.
        rows: The main head's class weights (C, D), where it has one row per class.
        scale: The η by which the main head multiplied its logits, where it has one.
        epoch: The epoch of the training, from 0.
        progress: How much of the training is over, from 0 at its first step towards 1 at the end
            of its last epoch. With ``schedule=patience`` it may end earlier.
        replay: The same of a batch of the memory that is replayed beside this one, where there is
            one; none in validation.
        extra: What was recorded of a replay batch's samples when they were stored, by name.
        passed: The features of all samples that passed the network together, where a replay batch
            and this one did.
        precision: Makes the context in which anchors answer: as the network itself did.
    """

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        out: Output,
        weights: Params,
        tasks: tuple[slice, ...],
        *,
        task_aware: bool = False,
        exemplars: Tensor | None = None,
        rehearses: bool | None = None,
        answers: dict[Anchor, Output] | None = None,
        present: Tensor | None = None,
        rows: Tensor | None = None,
        scale: Tensor | None = None,
        epoch: int = 0,
        progress: float = 0.0,
        replay: Step | None = None,
        extra: Params | None = None,
        passed: Tensor | None = None,
        precision: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.x, self.y, self.out, self.weights, self.tasks = x, y, out, weights, tasks
        self.task_aware, self.exemplars = task_aware, exemplars
        given = exemplars is not None or not task_aware
        self.rehearses = given if rehearses is None else rehearses
        self.present, self.rows, self.scale = present, rows, scale
        self.epoch, self.progress = epoch, progress
        self.replay, self.extra, self.passed = replay, extra or {}, passed
        self._answers, self._precision = {} if answers is None else answers, precision

    @property
    def current(self) -> slice:
        """The classes that the task being learned is the first to bring."""
        return self.tasks[-1]

    @property
    def own(self) -> Classes:
        """The classes whose images the task brings."""
        return self.current if self.present is None else self.present

    def with_output(self, out: Output) -> Step:
        """The same step with another output of the network."""
        changed = copy(self)
        changed.out = out
        return changed

    def of(self, anchor: Anchor) -> Output:
        """The anchor's output for this batch, computed at most once; or what was recorded of it.

        What was recorded is NaN in columns that were not there yet.
        """
        if anchor.stored:
            none = self.out.features[:, :0]
            return Output(self.extra.get("logits", none), self.extra.get("features", none))
        if anchor not in self._answers:
            assert anchor.forward is not None, "this Ω does not declare that it reads answers"
            with torch.no_grad(), self._precision():
                self._answers[anchor] = anchor.forward(self.x, bool(self.out.maps))
        return self._answers[anchor]
