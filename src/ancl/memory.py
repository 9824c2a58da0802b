"""Exemplars: which images of a class are kept, and how many."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Generator, Tensor
from torch.nn import functional as F

from ancl.data import Samples
from ancl.errors import SpecError
from ancl.hashing import LATER
from ancl.types import Output, Params

Selection = Literal["herding", "random", "entropy", "distance"]


@dataclass(frozen=True)
class Memory:
    """How many images are kept, and which.

    Args:
        per_class: Number of images per class: the memory grows with the classes.
        total: Or number of images in total, shared equally: every class's part shrinks.
        selection: ``herding`` keeps the mean of features, ``random`` any, ``entropy`` the least
            certain, ``distance`` those nearest to the decision.
    """

    per_class: Annotated[int, Ge(1)] | None = None
    total: Annotated[int, Ge(1)] | None = None
    selection: Selection = "herding"

    @property
    def size(self) -> int:
        """Number of images, per class or in total; 0 if nothing is kept."""
        return self.per_class or self.total or 0

    def quota(self, groups: int) -> int:
        """Number of images per class (and domain), for a number of classes (and domains)."""
        return self.per_class or (self.total or 0) // groups

    def problems(self, groups: int, scenario: str) -> list[str]:
        """What does not fit a stream with this number of classes (times domains)."""
        if self.per_class and self.total:
            return ["memory.per_class and memory.total are both given. Give one of them."]
        if self.total and self.quota(groups) < 1:
            kept = "classes in their domains" if scenario == "dil" else "classes"
            return [
                f"A memory of {self.total} images cannot keep one of each of {groups} {kept}. "
                f"Raise memory.total to at least {groups}, or use memory.per_class."
            ]
        return []


@dataclass(frozen=True)
class RunMemory(Memory):
    """The memory of a run, whose tasks are all known before it begins.

    Args:
        fair: Whether images make room for weights that a network gains as it grows, 4 bytes each.
            A network that does not grow keeps all its images.
    """

    fair: Annotated[bool, LATER] = False

    def paid(self, weights: int, groups: int, image_bytes: int) -> Memory:
        """What is left after paying.

        Args:
            weights: The number of weights to pay for.
            groups: The number of classes (and domains) that share the memory in the end.
            image_bytes: The size of one image as it is kept.

        Raises:
            SpecError: There are no images, or not one of each class is left.
        """
        if not self.size:
            raise SpecError(
                "memory.fair is true, so images make room for weights that the network gains, and "
                "none are kept. Give memory.per_class or memory.total, or memory.fair=false."
            )
        images = 4 * weights / image_bytes
        name, each, least = ("per_class", groups, 1) if self.per_class else ("total", 1, groups)
        left = math.floor(self.size - images / each)
        if left < least:
            raise SpecError(
                f"memory.fair is true, and the network gains weights that take the room of "
                f"{images:.0f} images: of memory.{name}={self.size} not one image per class is "
                f"left. Give memory.{name}={least + math.ceil(images / each)} or more, or "
                f"memory.fair=false."
            )
        per_class, total = (left, None) if self.per_class else (None, left)
        return Memory(per_class, total, self.selection)


@dataclass(frozen=True, eq=False)
class Exemplars:
    """What a memory holds: images by class and the task they came with, best first.

    ``held`` marks images kept for validation, which nothing is trained on.
    """

    samples: Samples
    task: Tensor
    held: Tensor

    def tensors(self) -> Params:
        """As named tensors, to be stored."""
        found = {"x": self.samples.x, "y": self.samples.y, "task": self.task, "held": self.held}
        features = self.samples.features
        return found if features is None else {**found, "features": features}

    @classmethod
    def of(cls, tensors: Params) -> "Exemplars":
        """From named tensors."""
        samples = Samples(tensors["x"], tensors["y"], tensors.get("features"))
        return cls(samples, tensors["task"], tensors["held"])

    def part(self, *, held: bool) -> Samples:
        """The images to train on, or those held out of it."""
        return self.samples.take((self.held == held).nonzero().squeeze(1))

    def truncated(self, trained: int, held: int) -> "Exemplars":
        """The best images of each class and task; they are ordered, so the last are dropped."""
        group = self.samples.y * (int(self.task.max()) + 1) + self.task
        keep = [
            index[: held if flag else trained]
            for flag in (False, True)
            for value in sorted(set(group.tolist()))
            for index in [((group == value) & (self.held == flag)).nonzero().squeeze(1)]
        ]
        return self.take(torch.cat(keep))

    def of_classes(self, classes: Sequence[int], *, inside: bool) -> "Exemplars":
        """Those of some classes, or of all others."""
        found = torch.isin(self.samples.y, torch.tensor(classes, dtype=torch.long))
        return self.take((found == inside).nonzero().squeeze(1))

    def take(self, index: Tensor) -> "Exemplars":
        """Some of them."""
        return Exemplars(self.samples.take(index), self.task[index], self.held[index])

    @staticmethod
    def joined(parts: Sequence["Exemplars"]) -> "Exemplars":
        """All of them, one after the other."""
        return Exemplars(
            Samples.concatenate([part.samples for part in parts]),
            torch.cat([part.task for part in parts]),
            torch.cat([part.held for part in parts]),
        )


def sampled(samples: Samples, count: int, randomness: Generator) -> Samples:
    """At most ``count`` images of each class, at random."""
    parts = [samples.y[:0]]
    for label in sorted(set(samples.y.tolist())):
        own = samples.of_class(label)
        parts.append(own[torch.randperm(len(own), generator=randomness)[:count]])
    return samples.take(torch.cat(parts))


def oversampled(samples: Samples, count: int, randomness: Generator) -> Samples:
    """The images, and of each class that has fewer than ``count`` some again, up to this number."""
    parts = [torch.arange(len(samples))]
    for label in sorted(set(samples.y.tolist())):
        own = samples.of_class(label)
        missing = max(count - len(own), 0)
        parts.append(own[torch.randint(len(own), (missing,), generator=randomness)])
    return samples.take(torch.cat(parts))


def herd(features: Tensor, count: int) -> Tensor:
    """Greedily pick images whose mean feature follows the class mean.  Equation: [herding].

    Each pick minimises ‖μ − (Σ picked + x)/k‖ over images not picked yet. For unit features that
    is the largest ⟨kμ − Σ picked, x⟩, so a pick costs one matrix-vector product.
    """
    unit = F.normalize(features.double(), dim=1)
    mean = unit.mean(dim=0)
    wanted = mean.clone()
    free = torch.zeros(len(unit), dtype=torch.double, device=unit.device)
    picked = []
    for _ in range(min(count, len(unit))):
        index = int((unit @ wanted + free).argmax())
        picked.append(index)
        free[index] = float("-inf")
        wanted += mean - unit[index]
    return torch.tensor(picked, dtype=torch.long)


def rank(
    selection: Selection, output: Output, classes: Tensor, count: int, randomness: Generator
) -> Tensor:
    """The positions of the ``count`` best images of one class, best first.

    Args:
        selection: The rule.
        output: The network's output for all images of the class.
        classes: The class of each (all the same).
        count: How many to keep.
        randomness: For ``random``.
    """
    if selection == "herding":
        return herd(output.features, count)
    if selection == "random":
        return torch.randperm(len(classes), generator=randomness)[:count]
    logs = output.logits.log_softmax(dim=1)
    if selection == "entropy":
        score = (logs.exp() * logs).sum(dim=1)
    else:
        score = output.logits.gather(1, classes.unsqueeze(1)).squeeze(1)
    return score.argsort(stable=True)[:count].cpu()


def select(
    memory: Memory,
    train: Samples,
    answer: Callable[[Samples], Output],
    *,
    task: int,
    count: int,
    randomness: Generator,
) -> Exemplars:
    """The exemplars of one task's classes; a class with no more than ``count`` is kept whole."""
    parts = []
    for label in sorted(set(train.y.tolist())):
        images = train.take(train.of_class(label))
        chosen = rank(memory.selection, answer(images), images.y, count, randomness)
        kept = images.take(chosen)
        parts.append(Exemplars(kept, torch.full((len(kept),), task), torch.zeros(len(kept)).bool()))
    return Exemplars.joined(parts)
