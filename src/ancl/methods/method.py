"""A method as data: its loss and its surroundings, composed of parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from ancl.errors import MethodError
from ancl.hashing import LATER
from ancl.inference import Argmax, Infer
from ancl.losses import CrossEntropy, TaskLoss
from ancl.memory import Memory, Record
from ancl.methods.work import TaskWork
from ancl.networks import Growth
from ancl.regularizers import Regularizer, Watcher, WeightRegularizer
from ancl.state import MEMORY, NETWORK
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.config import SelectBy, Training
from ancl.training.lambda_rules import Balance, Weight
from ancl.training.loop import Trainer
from ancl.training.objective import Auxiliary, Extra, Term
from ancl.training.outer import Outer
from ancl.training.retrieval import Interference


class Finish(ABC):
    """What follows the main network's training: a stage of its own.

    ``reads`` and ``yields`` name pieces of the state: ``network``, ``memory``, or its own.
    ``optional`` are those of ``reads`` that it can do without. ``first`` says whether it follows
    the first task's training too. ``new_classes`` says that it means something only where a task
    brings new classes: it is left out where known classes come again alone. ``looks`` says
    whether it looks at images, or trains: one that does not reads pieces of the state alone.
    ``equal_classes`` says that it needs equally many exemplars of each class, where it reads any.
    """

    name: ClassVar[str]
    first: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = (MEMORY,)
    optional: ClassVar[tuple[str, ...]] = ()
    yields: ClassVar[tuple[str, ...]] = (NETWORK,)
    new_classes: ClassVar[bool] = False
    looks: ClassVar[bool] = True
    equal_classes: ClassVar[bool] = True

    @property
    def needs_memory(self) -> bool:
        """Whether it cannot do without exemplars."""
        return MEMORY in self.reads and MEMORY not in self.optional

    @abstractmethod
    def run(self, work: TaskWork) -> StageResult:
        """The stage: a new network under ``network/``, or named tensors of its own."""


class MainTrainer(ABC):
    """How the main network is trained where one SGD loop is not the method's nature.

    Make it a frozen dataclass: its fields are part of the stage's key. ``reads`` names pieces of
    the state that it reads, where the last task left them: ``work.state(name)``. ``yields`` names
    those that the training's tensors hold besides the network, as ``name/…``. ``first`` says
    whether it trains the first task's network too.
    """

    first: ClassVar[bool] = False
    reads: ClassVar[tuple[str, ...]] = ()
    yields: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def make(self, work: TaskWork) -> Trainer:
        """The training, which is then driven to its end and stored."""


@dataclass(frozen=True)
class Method:
    """The loss and its surroundings.

    Args:
        name: What results are filed under.
        task_loss: What a task is learned by.
        old: The term that holds the network to the old one, or to stored answers, if any.
        auxiliary: The term that holds it to the auxiliary one, if any.
        task_weight: The task loss's own weight from the second task on; 0 leaves it out.
        extras: Terms that are neither.
        start: Every task begins with the ``old`` network, or with a ``fresh`` one.
        data: Learn from the ``current`` task's images, or from ``all`` so far.
        trains: ``auto`` leaves old classes' rows of the head alone where no images of earlier
            tasks are learned from, unless the task loss is over all classes seen;
            ``everything`` never does; ``new rows`` always does; ``head`` trains nothing else
            after the first task.
        head: The kind of classifier.
        head_options: Its options, such as the number of proxies.
        imprint: Whether new rows of the head begin as means of their classes' features.
        last_relu: Whether features of our ResNets end with a ReLU.
        memory: What is kept of earlier tasks' images unless a run says otherwise.
        select_by: What patience judges an epoch by unless a run says otherwise.
        auxiliary_decay: The weight decay of the auxiliary network's training unless a run says
            otherwise; the main network's if left out.
        clip: The largest norm of the gradient unless a run says otherwise.
        enlarge: Whether, after the first task, trainings see twelve fixed versions of every
            image in place of the run's augmentation.
        hold_out: Share of the memory's images per class that nothing is trained on.
        finish: Stages after the main network's training.
        infer: How a class is chosen.
        constrain: What is done to gradients and weights at every step.
        trainer: Trains the main network in place of the SGD loop; from the second task on, unless
            it says otherwise.
        outer: What an outer step moves between its epochs, on balanced images of the memory and
            the task, from the second task on.
        refused: Scenarios in which the method has no meaning, and why. What is said of ``cir``
            holds wherever known classes come again.
        growth: How the backbone changes from task to task, if it does.
        needs_memory: Scenarios in which it has no meaning without a memory, and why.
        no_variants: Of ``a`` (ANCL) and ``afec``, those that have no meaning with it, and why.
        main: ``train`` the main network; or, after the first task, let the ``auxiliary`` network
            stand in its place for the finishing stages; or train it in the ``first`` task alone, or
            ``none`` in any task: what is learned then, stages after training learn.
        records: What the memory keeps of each image besides, when it is stored: its logits.
        all_classes: Whether the head has rows for all classes of a run from the start, as in public
            code of replay methods.
        retrieve: Which images of the memory are replayed; any, if left out.
    """

    name: str
    task_loss: TaskLoss = field(default_factory=CrossEntropy)
    old: Term | None = None
    auxiliary: Auxiliary | None = None
    task_weight: Weight = 1.0
    extras: tuple[Extra, ...] = ()
    start: Literal["old", "fresh"] = "old"
    data: Literal["current", "all"] = "current"
    trains: Literal["auto", "everything", "new rows", "head"] = "auto"
    head: str = "linear"
    head_options: Mapping[str, Any] = field(default_factory=dict)
    imprint: bool = False
    last_relu: bool = True
    memory: Memory | None = None
    select_by: SelectBy = "loss"
    auxiliary_decay: float | None = None
    enlarge: bool = False
    hold_out: float = 0.0
    finish: tuple[Finish, ...] = ()
    infer: Infer = field(default_factory=Argmax)
    constrain: Constraint | None = None
    trainer: MainTrainer | None = None
    outer: Outer | None = None
    refused: Mapping[str, str] = field(default_factory=dict, compare=False)
    growth: Growth | None = None
    needs_memory: Mapping[str, str] = field(default_factory=dict, compare=False)
    no_variants: Mapping[str, str] = field(default_factory=dict, compare=False)
    main: Literal["train", "auxiliary", "first", "none"] = "train"
    records: Annotated[tuple[Record, ...], LATER] = ()
    all_classes: Annotated[bool, LATER] = False
    retrieve: Annotated[Interference | None, LATER] = None
    clip: Annotated[float | None, LATER] = None

    def __post_init__(self) -> None:
        if self.old and self.old.stored:
            _check_stored(self.name, self.old.regularizer, self.records)
        if self.auxiliary and isinstance(self.auxiliary.lamb_a, Balance):
            _check_balance(self.name, self.old, self.auxiliary)

    def collapses(self, scenario: str, memory: Memory | None) -> bool:
        """Whether old classes are lost: all compete, and no image of an earlier task is learned."""
        learns = self.main in ("train", "auxiliary") and self.data == "current"
        learns = learns and self.infer.holds is None
        return scenario in ("cil", "cir") and learns and not (memory and memory.size)

    @property
    def trains_nothing(self) -> bool:
        """Whether all that it learns are statistics of features that never change."""
        return self.main == "none" and self.infer.holds is not None

    @property
    def holds_features(self) -> bool:
        """Whether held images are kept as features: exact where no later task moves the network."""
        return self.infer.holds is not None and self.main in ("none", "first")

    @property
    def needs_importance(self) -> bool:
        """Whether the old network's term reads the importance of weights."""
        return self.old is not None and isinstance(self.old.regularizer, WeightRegularizer)

    @property
    def omegas(self) -> tuple[Regularizer, ...]:
        """The Ω of the old and of the auxiliary network's term."""
        regularizers = (term.regularizer for term in (self.old, self.auxiliary) if term)
        return tuple(omega for omega in regularizers if omega)

    @property
    def parts(self) -> tuple[object, ...]:
        """Every part that decides numbers."""
        return (
            self.task_loss,
            *self.omegas,
            *self.extras,
            *self.finish,
            self.infer,
            self.constrain,
            self.trainer,
            self.retrieve,
            *self.records,
        )

    @property
    def replays(self) -> bool:
        """Whether its loss reads replay batches: by a term on them, or a memory that has some."""
        given = self.memory is not None and self.memory.batch is not None
        stored = self.old is not None and self.old.stored
        return given or stored or any(extra.replayed for extra in self.extras)

    @property
    def why_once(self) -> str:
        """Why known classes cannot come again; empty where they can."""
        if self.trains == "new rows" and "cir" not in self.refused:
            return "it leaves rows of known classes alone, so that new images cannot change them"
        return self.refused.get("cir", "")

    @property
    def way_out(self) -> str:
        """What lets known classes come again, where the method leaves their rows alone."""
        new_rows = self.trains == "new rows" and "cir" not in self.refused
        return ", or let their rows learn (lucir, podnet: train_old_rows=true)" if new_rows else ""

    def problems(self, scenario: str, memory: Memory | None, groups: int) -> list[str]:
        """What does not fit a scenario and a memory shared by this number of groups."""
        mistakes = []
        refused = self.why_once if scenario == "cir" else self.refused.get(scenario)
        if refused:
            mistakes.append(
                f"{self.name} has no meaning in the scenario {scenario}: {refused}. "
                f"Use another method, such as lwf or icarl{self.way_out}."
            )
        if memory is None and scenario in self.needs_memory:
            mistakes.append(
                f"{self.name} needs a memory in the scenario {scenario}: "
                f"{self.needs_memory[scenario]}. Give memory.per_class or memory.total."
            )
        elif memory is None and any(part.needs_memory for part in self.finish):
            stages = " and ".join(part.name for part in self.finish if part.needs_memory)
            mistakes.append(
                f"{self.name} has a stage that reads exemplars ({stages}), and there is no memory. "
                f"Give memory.per_class or memory.total."
            )
        mistakes += self._replay_problems(memory) + self._shared_problems(memory)
        if memory is not None and self.hold_out and memory.quota(groups) == 1:
            mistakes.append(
                f"{self.name} validates on a part of the memory and trains on the rest, which "
                f"needs at least 2 images per class, but there is 1. Raise memory.per_class or "
                f"memory.total."
            )
        return mistakes

    def _replay_problems(self, memory: Memory | None) -> list[str]:
        size = memory.batch if memory else None
        if self.replays and (memory is None or size is None):
            return [
                f"{self.name} learns from replay batches, and there are none. Give memory.batch, "
                f"such as 32, and memory.per_class or memory.total."
            ]
        if size is not None and (not self.replays or self.trainer):
            return [
                f"memory.batch is {size}, and {self.name} reads no replay batches: it learns from "
                f"exemplars among the task's images. Leave memory.batch out."
            ]
        return []

    def _shared_problems(self, memory: Memory | None) -> list[str]:
        stages = any(MEMORY in part.reads and part.equal_classes for part in self.finish)
        equal = stages or bool(self.hold_out) or self.outer is not None
        if memory and memory.shared and (equal or MEMORY in self.infer.reads):
            return [
                f"memory.selection={memory.selection} may leave a class with few images or none, "
                f"and {self.name} reads images of every class. Use memory.selection=random, "
                f"herding or ring."
            ]
        return []

    def training_problems(self, training: Training) -> list[str]:
        """What does not fit how the main network is trained."""
        if self.task_weight == 0 and training.select_by == "task_loss":
            return [
                f"select_by is task_loss, but {self.name} has no task loss after the first task. "
                f"Use select_by=loss or accuracy."
            ]
        return []

    @property
    def watcher(self) -> type[Watcher] | None:
        """What follows the main network's training, if the old network's term asks for it."""
        return _watcher(self.old.regularizer) if self.old else None

    @property
    def auxiliary_watcher(self) -> type[Watcher] | None:
        """The same for the auxiliary network's training."""
        return _watcher(self.auxiliary.regularizer) if self.auxiliary else None


def _check_stored(name: str, omega: Regularizer, records: tuple[Record, ...]) -> None:
    """Refuse an Ω on stored answers that the memory does not record."""
    if omega.reads not in {record.name for record in records}:
        raise MethodError(
            f"{name} is held to stored answers by an Ω that reads {omega.reads}, and its memory "
            f"records none. Give records=(StoredLogits(),) and an Ω that reads logits, or a Record "
            f"named 'features' and an Ω that reads these."
        )


def _check_balance(name: str, old: Term | None, auxiliary: Auxiliary) -> None:
    """Refuse a balance that has nothing to compare."""
    kinds = {isinstance(term.regularizer, WeightRegularizer) for term in (old, auxiliary) if term}
    if old is None or auxiliary.renewed == "epoch" or len(kinds) > 1:
        raise MethodError(
            f"{name} cannot balance λ_a: that needs an old network's term, an auxiliary network "
            f"trained once per task, and two Ω of one kind (both on answers, or both on weights). "
            f"Give a number for λ_a."
        )


def _watcher(regularizer: Regularizer | None) -> type[Watcher] | None:
    return regularizer.watcher if isinstance(regularizer, WeightRegularizer) else None
