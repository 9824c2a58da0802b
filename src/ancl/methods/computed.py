"""Methods that compute their classifier from features of a network that never learns.

A task is learned by two stages. The first adds its images to exact statistics: a ledger of images
and their sums. The second computes the classifier from these, and chooses what is to be chosen by
held images. Nothing is trained, so that nothing is forgotten: any order of the same images, any
batches and any tasks leave the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from ancl.data import Samples
from ancl.errors import counted
from ancl.hashing import LATER
from ancl.inference import Infer, InferenceInputs
from ancl.methods.method import Finish, Method
from ancl.methods.work import TaskWork
from ancl.networks.network import as_backbone
from ancl.seeding import derive
from ancl.state import CHOICE, CLASSIFIER, STATISTICS
from ancl.statistics import Grid, Keep, Ledger, Lift, Statistics, knn_scores
from ancl.statistics.rules import (
    ChosenRule,
    ClassifierRule,
    DiscriminantRule,
    FitData,
    LogisticRule,
    MeanRule,
    NeighbourRule,
    RidgeRule,
    classifier_scores,
)
from ancl.store.entry import StageResult
from ancl.types import Output, Params, prefixed

_EXACT = (
    "on a backbone that never learns, the classifier of all tasks is exact, so that nothing is "
    "left to trade between old and new ones: an auxiliary network can matter only where weights of "
    "the backbone move"
)
Penalty = Annotated[float, Gt(0)] | Literal["auto"]
Shrinkage = Annotated[float, Ge(0), Le(1)] | Literal["oas"]
GridSetting = Annotated[int, Ge(-50), Le(50)] | Literal["auto"]


@dataclass(frozen=True)
class GatherStatistics(Finish):
    """The ledger and the sums with the images of a task.

    Validation images are held: nothing is learned from them, and choices are made by them.

    Args:
        keep: ``ledger``: the feature of every image. ``sums``: of held images alone, and the
            sums of all others.
        grid: The features are multiples of 2^-grid. ``auto``: as fine as the network's known
            bound allows, or as the features of the first task do, with two bits to spare.
        lift: Whether sums are of features after a random projection; and their number, 4 D if 0.
    """

    name = STATISTICS
    first = True
    reads = (STATISTICS,)
    yields = (STATISTICS,)
    keep: Keep = "ledger"
    grid: int | Literal["auto"] = "auto"
    lift: int | None = None

    def run(self, work: TaskWork) -> StageResult:
        """Add the task's images to what the last task left."""
        network = work.network()
        features, bound = work.features(network), as_backbone(network.backbone).feature_bound
        parts = ((work.split.train, False), (work.split.val, True))
        outputs = [features(samples) for samples, _ in parts]
        before = work.state(STATISTICS)
        known = Statistics.read(before) if before else self._begun(work, outputs, bound)
        images, clipped = Ledger.none(outputs[0].shape[1]), 0
        for (samples, held), values in zip(parts, outputs, strict=True):
            rows = known.grid.put(values)
            images += _entered(work, samples, held, rows.rows)
            clipped += rows.clipped
        if clipped:
            _say_clipped(work, known.grid, outputs, clipped)
        known = known.add(images).padded(work.history.current.stop)
        return StageResult(prefixed(STATISTICS, known.tensors()), {})

    def _begun(self, work: TaskWork, found: list[Tensor], bound: float | None) -> Statistics:
        size = found[0].shape[1]
        if self.grid != "auto":
            grid = Grid(self.grid)
        elif bound is not None:
            grid = Grid.holding(bound)
        else:
            grid = Grid.of(max(float(values.abs().max()) for values in found if len(values)))
        lift = None
        if self.lift is not None:
            lift = Lift.seeded(grid, size, derive(work.seed, "projection"), self.lift or None)
        return Statistics.none(grid, size, self.keep, lift)


def _say_clipped(work: TaskWork, grid: Grid, found: list[Tensor], clipped: int) -> None:
    largest = max(float(values.abs().max()) for values in found if len(values))
    work.say(
        f"Task {work.index + 1}: {counted(clipped, 'feature')} of {sum(map(len, found))} images "
        f"were cut to {grid.back(torch.tensor(2**15 - 1)):.3g}, the largest number of the grid "
        f"that the learner began with; the largest is {largest:.3g}. Answers may suffer. Begin "
        f"anew: a method that trains no network with grid={Grid.of(largest).exponent}, and one "
        f"whose features have grown while it was trained with a lower training.lr."
    )


def _entered(work: TaskWork, samples: Samples, held: bool, rows: Tensor) -> Ledger:
    """Images of the task as they are entered."""
    n = len(samples)
    hashes = torch.from_numpy(samples.x.digests().astype(np.uint64).view(np.int64).reshape(n, 4))
    tasks = torch.full((n,), work.index)
    return Ledger.of(hashes, tasks, samples.y, torch.full((n,), held), rows)


