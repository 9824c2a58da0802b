"""FeTrIL: old classes as translated features of new ones, and a classifier over all of them."""

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor
from torch.nn import functional as F

from ancl.inference import Infer, InferenceInputs
from ancl.losses import CrossEntropy
from ancl.methods.method import Finish, Method
from ancl.methods.work import TaskWork
from ancl.statistics import logistic
from ancl.store.entry import StageResult
from ancl.types import Output, Params, prefixed

FETRIL = "fetril"
"""The piece of the state: images and sums of features of every class, and the classifier."""
Nearest = Literal["euclid", "cosine"]


def translated(
    features: Tensor, y: Tensor, means: Tensor, nearest: Nearest = "euclid"
) -> tuple[Tensor, Tensor]:
    """The images' features, and those of every other class: f − μ_k + μ_c.  Equation: [fetril].

    k is the class of the images whose mean is nearest to that of class c.

    Args:
        features: (N, D).
        y: The class of each.
        means: μ of all classes (C, D).
        nearest: By the distance of the means, or by their ``cosine``.
    """
    present = torch.tensor(sorted(set(y.tolist())))
    parts, labels = [features], [y]
    for label in range(len(means)):
        if bool((present == label).any()):
            continue
        if nearest == "euclid":
            near = (means[present] - means[label]).norm(dim=1).argmin()
        else:
            near = F.cosine_similarity(means[present], means[label : label + 1]).argmax()
        own = features[y == present[near]]
        parts.append(own - means[present[near]] + means[label])
        labels.append(torch.full((len(own),), label))
    return torch.cat(parts), torch.cat(labels)


@dataclass(frozen=True)
class TranslateFeatures(Finish):
    """A classifier of all classes from the features of the task's images alone.

    Args:
        nearest: Which of the task's classes stands for an old one.
        penalty: λ of the classifier, 1 / C in the words of scikit-learn.
    """

    name = "translate features"
    first = True
    reads = (FETRIL,)
    yields = (FETRIL,)
    nearest: Nearest = "euclid"
    penalty: float = 1.0

    def run(self, work: TaskWork) -> StageResult:
        """Add the task's images to the means, and compute the classifier anew."""
        images, classes = work.split.train, work.history.current.stop
        features = work.answer(work.network())(images).features.double()
        counts = torch.zeros(classes, dtype=torch.double)
        sums = torch.zeros(classes, features.shape[1], dtype=torch.double)
        if before := work.state(FETRIL):
            counts[: len(before["counts"])] = before["counts"]
            sums[: len(before["sums"])] = before["sums"]
        counts.index_add_(0, images.y, torch.ones(len(images), dtype=torch.double))
        sums.index_add_(0, images.y, features)
        rows, labels = translated(features, images.y, sums / counts.unsqueeze(1), self.nearest)
        classifier = logistic(F.normalize(rows, dim=1), labels, classes, self.penalty)
        new = {"counts": counts, "sums": sums, "rows": classifier.weight, "shifts": classifier.bias}
        return StageResult(prefixed(FETRIL, new), {})


@dataclass(frozen=True)
class UnitLinear(Infer):
    """Row times the feature of length 1, plus the class's number."""

    reads = (FETRIL,)

    def fixed(self, known: InferenceInputs) -> Params:
        """A row and a number for each class.

        Raises:
            ValueError: There are not as many as classes.
        """
        state = known.state[FETRIL]
        rows, shifts = state["rows"].float(), state["shifts"].float()
        if len(rows) != known.classes or shifts.shape != rows.shape[:1] or rows.ndim != 2:
            raise ValueError("the classifier has not one row and one number for each class")
        return {"rows": rows, "shifts": shifts}

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """Scores (B, C)."""
        unit = F.normalize(output.features, dim=1)
        return F.linear(unit, fixed["rows"].to(unit), fixed["shifts"].to(unit))


def fetril(*, nearest: Nearest = "euclid", penalty: Annotated[float, Gt(0)] = 1.0) -> Method:
    """FeTrIL: after the first task the network rests; old classes are translated features of new.

    Args:
        nearest: The new class that stands for an old one, by the distance or the cosine of means.
        penalty: λ of the classifier, a logistic regression; 1 / C in the words of scikit-learn.
    """
    rests = "its network rests after the first task, so that there is nothing to hold"
    return Method(
        "fetril",
        CrossEntropy(),
        main="first",
        finish=(TranslateFeatures(nearest, penalty),),
        infer=UnitLinear(),
        refused={"dil": "every task brings all classes, so that none is left to be translated"},
        no_variants={"a": rests, "afec": rests},
    )
