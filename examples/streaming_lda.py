"""A method without any training: linear discriminant analysis of a network's features.

Each task adds its images to class sums and one matrix of products, which later tasks read. Their
order, and how they are cut into tasks, change nothing but rounding.

    ancl run examples/streaming_lda.py:slda digits/5 --scenario cil --network mlp
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from ancl.extend import (
    Finish,
    Infer,
    InferenceInputs,
    Method,
    Output,
    Params,
    StageResult,
    TaskWork,
    prefixed,
)


@dataclass(frozen=True)
class Statistics(Finish):
    """Images and sums of features of every class, and the products of all features."""

    name = "statistics"
    first = True
    reads = ("statistics",)
    yields = ("statistics",)

    def run(self, work: TaskWork) -> StageResult:
        """Add the task's images to what the last task left."""
        images = work.split.train
        features = work.answer(work.network())(images).features.double()
        classes, size = work.history.current.stop, features.shape[1]
        counts = torch.zeros(classes, dtype=torch.double)
        sums, products = torch.zeros(classes, size).double(), features.T @ features
        if before := work.state("statistics"):
            counts[: len(before["counts"])] = before["counts"]
            sums[: len(before["sums"])] = before["sums"]
            products += before["products"]
        counts.index_add_(0, images.y, torch.ones(len(images)).double())
        sums.index_add_(0, images.y, features)
        new = {"counts": counts, "sums": sums, "products": products}
        return StageResult(prefixed("statistics", new), {})


@dataclass(frozen=True)
class Discriminant(Infer):
    """The class with the largest linear discriminant; one covariance for all classes."""

    reads = ("statistics",)
    shrinkage: float = 1e-4

    def fixed(self, known: InferenceInputs) -> Params:
        """A row and a number for each class."""
        statistics = known.state["statistics"]
        counts, sums = statistics["counts"], statistics["sums"]
        means = sums / counts.clamp(min=1).unsqueeze(1)
        within = (statistics["products"] - sums.T @ means) / counts.sum()
        unit = torch.eye(len(within), dtype=within.dtype)
        shrunk = (1 - self.shrinkage) * within + self.shrinkage * unit
        rows = torch.linalg.solve(shrunk, means.T).T
        return {"rows": rows.float(), "shifts": (-0.5 * (rows * means).sum(dim=1)).float()}

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """Row times feature, plus the class's number."""
        return output.features @ fixed["rows"].to(output.features).T + fixed["shifts"].to(
            output.features
        )


def slda(shrinkage: float = 1e-4) -> Method:
    """Streaming LDA.

    Args:
        shrinkage: The share of the unit matrix in the covariance.
    """
    reason = "nothing is trained, so there is nothing to hold to another network"
    return Method(
        "slda",
        main="none",
        finish=(Statistics(),),
        infer=Discriminant(shrinkage),
        no_variants={"a": reason, "afec": reason},
    )