@dataclass(frozen=True)
class ComputeClassifier(Finish):
    """The classifier of all images so far, from their statistics alone.

    Args:
        rule: How it is computed.
        calibrated: Whether the temperature is fitted that makes logits of its scores.
    """

    name = CLASSIFIER
    first = True
    looks = False
    reads = (STATISTICS,)
    yields = (CLASSIFIER,)
    rule: ClassifierRule
    calibrated: Annotated[bool, LATER] = False

    def run(self, work: TaskWork) -> StageResult:
        """Fit it, and choose by held images what the rule leaves open."""
        known = Statistics.read(work.state(STATISTICS))
        groups = None
        if work.task_aware:
            groups = torch.zeros(known.sums.classes, dtype=torch.long)
            for number, classes in enumerate(work.history.tasks):
                groups[classes] = number
        data = FitData(known, groups)
        outputs = self.rule.fit(data)
        tensors = dict(outputs.tensors)
        if self.calibrated:
            tensors["temperature"] = torch.tensor(data.temperature(outputs.tensors))
        if known.lift:
            tensors["lift"] = torch.tensor([known.lift.seed, known.ledger.rows.shape[1]])
        meta = {CHOICE: outputs.choice.json()} if outputs.choice else {}
        return StageResult(prefixed(CLASSIFIER, tensors), meta)


@dataclass(frozen=True)
class Computed(Infer):
    """The largest score of a linear classifier that was computed, of features or lifted ones."""

    reads = (CLASSIFIER,)
    holds = STATISTICS

    def fixed(self, known: InferenceInputs) -> Params:
        """The classifier, and the projection before it where there is one."""
        tensors = dict(known.state[CLASSIFIER])
        lift = tensors.pop("lift", None)
        weight, bias = tensors["weight"], tensors["bias"]
        if weight.ndim != 2 or weight.shape[0] != known.classes or bias.shape != weight.shape[:1]:
            raise ValueError("the classifier has not one row for each class")
        if lift is not None:
            seed, size = lift.tolist()
            tensors["projection"] = Lift.seeded(Grid(0), size, seed, weight.shape[1]).matrix
        return tensors

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """w·f + b, of the direction of f from a centre where there is one."""
        features = output.features
        if "projection" in fixed:
            features = (features @ fixed["projection"].to(features)).clamp(min=0)
        return classifier_scores(features, fixed)


@dataclass(frozen=True)
class Neighbours(Infer):
    """The votes of the nearest images.  Equation: [knn].

    Args:
        k: How many vote.
        temperature: T of a vote exp(cos / T).
    """

    reads = (CLASSIFIER,)
    holds = STATISTICS
    bound_to_ancl = (
        "it compares an image with all that it has learned, and is no layer of a network"
    )
    k: int = 20
    temperature: float = 0.07

    def fixed(self, known: InferenceInputs) -> Params:
        """The images that vote."""
        tensors = known.state[CLASSIFIER]
        labels = tensors["labels"]
        rows, grid = tensors["rows"], Grid(int(tensors["grid"]))
        fits = labels.shape == rows.shape[:1] and labels.dtype == torch.long
        if not fits or bool(((labels < 0) | (labels >= known.classes)).any()):
            raise ValueError("the images that vote have not one known class each")
        features = grid.back(rows)
        return {"features": features, "labels": labels, "classes": torch.zeros(known.classes)}

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """log(share of the votes + 1 / k)."""
        classes = len(fixed["classes"])
        features, labels = fixed["features"], fixed["labels"]
        return knn_scores(output.features, features, labels, classes, self.k, self.temperature)


def _computed(
    name: str,
    rule: ClassifierRule,
    keep: Keep = "ledger",
    grid: int | Literal["auto"] = "auto",
    lift: int | None = None,
    infer: Infer | None = None,
) -> Method:
    return Method(
        name,
        main="none",
        head="none",
        finish=(GatherStatistics(keep, grid, lift), ComputeClassifier(rule)),
        infer=infer or Computed(),
        no_variants={"a": _EXACT, "afec": _EXACT},
    )


