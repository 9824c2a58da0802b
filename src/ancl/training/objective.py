"""The loss, term by term: task loss + λ Ω(θ; old) + λ_a Ω(θ; auxiliary).  Equation: [ancl].

Terms on weights are quadratic: several are one, added to the gradient in place.
"""

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, ClassVar, Literal

import torch
from torch import Tensor, nn

from ancl.errors import MethodError
from ancl.hashing import LATER
from ancl.losses import TaskLoss
from ancl.networks import Network, frozen
from ancl.networks.learnable import ALL
from ancl.regularizers import Regularizer, WeightRegularizer
from ancl.training.lambda_rules import (
    TASK,
    Auto,
    AutoLambda,
    Balance,
    BalancedLambda,
    CurvatureLambda,
    Lambda,
    Weight,
)
from ancl.training.quadratic import Quadratic, QuadraticPenalty, aligned, norm
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


@dataclass(frozen=True)
class Term:
    """λ Ω(θ; old network), or λ Ω(θ; stored answers) of the replay batch.

    Args:
        regularizer: Its Ω.
        lamb: Its λ: a number or a rule.
        stored: Whether the network is held to what the memory recorded of the replay batch, its
            ``logits`` or ``features``, in place of the old network.
    """

    regularizer: Regularizer
    lamb: Weight | Auto
    stored: Annotated[bool, LATER] = False


@dataclass(frozen=True)
class Auxiliary:
    """λ_a Ω(θ; auxiliary network): a copy of the old network, trained on this task alone.

    Args:
        regularizer: Its Ω: the method's own for ANCL, EWC's for AFEC; none where a finishing
            stage reads the network and nothing is held to it.
        lamb_a: Its λ_a: a number, a rule, or a balance with the old network's term.
        renewed: ANCL trains the network to its end once per ``task``; AFEC trains it one epoch
            ahead of the main network and renews anchor and importance every ``epoch``.
        start: From the ``old`` network, from it with its adapters at ``zero``, as pretrained, or
            from the last task's auxiliary one (``carried``).
        classes: Its Ω is over the task's ``new`` classes, or over ``all`` so far.
        data: It learns from the ``current`` task's images, or ``combined`` with the memory's.
        trains: What learns of its backbone: ``all`` that learns of the main network's; or a part,
            as ``last``, its last stage. The rest stays the old network's, and has no importance.
    """

    regularizer: Regularizer | None
    lamb_a: Weight | Balance
    renewed: Literal["task", "epoch"] = "task"
    start: Literal["old", "carried", "zero"] = "old"
    classes: Literal["new", "all"] = "new"
    data: Literal["current", "combined"] = "current"
    trains: Annotated[str, LATER] = ALL

    @property
    def omega(self) -> Regularizer:
        """The Ω, of a term that has one."""
        assert self.regularizer is not None, "nothing is held to this auxiliary network"
        return self.regularizer


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

    A subclass says with ``first`` whether it is part of the first task's loss too, with ``told``
    whether it means something where the task of an image is known, with ``replayed`` whether it is
    computed of the replay batch, and with ``apart`` that its gradient is not added to the others':
    the method's constraint gets it.
    """

    first: ClassVar[bool] = False
    told: ClassVar[bool] = True
    replayed: ClassVar[bool] = False
    apart: ClassVar[bool] = False
    name: str
    part: Callable[[Step], Tensor]
    weight: float = 1.0
    new_classes: bool = False


@dataclass(frozen=True)
class Replayed(Extra):
    """A term of the replay batch, which its part sees as a step; there is none in validation."""

    replayed = True


@dataclass(frozen=True)
class Reference(Replayed):
    """A term of the replay batch whose gradient a constraint compares the others' with (A-GEM)."""

    apart = True


