"""The loss, term by term: task loss + λ Ω(θ; old) + λ_a Ω(θ; auxiliary).  Equation: [ancl].

Terms on weights are quadratic: several are one, added to the gradient in place.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ancl.errors import MethodError
from ancl.losses import TaskLoss
from ancl.networks import Network, frozen
from ancl.regularizers import Regularizer, WeightRegularizer
from ancl.training.balance import Balance, Balancer, apart, force
from ancl.types import Anchor, Importance, Output, Params, Step


@dataclass(frozen=True, eq=False)
class QuadraticPenalty:
    """½ w Σ C (θ − θ*)²: one Ω on weights, with its λ as ``weight``."""

    name: str
    weight: float
    curvature: Params
    centre: Params


def like(parameter: Tensor, tensor: Tensor) -> Tensor:
    """A copy of ``tensor`` with the strides of ``parameter``.

    Fused optimizers and in-place arithmetic walk raw memory: a contiguous tensor beside a
    channels-last parameter would meet the wrong elements, silently.
    """
    return torch.empty_like(parameter, dtype=tensor.dtype, requires_grad=False).copy_(tensor)


class Quadratic:
    """Σ_k ½ w_k Σ C_k (θ − a_k)², whose gradient is H (θ − a_0) + b.  Equation: [ancl-quadratic].

    H = Σ w_k C_k and b = Σ_{k>0} w_k C_k (a_0 − a_k), so two anchors cost a step no more than
    one, nothing is divided, and with w_1 = 0 the gradient is exactly that of the first alone.
    """

    def __init__(self, wells: list[QuadraticPenalty], weights: Params) -> None:
        self.wells = wells
        self._weights = list(weights.values())
        aligned = [
            (w.weight, _aligned(w.curvature, weights), _aligned(w.centre, weights)) for w in wells
        ]
        first_weight, first_curvature, self._centre = aligned[0]
        self._curvatures = {w.name: c for w, (_, c, _) in zip(wells, aligned, strict=True)}
        self._centres = {w.name: a for w, (_, _, a) in zip(wells, aligned, strict=True)}
        self._hessian = list(torch._foreach_mul(first_curvature, first_weight))
        self._offset = [torch.zeros_like(h) for h in self._hessian] if len(wells) > 1 else []
        for weight, curvature, centre in aligned[1:]:
            scaled = torch._foreach_mul(curvature, weight)
            torch._foreach_add_(self._hessian, scaled)
            torch._foreach_addcmul_(self._offset, scaled, torch._foreach_sub(self._centre, centre))

    def add_gradient(self) -> None:
        """Add H (θ − a_0) + b to the gradients."""
        with torch.no_grad():
            gradients = [_gradient(weight) for weight in self._weights]
            moved = torch._foreach_sub(self._weights, self._centre)
            torch._foreach_addcmul_(gradients, self._hessian, moved)
            if self._offset:
                torch._foreach_add_(gradients, self._offset)

    def proximal(self, step: float) -> None:
        """Move to the minimiser of the wells plus ½‖θ − θ_now‖²/step: stable for every H."""
        with torch.no_grad():
            moved = list(torch._foreach_sub(self._weights, self._centre))
            if self._offset:
                torch._foreach_add_(moved, self._offset, alpha=-step)
            shrink = list(torch._foreach_mul(self._hessian, step))
            torch._foreach_add_(shrink, 1.0)
            torch._foreach_div_(moved, shrink)
            for weight, centre, way in zip(self._weights, self._centre, moved, strict=True):
                torch.add(centre, way, out=weight)

    def values(self) -> dict[str, Tensor]:
        """Each well's penalty at the present weights."""
        with torch.no_grad():
            return {well.name: self._value(well) for well in self.wells}

    def steepest(self) -> float:
        """The largest entry of H: SGD with momentum m is stable where lr · H < 2 (1 + m)."""
        return max(float(h.max()) for h in self._hessian)

    def _value(self, well: QuadraticPenalty) -> Tensor:
        moved = torch._foreach_sub(self._weights, self._centres[well.name])
        squares = torch._foreach_mul(moved, moved)
        torch._foreach_mul_(squares, self._curvatures[well.name])
        return 0.5 * well.weight * torch.stack([square.sum() for square in squares]).sum()


def _aligned(values: Params, weights: Params) -> list[Tensor]:
    return [like(weight, values[name]) for name, weight in weights.items()]


def _gradient(weight: Tensor) -> Tensor:
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    return weight.grad


