"""The loss, term by term: task loss + λ Ω(θ; old) + λ_a Ω(θ; auxiliary).  Equation: [ancl].

Terms on weights are quadratic: several are one, added to the gradient in place.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ancl.errors import MethodError
from ancl.losses import TaskLoss
from ancl.networks import Network, frozen
from ancl.regularizers import Regularizer, WeightRegularizer
from ancl.training.auto import Auto, Mover
from ancl.training.balance import Balance, Balancer, apart, force, norm
from ancl.training.quadratic import Quadratic, QuadraticPenalty, aligned
from ancl.types import (
    Anchor,
    Classes,
    Importance,
    Output,
    Params,
    Step,
    places,
    prefixed,
    strip_prefix,
)


@dataclass(frozen=True, eq=False)
class PenaltyTerm:
    """λ Ω(θ; anchor), by the name under which it is logged.

    Args:
        name: ``old`` or ``auxiliary``.
        lamb: Its λ; or a rule: ``Auto``, by the force of the task loss, or ``Balance``, by that
            of the term before it.
        regularizer: Its Ω.
        anchor: The network it pulls to.
        steady: Whether the anchor stays the same within the task. A term whose anchor or λ moves
            is left out of the loss that selects weights: its values at two epochs cannot be
            compared. An ``Auto`` counts there with the λ of the first epoch.
    """

    name: str
    lamb: float | Balance | Auto
    regularizer: Regularizer
    anchor: Anchor
    steady: bool = True

    @property
    def on_weights(self) -> bool:
        """Whether its Ω is quadratic in the weights."""
        return isinstance(self.regularizer, WeightRegularizer)

    @property
    def moves(self) -> bool:
        """Whether its λ changes within the task."""
        return isinstance(self.lamb, Balance) and not self.on_weights

    def curvature(self) -> Params:
        """C of an Ω on weights."""
        assert isinstance(self.regularizer, WeightRegularizer)
        return self.regularizer.curvature(self.anchor.importance)


@dataclass(frozen=True)
class Extra:
    """A term that is neither an Ω nor part of the auxiliary network's loss: LUCIR's margin ranking.

    Args:
        name: Under which it is logged.
        part: What it computes.
        weight: What that is multiplied by.
        new_classes: Whether it means something only where a task brings new classes.

    A subclass says with ``first`` whether it is part of the first task's loss too, and with
    ``told`` whether it means something where the task of an image is known.
    """

    first: ClassVar[bool] = False
    told: ClassVar[bool] = True
    name: str
    part: Callable[[Step], Tensor]
    weight: float = 1.0
    new_classes: bool = False


@dataclass(frozen=True, eq=False)
class Objective:
    """The terms of the loss by name; their sum is what is minimised.

    Rules for λ look at every step that records gradients; for any other purpose call the objective
    within ``torch.no_grad()``. A ``Balance`` gives its number at once, an ``Auto`` when you call
    ``end_epoch()``.

    Args:
        task_loss: The task loss.
        pulls: The anchors' terms.
        own_classes: Score the task's own classes alone, as the auxiliary network does.
        task_weight: The task loss's own weight; 0 leaves it out.
        extras: Terms that are neither.
        correct: Changes the network's own output before it is scored (BiC's option).

    Raises:
        MethodError: A term is to be balanced, and there is none to balance it with; or a λ is to
            be found by the force of a task loss that is left out, or with rules for two.
    """

    task_loss: TaskLoss
    pulls: Sequence[PenaltyTerm] = ()
    own_classes: bool = False
    task_weight: float = 1.0
    extras: Sequence[Extra] = ()
    correct: Callable[[Output], Output] | None = None

    def __post_init__(self) -> None:
        self._check_balance()
        self._check_auto()

    def __call__(self, step: Step) -> dict[str, Tensor]:
        """Every term as a differentiable scalar, for your own training loop."""
        terms = self.answers(step)
        self._settle(step.weights)
        wells = {pull: pull.regularizer.penalty(step, pull.anchor) for pull in self._wells}
        if self.mover and torch.is_grad_enabled():
            weights = [weight for weight in step.weights.values() if weight.requires_grad]
            # As in Quadratic.force: what all pull together, in units of the λ to be found.
            shares = [self._lamb(pull) / self.mover.lamb * wells[pull] for pull in wells]
            if any(isinstance(pull.lamb, Auto) for pull in wells):
                pair = (
                    _slope(loss, weights) for loss in (terms["task"], sum(shares[1:], shares[0]))
                )
                self.mover.measure(*pair)
        return terms | {pull.name: self._lamb(pull) * wells[pull] for pull in wells}

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
        pair, penalties, mover = self._pair, dict[PenaltyTerm, Tensor](), self.mover
        features = step.out._replace(maps=())
        if pair or mover:
            step = step.with_output(apart(step.out))
        for pull in (pull for pull in self.pulls if not pull.on_weights):
            penalties[pull] = pull.regularizer.penalty(step, pull.anchor)
            if mover and isinstance(pull.lamb, Auto) and torch.is_grad_enabled():
                mover.measure(force(terms["task"], features), force(penalties[pull], step.out))
            if pair and pull is pair.auxiliary and torch.is_grad_enabled():
                both = (penalties[pair.old], penalties[pull])
                pair.balancer.measure(*(force(penalty, step.out) for penalty in both))
            terms[pull.name] = self._lamb(pull) * penalties[pull]
        return terms

    def quadratic(self, weights: Params) -> Quadratic | None:
        """The terms on weights as one quadratic, or nothing where there is none."""
        self._settle(weights)
        wells = [
            QuadraticPenalty(p.name, float(self._lamb(p)), p.curvature(), p.anchor.weights)
            for p in self._wells
        ]
        return Quadratic(wells, weights) if wells else None

    @property
    def maps(self) -> bool:
        """Whether some Ω reads maps."""
        return any(pull.regularizer.reads == "maps" for pull in self.pulls)

    @property
    def unsteady(self) -> frozenset[str]:
        """The terms that do not count when weights are selected."""
        return frozenset(pull.name for pull in self.pulls if not pull.steady or pull.moves)

    def judged(self, terms: Mapping[str, float]) -> float:
        """The loss that selects weights, of the values that an epoch ended with.

        Unsteady terms are left out; an ``Auto`` counts with the λ of its first epoch, and so does
        a term on weights that is balanced with it.
        """
        ratio = self.mover.first / self.mover.lamb if self.mover else 1.0
        ruled = {pull.name for pull in self.pulls if isinstance(pull.lamb, Auto | Balance)}
        return sum(
            value * ratio if name in ruled and ratio != 1.0 else value
            for name, value in terms.items()
            if name not in self.unsteady
        )

    def end_epoch(self) -> tuple[dict[str, float], str]:
        """Let rules for λ end an epoch: what they yielded, and notes.

        After it an ``Auto`` has another λ: make ``quadratic`` anew.
        """
        lambs, notes = dict[str, float](), list[str]()
        for rule in (self.mover, self.balancer):
            found, note = rule.epoch() if rule else ({}, "")
            lambs |= found
            notes.append(note)
        self._retune()
        return lambs, "; ".join(filter(None, notes))

    def state(self) -> Params:
        """What rules for λ depend on at the next epoch."""
        found = prefixed("balance", self.balancer.state()) if self.balancer else {}
        return found | (prefixed("auto", self.mover.state()) if self.mover else {})

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``, between two epochs; make ``quadratic`` anew."""
        if self.mover:
            self.mover.restore(strip_prefix("auto", state))
            self._retune()
        if self.balancer:
            self.balancer.restore(strip_prefix("balance", state))

    def look(self, weights: Params, quadratic: Quadratic) -> None:
        """Let an ``Auto`` on weights see a step, when gradients are those of the other terms."""
        if self.mover:
            slope = norm([each.grad for each in weights.values() if each.grad is not None])
            self.mover.measure(slope, quadratic.force(self.mover.term))

    @property
    def lambs(self) -> dict[str, float]:
        """Each term's λ, as it is now."""
        return {pull.name: float(self._lamb(pull)) for pull in self.pulls}

    @property
    def balancer(self) -> Balancer | None:
        """What a ``Balance`` yields."""
        return self._pair.balancer if self._pair else None

    @cached_property
    def mover(self) -> Mover | None:
        """What an ``Auto`` yields."""
        for pull in self.pulls:
            if isinstance(pull.lamb, Auto):
                return Mover(pull.lamb, pull.name, on_weights=pull.on_weights)
        return None

    @property
    def _wells(self) -> list[PenaltyTerm]:
        return [pull for pull in self.pulls if pull.on_weights]

    def _lamb(self, pull: PenaltyTerm) -> Tensor | float:
        if isinstance(pull.lamb, Balance):
            assert self._pair
            return self._pair.balancer.lamb_a
        if isinstance(pull.lamb, Auto):
            assert self.mover
            return self.mover.lamb
        return pull.lamb

    def _retune(self) -> None:
        """Balance with the λ that there is now."""
        if self.mover and self._pair and isinstance(self._pair.old.lamb, Auto):
            self._pair.balancer.retune(self.mover.lamb)

    def _settle(self, weights: Params) -> None:
        """Decide λ_a once for all steps, where the balanced term is on weights."""
        pair = self._pair
        if pair and pair.old.on_weights and not pair.balancer.settled:
            sums = (_sum(pull.curvature(), weights) for pull in (pair.old, pair.auxiliary))
            pair.balancer.settle(*sums)

    @cached_property
    def _pair(self) -> "_Pair | None":
        """The term to be balanced, and the one before it that it is balanced with."""
        for index, pull in enumerate(self.pulls):
            if isinstance(pull.lamb, Balance):
                for old in self.pulls[:index]:
                    if not isinstance(old.lamb, Balance) and old.on_weights == pull.on_weights:
                        return _Pair(old, pull, Balancer(pull.lamb, float(self._lamb(old))))
        return None

    def _check_balance(self) -> None:
        balanced = [pull.name for pull in self.pulls if isinstance(pull.lamb, Balance)]
        if len(balanced) > 1 or (balanced and not self._pair):
            raise MethodError(
                f"{' and '.join(balanced)}: one term may be balanced, with a term before it whose "
                f"λ is a number and whose Ω is of the same kind: both on answers, or both on "
                f"weights. Give that term first, or a number in place of Balance."
            )

    def _check_auto(self) -> None:
        found = [pull.name for pull in self.pulls if isinstance(pull.lamb, Auto)]
        if len(found) > 1 or (found and not self.task_weight):
            raise MethodError(
                f"{' and '.join(found)}: one term may have the λ Auto, beside a task loss, by "
                f"whose force it is found. Give a number in place of Auto."
            )