@dataclass(frozen=True, eq=False)
class Objective:
    """The terms of the loss by name; their sum is what is minimised, without those kept apart.

    Rules for λ look at every step that records gradients; for any other purpose call the objective
    within ``torch.no_grad()``. A ``Balance`` gives its number at once, an ``Auto`` when you call
    ``end_epoch()``.

    Args:
        task_loss: The task loss.
        terms: The anchors' terms.
        own_classes: Score the task's own classes alone, as the auxiliary network does.
        task_weight: The task loss's own weight; 0 leaves it out.
        extras: Terms that are neither.
        correct: Changes the network's own output before it is scored (BiC's option).

    Raises:
        MethodError: A term is to be balanced, and there is none to balance it with; or a λ is to
            be found by the force of a task loss that is left out, or with rules for two.
    """

    task_loss: TaskLoss
    terms: Sequence[PenaltyTerm] = ()
    own_classes: bool = False
    task_weight: float = 1.0
    extras: Sequence[Extra] = ()
    correct: Callable[[Output], Output] | None = None

    def __post_init__(self) -> None:
        self._check_rules()

    def __call__(self, step: Step) -> dict[str, Tensor]:
        """Every term as a differentiable scalar, for your own training loop."""
        values = self.answers(step)
        self._observe_curvature(step.weights)
        penalties = {term: term.regularizer.penalty(step, term.anchor) for term in self._quadratics}
        auto = self._auto_on_weights
        if auto and torch.is_grad_enabled():
            weights = [weight for weight in step.weights.values() if weight.requires_grad]
            # As in Quadratic.force: what all pull together, in units of the λ to be found.
            shares = [self._now(term) / auto.now * penalties[term] for term in penalties]
            losses = (values[TASK], sum(shares[1:], shares[0]))
            slopes = [_slope(loss, weights) for loss in losses]
            auto.observe(dict(zip(auto.reads, slopes, strict=True)))
        return values | {term.name: self._now(term) * penalties[term] for term in penalties}

    def scored(self, output: Output) -> Output:
        """The network's own output as it is scored: corrected where the method learns so."""
        return self.correct(output) if self.correct else output

    def answers(self, step: Step) -> dict[str, Tensor]:
        """The terms on what the network answers; those on weights are left to ``quadratic``."""
        values: dict[str, Tensor] = {}
        if self.correct:
            step = step.with_output(self.scored(step.out))
            if step.replay:
                step.replay = step.replay.with_output(self.scored(step.replay.out))
        if self.task_weight:
            loss = self.task_loss(only_current(step) if self.own_classes else step)
            values[TASK] = loss if self.task_weight == 1.0 else self.task_weight * loss
        for extra in self.extras:
            read = step.replay if extra.replayed else step
            if read is not None:
                values[extra.name] = extra.weight * extra.part(read)
        forces: dict[str, Callable[[], Tensor]] = {}
        if self.task_weight:
            forces[TASK] = partial(force, values[TASK], _felt(step)._replace(maps=()))
        if any(lamb.reads for lamb in self.lambdas.values()):
            step = step.with_output(detach_maps(step.out))
        for term in (term for term in self.terms if not term.on_weights):
            read = step.replay if term.anchor.stored else step
            if read is None:
                continue
            penalty = term.regularizer.penalty(read, term.anchor)
            forces[term.name] = partial(force, penalty, _felt(read), len(read.y) / len(step.y))
            lamb = self.lambdas[term.name]
            if lamb.reads and forces.keys() >= set(lamb.reads) and torch.is_grad_enabled():
                lamb.observe({name: forces[name]() for name in lamb.reads})
            values[term.name] = lamb.now * penalty
        return values

    def quadratic(self, weights: Params) -> Quadratic | None:
        """The terms on weights as one quadratic, or nothing where there is none."""
        self._observe_curvature(weights)
        quadratics = [
            QuadraticPenalty(t.name, float(self._now(t)), t.curvature(), t.anchor.weights)
            for t in self._quadratics
        ]
        return Quadratic(quadratics, weights) if quadratics else None

    @property
    def apart(self) -> frozenset[str]:
        """The terms whose gradients are kept apart."""
        return frozenset(extra.name for extra in self.extras if extra.apart)

    @property
    def maps(self) -> bool:
        """Whether some Ω reads maps."""
        return any(term.regularizer.reads == "maps" for term in self.terms)

    @property
    def unsteady(self) -> frozenset[str]:
        """The terms that do not count when weights are selected."""
        moves = {name for name, lamb in self.lambdas.items() if lamb.moves}
        return frozenset(moves | {term.name for term in self.terms if not term.steady})

    def selection_loss(self, values: Mapping[str, float]) -> float:
        """The loss that selects weights, of the values that an epoch ended with.

        Unsteady terms are left out; an ``Auto`` counts with the λ of its first epoch, and so does
        a term on weights that is balanced with it.
        """
        ratios = {name: lamb.first_over_now for name, lamb in self.lambdas.items()}
        return sum(
            value * ratios[name] if ratios.get(name, 1.0) != 1.0 else value
            for name, value in values.items()
            if name not in self.unsteady
        )

    def end_epoch(self) -> tuple[dict[str, float], str]:
        """Let rules for λ end an epoch: what they yielded, and notes.

        After it an ``Auto`` has another λ: make ``quadratic`` anew.
        """
        ends = [lamb.end_epoch() for lamb in self.lambdas.values()]
        lambs = {name: value for yielded, _ in ends for name, value in yielded.items()}
        return lambs, "; ".join(note for _, note in ends if note)

    def state(self) -> Params:
        """What rules for λ depend on at the next epoch."""
        saved: Params = {}
        for lamb in self.lambdas.values():
            saved |= prefixed(lamb.saved_as, lamb.state())
        return saved

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``, between two epochs; make ``quadratic`` anew."""
        for lamb in (lamb for lamb in self.lambdas.values() if lamb.saved_as):
            lamb.restore(strip_prefix(lamb.saved_as, state))

    def observe_gradients(self, weights: Params, quadratic: Quadratic) -> None:
        """Let an ``Auto`` on weights see a step, when gradients are those of the other terms."""
        auto = self._auto_on_weights
        if auto:
            task, old = auto.reads
            slope = norm([weight.grad for weight in weights.values() if weight.grad is not None])
            auto.observe({task: slope, old: quadratic.force(old)})

    @property
    def lambs(self) -> dict[str, float]:
        """Each term's λ, as it is now."""
        return {term.name: float(self._now(term)) for term in self.terms}

    @cached_property
    def lambdas(self) -> dict[str, Lambda]:
        """What yields each term's λ, by its name."""
        values: dict[str, Lambda] = {}
        for index, term in enumerate(self.terms):
            if isinstance(term.lamb, Auto):
                values[term.name] = AutoLambda(term.lamb, term.name, on_weights=term.on_weights)
            elif isinstance(term.lamb, Balance):
                old = self._balanced_with(index)
                kind = CurvatureLambda if term.on_weights else BalancedLambda
                values[term.name] = kind(term.lamb, (old.name, term.name), values[old.name])
            else:
                values[term.name] = Lambda(term.lamb)
        return values

    @property
    def _quadratics(self) -> list[PenaltyTerm]:
        return [term for term in self.terms if term.on_weights]

    @property
    def _auto_on_weights(self) -> AutoLambda | None:
        rules = (self.lambdas[term.name] for term in self._quadratics)
        return next((lamb for lamb in rules if isinstance(lamb, AutoLambda)), None)

    def _now(self, term: PenaltyTerm) -> Tensor | float:
        return self.lambdas[term.name].now

    def _observe_curvature(self, weights: Params) -> None:
        """Decide λ_a once for all steps, where the balanced term is on weights."""
        curvatures = {term.name: term for term in self._quadratics}
        for lamb in self.lambdas.values():
            if isinstance(lamb, CurvatureLambda) and not lamb.known:
                sums = {name: _sum(curvatures[name].curvature(), weights) for name in lamb.reads}
                lamb.observe(sums)

    def _balanced_with(self, index: int) -> PenaltyTerm:
        """The term before a balanced one that it is balanced with."""
        kind = self.terms[index].on_weights
        before = (t for t in self.terms[:index] if not isinstance(t.lamb, Balance))
        old = next((term for term in before if term.on_weights == kind), None)
        balanced = [term.name for term in self.terms if isinstance(term.lamb, Balance)]
        if old is None or len(balanced) > 1:
            raise MethodError(
                f"{' and '.join(balanced)}: one term may be balanced, with a term before it whose "
                f"λ is a number and whose Ω is of the same kind: both on answers, or both on "
                f"weights. Give that term first, or a number in place of Balance."
            )
        return old

    def _check_rules(self) -> None:
        autos = [term.name for term in self.terms if isinstance(term.lamb, Auto)]
        if len(autos) > 1 or (autos and not self.task_weight):
            raise MethodError(
                f"{' and '.join(autos)}: one term may have the λ Auto, beside a task loss, by "
                f"whose force it is found. Give a number in place of Auto."
            )
        for index, term in enumerate(self.terms):
            if isinstance(term.lamb, Balance):
                self._balanced_with(index)


