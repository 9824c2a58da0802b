"""Images as a network reads them, a batch at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

import torch
from torch import Generator, Tensor

from ancl.data.augment import VERSIONS, Augment, Versions, augmentation
from ancl.data.samples import Normalization, Samples, as_input
from ancl.data.storage import ImageView


class Batch(NamedTuple):
    """One batch: inputs, class positions, and which samples come from the memory."""

    x: Tensor
    y: Tensor
    exemplars: Tensor | None


def even_size(count: int, most: int) -> int:
    """The size of batches of equal size, as near as can be, none above ``most``."""
    return -(-count // -(-count // most))


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
        change = augmentation(self.augment if augmented else "none")
        n, versions = len(self.samples), self.versions if augmented else None
        inputs = self._inputs
        order = torch.randperm(self.count if augmented else n, generator=randomness)
        for cut in self._cuts(len(order)):
            place = order[cut]
            index = place % n if versions else place
            x = inputs[index]
            x = versions.of(x, index, place // n) if versions else change(x, randomness)
            yield self._batch(x, self.samples.y[index], index)

    def drawn(self, randomness: Generator, size: int | None = None) -> tuple[Batch, Tensor]:
        """One batch of different samples at random, all where there are fewer; their positions."""
        index = torch.randperm(len(self.samples), generator=randomness)[: size or self.size]
        x = self._inputs[index]
        if self.versions:
            number = torch.randint(VERSIONS, (len(index),), generator=randomness)
            x = self.versions.of(x, index, number)
        else:
            x = augmentation(self.augment)(x, randomness)
        return self._batch(x, self.samples.y[index], index), index

    def in_order(self) -> Iterator[Batch]:
        """All samples once, in order, not augmented."""
        for cut in self._cuts(len(self.samples)):
            index = torch.arange(cut.start, cut.stop)
            yield self._batch(self._inputs[cut], self.samples.y[cut], index)

    @property
    def _inputs(self) -> ImageView | Tensor:
        features = self.samples.features
        changed = self.augment != "none" or self.versions is not None
        return self.samples.x if features is None or changed else features

    def _batch(self, x: Tensor, y: Tensor, index: Tensor) -> Batch:
        mask = None
        if self.exemplars:
            mask = (index >= len(self.samples) - self.exemplars).to(self.device)
        inputs = as_input(x, self.normalization, self.device)
        return Batch(inputs, y.to(self.device, non_blocking=True), mask)

    def _cuts(self, n: int) -> list[slice]:
        edges = list(range(0, n, self.size))
        if len(edges) > 1 and n - edges[-1] == 1:
            edges.pop()
        return [slice(a, b) for a, b in zip(edges, [*edges[1:], n], strict=True)]


@dataclass(frozen=True, eq=False)
class ReplayStream:
    """Batches drawn from the memory, one beside each of the task's.

    Args:
        batches: The memory's images.
        extra: What was recorded of each, by name.
    """

    batches: Batches
    extra: dict[str, Tensor]

    def drawn(
        self, randomness: Generator, size: int | None = None
    ) -> tuple[Batch, dict[str, Tensor]]:
        """A batch of different images, of another size if given, and what was recorded of them."""
        batch, index = self.batches.drawn(randomness, size)
        device = self.batches.device
        return batch, {name: rows[index].to(device) for name, rows in self.extra.items()}