@dataclass(frozen=True, eq=False)
class PenaltyTerm:
    """λ Ω(θ; anchor), by the name under which it is logged.

    Args:
        name: ``old`` or ``auxiliary``.
        lamb: Its λ; or a rule that balances it with the term before it.
        regularizer: Its Ω.
        anchor: The network it pulls to.
        steady: Whether the anchor stays the same within the task. A term whose anchor or λ moves
            is left out of the loss that selects weights: its values at two epochs cannot be
            compared.
    """

    name: str
    lamb: float | Balance
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
    """A term that is no Ω, and no part of the auxiliary network's loss: LUCIR's margin ranking.

    Args:
        name: Under which it is logged.
        part: What it computes.
        weight: What that is multiplied by.
        new_classes: Whether it means something only where a task brings new classes.

    A subclass says with ``first`` whether it is part of the first task's loss too, and with
    ``told`` whether it means something where the task of an image is told.
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

    A term whose λ is a ``Balance`` gets its number at every step that records gradients; for any
    other purpose call the objective within ``torch.no_grad()``.

    Args:
        task_loss: The task loss.
        pulls: The anchors' terms.
        own_classes: Score the task's own classes alone, as the auxiliary network does.
        task_weight: The task loss's own weight; 0 leaves it out.
        extras: Terms that are neither.
        correct: Changes the network's own output before it is scored (BiC's option).

    Raises:
        MethodError: A term is to be balanced, and there is none to balance it with.
    """

    task_loss: TaskLoss
    pulls: Sequence[PenaltyTerm] = ()
    own_classes: bool = False
    task_weight: float = 1.0
    extras: Sequence[Extra] = ()
    correct: Callable[[Output], Output] | None = None

    def __post_init__(self) -> None:
        self._check_balance()

    def __call__(self, step: Step) -> dict[str, Tensor]:
        """Every term as a differentiable scalar, for your own training loop."""
        terms = self.answers(step)
        self._settle(step.weights)
        for pull in self._wells:
            terms[pull.name] = self._lamb(pull) * pull.regularizer.penalty(step, pull.anchor)
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
        pair, penalties = self._pair, dict[PenaltyTerm, Tensor]()
        if pair:
            step = step.with_output(apart(step.out))
        for pull in (pull for pull in self.pulls if not pull.on_weights):
            penalties[pull] = pull.regularizer.penalty(step, pull.anchor)
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

    @property
    def lambs(self) -> dict[str, float]:
        """Each term's λ, as it is now."""
        return {pull.name: float(self._lamb(pull)) for pull in self.pulls}

    @property
    def balancer(self) -> Balancer | None:
        """What a ``Balance`` yields, which is all of the objective that changes."""
        return self._pair.balancer if self._pair else None

    @property
    def _wells(self) -> list[PenaltyTerm]:
        return [pull for pull in self.pulls if pull.on_weights]

    def _lamb(self, pull: PenaltyTerm) -> Tensor | float:
        if isinstance(pull.lamb, Balance):
            assert self._pair
            return self._pair.balancer.lamb_a
        return pull.lamb

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
                        return _Pair(old, pull, Balancer(pull.lamb, old.lamb))
        return None

    def _check_balance(self) -> None:
        balanced = [pull.name for pull in self.pulls if isinstance(pull.lamb, Balance)]
        if len(balanced) > 1 or (balanced and not self._pair):
            raise MethodError(
                f"{' and '.join(balanced)}: one term may be balanced, with a term before it whose "
                f"λ is a number and whose Ω is of the same kind: both on answers, or both on "
                f"weights. Give that term first, or a number in place of Balance."
            )


class _Pair(NamedTuple):
    old: PenaltyTerm
    auxiliary: PenaltyTerm
    balancer: Balancer


def _sum(values: Params, weights: Params) -> float:
    """The sum over all elements; aligned, since its bits depend on how they lie in memory."""
    aligned = [value.sum() for value in _aligned(values, weights)]
    return math.fsum(torch.stack(aligned).tolist()) if aligned else 0.0


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


def anchor_from(answer: Callable[[Tensor], Tensor | Output], classes: slice) -> Anchor:
    """An anchor that any function or module answers for, where an Ω reads answers.

    A module is copied and frozen, so it may go on learning; a function is called as it is.

    Args:
        answer: A batch to its logits, one column per class so far; or to an ``Output``, where
            the Ω reads features or maps too.
        classes: The classes it speaks for.
    """
    ask = answer
    if isinstance(answer, nn.Module):
        ask = copy.deepcopy(answer).eval().requires_grad_(False)

    def forward(x: Tensor, maps: bool) -> Output:
        found = ask(x)
        # Features of width 0: an Ω that reads them cannot go on with logits in their place.
        output = found if isinstance(found, Output) else Output(found, found[:, :0])
        if output.logits.shape[1] < classes.stop:
            raise MethodError(
                f"The anchor speaks for classes {classes.start} to {classes.stop - 1} and gives "
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
    """The step as a network sees it that knows the current task's classes alone."""
    current = step.current
    out = step.out._replace(logits=step.out.logits[:, current])
    tasks = (slice(0, current.stop - current.start),)
    return Step(
        step.x,
        step.y - current.start,
        out,
        step.weights,
        tasks,
        rows=None if step.rows is None else step.rows[current],
        scale=step.scale,
        epoch=step.epoch,
        progress=step.progress,
    )