def _sum(values: Params, weights: Params) -> Tensor:
    """The sum over all elements; aligned, since its bits depend on how they lie in memory."""
    sums = [value.sum() for value in aligned(values, weights)]
    total = math.fsum(torch.stack(sums).tolist()) if sums else 0.0
    return torch.tensor(total, dtype=torch.float64)


def detach_maps(out: Output) -> Output:
    """The same output with maps of its own: what is computed of the real ones does not read them.

    The force on a map is then that of Ω alone, and nothing is propagated through the backbone.
    """
    return out._replace(maps=tuple(stage.view_as(stage) for stage in out.maps))


def _felt(step: Step) -> Output:
    """The output by whose change a term is felt: logits are made of all features that passed."""
    return step.out if step.passed is None else step.out._replace(features=step.passed)


def force(penalty: Tensor, out: Output, images: float = 1.0) -> Tensor:
    """‖∂Ω/∂z‖ over the batch, z the features and maps; the logits where no features learn.

    Args:
        penalty: Ω, a mean over images.
        out: What it was computed of.
        images: The number of its images over that of the task's batch. The gradient of a mean
            over n images is of size 1/√n, so that forces of two batches are compared per image.
    """
    for read in ((out.features, *out.maps), (out.logits,)):
        learning = [tensor for tensor in read if tensor.requires_grad]
        if learning and penalty.requires_grad:
            slopes = torch.autograd.grad(penalty, learning, retain_graph=True, allow_unused=True)
            there = [slope for slope in slopes if slope is not None]
            if there:
                return norm(there) if images == 1.0 else norm(there) * math.sqrt(images)
    return torch.zeros_like(penalty, requires_grad=False)


def _slope(loss: Tensor, weights: Sequence[Tensor]) -> Tensor:
    """‖∂loss/∂θ‖."""
    slopes = torch.autograd.grad(loss, weights, retain_graph=True, allow_unused=True)
    return norm([slope for slope in slopes if slope is not None])


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
