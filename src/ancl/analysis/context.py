"""What every measurement can use: the networks of a task, its images, the options, the store."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.analysis.cka import ESTIMATORS, Estimator
from ancl.analysis.interpolation import parameter_names
from ancl.analysis.networks import ComparedNetworks, Trained, TrainingPlans
from ancl.data import Samples, Task
from ancl.errors import ScenarioError, SpecError, unknown
from ancl.losses import own_task_logits
from ancl.methods.task_history import ClassHistory
from ancl.networks import Network
from ancl.recipe.build import Experiment
from ancl.regularizers import Regularizer
from ancl.seeding import generator, seeded
from ancl.stages.events import Events
from ancl.stages.plan import Setting
from ancl.stages.runner import MemoryStore, StageStorage
from ancl.training.lambda_rules import Balance, weight_at
from ancl.types import Params

ImagePart = Literal["test", "val", "train", "old"]
SPLITS: tuple[ImagePart, ...] = ("test", "val", "train", "old")
"""Test, validation or training images of all tasks so far, or training images of earlier tasks."""

Row = dict[str, Any]
Tables = dict[str, list[Row]]

REFERENCES = ("old", "auxiliary", "multi")
MOST_POINTS = 1000
"""More points along a side of the landscape than this are taken for a mistake."""


@dataclass(frozen=True)
class AnalysisOptions:
    """What is measured, and how.

    Args:
        lamb_as: Every λ_a, ascending.
        task: The task, from 1 on.
        grid: Points along each side of the landscape; 0 for no landscape.
        split: The images for CKA and landscape; the default is the paper's: training images of
            earlier tasks for CKA, test images for the landscape.
        images: Most images per measurement; None for all.
        estimator: The estimator of CKA.
        double: Whether the Hessian is computed in double precision.
    """

    lamb_as: tuple[float, ...]
    task: int = 1
    grid: int = 7
    split: ImagePart | None = None
    images: int | None = 1000
    estimator: Estimator = "biased"
    double: bool = False

    def __post_init__(self) -> None:
        """Refuse what does not fit.

        Raises:
            SpecError: A value that is not possible.
        """
        if self.split not in (None, *SPLITS):
            raise SpecError(unknown("split", str(self.split), SPLITS))
        if self.estimator not in ESTIMATORS:
            raise SpecError(unknown("estimator", str(self.estimator), ESTIMATORS))
        if self.grid != 0 and not 2 <= self.grid <= MOST_POINTS:
            raise SpecError(
                f"grid {self.grid} is not a landscape. Give 2 to {MOST_POINTS} points per side, or "
                f"0 for none."
            )
        if self.images is not None and self.images < 1:
            raise SpecError(f"images is {self.images}. Give 1 or more, or None for all.")


class SplitImages(NamedTuple):
    """Images of one task."""

    task: int
    samples: Samples


class Score(NamedTuple):
    """Mean cross-entropy, and task-aware (taw) and task-agnostic (tag) accuracy."""

    loss: float
    taw: float
    tag: float


def split_images(
    tasks: Sequence[Task], split: ImagePart, limit: int | None, seed: int
) -> list[SplitImages]:
    """A split's images of each task, in random order; the tasks share ``limit`` equally.

    Raises:
        ScenarioError: A task has no such images.
    """
    chosen = tasks[:-1] if split == "old" else tasks
    name = "train" if split == "old" else split
    most = None if limit is None else max(limit // len(chosen), 2)
    parts = []
    for task in chosen:
        samples: Samples = getattr(task.load(), name)
        if not len(samples):
            raise ScenarioError(
                f"Task {task.index + 1} has no {name} images to analyse. Use --split test or train."
            )
        order = torch.randperm(
            len(samples), generator=generator(seed, "analysis", name, task.index)
        )
        parts.append(SplitImages(task.index, samples.take(order[:most])))
    return parts


def score(logits: Tensor, y: Tensor, tasks: Sequence[slice], task_aware: bool) -> Score:
    """Loss over the classes that compete in the scenario, and both accuracies."""
    task_logits = own_task_logits(logits, y, tuple(tasks))
    return Score(
        float(F.cross_entropy(task_logits if task_aware else logits, y)),
        float((task_logits.argmax(dim=1) == y).double().mean()),
        float((logits.argmax(dim=1) == y).double().mean()),
    )


def build_network(tasks: Sequence[Task], setting: Setting) -> Network:
    """A network of the right shape for these tasks; its weights are arbitrary."""
    with seeded(0, "analysis"):
        built = setting.architecture.build(ClassHistory.of(tasks, setting.rows).blocks)
    return built.to(setting.device)


class AnalysisContext:
    """The networks of one task, and all that a table of an analysis is made of.

    Args:
        experiment: A run of the ANCL variant.
        options: What is measured.
        plans: How the networks were trained.
        networks: The networks.
        store: Where what is measured is kept; by default in memory.
        events: Receives notes on what takes time.

    Attributes:
        setting: The run's setting: training, normalization, device, seed.
        tasks: The tasks so far; the analysed task is the last one.
        names: The names of all learned parameters.
        keys: The keys of the stored entries that tables have used.
    """

    def __init__(
        self,
        experiment: Experiment,
        options: AnalysisOptions,
        plans: TrainingPlans,
        networks: ComparedNetworks,
        store: StageStorage | None = None,
        events: Events | None = None,
    ) -> None:
        self.options, self.plans, self.networks = options, plans, networks
        self.store, self.events = store or MemoryStore(), events or Events()
        self.setting = experiment.setting
        self.tasks = experiment.stream.tasks[: options.task + 1]
        self.names = parameter_names(self.build_network())
        self.keys = [stage.key for stage in plans.stages]

    def build_network(self) -> Network:
        """A network of the right shape; its weights are arbitrary."""
        return build_network(self.tasks, self.setting)

    def images(self, split: ImagePart) -> list[SplitImages]:
        """A split's images of each task."""
        return split_images(self.tasks, split, self.options.images, self.setting.seed)

    @property
    def compared(self) -> Iterator[tuple[Row, Trained]]:
        """CL and ANCL, each with the columns that name it in a table."""
        for (name, lamb_a), trained in self.networks.named.items():
            if name in ("cl", "ancl"):
                yield {"network": name, "lamb_a": lamb_a}, trained

    @property
    def references(self) -> dict[str, Params]:
        """The tensors of the old, the auxiliary and the multitask network."""
        named = self.networks.named
        return {name: named[name, None].tensors for name in REFERENCES}

    def lambs(self, lamb_a: float) -> tuple[float, float]:
        """λ and λ_a as numbers in this task."""
        method, counts = self.plans.ancl[lamb_a].method, ClassHistory.of(self.tasks).counts
        assert method.old is not None
        assert method.auxiliary is not None
        weight = method.auxiliary.lamb_a
        assert not isinstance(weight, Balance)
        lamb = weight_at(method.old.lamb, *counts)
        assert isinstance(lamb, float | int)
        return lamb, weight_at(weight, *counts)

    @property
    def regularizer(self) -> Regularizer:
        """Ω."""
        old = self.plans.cl.method.old
        assert old is not None
        return old.regularizer
