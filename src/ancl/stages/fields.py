"""The fields that stages share: networks, classes, images, and how networks are trained."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ancl.data import Batches, Normalization, Samples
from ancl.inference import Infer
from ancl.losses import TaskLoss
from ancl.methods.method import Auxiliary, MainTrainer, Term
from ancl.methods.task_history import ClassHistory
from ancl.networks import Architecture, Network
from ancl.regularizers import Watcher
from ancl.stages.stage import Stage
from ancl.step_hooks import Constraint
from ancl.training.config import Training
from ancl.training.objective import Extra
from ancl.types import Output


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
    augment: str = "none"
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
        old: The old network's term; its λ is a number.
        auxiliary: The auxiliary network's term; its λ_a is a number.
        alternating: The auxiliary network's training, where it takes turns with the main one.
        correction: How classes are chosen, where that changes what is learned (BiC).
        trainer: The method's own training, in place of the SGD loop.
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
