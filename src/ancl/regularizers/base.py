"""The two kinds of Ω: on what a network answers, and on its weights."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from ancl.types import Anchor, Classes, Importance, Params, Step


class Regularizer(ABC):
    """Ω without its λ: how far a step is from an anchor, never asking whose anchor it is."""

    reads: ClassVar[Literal["logits", "features", "maps", "weights"]] = "features"

    @abstractmethod
    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """The distance, a differentiable scalar."""


class Watcher(ABC):
    """Follows every step of a training: SI and R-Walk need the path, not only its end."""

    @abstractmethod
    def before(self, weights: Params) -> None:
        """Called with the task loss's gradients in place, before the update."""

    @abstractmethod
    def after(self, weights: Params) -> None:
        """Called after the update."""

    @abstractmethod
    def state(self) -> Params:
        """What was seen so far."""

    @abstractmethod
    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """What the importance of a task's weights is estimated from, after its training.

    Args:
        network: The trained network; called with a batch it gives an ``Output``.
        weights: Its backbone parameters by name.
        start: The same weights when the task began.
        batches: An iterator over (x, y) of the task's own images, augmented or not.
        tasks: The classes that every task so far was the first to bring, the current one last.
        watched: What the watcher saw, where there was one.
        present: The classes whose images the task brings, where known ones come again.
    """

    network: nn.Module
    weights: Params
    start: Params
    batches: Callable[[bool], Iterator[tuple[Tensor, Tensor]]]
    tasks: tuple[slice, ...]
    watched: Params = field(default_factory=dict)
    present: Tensor | None = None

    @property
    def own(self) -> Classes:
        """The classes whose images the task brings."""
        return self.tasks[-1] if self.present is None else self.present


class WeightRegularizer(Regularizer):
    """Ω = ½ Σ C (θ − θ*)²: a quadratic well around the anchor's weights, of curvature C.

    The loop adds C (θ − θ*) to the gradient in place instead of differentiating the penalty.
    """

    reads = "weights"
    watcher: ClassVar[type[Watcher] | None] = None
    """What follows a training, made without arguments, where importance depends on its path."""

    @abstractmethod
    def curvature(self, importance: Importance) -> Params:
        """C, from what is known of each weight."""

    @abstractmethod
    def importance(self, evidence: Evidence) -> Importance:
        """What one task's training shows about each weight."""

    def merge(self, before: Importance | None, now: Importance) -> Importance:
        """Importance accumulated over tasks; the newest alone unless a method says otherwise."""
        return now

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """½ Σ C (θ − θ*)² over the backbone's weights."""
        curvature = self.curvature(anchor.importance)
        parts = [
            (curvature[name] * (weight - anchor.weights[name]).square()).sum()
            for name, weight in step.weights.items()
        ]
        return 0.5 * torch.stack(parts).sum()
