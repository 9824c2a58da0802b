"""The search for λ and λ_a: by validation images alone, on stages that trials have in common."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch

from ancl.errors import SpecError
from ancl.executors.graph import Node, Plan
from ancl.experiments.build import build, threads
from ancl.experiments.spec import RunSpec
from ancl.metrics import aac, aiac
from ancl.stages.runner import Storage, image_loader
from ancl.stages.stage import StageContext
from ancl.stages.steps import TrainMain
from ancl.stages.work import MainWork
from ancl.training.objective import Objective

STEPS = ("lamb", "lamb_a")
"""What is searched, in this order: λ with the plain method, then λ_a with λ fixed."""
_TIMED_BATCHES = 2


@dataclass(frozen=True)
class Trial:
    """One value tried.

    Args:
        step: ``lamb`` or ``lamb_a``.
        method: What was trained.
        options: All its settings.
        value: The value.
        scores: The validation score of each seed; none where it failed.
        failed: Why it has none.
    """

    step: str
    method: str
    options: Mapping[str, Any]
    value: float
    scores: Mapping[int, float]
    failed: str = ""

    @property
    def mean(self) -> float:
        """The score that decides; NaN for a trial that failed."""
        return float(np.mean(list(self.scores.values()))) if not self.failed else math.nan


def best(trials: Sequence[Trial]) -> Trial | None:
    """The trial of the highest mean, the first of equals; nothing where all failed."""
    finished = [trial for trial in trials if not trial.failed]
    return max(finished, key=lambda trial: trial.mean) if finished else None


def on_edge(trial: Trial, grid: Sequence[float]) -> bool:
    """Whether a better value may lie beyond the grid."""
    return len(grid) > 1 and trial.value in (min(grid), max(grid))


def score_name(spec: RunSpec) -> str:
    """What decides: the metric the scenario is reported in, on validation images."""
    return "validation AAC" if spec.data.scenario == "til" else "validation AIAC"


def validation_score(plan: Plan, store: Storage) -> float:
    """AAC with the task told, else AIAC, of a run whose stages are stored: no test image counts."""
    told = plan.spec.data.scenario == "til"
    rows = []
    for key, node in plan.items():
        if node.stage.name == "evaluate":
            entry = store.load(key)
            assert entry is not None, "the executor stored it"
            rows.append(entry.meta["taw_val" if told else "tag_val"])
    matrix = np.full((len(rows), len(rows)), np.nan)
    for index, row in enumerate(rows):
        matrix[index, : len(row)] = row
    return aac(matrix) if told else aiac(matrix, plan.val_sizes)


def check_searchable(spec: RunSpec) -> None:
    """Refuse a search that has no images to decide by.

    Raises:
        SpecError: There are no validation images.
    """
    if spec.data.val_fraction == 0:
        raise SpecError(
            "A search decides by validation images, but data.val_fraction is 0. Raise it, such as "
            "--set data.val_fraction=0.1."
        )


def seconds_an_image(spec: RunSpec, root: Path | None = None) -> float:
    """What a training step costs an image: a few steps on the first task, timed after a few."""
    with threads(spec.threads):
        experiment = build(spec, root)
        images = image_loader(experiment.stream.tasks)
        device = experiment.setting.device
        context = StageContext(device, lambda trainer: [], lambda message: None, images)
        grow, main = (
            next(stage for stage in experiment.stages if stage.name == name)
            for name in ("grow", "main")
        )
        assert isinstance(main, TrainMain)
        work = MainWork(main, {"start": grow.run({}, context)}, context)
        training = replace(
            spec.training.at(0), epochs=2, schedule="constant", warmup=0.0, lr_search=False
        )
        count = min(len(work.split.train), _TIMED_BATCHES * training.batch_size)
        few = work.split.train.take(torch.arange(count))
        network, objective = work.main_network(), Objective(work.task_loss)
        fit = work.fit(network, objective, [few], [], training, "main")
        next(fit)
        began = perf_counter()
        next(fit)
        return (perf_counter() - began) / count


def estimated_seconds(nodes: Sequence[Node], an_image: float) -> float:
    """At most so long the trainings take one after the other; a frozen network's answer is 1/3."""
    total = 0.0
    for node in nodes:
        anchors = 0
        if node.stage.name == "main" and node.stage.task:
            anchors = 1 + ("auxiliary" in node.stage.inputs)
        total += node.epochs * node.images * an_image * (1 + anchors / 3)
    return total
