"""The loss, term by term: task loss + λ Ω(θ; old) + λ_a Ω(θ; auxiliary).  Equation: [ancl]."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from ancl.losses import TaskLoss
from ancl.networks import Network, frozen
from ancl.regularizers import Regularizer, WeightRegularizer
from ancl.training.quadratic import Quadratic, QuadraticPenalty
from ancl.types import Anchor, Importance, Output, Params, Step


@dataclass(frozen=True, eq=False)
class PenaltyTerm:
    """λ Ω(θ; anchor), by the name under which it is logged.

    Args:
        name: ``old`` or ``auxiliary``.
        lamb: Its λ.
        regularizer: Its Ω.
        anchor: The network it pulls to.
        steady: Whether the anchor stays the same within the task. What moves is left out of the
            loss that selects weights: its values at two epochs cannot be compared.
    """

    name: str
    lamb: float
    regularizer: Regularizer
    anchor: Anchor
    steady: bool = True


@dataclass(frozen=True)
class Extra:
    """A term that is no Ω, and no part of the auxiliary network's loss: LUCIR's margin ranking.

    Args:
        name: Under which it is logged.
        part: What it computes.
        weight: What that is multiplied by.
        new_classes: Whether it means something only where a task brings new classes.
    """

    name: str
    part: Callable[[Step], Tensor]
    weight: float = 1.0
    new_classes: bool = False


@dataclass(frozen=True, eq=False)
class Objective:
    """The terms of the loss by name; their sum is what is minimised.

    Args:
        task_loss: The task loss.
        pulls: The anchors' terms.
        own_classes: Score the task's own classes alone, as the auxiliary network does.
        task_weight: The task loss's own weight; 0 leaves it out.
        extras: Terms that are neither.
        correct: Changes the network's own output before it is scored (BiC's option).
    """

    task_loss: TaskLoss
    pulls: Sequence[PenaltyTerm] = ()
    own_classes: bool = False
    task_weight: float = 1.0
    extras: Sequence[Extra] = ()
    correct: Callable[[Output], Output] | None = None

    def __call__(self, step: Step) -> dict[str, Tensor]:
        """Every term as a differentiable scalar, for your own training loop."""
        terms = self.answers(step)
        terms.update({p.name: p.lamb * p.regularizer.penalty(step, p.anchor) for p in self._wells})
        return terms

    def scored(self, output: Output) -> Output:
        """The network's own output as it is scored: corrected where the method learns so."""
        return self.correct(output) if self.correct else output

    def answers(self, step: Step) -> dict[str, Tensor]:
        """The terms on what the network answers; those on weights are left to ``quadratic``."""
        terms: dict[str, Tensor] = {}
        if self.correct:
            step = step.with_output(self.scored(step.out))
        if self.task_weight:
            loss = self.task_loss(only_current(step) if self.own_classes else step)
            terms["task"] = loss if self.task_weight == 1.0 else self.task_weight * loss
        for extra in self.extras:
            terms[extra.name] = extra.weight * extra.part(step)
        for pull in self.pulls:
            if not isinstance(pull.regularizer, WeightRegularizer):
                terms[pull.name] = pull.lamb * pull.regularizer.penalty(step, pull.anchor)
        return terms

    def quadratic(self, weights: Params) -> Quadratic | None:
        """The terms on weights as one quadratic, or nothing where there is none."""
        wells = [
            QuadraticPenalty(
                p.name, p.lamb, p.regularizer.curvature(p.anchor.importance), p.anchor.weights
            )
            for p in self._wells
            if isinstance(p.regularizer, WeightRegularizer)
        ]
        return Quadratic(wells, weights) if wells else None

    @property
    def maps(self) -> bool:
        """Whether some Ω reads maps."""
        return any(pull.regularizer.reads == "maps" for pull in self.pulls)

    @property
    def unsteady(self) -> frozenset[str]:
        """The terms that do not count when weights are selected."""
        return frozenset(pull.name for pull in self.pulls if not pull.steady)

    @property
    def lambs(self) -> dict[str, float]:
        """Each term's λ."""
        return {pull.name: pull.lamb for pull in self.pulls}

    @property
    def _wells(self) -> list[PenaltyTerm]:
        return [p for p in self.pulls if isinstance(p.regularizer, WeightRegularizer)]


def anchor_for(
    regularizer: Regularizer,
    network: Network,
    classes: slice,
    importance: Importance | None = None,
) -> Anchor:
    """A frozen copy of a network, with just what this Ω reads of it."""
    if isinstance(regularizer, WeightRegularizer):
        weights = {name: weight.detach().clone() for name, weight in network.weights().items()}
        return Anchor(classes, weights=weights, importance=importance or {})
    rows = network.head.rows()
    return Anchor(
        classes, forward=frozen(network), rows=None if rows is None else rows.detach().clone()
    )


def only_current(step: Step) -> Step:
    """The step as a network sees it that knows the current task's classes alone."""
    current = step.current
    out = Output(step.out.logits[:, current], step.out.features, step.out.maps)
    tasks = (slice(0, current.stop - current.start),)
    return Step(
        step.x,
        step.y - current.start,
        out,
        step.weights,
        tasks,
        rows=None if step.rows is None else step.rows[current],
        scale=step.scale,
    )
