"""What the work on a task is made of: the parts that a stage holds, and its surroundings."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor

from ancl.data import Augment, Batches, Normalization, Samples, Split
from ancl.data.samples import as_input
from ancl.errors import MethodError
from ancl.hashing import LATER
from ancl.inference import Infer, InferenceInputs
from ancl.losses import TaskLoss
from ancl.memory import Exemplars, Memory, Record
from ancl.methods.task_history import ClassHistory
from ancl.networks import Architecture, Network
from ancl.networks.learnable import ALL
from ancl.regularizers import Watcher
from ancl.state import BASE, MEMORY
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.config import Training
from ancl.training.loop import Drive
from ancl.training.objective import Auxiliary, Extra, Term
from ancl.training.outer import Outer
from ancl.training.renewal import Renewal
from ancl.training.retrieval import Interference
from ancl.types import Output, Params, strip_prefix

_BATCH, _SMALL_BATCH, _LARGE = 128, 16, 2**14
"""Images per batch where features are exact: fewer where a sample has many values."""

Inputs = Mapping[str, StageResult]
"""The results a stage reads, by the part they play."""


class StageContext(NamedTuple):
    """All that work on a task sees besides its parts and inputs; none of it decides a number.

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


@dataclass(frozen=True)
class TaskImages:
    """A task's training and validation images by key.

    Args:
        key: The key of the images.
        held: The number of images per class that nothing is trained on (BiC).
        piece: Which of them are learned, in the order in which they came; all if left out.
    """

    key: str
    held: int = 0
    piece: Annotated[tuple[int, int] | None, LATER] = None


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
            rows = _Rows(len(samples))
            for batch in batches.in_order():
                output = network(batch.x)
                side = {f"side/{name}": tensor for name, tensor in output.side.items()}
                rows.add({"logits": output.logits, "features": output.features, **side})
            tensors = {name: tensor.cpu() for name, tensor in rows.tensors.items()}
            side = strip_prefix("side", tensors)
            return Output(tensors["logits"], tensors["features"], side=side)

        return answers

    def exactly(self, network: Network, device: torch.device) -> Callable[[Samples], Tensor]:
        """A function from samples to their features, of each as if it were alone, on the CPU.

        All batches have one size, whatever is asked with how many others: with another size, sums
        inside of a network are rounded in another order. The last batch is filled up.
        """

        @torch.no_grad()
        def features(samples: Samples) -> Tensor:
            network.eval()
            size = _SMALL_BATCH if math.prod(samples.input_shape) > _LARGE else _BATCH
            rows = _Rows(len(samples))
            for start in range(0, len(samples), size):
                x = samples.x[start : start + size]
                filled = torch.cat([x, x[:1].expand(size - len(x), *x.shape[1:])])
                inputs = as_input(filled, self.normalization, device)
                rows.add({"features": network(inputs).features[: len(x)]})
            none = torch.zeros(0, network.head.feature_size)
            return rows.tensors.get("features", none).cpu()

        return features


class _Rows:
    """What comes batch by batch, in one tensor of all rows from the first batch on.

    A list of small tensors, each made while the images of its batch were there, would keep memory
    in pieces: the images of the next batch do not fit where those of the last one were, and all of
    them together would take as much room as if they were kept.

    Args:
        count: The number of rows of all batches.
    """

    def __init__(self, count: int) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._count, self._filled = count, 0

    def add(self, batch: Mapping[str, Tensor]) -> None:
        """The next rows of each tensor; nobody waits for a device."""
        end = self._filled
        for name, part in batch.items():
            if name not in self.tensors:
                self.tensors[name] = part.new_empty((self._count, *part.shape[1:]))
            end = self._filled + len(part)
            self.tensors[name][self._filled : end] = part
        self._filled = end


@dataclass(frozen=True)
class AuxiliaryTraining:
    """How the auxiliary network is trained.

    Args:
        training: With the values of this task.
        watcher: What follows the training.
        frozen_blocks: The number of the head's first blocks that are frozen.
        combined: Whether it also learns from the memory, and all classes compete.
        trains: What learns of its backbone, of what learns of the main network's.
        cleared: Whether its adapters begin at 0.
    """

    training: Training
    watcher: type[Watcher] | None = None
    frozen_blocks: int = 0
    combined: bool = False
    trains: Annotated[str, LATER] = ALL
    cleared: Annotated[bool, LATER] = False


class _NotHeld(Enum):
    NOT_HELD = "not held"


