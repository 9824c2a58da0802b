"""What every measurement shares: the networks of a task, its images, and what is asked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.analysis.cka import Estimator
from ancl.analysis.interpolation import parameter_names
from ancl.analysis.networks import ComparedNetworks, Trained, TrainingPlans
from ancl.data import Samples, Task
from ancl.errors import ScenarioError
from ancl.experiments.build import Experiment
from ancl.losses import own_task_logits
from ancl.methods.method import weight_at
from ancl.methods.task_history import ClassHistory
from ancl.networks import Network
from ancl.regularizers import Regularizer
from ancl.seeding import generator, seeded
from ancl.types import Params

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


Row = dict[str, Any]
Tables = dict[str, list[Row]]

REFERENCES = ("old", "auxiliary", "multi")


@dataclass(frozen=True)
class AnalysisOptions:
    """What is asked of an analysis.

    Args:
        lamb_as: Every λ_a, ascending.
        task: The task, from 1 on.
        grid: Points along each side of the landscape; 0 leaves it out.
        split: The images CKA and landscape are measured on; where left out, the paper's: training
            images of earlier tasks for CKA, test images for the landscape.
        images: At most so many for each measurement; all where left out.
        estimator: Of CKA.
        double: Whether the Hessian is taken in double precision.
    """

    lamb_as: tuple[float, ...]
    task: int = 1
    grid: int = 7
    split: Split | None = None
    images: int | None = 1000
    estimator: Estimator = "biased"
    double: bool = False


class AnalysisContext:
    """The networks of one task as they are compared.

    Args:
        experiment: A run of the ANCL variant.
        wishes: What is asked.
        ways: How its networks were trained.
        regime: The networks.
    """

    def __init__(
        self,
        experiment: Experiment,
        wishes: AnalysisOptions,
        ways: TrainingPlans,
        regime: ComparedNetworks,
    ) -> None:
        self.wishes, self.ways, self.regime = wishes, ways, regime
        self.setting = experiment.setting
        self.tasks = experiment.stream.tasks[: wishes.task + 1]
        self.names = parameter_names(self.network())

    def network(self) -> Network:
        """A network of the right shape, whatever its weights."""
        with seeded(0, "analysis"):
            built = self.setting.architecture.build(ClassHistory.of(self.tasks).blocks)
        return built.to(self.setting.device)

    def images(self, split: Split) -> list[Part]:
        """A split's images."""
        return parts(self.tasks, split, self.wishes.images, self.setting.seed)

    @property
    def compared(self) -> Iterator[tuple[Row, Trained]]:
        """CL and ANCL, with what names them in a table."""
        for (name, lamb_a), trained in self.regime.named.items():
            if name in ("cl", "ancl"):
                yield {"network": name, "lamb_a": lamb_a}, trained

    @property
    def references(self) -> dict[str, Params]:
        """What old, auxiliary and multitask network know."""
        named = self.regime.named
        return {name: named[name, None].tensors for name in REFERENCES}

    def lambs(self, lamb_a: float) -> tuple[float, float]:
        """λ and λ_a as numbers in this task."""
        method, counts = self.ways.ancl[lamb_a].method, ClassHistory.of(self.tasks).counts
        assert method.old is not None
        assert method.auxiliary is not None
        return weight_at(method.old.lamb, *counts), weight_at(method.auxiliary.lamb_a, *counts)

    @property
    def omega(self) -> Regularizer:
        """Ω."""
        old = self.ways.cl.method.old
        assert old is not None
        return old.regularizer
