"""Images as a network reads them, a batch at a time."""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, Self

import torch
from torch import Generator, Tensor

from ancl.data.augment import (
    VERSIONS,
    Augment,
    Augmentation,
    Versions,
    augmentation,
    find_augmentation,
)
from ancl.data.random_resized_crop import Boxes, draw_boxes, resize_boxes
from ancl.data.samples import Normalization, Samples, as_input
from ancl.data.side_stream import ahead
from ancl.runtime import send


class Batch(NamedTuple):
    """One batch: inputs, class positions, and which samples come from the memory."""

    x: Tensor
    y: Tensor
    exemplars: Tensor | None


def even_size(count: int, most: int) -> int:
    """The size of batches of equal size, as near as can be, none above ``most``."""
    return -(-count // -(-count // most))


MOST_PIXELS = 2**19
"""How many pixels a batch has at most where nothing is trained: 10 images of 224x224.

The outputs of a network's first layers take many times the room of its images, and larger batches
of large images are no faster.
"""


def bounded_size(most: int, shape: Sequence[int]) -> int:
    """The size of batches where nothing is trained: as asked, and fewer of large images.

    >>> bounded_size(128, (3, 32, 32)), bounded_size(128, (3, 224, 224))
    (128, 10)
    """
    pixels = math.prod(shape[1:]) if len(shape) == 3 else 1
    return max(1, min(most, MOST_PIXELS // pixels))


@dataclass(frozen=True, eq=False)
class Batches:
    """Samples cut into batches.

    Args:
        samples: The images; where there is a memory, its exemplars come last. Where their
            features are known and nothing changes the images, batches are of features.
        size: Samples per batch. A last batch of one is joined to the one before it, because batch
            norm cannot learn from a single sample.
        normalization: What is subtracted and divided by.
        augment: An augmentation, used when shuffled.
        device: Where the batches are needed.
        exemplars: How many of the last samples are exemplars.
        versions: Fixed versions of every image, used in place of an augmentation.
    """

    samples: Samples
    size: int
    normalization: Normalization | None
    augment: Augment = "none"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    exemplars: int = 0
    versions: Versions | None = None

    def __len__(self) -> int:
        cuts, rest = divmod(self.count - 1, self.size)  # rest + 1 samples are in the last
        return cuts + 1 if rest or cuts == 0 else cuts

    @property
    def count(self) -> int:
        """How many samples an epoch has: every version of an image is one."""
        return len(self.samples) * (VERSIONS if self.versions else 1)

    def enlarged(self, randomness: Generator) -> Self:
        """The same with twelve fixed versions of every image; other inputs are as they were."""
        if self.samples.x.dtype != torch.uint8:
            return self
        return replace(self, versions=Versions.draw(self.samples.x.shape, randomness))

    def shuffled(self, randomness: Generator, *, augmented: bool = True) -> Iterator[Batch]:
        """All samples once, in random order; all randomness comes from the generator."""
        return ahead(self._shuffled(randomness, augmented), self.device)

    def _shuffled(self, randomness: Generator, augmented: bool) -> Iterator[Batch]:
        read, change = self._reading(self.augment if augmented else "none")
        n, versions = len(self.samples), self.versions if augmented else None
        order = torch.randperm(self.count if augmented else n, generator=randomness)
        places = [order[cut] for cut in self._cuts(len(order))]
        draws = randomness if augmented and self._in_parts else None
        for position, index, boxes in self._announced(places, draws):
            if boxes is not None:
                x = self._cut_out(index, boxes)
            elif versions:
                x = versions.of(read(index), index, position // n)
            else:
                x = change(read(index), randomness)
            yield self._batch(x, self.samples.y[index], index)

    def positions(self, randomness: Generator) -> list[Tensor]:
        """Which samples each batch has that ``shuffled`` gives with an equal generator."""
        order = torch.randperm(len(self.samples), generator=randomness)
        return [order[cut] for cut in self._cuts(len(order))]

    def drawn(
        self, randomness: Generator, size: int | None = None, among: Tensor | None = None
    ) -> tuple[Batch, Tensor]:
        """One batch of different samples at random, all where there are fewer; their positions.

        Args:
            randomness: Where it comes from.
            size: Of the batch, if another than that of others.
            among: The positions to draw from; all if left out.
        """
        count = len(self.samples) if among is None else len(among)
        index = torch.randperm(count, generator=randomness)[: size or self.size]
        index = index if among is None else among[index]
        read, change = self._reading(self.augment)
        if self._in_parts:
            x = self._cut_out(index, self._draw_boxes(index, randomness))
        elif self.versions:
            number = torch.randint(VERSIONS, (len(index),), generator=randomness)
            x = self.versions.of(read(index), index, number)
        else:
            x = change(read(index), randomness)
        return self._batch(x, self.samples.y[index], index), index

    def in_order(self) -> Iterator[Batch]:
        """All samples once, in order, not augmented."""
        return ahead(self._in_order(), self.device)

    def _in_order(self) -> Iterator[Batch]:
        read, _ = self._reading("none")
        numbers = torch.arange(len(self.samples))
        places = [numbers[cut] for cut in self._cuts(len(self.samples))]
        for _, index, _ in self._announced(places, None):
            yield self._batch(read(index), self.samples.y[index], index)

    def _announced(
        self, places: Sequence[Tensor], randomness: Generator | None
    ) -> Iterator[tuple[Tensor, Tensor, Boxes | None]]:
        """Each batch, announced some batches before it is read.

        Args:
            places: Of each, the places in the order of all samples, or of all their versions.
            randomness: Draws a part of each image, if given, in the order of batches.

        Yields:
            Places, positions of samples and parts.
        """
        early, n = self._early, len(self.samples)
        coming: deque[tuple[Tensor, Tensor, Boxes | None]] = deque()
        for number in range(len(places)):
            for position in places[number + len(coming) : number + max(early, 1)]:
                index = position % n
                boxes = self._draw_boxes(index, randomness) if randomness else None
                coming.append((position, index, boxes))
            for _, index, boxes in coming if early else ():
                self.samples.x.announce(index, boxes)
            yield coming.popleft()

    @property
    def _in_parts(self) -> bool:
        """Whether random parts are cut out of images before these become rows."""
        return self.augment == "resized" and not self.versions and self.samples.x.storage.larger

    def _draw_boxes(self, index: Tensor, randomness: Generator) -> Boxes:
        height, width = self.samples.x.sizes(index).unbind(1)
        return draw_boxes(len(index), height, width, randomness)

    def _cut_out(self, index: Tensor, boxes: Boxes) -> Tensor:
        rows, rest = self.samples.x.cut(index, boxes)
        rows = send(rows, self.device)
        return rows if rest is None else resize_boxes(rows, rest, 0)

    @property
    def _early(self) -> int:
        """How many batches are announced before they are read: none where rows are at hand."""
        features = self.samples.features is not None and self.augment == "none"
        return 0 if features else self.samples.x.storage.early

    def _reading(self, augment: Augment) -> tuple[Callable[[Tensor], Tensor], Augmentation]:
        """What gives the samples at some positions, and what changes them afterwards.

        Our own augmentations change images on the device, where images that fit are kept. A
        user's own, which may know nothing of devices, changes them before they are sent.
        """
        features = self.samples.features
        changed = self.augment != "none" or self.versions is not None
        if features is not None and not changed:
            return features.__getitem__, augmentation(augment)
        ours = isinstance(find_augmentation(augment), str)
        if self.device.type == "cpu" or not ours:
            return self.samples.x.__getitem__, augmentation(augment)
        return partial(self.samples.x.on, self.device), augmentation(augment)

    def _batch(self, x: Tensor, y: Tensor, index: Tensor) -> Batch:
        mask = None
        if self.exemplars:
            mask = send(index >= len(self.samples) - self.exemplars, self.device)
        inputs = as_input(x, self.normalization, self.device)
        return Batch(inputs, send(y, self.device), mask)

    def _cuts(self, n: int) -> list[slice]:
        edges = list(range(0, n, self.size))
        if len(edges) > 1 and n - edges[-1] == 1:
            edges.pop()
        return [slice(a, b) for a, b in zip(edges, [*edges[1:], n], strict=True)]


@dataclass(eq=False)
class ReplayStream:
    """Batches drawn from the memory, one beside each of the task's.

    Args:
        batches: The memory's images.
        extra: What was recorded of each, by name.
        held: The positions of those that may be drawn; all if left out.
    """

    batches: Batches
    extra: dict[str, Tensor]
    held: Tensor | None = None

    def drawn(
        self, randomness: Generator, size: int | None = None
    ) -> tuple[Batch, dict[str, Tensor]]:
        """A batch of different images, of another size if given, and what was recorded of them."""
        batch, index = self.batches.drawn(randomness, size, self.held)
        device = self.batches.device
        return batch, {name: send(rows[index], device) for name, rows in self.extra.items()}