_NOT_HELD: Any = _NotHeld.NOT_HELD


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TaskParts:
    """All that the work on a task may be decided by, besides what other stages computed.

    A stage holds those that it reads, and these are part of its key. To read another is an error,
    so that what decides a result and what names it cannot differ.

    Args:
        architecture: The network.
        history: The classes of every task so far.
        images: How images become batches.
        data: The task's images.
        task_loss: The task loss.
        training: How a network is trained, with the values of this task.
        constrain: What is done to gradients and weights at every step.
        watcher: What follows the training.
        frozen_blocks: The number of the head's first blocks that are frozen.
        task_aware: Whether classes compete only within their task.
        earlier: The keys of earlier tasks' images, if they are trained on again.
        frozen_backbone: Whether the backbone is frozen.
        task_weight: The task loss's own weight.
        extras: Terms that are neither task loss nor Ω.
        old: The old network's term; its λ is a number, or found while training.
        auxiliary: The auxiliary network's term; its λ_a is a number or a balance.
        alternating: The auxiliary network's training, where it takes turns with the main one.
        correction: How classes are chosen, where that changes what is learned (BiC).
        outer: What an outer step moves between epochs.
        replay: The size of a replay batch beside each of the task's, if there is one.
        memory: How exemplars are chosen.
        kept: The number of images per class that the memory keeps from now on: to train on, and
            to validate on.
        records: What the memory keeps of each image besides.
        retrieve: Which images of the memory are replayed, if not any.
        renewal: How the memory takes every batch that is learned, if it does.
        old_task: The task whose head the network in ``old`` has, if not that of the last.
    """

    architecture: Architecture = _NOT_HELD
    history: ClassHistory = _NOT_HELD
    images: ImageFormat = _NOT_HELD
    data: TaskImages = _NOT_HELD
    task_loss: TaskLoss = _NOT_HELD
    training: Training = _NOT_HELD
    constrain: Constraint | None = _NOT_HELD
    watcher: type[Watcher] | None = _NOT_HELD
    frozen_blocks: int = _NOT_HELD
    task_aware: bool = _NOT_HELD
    earlier: tuple[str, ...] = _NOT_HELD
    frozen_backbone: bool = _NOT_HELD
    task_weight: float = _NOT_HELD
    extras: tuple[Extra, ...] = _NOT_HELD
    old: Term | None = _NOT_HELD
    auxiliary: Auxiliary | None = _NOT_HELD
    alternating: AuxiliaryTraining | None = _NOT_HELD
    correction: Infer | None = _NOT_HELD
    outer: Outer | None = None
    replay: int | None = None
    memory: Memory | None = _NOT_HELD
    kept: tuple[int, int] = _NOT_HELD
    records: tuple[Record, ...] = ()
    retrieve: Interference | None = None
    renewal: Renewal | None = None
    old_task: int | None = None

    def __getattribute__(self, name: str) -> Any:
        value = object.__getattribute__(self, name)
        if value is _NOT_HELD:
            raise MethodError(
                f"A stage reads {name!r}, which it does not hold: it is not part of its key, so "
                f"that results of other settings could be taken for its own."
            )
        return value

    @property
    def held(self) -> dict[str, Any]:
        """The parts that the stage reads, by name: those that are not their default."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {n: part for n, part in vars(self).items() if part is not defaults[n]}


IMAGE_PARTS = ("train", "val", "test")


def inference_inputs(
    network: Network, images: ImageFormat, device: torch.device, classes: int, state: Inputs
) -> InferenceInputs:
    """What inference may look at, of the state that a task left behind."""
    memory, others = state.get(MEMORY), {n: r for n, r in state.items() if n != MEMORY}
    return InferenceInputs(
        images.answering(network, device),
        classes,
        read_exemplars(memory, network.reads_features) if memory else None,
        {name: strip_prefix(name, result.tensors) for name, result in others.items()},
    )


def read_base(state: Inputs) -> Params:
    """What networks share of a state; empty where nothing is frozen."""
    return strip_prefix(BASE, state[BASE].tensors) if BASE in state else {}


def read_exemplars(memory: StageResult, features: bool) -> Exemplars:
    """A memory; its features only where the network reads them."""
    tensors = strip_prefix(MEMORY, memory.tensors)
    if not features:
        tensors.pop("features", None)
    return Exemplars.of(tensors)


def with_features(images: Callable[[str], Split], inputs: Inputs) -> Callable[[str], Split]:
    """A loader of images that adds their features, where a stage has computed them."""
    results = {
        key: result for result in inputs.values() for key in result.meta.get("features of", ())
    }

    def load(key: str) -> Split:
        split = images(key)
        if key not in results:
            return split
        features = results[key].tensors
        parts = (replace(getattr(split, part), features=features[part]) for part in IMAGE_PARTS)
        return Split(*parts)

    return load
