"""Every image by its hash, with its feature on the grid: what is learned can be taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ancl.errors import ScenarioError, StoreError
from ancl.statistics.lift import Lift
from ancl.statistics.sums import Grid, Sums
from ancl.types import Params, prefixed, strip_prefix

Keep = Literal["ledger", "sums"]
"""What is kept of learned images: each one's feature, or their sums alone."""
_PARTS = ("hashes", "tasks", "y", "held", "rows")
_WORDS = 4


@dataclass(frozen=True, eq=False)
class Ledger:
    """A set of images: hash, task, class, held or not, and feature of each.

    An image of a class is in it once, whatever it came with and however often, and keeps what it
    was entered with. Rows are in the order of their hashes, so that equal sets are equal tensors.

    Args:
        hashes: (N, 4), int64: the bits of each image's sha256.
        tasks: (N,), int64: the task that brought it first.
        y: (N,), int64: the class.
        held: (N,), bool: whether nothing is learned from it.
        rows: (N, D), int16: its feature, in steps of a grid.
    """

    hashes: Tensor
    tasks: Tensor
    y: Tensor
    held: Tensor
    rows: Tensor

    @classmethod
    def of(cls, hashes: Tensor, tasks: Tensor, y: Tensor, held: Tensor, rows: Tensor) -> Ledger:
        """The set of these images, which may be given in any order; the first of equal ones."""
        return cls(hashes, tasks, y, held, rows)._ordered()

    @classmethod
    def none(cls, size: int) -> Ledger:
        """Without images, for this number of features."""
        number = torch.zeros(0, dtype=torch.long)
        hashes = torch.zeros(0, _WORDS, dtype=torch.long)
        rows = torch.zeros(0, size, dtype=torch.int16)
        return cls(hashes, number, number, number.bool(), rows)

    def __len__(self) -> int:
        return len(self.y)

    def __add__(self, other: Ledger) -> Ledger:
        """Both sets; an image that is in both stays as it is in this one."""
        if self.rows.shape[1] != other.rows.shape[1]:
            raise ScenarioError(
                f"Ledgers of {self.rows.shape[1]} and of {other.rows.shape[1]} features do not "
                "fit: they are of different networks."
            )
        parts = ((getattr(self, name), getattr(other, name)) for name in _PARTS)
        return Ledger(*(torch.cat(pair) for pair in parts))._ordered()

    def take(self, index: Tensor) -> Ledger:
        """The images at these positions, or where a mask is true, in the order they have here."""
        if index.dtype != torch.bool:
            index = index.sort().values
        return Ledger(*(getattr(self, name)[index] for name in _PARTS))

    def not_in(self, other: Ledger) -> Ledger:
        """The images that are not in the other set."""
        known = set(other.marks())
        return self.take(
            torch.tensor([mark not in known for mark in self.marks()], dtype=torch.bool)
        )

    def marks(self) -> list[bytes]:
        """Hash and class of each, as bytes that sort as the images do."""
        words = np.concatenate([_words(self.hashes), _words(self.y.unsqueeze(1))], axis=1)
        return [row.tobytes() for row in words.astype(">u8")]

    def hex(self) -> list[str]:
        """The hash of each, as text."""
        return [row.tobytes().hex() for row in _words(self.hashes).astype(">u8")]

    def where(
        self,
        *,
        hashes: Iterable[str] | None = None,
        classes: Iterable[int] | None = None,
        tasks: Iterable[int] | None = None,
    ) -> Tensor:
        """A mask of the images with one of these hashes, of these classes and these tasks."""
        mask = torch.ones(len(self), dtype=torch.bool)
        if hashes is not None:
            wanted = set(hashes)
            mask &= torch.tensor([text in wanted for text in self.hex()], dtype=torch.bool)
        if classes is not None:
            mask &= torch.isin(self.y, torch.tensor(list(classes), dtype=torch.long))
        if tasks is not None:
            mask &= torch.isin(self.tasks, torch.tensor(list(tasks), dtype=torch.long))
        return mask

    def renumbered(self, classes: Sequence[int], tasks: Sequence[int]) -> Ledger:
        """With other numbers for each class and each task."""
        numbers, order = (
            torch.tensor(numbers_of, dtype=torch.long) for numbers_of in (classes, tasks)
        )
        return replace(self, y=numbers[self.y], tasks=order[self.tasks])._ordered()

    def tensors(self) -> Params:
        """What is stored."""
        return {name: getattr(self, name) for name in _PARTS}

    @classmethod
    def read(cls, tensors: Params) -> Ledger:
        """The ledger from what was stored, which is checked.

        Raises:
            StoreError: It is damaged.
        """
        try:
            ledger = cls(*(tensors[name] for name in _PARTS))
            n, long = len(ledger.y), torch.long
            forms = [(tensor.dtype, tensor.shape) for tensor in ledger.tensors().values()]
            size = ledger.rows.shape[1]
            wanted = [(long, (n, _WORDS)), (long, (n,)), (long, (n,)), (torch.bool, (n,))]
            fits = forms == [*wanted, (torch.int16, (n, size))]
            if fits and bool((ledger.tasks >= 0).all()) and bool((ledger.y >= 0).all()):
                marks = ledger.marks()
                if all(a < b for a, b in pairwise(marks)):
                    return ledger
        except (KeyError, IndexError, TypeError):
            pass
        raise StoreError("The stored ledger of images is damaged: learn these images again.")

    def _ordered(self) -> Ledger:
        """By hash, then by class; of equal ones, the first."""
        words = np.concatenate([_words(self.hashes), _words(self.y.unsqueeze(1))], axis=1)
        # It is stable: of equal images the first that was entered comes first.
        order = np.lexsort([words[:, column] for column in reversed(range(words.shape[1]))])
        keys = words[order]
        first = np.ones(len(order), bool)
        first[1:] = (keys[1:] != keys[:-1]).any(axis=1)
        index = torch.from_numpy(order[first])
        return Ledger(*(getattr(self, name)[index] for name in _PARTS))


