"""A method as data: its loss and its surroundings, composed of parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from torch import Tensor

from ancl.constraints import Constraint
from ancl.errors import MethodError
from ancl.files import Entry
from ancl.infer import Argmax, Infer
from ancl.losses import CrossEntropy, TaskLoss
from ancl.regularizers import Ewc, Regularizer, Watcher, WeightRegularizer
from ancl.types import Step

if TYPE_CHECKING:
    from ancl.workbench import Drive, Workbench


class Rule(ABC):
    """A λ that follows the task instead of being one number."""

    @abstractmethod
    def at(self, old: int, new: int) -> float:
        """λ for a task that adds ``new`` classes to ``old`` ones."""


Weight = float | Rule


def weight_at(weight: Weight, old: int, new: int) -> float:
    """The number a weight stands for in one task."""
    return weight.at(old, new) if isinstance(weight, Rule) else weight


@dataclass(frozen=True)
class Term:
    """λ Ω(θ; old network)."""

    regularizer: Regularizer
    lamb: Weight


@dataclass(frozen=True)
class Extra:
    """A term that is no Ω, and no part of the auxiliary network's loss: LUCIR's margin ranking."""

    name: str
    part: Callable[[Step], Tensor]
    weight: float = 1.0


class Finish(ABC):
    """What follows the main network's training, from the second task on: a stage of its own.

    ``reads`` and ``yields`` name pieces of the state: ``network``, ``memory``, or its own.
    """

    name: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("memory",)
    yields: ClassVar[tuple[str, ...]] = ("network",)

    @abstractmethod
    def run(self, bench: Workbench, drive: Drive) -> Entry:
        """The stage: a new network under ``network/``, or named tensors of its own."""


@dataclass(frozen=True)
class Auxiliary:
    """λ_a Ω(θ; auxiliary network): a copy of the old network, trained on this task alone.

    Args:
        regularizer: Its Ω: the method's own for ANCL, EWC's for AFEC.
        lamb_a: Its λ_a.
        renewed: ANCL trains the network to its end once a ``task``; AFEC trains it one epoch
            ahead of the main network and renews anchor and importance every ``epoch``.
        start: From the ``old`` network, or ``carried`` on from the last task's auxiliary one.
        classes: It speaks for the task's ``new`` classes, or for ``all`` so far.
        data: It learns from the ``current`` task's images, or ``combined`` with the memory's.
    """

    regularizer: Regularizer
    lamb_a: Weight
    renewed: Literal["task", "epoch"] = "task"
    start: Literal["old", "carried"] = "old"
    classes: Literal["new", "all"] = "new"
    data: Literal["current", "combined"] = "current"


@dataclass(frozen=True)
class Method:
    """The loss and its surroundings.

    Args:
        name: What results are filed under.
        task_loss: What a task is learned by.
        old: The term that holds the network to the old one, if any.
        auxiliary: The term that holds it to the auxiliary one, if any.
        task_weight: The task loss's own weight from the second task on; 0 leaves it out.
        extras: Terms that are neither.
        start: Every task begins with the ``old`` network, or with a ``fresh`` one.
        data: Learn from the ``current`` task's images, or from ``all`` so far.
        trains: ``scenario`` leaves old classes' rows of the head alone where the task is told
            at test time and there is no memory; ``everything`` never does; ``new rows`` always
            does; ``head`` trains nothing else after the first task.
        head: The kind of classifier.
        imprint: Whether new rows of the head begin as means of their classes' features.
        last_relu: Whether features of our ResNets end with a ReLU.
        hold_out: Share of the memory's images a class that nothing is trained on.
        finish: Stages after the main network's training.
        infer: How a class is chosen.
        constrain: What is done to gradients and weights at every step.
        refused: Scenarios in which the method has no meaning, and why.
    """

    name: str
    task_loss: TaskLoss = field(default_factory=CrossEntropy)
    old: Term | None = None
    auxiliary: Auxiliary | None = None
    task_weight: Weight = 1.0
    extras: tuple[Extra, ...] = ()
    start: Literal["old", "fresh"] = "old"
    data: Literal["current", "all"] = "current"
    trains: Literal["scenario", "everything", "new rows", "head"] = "scenario"
    head: str = "linear"
    imprint: bool = False
    last_relu: bool = True
    hold_out: float = 0.0
    finish: tuple[Finish, ...] = ()
    infer: Infer = field(default_factory=Argmax)
    constrain: Constraint | None = None
    refused: Mapping[str, str] = field(default_factory=dict)

    @property
    def needs_importance(self) -> bool:
        """Whether the old network's term reads the importance of weights."""
        return self.old is not None and isinstance(self.old.regularizer, WeightRegularizer)

    @property
    def parts(self) -> tuple[object, ...]:
        """Every part that decides numbers."""
        omegas = tuple(term.regularizer for term in (self.old, self.auxiliary) if term)
        return (self.task_loss, *omegas, *self.extras, *self.finish, self.infer, self.constrain)

    def watcher(self) -> Watcher | None:
        """What follows the main network's training, if the old network's term asks for it."""
        return _watcher(self.old.regularizer) if self.old else None

    def auxiliary_watcher(self) -> Watcher | None:
        """The same for the auxiliary network's training."""
        return _watcher(self.auxiliary.regularizer) if self.auxiliary else None


def with_ancl(
    method: Method,
    lamb_a: Weight = 1.0,
    *,
    classes: Literal["new", "all"] = "new",
    data: Literal["current", "combined"] = "current",
) -> Method:
    """The method with its own Ω held to an auxiliary network too.  Equation: [ancl]."""
    if method.auxiliary is not None:
        raise MethodError(f"{method.name} already has an auxiliary network. Use it as it is.")
    if method.old is None:
        raise MethodError(
            f"{method.name!r} has no regularizer, so ANCL has none to apply to the auxiliary "
            f"network. Use afec-{method.name}, or a method that has one, such as ewc or lwf."
        )
    auxiliary = Auxiliary(method.old.regularizer, lamb_a, classes=classes, data=data)
    return replace(method, name=f"a-{method.name}", auxiliary=auxiliary)


def with_afec(
    method: Method,
    lamb_a: Weight = 1.0,
    *,
    start: Literal["old", "carried"] = "old",
    renewed: Literal["task", "epoch"] = "epoch",
) -> Method:
    """The method with EWC's Ω held to an auxiliary network one epoch ahead.  Equation: [afec]."""
    if method.auxiliary is not None:
        raise MethodError(f"{method.name} already has an auxiliary network. Use it as it is.")
    if method.trains == "head":
        raise MethodError(
            f"{method.name} trains no backbone after the first task, so AFEC has no weights to "
            f"hold. Use a method that trains one, such as afec-finetune."
        )
    auxiliary = Auxiliary(Ewc(), lamb_a, renewed=renewed, start=start)
    return replace(method, name=f"afec-{method.name}", auxiliary=auxiliary)


def _watcher(regularizer: Regularizer) -> Watcher | None:
    return regularizer.watcher() if isinstance(regularizer, WeightRegularizer) else None
