"""What a learner carries with it besides what it learned: checked when read, and its size."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ancl.checks import checked
from ancl.errors import AnclError, StoreError
from ancl.inference import InferenceInputs
from ancl.learner.answers import Scorer, make_scorer
from ancl.learner.inputs import Form
from ancl.memory import Exemplars
from ancl.methods.method import Method
from ancl.networks import Network
from ancl.regularizers import WeightRegularizer
from ancl.state import read_importance
from ancl.store.entry import StageResult
from ancl.types import Params, strip_prefix
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
    _check_numbers(tensors)
    held = Exemplars.of(tensors)
    _check_images(held, "held images", form, classes, tasks)
    if not bool(held.held.all()):
        raise ValueError("the held images are not all marked as held")
    return held


def checked_scorer(
    method: Method,
    entries: Mapping[str, StageResult],
    network: Network,
    looked: InferenceInputs,
    form: Form,
    tasks: int,
) -> Scorer:
    """The scorer of a learner that was read, whose parts belong together.

    Raises:
        ValueError: One of them does not belong to this network, these classes and these tasks.
    """
    _check_parts(method, entries, network, form, looked.classes, tasks)
    scorer = make_scorer(method, network, looked)
    shape = (1, *form.shape[1:], form.shape[0]) if form.pixels else (1, *form.shape)
    black = torch.zeros(shape, dtype=torch.uint8 if form.pixels else torch.float32)
    with torch.no_grad():
        if scorer(black).shape != (1, looked.classes):
            raise ValueError("the network does not answer with one score for each class")
    return scorer


def _check_parts(
    method: Method,
    entries: Mapping[str, StageResult],
    network: Network,
    form: Form,
    classes: int,
    tasks: int,
) -> None:
    for entry in entries.values():
        _check_numbers(entry.tensors)
    if "memory" in entries:
        memory = Exemplars.of(strip_prefix("memory", entries["memory"].tensors))
        _check_images(memory, "images of the memory", form, classes, tasks)
        if set(memory.extra) != {record.name for record in method.records}:
            raise ValueError("the memory does not hold what the method records of its images")
        features = memory.samples.features
        wanted = (len(memory.samples), network.head.feature_size)
        if features is not None and (features.shape != wanted or not features.is_floating_point()):
            raise ValueError("the features of the memory are not those of its images")
    if "importance" in entries:
        importance, weights = read_importance(entries["importance"].tensors), network.weights()
        omega = method.old and method.old.regularizer
        assert isinstance(omega, WeightRegularizer)
        for name, values in omega.curvature(importance).items():
            fits = name in weights and values.shape == weights[name].shape
            if not fits or not values.is_floating_point():
                raise ValueError(f"the importance of {name} is not that of a weight")


def _check_numbers(tensors: Params) -> None:
    for name, tensor in tensors.items():
        # What was recorded of exemplars is NaN where an earlier task had fewer columns.
        if not name.startswith("memory/extra/") and bool(tensor.isnan().any()):
            raise ValueError(f"{name} holds values that are not numbers")


def _check_images(images: Exemplars, what: str, form: Form, classes: int, tasks: int) -> None:
    x, n = images.samples.x, len(images.samples.x)
    kind = torch.uint8 if form.pixels else torch.float32
    if n == 0 or x.dtype != kind or images.samples.input_shape != form.shape:
        raise ValueError(f"the {what} are not of the learner's form")
    for values, most in ((images.samples.y, classes), (images.task, tasks)):
        if values.dtype != torch.long or values.shape != (n,) or not _inside(values, most):
            raise ValueError(f"the {what} have labels or tasks that were not learned")
    if images.held.dtype != torch.bool or images.held.shape != (n,):
        raise ValueError(f"the {what} are not all marked as held or as learned from")
    if any(len(rows) != n or not rows.is_floating_point() for rows in images.extra.values()):
        raise ValueError(f"what was recorded of the {what} is not a row of floats for each")


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


_UNFIT = (
    *(ValueError, TypeError, LookupError, AttributeError, RuntimeError),
    *(ArithmeticError, AssertionError),
)
"""What is raised where values that were read do not fit together."""


@contextmanager
def explained(path: Path, remedy: str) -> Iterator[None]:
    """Refuse what does not fit together, as an error a user understands."""
    try:
        yield
    except AnclError:
        raise
    except _UNFIT as error:
        raise StoreError(
            f"{path} cannot be opened ({type(error).__name__}: {error}). {remedy}"
        ) from error