@dataclass(frozen=True, eq=False)
class Statistics:
    """All that is known of the images: their ledger, and the sums of those that are learned.

    Any order, any batches, any merge, and images that are added and removed again give the same
    bits: those of the set of images.

    Args:
        grid: Of the features.
        ledger: Every image; only those that are held, where ``keep`` is ``sums``.
        sums: Of the images that are not held.
        keep: Whether learned images are in the ledger.
        lift: What is summed in place of the features, if there is something.
        moves: How often the network moved since: what is known of earlier images is approximate.
    """

    grid: Grid
    ledger: Ledger
    sums: Sums
    keep: Keep = "ledger"
    lift: Lift | None = None
    moves: int = 0

    @classmethod
    def none(
        cls, grid: Grid, size: int, keep: Keep = "ledger", lift: Lift | None = None
    ) -> Statistics:
        """Of no image, with this number of features."""
        width = lift.width if lift else size
        return cls(grid, Ledger.none(size), Sums.none(0, width), keep, lift)

    @property
    def summed_grid(self) -> Grid:
        """The grid of what is summed."""
        return self.lift.lifted_grid if self.lift else self.grid

    def sums_of(self, images: Ledger) -> Sums:
        """The sums of some images, whether they are held or not."""
        lifted = self.lift.rows if self.lift else None
        return Sums.of(images.rows, images.y, self.sums.classes, lifted)

    def padded(self, classes: int) -> Statistics:
        """The same with more classes after the last, without images."""
        return replace(self, sums=self.sums.padded(classes))

    def add(self, images: Ledger) -> Statistics:
        """With more images; those that are there already change nothing.

        Where sums alone are kept, an image that was learned before is not known: it counts again.
        """
        new = images.not_in(self.ledger)
        classes = int(new.y.max()) + 1 if len(new) else 0
        grown = self.padded(classes)
        sums = grown.sums + grown.sums_of(new.take(~new.held))
        entered = new if self.keep == "ledger" else new.take(new.held)
        return replace(grown, ledger=grown.ledger + entered, sums=sums)

    def remove(self, images: Ledger) -> Statistics:
        """Without these images: as if they had never been there.

        What is subtracted is what was entered. Where sums alone are kept, that is not known of
        images that were learned: their features are taken as they are given here.

        Raises:
            ScenarioError: They are not all there.
        """
        others = images.not_in(self.ledger)
        if len(others) and (self.keep == "ledger" or bool(others.held.any())):
            raise ScenarioError(
                f"{len(others)} of {len(images)} images are not in the ledger, so that they cannot "
                "be removed."
            )
        rest = self.ledger.not_in(images)
        entered = self.ledger.not_in(rest) + others
        sums = self.sums - self.sums_of(entered.take(~entered.held))
        return replace(self, ledger=rest, sums=sums)

    def arranged(self, classes: Sequence[int], tasks: Sequence[int]) -> Statistics:
        """The classes and tasks with these numbers alone, in this order.

        Args:
            classes: Only classes without images can be left out: remove their images first.
            tasks: The same.

        Raises:
            ScenarioError: An image would be left without its class or its task.
        """
        numbers, order = torch.full((self.sums.classes,), -1), list(classes)
        numbers[torch.tensor(order, dtype=torch.long)] = torch.arange(len(order))
        months = torch.full((max([-1, *tasks, *self.ledger.tasks.tolist()]) + 1,), -1)
        months[torch.tensor(list(tasks), dtype=torch.long)] = torch.arange(len(tasks))
        ledger = self.ledger.renumbered(numbers.tolist(), months.tolist())
        if bool((ledger.y < 0).any()) or bool((ledger.tasks < 0).any()):
            raise ScenarioError("There are images of classes or tasks that are to be left out.")
        return replace(self, ledger=ledger, sums=self.sums.take(torch.tensor(order)))

    def renumbered(self, classes: Sequence[int], tasks: Sequence[int], number: int) -> Statistics:
        """With other numbers for each class and each task: classes with one number become one.

        Args:
            classes: The new number of each class; any for one without images.
            tasks: The same for each task.
            number: How many classes there are then.
        """
        ledger, sums = self.ledger.renumbered(classes, tasks), self.sums.renumbered(classes, number)
        return replace(self, ledger=ledger, sums=sums)

    def merge(self, other: Statistics, classes: Sequence[int], tasks: Sequence[int]) -> Statistics:
        """With all images of another, under other numbers of classes and tasks: as if added.

        Args:
            other: Of the same network, on the same grid.
            classes: The number here of each of its classes.
            tasks: The same of its tasks.

        Raises:
            ScenarioError: They cannot be added.
        """
        if (self.grid, self.keep) != (other.grid, other.keep):
            raise ScenarioError(
                f"Statistics on the grid {self.grid.exponent} with keep={self.keep} and on "
                f"{other.grid.exponent} with keep={other.keep} cannot be merged."
            )
        if self.moves or other.moves:
            raise ScenarioError(
                "Statistics of networks that have moved cannot be merged: their features are not "
                "those of one network."
            )
        images = other.ledger.renumbered(classes, tasks)
        if self.keep == "ledger":
            return self.add(images)
        number = max([self.sums.classes, *(number_of + 1 for number_of in classes)])
        grown = self.padded(number)
        sums = grown.sums + other.sums.renumbered(classes, number)
        return replace(grown.add(images), sums=sums)

    # -- what is learned from ----------------------------------------------------------------

    @property
    def lone(self) -> Tensor:
        """A mask of held images that are learned from: their class has no others."""
        return self.ledger.held & (self.sums.images[self.ledger.y] == 0)

    @property
    def held(self) -> Ledger:
        """The images that nothing is learned from."""
        return self.ledger.take(self.ledger.held & ~self.lone)

    @property
    def learned(self) -> Ledger:
        """The images that are learned from, as far as the ledger has them."""
        return self.ledger.take(~self.ledger.held | self.lone)

    @property
    def learned_sums(self) -> Sums:
        """The sums of all images that are learned from."""
        lone = self.ledger.take(self.lone)
        return self.sums + self.sums_of(lone) if len(lone) else self.sums

    # -- on disk -----------------------------------------------------------------------------

    def tensors(self) -> Params:
        """What is stored."""
        numbers = {"grid": self.grid.exponent, "whole": int(self.keep == "ledger")}
        if self.lift and self.lift.seed is not None:
            numbers |= {"lift": self.lift.width, "seed": self.lift.seed}
        if self.moves:
            numbers["moves"] = self.moves
        return {
            **prefixed("ledger", self.ledger.tensors()),
            **prefixed("sums", self.sums.tensors()),
            **{name: torch.tensor(number) for name, number in numbers.items()},
        }

    @classmethod
    def read(cls, tensors: Params) -> Statistics:
        """The statistics from what was stored, which is checked.

        Raises:
            StoreError: They are damaged.
        """
        ledger = Ledger.read(strip_prefix("ledger", tensors))
        sums = Sums.read(strip_prefix("sums", tensors))
        try:
            grid = Grid(int(tensors["grid"]))
            lift = None
            if "lift" in tensors:
                width, seed = int(tensors["lift"]), int(tensors["seed"])
                lift = Lift.seeded(grid, ledger.rows.shape[1], seed, width)
            keep: Keep = "ledger" if int(tensors["whole"]) else "sums"
            size = lift.width if lift else ledger.rows.shape[1]
            numbers = ledger.y[~ledger.held].bincount(minlength=sums.classes)
            inside = not len(ledger) or int(ledger.y.max()) < sums.classes
            equal = torch.equal(numbers, sums.images) or keep == "sums"
            moves = int(tensors["moves"]) if "moves" in tensors else 0
            if inside and equal and len(sums.gram) == size and moves >= 0:
                return cls(grid, ledger, sums, keep, lift, moves)
        except (KeyError, ValueError, RuntimeError, ScenarioError):
            pass
        raise StoreError("The stored statistics are damaged: learn these images again.")


def _words(numbers: Tensor) -> NDArray[np.uint64]:
    """The same bits as numbers without a sign, by which hashes are sorted."""
    return numbers.contiguous().numpy().view(np.uint64)
