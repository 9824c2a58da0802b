"""The images an analysis looks at: a split of every task so far, in random order, at most so many.

They are never augmented, so that two networks see the same ones.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.data import Samples, Task
from ancl.errors import ScenarioError
from ancl.losses import own_task_logits
from ancl.seeding import generator

Split = Literal["test", "val", "train", "old"]
SPLITS: tuple[Split, ...] = ("test", "val", "train", "old")
"""Test, validation or training images of all tasks so far, or training images of earlier ones."""


class Part(NamedTuple):
    """Images of one task."""

    task: int
    samples: Samples


class Score(NamedTuple):
    """Mean cross-entropy, and accuracy with the task told and not told."""

    loss: float
    taw: float
    tag: float


def parts(tasks: Sequence[Task], split: Split, limit: int | None, seed: int) -> list[Part]:
    """A split's images of each task, in random order; ``limit`` is shared equally by the tasks.

    Raises:
        ScenarioError: A task has no such images.
    """
    chosen = tasks[:-1] if split == "old" else tasks
    name = "train" if split == "old" else split
    most = None if limit is None else max(limit // len(chosen), 2)
    found = []
    for task in chosen:
        samples: Samples = getattr(task.load(), name)
        if not len(samples):
            raise ScenarioError(
                f"Task {task.index} has no {name} images to analyse. Use --split test or train."
            )
        order = torch.randperm(
            len(samples), generator=generator(seed, "analysis", name, task.index)
        )
        found.append(Part(task.index, samples.take(order[:most])))
    return found


def score(logits: Tensor, y: Tensor, tasks: Sequence[slice], task_aware: bool) -> Score:
    """Loss over the classes that compete in the scenario, and both accuracies."""
    own = own_task_logits(logits, y, tuple(tasks))
    return Score(
        float(F.cross_entropy(own if task_aware else logits, y)),
        float((own.argmax(dim=1) == y).double().mean()),
        float((logits.argmax(dim=1) == y).double().mean()),
    )
