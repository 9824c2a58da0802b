"""Exemplars: which images of a class are kept, how many, and what is recorded of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from annotated_types import Ge
from torch import Generator, Tensor
from torch.nn import functional as F

from ancl.data import Samples
from ancl.errors import MethodError, SpecError
from ancl.hashing import LATER
from ancl.types import Output, Params, prefixed, strip_prefix

Selection = Literal[
    "herding", "random", "entropy", "distance", "ring", "reservoir", "balanced", "greedy"
]
SHARED = ("reservoir", "balanced", "greedy")
"""The rules by which all classes share one number of images, and not each has its own."""


@dataclass(frozen=True)
class Memory:
    """How many images are kept, and which.

    Args:
        per_class: Number of images per class: the memory grows with the classes.
        total: Or number of images in total, shared equally: every class's part shrinks.
        selection: Which images. Equally many of each class: ``herding`` (their mean feature is
            near that of the class), ``random``, ``entropy`` (the least certain), ``distance``
            (nearest to the decision), ``ring`` (the newest). Of all images seen: ``reservoir``
            (a random sample), ``balanced`` (one of each class, as equally many as possible),
            ``greedy`` (the first of each class, as GDumb does).
        batch: Images of a replay batch, drawn from the memory beside every batch of the task, for
            methods whose loss reads one; if left out, images are mixed into the task's batches.
        bytes: Or the room of all images in bytes, as they are stored; what a method records of
            each image is not counted.
    """

    per_class: Annotated[int, Ge(1)] | None = None
    total: Annotated[int, Ge(1)] | None = None
    selection: Selection = "herding"
    batch: Annotated[Annotated[int, Ge(1)] | None, LATER] = None
    bytes: Annotated[Annotated[int, Ge(1)] | None, LATER] = None

    @property
    def size(self) -> int:
        """Number of images, per class or in total, or of bytes; 0 if nothing is kept."""
        return self.per_class or self.total or self.bytes or 0

    @property
    def shared(self) -> bool:
        """Whether all classes share one number of images by their rule."""
        return self.selection in SHARED

    def in_images(self, image_bytes: int) -> Self:
        """The same with a number of images in the place of bytes.

        Raises:
            SpecError: There is no room for one image.
        """
        if self.bytes is None:
            return self
        if self.bytes < image_bytes:
            raise SpecError(
                f"memory.bytes is {self.bytes}, and one image takes {image_bytes} bytes. Give at "
                f"least that for each class."
            )
        return replace(self, total=self.bytes // image_bytes, bytes=None)

    def quota(self, groups: int) -> int:
        """Number of images per class (and domain), for a number of classes (and domains).

        All images of the memory, where classes share them.
        """
        total = self.total or 0
        return total if self.shared else self.per_class or total // groups

    def problems(self, groups: int, scenario: str) -> list[str]:
        """What does not fit a stream with this number of classes (times domains)."""
        named = ("per_class", "total", "bytes")
        given = [f"memory.{name}" for name in named if getattr(self, name)]
        if len(given) > 1:
            return [f"{' and '.join(given)} are {_BOTH[len(given)]} given. Give one of them."]
        if self.shared and self.per_class:
            return [
                f"memory.selection={self.selection} shares one number of images among all "
                f"classes, and memory.per_class is {self.per_class}. Give memory.total, or use "
                f"memory.selection=random, which keeps equally many of each class."
            ]
        if self.total and self.quota(groups) < 1:
            kept = "classes in their domains" if scenario == "dil" else "classes"
            return [
                f"A memory of {self.total} images cannot keep one of each of {groups} {kept}. "
                f"Raise memory.total to at least {groups}, or use memory.per_class."
            ]
        return []


_BOTH = {2: "both", 3: "all"}


@dataclass(frozen=True)
class RunMemory(Memory):
    """The memory of a run, whose tasks are all known before it begins.

    Args:
        fair: Whether images make room for weights that a network gains as it grows, 4 bytes each.
            A network that does not grow keeps all its images.
        renewed: When it takes images, from the second task (or part of a stream that comes once)
            on: after each task (``part``), or each batch, when that has been learned.
    """

    fair: Annotated[bool, LATER] = False
    renewed: Annotated[Literal["part", "batch"], LATER] = "part"

    def paid(self, weights: int, groups: int, image_bytes: int) -> Memory:
        """What is left after paying.

        Args:
            weights: The number of weights to pay for.
            groups: The number of classes (and domains) that share the memory in the end.
            image_bytes: The size of one image as it is kept.

        Raises:
            SpecError: There are no images, or not one of each class is left.
        """
        if self.bytes is not None:
            return self.in_images(image_bytes).paid(weights, groups, image_bytes)
        if not self.size:
            raise SpecError(
                "memory.fair is true, so images make room for weights that the network gains, and "
                "none are kept. Give memory.per_class or memory.total, or memory.fair=false."
            )
        images = 4 * weights / image_bytes
        name, share, least = ("per_class", groups, 1) if self.per_class else ("total", 1, groups)
        left = math.floor(self.size - images / share)
        if left < least:
            raise SpecError(
                f"memory.fair is true, and the network gains weights that take the room of "
                f"{images:.0f} images: of memory.{name}={self.size} not one image per class is "
                f"left. Give memory.{name}={least + math.ceil(images / share)} or more, or "
                f"memory.fair=false."
            )
        per_class, total = (left, None) if self.per_class else (None, left)
        return Memory(per_class, total, self.selection, self.batch)


@dataclass(frozen=True, eq=False)
class Exemplars:
    """What a memory holds: images by class and the task they came with, best first.

    ``held`` marks images kept for validation, which nothing is trained on. ``extra`` has what was
    recorded of every image when it was stored, by name, a row for each; NaN where an earlier task
    had fewer columns, or none.
    """

    samples: Samples
    task: Tensor
    held: Tensor
    extra: Params = field(default_factory=dict)

    def tensors(self) -> Params:
        """As named tensors, to be stored."""
        x, y = self.samples.x.dense(), self.samples.y
        named = {"x": x, "y": y, "task": self.task, "held": self.held}
        features = self.samples.features
        named |= {} if features is None else {"features": features}
        return named | prefixed("extra", self.extra)

    @classmethod
    def of(cls, tensors: Params) -> "Exemplars":
        """From named tensors."""
        samples = Samples(tensors["x"], tensors["y"], tensors.get("features"))
        return cls(samples, tensors["task"], tensors["held"], strip_prefix("extra", tensors))

    def marked(self, *, held: bool) -> "Exemplars":
        """Those to train on, or those held out of it."""
        return self.take((self.held == held).nonzero().squeeze(1))

    def part(self, *, held: bool) -> Samples:
        """The images to train on, or those held out of it."""
        return self.marked(held=held).samples

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
        wanted = torch.isin(self.samples.y, torch.tensor(classes, dtype=torch.long))
        return self.take((wanted == inside).nonzero().squeeze(1))

    def take(self, index: Tensor) -> "Exemplars":
        """Some of them."""
        extra = {name: rows[index] for name, rows in self.extra.items()}
        return Exemplars(self.samples.take(index), self.task[index], self.held[index], extra)

    @staticmethod
    def joined(parts: Sequence["Exemplars"]) -> "Exemplars":
        """All of them, one after the other."""
        names = dict.fromkeys(name for part in parts for name in part.extra)
        return Exemplars(
            Samples.concatenate([part.samples for part in parts]),
            torch.cat([part.task for part in parts]),
            torch.cat([part.held for part in parts]),
            {name: _padded(name, parts) for name in names},
        )


def _padded(name: str, parts: Sequence[Exemplars]) -> Tensor:
    """What was recorded under a name, as wide as the widest; NaN where a part has nothing."""
    recorded = [part.extra[name] for part in parts if name in part.extra]
    widths = [max(sizes) for sizes in zip(*(rows.shape[1:] for rows in recorded), strict=True)]
    whole = recorded[0].new_full((sum(len(part.task) for part in parts), *widths), math.nan)
    start = 0
    for part in parts:
        stop = start + len(part.task)
        if name in part.extra:
            columns = tuple(slice(size) for size in part.extra[name].shape[1:])
            whole[slice(start, stop), *columns] = part.extra[name]
        start = stop
    return whole


class Record(ABC):
    """What the memory keeps of every exemplar besides its image, under ``name``.

    Make it a frozen dataclass: its fields are part of the memory's key.
    """

    name: ClassVar[str]

    @abstractmethod
    def of(self, output: Output) -> Tensor:
        """A row of floats for each image, of what the network just trained answers."""


@dataclass(frozen=True)
class StoredLogits(Record):
    """The logits of all classes seen when the image was stored, in eval mode, not augmented."""

    name = "logits"

    def of(self, output: Output) -> Tensor:
        """The logits."""
        return output.logits


def recorded(
    exemplars: Exemplars, records: Sequence[Record], answer: Callable[[Samples], Output]
) -> Exemplars:
    """The exemplars with what these records keep of them.

    Raises:
        MethodError: A record is not a row of floats for each image.
    """
    if not records or not len(exemplars.samples):
        return exemplars
    output, extra = answer(exemplars.samples), {}
    for record in records:
        rows = record.of(output)
        if len(rows) != len(exemplars.samples) or not rows.is_floating_point():
            raise MethodError(
                f"The record {record.name!r} is of shape {tuple(rows.shape)} and {rows.dtype} for "
                f"{len(exemplars.samples)} images. Let it give a row of floats for each image."
            )
        extra[record.name] = rows
    return replace(exemplars, extra=extra)


def sampled(samples: Samples, count: int, randomness: Generator) -> Samples:
    """At most ``count`` images of each class, at random."""
    parts = [samples.y[:0]]
    for label in sorted(set(samples.y.tolist())):
        of_label = samples.of_class(label)
        parts.append(of_label[torch.randperm(len(of_label), generator=randomness)[:count]])
    return samples.take(torch.cat(parts))


def oversampled(samples: Samples, count: int, randomness: Generator) -> Samples:
    """The images, and of each class that has fewer than ``count`` some again, up to this number."""
    parts = [torch.arange(len(samples))]
    for label in sorted(set(samples.y.tolist())):
        of_label = samples.of_class(label)
        missing = max(count - len(of_label), 0)
        parts.append(of_label[torch.randint(len(of_label), (missing,), generator=randomness)])
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
        output: The network's output for all images of the class; for ``ring`` the newest first.
        classes: The class of each (all the same).
        count: How many to keep.
        randomness: For ``random``.
    """
    if selection == "herding":
        return herd(output.features, count)
    if selection == "random":
        return torch.randperm(len(classes), generator=randomness)[:count]
    if selection == "ring":
        return torch.arange(min(count, len(classes)))
    assert selection in ("entropy", "distance"), "the others choose among all classes"
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
        exemplars = images.take(chosen)
        parts.append(
            Exemplars(
                exemplars, torch.full((len(exemplars),), task), torch.zeros(len(exemplars)).bool()
            )
        )
    return Exemplars.joined(parts)