def ncm(
    *,
    metric: Literal["cosine", "euclid"] = "cosine",
    centre: bool = True,
    keep: Keep = "ledger",
    grid: GridSetting = "auto",
) -> Method:
    """NCM (SimpleCIL): the class whose mean of features is nearest; nothing is trained.

    Args:
        metric: Near by ``cosine``, or by distance (``euclid``).
        centre: Whether the mean of all images is subtracted before the cosine.
        keep: What is kept: a ``ledger`` of all images as features, or their ``sums`` alone, of
            which nothing can be taken back without the images.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("ncm", MeanRule(metric, centre), keep, grid)


def slda(
    *, shrinkage: Shrinkage = 0.1, keep: Keep = "ledger", grid: GridSetting = "auto"
) -> Method:
    """Streaming LDA (Deep SLDA), exactly: one covariance of all classes; nothing is trained.

    Args:
        shrinkage: ε, the share of the mean of the covariance's diagonal in it, 0 to 1; or oas.
        keep: What is kept: a ``ledger`` of all images as features, or their ``sums`` alone.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("slda", DiscriminantRule(shrinkage), keep, grid)


def ridge(
    *,
    penalty: Penalty = "auto",
    balanced: bool = True,
    keep: Keep = "ledger",
    grid: GridSetting = "auto",
) -> Method:
    """Ridge regression to the classes, each as if it had equally many images; nothing is trained.

    Args:
        penalty: λ of the squared weights; auto is the power of ten that held images favour.
        balanced: Whether every class counts as if it had equally many images; false is ACIL's.
        keep: What is kept: a ``ledger`` of all images as features, or their ``sums`` alone.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("ridge", RidgeRule(penalty, balanced), keep, grid)


def acil(*, penalty: Penalty = "auto", keep: Keep = "ledger", grid: GridSetting = "auto") -> Method:
    """ACIL without its lift: ridge with balanced=false, every image counts the same.

    Args:
        penalty: λ of the squared weights; auto is the power of ten that held images favour.
        keep: What is kept: a ``ledger`` of all images as features, or their ``sums`` alone.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("acil", RidgeRule(penalty, balanced=False), keep, grid)


def ranpac(
    *,
    lift: Annotated[int, Ge(0)] = 0,
    penalty: Penalty = "auto",
    balanced: bool = True,
    keep: Keep = "ledger",
    grid: GridSetting = "auto",
) -> Method:
    """RanPAC without adaptation: ridge on many random features max(0, f V); nothing is trained.

    Args:
        lift: M, the number of random features; 0 is 4 times as many as the network has. Their
            sums take 8 M² bytes.
        penalty: λ of the squared weights; auto is the power of ten that held images favour.
        balanced: Whether every class counts as if it had equally many images; the original's do
            not.
        keep: What is kept: a ``ledger`` of all images as features, or their ``sums`` alone.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("ranpac", RidgeRule(penalty, balanced), keep, grid, lift)


def knn(
    *,
    k: Annotated[int, Ge(1)] = 20,
    temperature: Annotated[float, Gt(0)] = 0.07,
    grid: GridSetting = "auto",
) -> Method:
    """The votes of the k nearest images by cosine; all of them are kept, as features.

    Args:
        k: How many images vote.
        temperature: T of a vote exp(cos / T); a smaller one lets the nearest decide.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("knn", NeighbourRule(), grid=grid, infer=Neighbours(k, temperature))


def logistic(
    *, penalty: Penalty = "auto", balanced: bool = True, grid: GridSetting = "auto"
) -> Method:
    """Logistic regression on the features of all images; these are kept, and no weight trained.

    Args:
        penalty: λ / 2 of the squared weights; auto is a twentieth of the variance of the features.
        balanced: Whether every class counts as if it had equally many images; scikit-learn's
            do not.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("logistic", LogisticRule(penalty, balanced), grid=grid)


CANDIDATES: dict[str, ClassifierRule] = {
    "ncm": MeanRule(),
    "slda": DiscriminantRule(),
    "ridge": RidgeRule(),
    "logistic": LogisticRule(),
}
"""What ``auto`` chooses from, the simplest first."""
RULES: dict[str, ClassifierRule] = {**CANDIDATES, "auto": ChosenRule(CANDIDATES)}
"""Classifiers by name, each as it is by default."""


def auto(*, keep: Keep = "ledger", grid: GridSetting = "auto") -> Method:
    """Of ncm, slda, ridge and logistic the one that held images favour; nothing is trained.

    Args:
        keep: What is kept: a ``ledger`` of all images as features; or their ``sums`` alone, without
            logistic.
        grid: Features are kept as multiples of 2^-grid; auto is as fine as they allow.
    """
    return _computed("auto", RULES["auto"], keep, grid)


COMPUTED: dict[str, Callable[..., Method]] = {
    "ncm": ncm,
    "slda": slda,
    "ridge": ridge,
    "acil": acil,
    "ranpac": ranpac,
    "knn": knn,
    "logistic": logistic,
    "auto": auto,
}
COMPUTED_ALIASES = {"simplecil": "ncm", "deep_slda": "slda"}
