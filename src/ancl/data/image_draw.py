"""Which images of a class are trained on and validated on, and with which labels."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ancl.data.samples import Label, Samples, divide
from ancl.errors import ScenarioError
from ancl.seeding import generator


@dataclass(frozen=True)
class ImageDraw:
    """How images of a class are split: a share to validate on, then at most ``per_class`` to train.

    The draw depends on the seed and the class alone, not on the task the class is put into.
    ``imbalance`` and ``noise`` are as in ``make_stream``; ``classes`` are all that it is drawn of.
    """

    seed: int
    val_fraction: float
    per_class: int | None = None
    imbalance: float = 1.0
    noise: float = 0.0
    classes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.val_fraction < 1:
            raise ScenarioError(
                f"val_fraction is {self.val_fraction}. It is at least 0 and less than 1."
            )
        if self.per_class is not None and self.per_class < 1:
            raise ScenarioError(f"per_class is {self.per_class}. Keep at least 1 image per class.")

    def counts(self, samples: Samples, class_id: int, name: Label) -> tuple[int, int]:
        """How many images of a class are trained on and validated on."""
        return self.sizes(len(samples.of_class(class_id)), name, class_id)

    def divided(self, samples: Samples, class_id: int) -> tuple[Tensor, Tensor]:
        """The positions of the images of a class to train on and to validate on."""
        images = samples.of_class(class_id)
        train, held = self.positions(len(images), class_id)
        return images[train], images[held]

    def held(self, n: int) -> int:
        """How many of n images of a class are for validation; a single one is trained on."""
        return max(1, round(self.val_fraction * n)) if self.val_fraction and n > 1 else 0

    @cached_property
    def shares(self) -> Mapping[int, float]:
        """The share of its images that each class keeps: they fall by equal factors."""
        count = len(self.classes)
        if self.imbalance == 1 or count < 2:
            return {}
        order = torch.randperm(count, generator=generator(self.seed, "imbalance")).tolist()
        ranked = enumerate(order)
        return {self.classes[at]: self.imbalance ** (-rank / (count - 1)) for rank, at in ranked}

    def sizes(self, n: int, name: Label, class_id: int) -> tuple[int, int]:
        """How many of a class's n images are trained on and validated on."""
        held = self.held(n)
        if n - held < 1:
            raise ScenarioError(
                f"Class {name!r} has {n} training images, and {held} would go to validation. At "
                "least 1 stays for training: give more images or a smaller val_fraction."
            )
        return self._limit(n - held, class_id), held

    def _limit(self, kept: int, class_id: int) -> int:
        """How many of those that could be trained on are."""
        most = kept if self.per_class is None else min(kept, self.per_class)
        return max(1, round(self.shares[class_id] * most)) if self.shares else most

    def positions(self, n: int, class_id: int) -> tuple[Tensor, Tensor]:
        """Which of n images are trained on and validated on, both ascending."""
        train, held = divide(n, self.held(n), generator(self.seed, "split", class_id))
        most = self._limit(len(train), class_id)
        if most < len(train):
            limit = generator(self.seed, "limit", class_id)
            train = train[divide(len(train), most, limit)[1]]
        return train, held

    def labels(self, position: int, present: Sequence[int], n: int, path: str) -> Tensor:
        """The labels of a class's n images: some are those of other classes of the task.

        One of them at least is right.
        """
        labels = torch.full((n,), position)
        others = [label for label in present if label != position]
        wrong = min(round(self.noise * n), n - 1)
        if wrong > 0 and others:
            randomness = generator(self.seed, "noise", path)
            where = torch.randperm(n, generator=randomness)[:wrong]
            among = torch.randint(len(others), (wrong,), generator=randomness)
            labels[where] = torch.tensor(others)[among]
        return labels

    def key(self) -> list[object]:
        """What it puts into a task's key: the seed counts only where something is drawn."""
        changed: list[object] = []
        if self.shares:
            changed.append(["imbalance", self.imbalance, self.classes])
        changed += [["noise", self.noise]] if self.noise else []
        draws = self.val_fraction > 0 or self.per_class is not None or bool(changed)
        seed = self.seed if draws else None
        return [seed, float(self.val_fraction), self.per_class, *changed]


@dataclass(frozen=True)
class HashDraw(ImageDraw):
    """Whether an image is validated on is decided by its hash and the seed, and by nothing else.

    So it is the same whenever, wherever and with whatever else the image comes. Of a class with
    few images none may be, or all.
    """

    def counts(self, samples: Samples, class_id: int, name: Label) -> tuple[int, int]:
        """As many as their hashes say."""
        train, held = self.divided(samples, class_id)
        return len(train), len(held)

    def divided(self, samples: Samples, class_id: int) -> tuple[Tensor, Tensor]:
        """By a hash of the seed and each image's own."""
        images = samples.of_class(class_id)
        start = hashlib.sha256(f"{self.seed}/held/".encode())
        held = torch.zeros(len(images), dtype=torch.bool)
        for position, row in enumerate(samples.x.take(images).digests().astype(">u8")):
            mixed = start.copy()
            mixed.update(row.tobytes())
            share = int.from_bytes(mixed.digest()[:8], "big") / 2**64
            held[position] = share < self.val_fraction
        return images[~held], images[held]

    def key(self) -> list[object]:
        """What it puts into a task's key: another draw of the same numbers is another task."""
        return [*super().key(), -1]
