"""A stage: one pure step of learning a task, whose fields are its key and all that it reads.

``run`` may read the stage's own fields, the results of its inputs, and a ``StageContext``. The key
is the hash of exactly those fields, so what decides a result and what names it cannot differ.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, NamedTuple

import torch

from ancl.data import Augment, Batches, Normalization, Samples, Split
from ancl.hashing import LATER, PROCESS, UnstorableError, describe, described_fields, digest
from ancl.inference import Infer
from ancl.losses import TaskLoss
from ancl.methods.method import Auxiliary, MainTrainer, Term
from ancl.methods.task_history import ClassHistory
from ancl.networks import Architecture, Network
from ancl.regularizers import Watcher
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.config import Training
from ancl.training.loop import Drive
from ancl.training.objective import Extra
from ancl.training.outer import Outer
from ancl.types import Output

KEY_VERSION = 2
"""Raised when keys change their form: every stored result is then computed again."""

Inputs = Mapping[str, StageResult]
"""The results a stage reads, by the part they play."""


class StageContext(NamedTuple):
    """All that ``run`` sees besides the stage and its inputs; none of it decides a number.

    Args:
        device: Where to compute. Its kind is part of the stage's numerics.
        drive: Runs a training to its end, from a checkpoint if there is one.
        say: Takes a message for the user.
        images: Gives a task's images by the key that a stage holds.
    """

    device: torch.device
    drive: Drive
    say: Callable[[str], None]
    images: Callable[[str], Split]


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage(ABC):
    """One step of learning a task.

    Args:
        task: The task's index.
        seed: Where all randomness comes from.
        numerics: What else decides bits: threads, device kind, versions.
        inputs: The keys of the results it reads, by the part they play.
        unstored: Why its result must not be stored; empty where it may be. Not part of the key.
    """

    task: int
    seed: int
    numerics: Mapping[str, Any]
    inputs: Mapping[str, str] = field(default_factory=dict)
    unstored: str = field(default="", compare=False)

    @property
    @abstractmethod
    def name(self) -> str:
        """What the stage is called in plans and logs; part of the key."""

    @abstractmethod
    def run(self, inputs: Inputs, context: StageContext) -> StageResult:
        """Compute the result."""

    @property
    def epochs(self) -> int:
        """The largest number of epochs it trains; 0 where it trains nothing."""
        return 0

    @cached_property
    def key(self) -> str:
        """The hash of the name and of every field."""
        fields = {n: describe(v, unknown=_by_object) for n, v in described_fields(self).items()}
        return digest({"version": KEY_VERSION, "stage": self.name, **fields})


_UNKNOWN: dict[int, object] = {}
"""Such code by its id, kept alive so that no later object gets the same id, and with it the key."""


def _by_object(part: object, error: UnstorableError) -> Any:
    if error.known is not None:
        return [PROCESS, error.known]
    _UNKNOWN[id(part)] = part
    return [PROCESS, repr(type(part)), id(part)]


@dataclass(frozen=True)
class TaskImages:
    """A task's training and validation images by key.

    Args:
        key: The key of the images.
        held: The number of images per class that nothing is trained on (BiC).
    """

    key: str
    held: int = 0


@dataclass(frozen=True)
class ImageFormat:
    """How images become batches.

    Args:
        normalization: What is subtracted and divided by; none for other inputs.
        batch_size: Images per batch where nothing is trained.
        augment: The augmentation of training images.
        versions: Whether training sees twelve fixed versions of every image instead.
    """

    normalization: Normalization | None
    batch_size: int
    augment: Augment = "none"
    versions: bool = False

    def answering(self, network: Network, device: torch.device) -> Callable[[Samples], Output]:
        """A function from samples to all their outputs, in eval mode, on the CPU."""

        @torch.no_grad()
        def answers(samples: Samples) -> Output:
            network.eval()
            batches = Batches(samples, self.batch_size, self.normalization, device=device)
            outputs = [network(batch.x) for batch in batches.in_order()]
            return Output(
                torch.cat([output.logits.cpu() for output in outputs]),
                torch.cat([output.features.cpu() for output in outputs]),
                side={n: torch.cat([o.side[n].cpu() for o in outputs]) for n in outputs[0].side},
            )

        return answers


@dataclass(frozen=True, eq=False, kw_only=True)
class TaskStage(Stage):
    """A stage that works with a network on the classes of a task.

    Args:
        architecture: The network.
        history: The classes of every task so far.
        images: How images become batches.
    """

    architecture: Architecture
    history: ClassHistory
    images: ImageFormat


@dataclass(frozen=True, eq=False, kw_only=True)
class ImageStage(TaskStage):
    """A stage that reads the training images of its task."""

    data: TaskImages


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingStage(ImageStage):
    """A stage that trains.

    Args:
        task_loss: The task loss.
        training: How, with the values of this task.
        constrain: What is done to gradients and weights at every step.
        watcher: What follows the training.
        frozen_blocks: The number of the head's first blocks that are frozen.
        task_aware: Whether classes compete only within their task.
    """

    task_loss: TaskLoss
    training: Training
    constrain: Constraint | None = None
    watcher: type[Watcher] | None = None
    frozen_blocks: int = 0
    task_aware: bool = False

    @property
    def epochs(self) -> int:
        """The largest number of epochs."""
        return self.training.epochs


@dataclass(frozen=True)
class AuxiliaryTraining:
    """How the auxiliary network is trained.

    Args:
        training: With the values of this task.
        watcher: What follows the training.
        frozen_blocks: The number of the head's first blocks that are frozen.
        combined: Whether it also learns from the memory, and all classes compete.
    """

    training: Training
    watcher: type[Watcher] | None = None
    frozen_blocks: int = 0
    combined: bool = False


@dataclass(frozen=True, eq=False, kw_only=True)
class MainLearning(TrainingStage):
    """A stage that knows the main network's whole loss: its training, and what follows it.

    Args:
        earlier: The keys of earlier tasks' images, if they are trained on again.
        frozen_backbone: Whether the backbone is frozen.
        task_weight: The task loss's own weight.
        extras: Terms that are neither task loss nor Ω.
        old: The old network's term; its λ is a number, or found while training.
        auxiliary: The auxiliary network's term; its λ_a is a number or a balance.
        alternating: The auxiliary network's training, where it takes turns with the main one.
        correction: How classes are chosen, where that changes what is learned (BiC).
        trainer: The method's own training, in place of the SGD loop.
        outer: What an outer step moves between epochs.
    """

    earlier: tuple[str, ...] = ()
    frozen_backbone: bool = False
    task_weight: float = 1.0
    extras: tuple[Extra, ...] = ()
    old: Term | None = None
    auxiliary: Auxiliary | None = None
    alternating: AuxiliaryTraining | None = None
    correction: Infer | None = None
    trainer: MainTrainer | None = None
    outer: Annotated[Outer | None, LATER] = None
