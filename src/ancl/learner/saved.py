"""What a learner carries with it besides what it learned: checked when read, and its size."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ancl.checks import checked
from ancl.learner.inputs import Form
from ancl.memory import Exemplars
from ancl.store.entry import StageResult
from ancl.types import Params
from ancl.wording import byte_size


@dataclass(frozen=True)
class Size:
    """The bytes of a learner.

    Args:
        disk: Of what ``save`` writes.
        memory: Of what is kept in memory, with the network that answers.
        parts: The same by part; ``images`` are those that a method reads again with every task.
    """

    disk: int
    memory: int
    parts: Mapping[str, int]

    def __str__(self) -> str:
        """Both sums, and the parts."""
        parts = ", ".join(f"{part} {byte_size(count)}" for part, count in self.parts.items())
        return f"{byte_size(self.disk)} on disk, {byte_size(self.memory)} in memory ({parts})"


def sizes(
    entries: Mapping[str, StageResult], held: Exemplars | None, images: int, answering: bool
) -> Size:
    """The size of a learner.

    Args:
        entries: What was learned, by part.
        held: The held images.
        images: The bytes of images that are kept in memory alone.
        answering: Whether a network is ready to answer.
    """
    parts = {part: _bytes(entry.tensors) for part, entry in entries.items()}
    parts["held"] = _bytes(held.tensors()) if held else 0
    disk = sum(parts.values())
    ready = _bytes(entries["network"].tensors) if answering else 0
    if images:
        parts["images"] = images
    return Size(disk, disk + ready + images, parts)


def _bytes(tensors: Params) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def read_held(tensors: Params, form: Form, classes: int, tasks: int) -> Exemplars | None:
    """Held images as they were saved, if there are any.

    Raises:
        ValueError: They are not images of this learner.
    """
    if not tensors:
        return None
    held = Exemplars.of(tensors)
    x, numbers = held.samples.x, (held.samples.y, held.task)
    own = Form.of(x)
    n = len(x)
    if n == 0 or (own.shape, own.pixels) != (form.shape, form.pixels):
        raise ValueError("the held images are not of the learner's form")
    for values, most in zip(numbers, (classes, tasks), strict=True):
        if values.dtype != torch.long or values.shape != (n,) or not _inside(values, most):
            raise ValueError("the held images have labels or tasks that were not learned")
    if held.held.shape != (n,) or not bool(held.held.all()):
        raise ValueError("the held images are not all marked as held")
    return held


def _inside(values: Tensor, most: int) -> bool:
    return bool((values >= 0).all()) and bool((values < most).all())


def read_values(values: Any) -> tuple[float, float] | None:
    """The smallest and the largest value learned from, as they were saved.

    Raises:
        ValueError: They are not a range.
    """
    if values is None:
        return None
    low, high = checked(tuple[float, float], values)
    if not low <= high:
        raise ValueError("the values learned from are not a range")
    return low, high