class _Pair(NamedTuple):
    old: PenaltyTerm
    auxiliary: PenaltyTerm
    balancer: Balancer


def _sum(values: Params, weights: Params) -> float:
    """The sum over all elements; aligned, since its bits depend on how they lie in memory."""
    sums = [value.sum() for value in aligned(values, weights)]
    return math.fsum(torch.stack(sums).tolist()) if sums else 0.0


def _slope(loss: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """‖∂loss/∂θ‖."""
    found = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return norm([each for each in found if each is not None])


def anchor_for(
    regularizer: Regularizer,
    network: Network,
    classes: Classes,
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


def anchor_from(answer: Callable[[Tensor], Tensor | Output], classes: slice) -> Anchor:
    """An anchor made of any function or module, for an Ω that reads answers.

    A module is copied and frozen, so it may continue to learn; a function is called as it is.

    Args:
        answer: A batch to its logits, one column per class so far; or to an ``Output``, where
            the Ω reads features or maps too.
        classes: The classes it knows.
    """
    ask = answer
    if isinstance(answer, nn.Module):
        ask = copy.deepcopy(answer).eval().requires_grad_(False)

    def forward(x: Tensor, maps: bool) -> Output:
        found = ask(x)
        # Features of width 0: an Ω that reads them cannot use logits in their place.
        output = found if isinstance(found, Output) else Output(found, found[:, :0])
        if output.logits.shape[1] < classes.stop:
            raise MethodError(
                f"The anchor knows the classes {classes.start} to {classes.stop - 1} and gives "
                f"{output.logits.shape[1]} logits. Give one for every class so far."
            )
        if maps and not output.maps:
            raise MethodError(
                "The Ω reads feature maps, and the anchor gives none. Let it return "
                "Output(logits, features, maps)."
            )
        return output

    return Anchor(classes, forward=forward)


def only_current(step: Step) -> Step:
    """The step as a network sees it that knows the classes of the task's images alone."""
    own = step.own
    out = step.out._replace(logits=step.out.logits[:, own])
    return Step(
        step.x,
        places(own, step.y),
        out,
        step.weights,
        (slice(0, out.logits.shape[1]),),
        rows=None if step.rows is None else step.rows[own],
        scale=step.scale,
        epoch=step.epoch,
        progress=step.progress,
    )
