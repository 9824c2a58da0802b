"""Classifiers computed from statistics, on a backbone that learns.

When a task has been learned, what is known of earlier images follows the network (``transport``),
the task's images are added, and the classifier of all is computed. The head that was trained
answers nothing: it is there to learn by.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from torch import Tensor

from ancl.errors import MethodError
from ancl.hashing import LATER
from ancl.methods.computed import RULES, ComputeClassifier, Computed, GatherStatistics
from ancl.methods.method import Finish, Method
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.regularizers import Regularizer
from ancl.state import DRIFT, START, STATISTICS
from ancl.statistics import Drift, Statistics, drift_of, fit_map, transported
from ancl.statistics.rules import classifier_scores
from ancl.store.entry import StageResult
from ancl.types import Output, Params, prefixed

HEAD = "head"
Classifier = Annotated[Literal["head", "ncm", "slda", "ridge", "logistic", "auto"], LATER]
"""What answers: the head that is trained, or a classifier computed from statistics."""
Transport = Annotated[bool, LATER]
_CLIP = 1.0
"""The largest norm of the gradient where an Ω compares computed answers. Their weights are large
where features vary little, so that plain steps at a usual λ and rate overshoot there."""


@dataclass(frozen=True)
class MoveStatistics(Finish):
    """What is known of earlier images, after the network has moved.  Equation: [transport].

    The map from features before to features after is fitted on the task's own images. Where the
    task changed nothing of the backbone, all stays as it was.

    Args:
        transport: Whether earlier features follow by that map, or stay as they were; how far the
            network moved is measured in any case.
    """

    name = "transport"
    reads = (STATISTICS,)
    yields = (STATISTICS,)
    transport: bool = True

    def run(self, work: TaskWork) -> StageResult:
        """Fit the map, and let the statistics follow."""
        known, train = Statistics.read(work.state(STATISTICS)), work.split.train
        networks = [work.network(name) for name in (START, "network")]
        if _same_weights(*networks):
            still = Drift(0.0, 0.0, self.transport)
            return StageResult(prefixed(STATISTICS, known.tensors()), {DRIFT: still.json()})
        before, after = (work.features(network)(train) for network in networks)
        matrix = fit_map(before, after)
        drift = drift_of(before, after, matrix)._replace(transported=self.transport)
        moved, clipped = replace(known, moves=known.moves + 1), 0
        if self.transport:
            moved, clipped = transported(known, matrix)
        drift = drift._replace(clipped=clipped)
        if clipped:
            work.say(
                f"Task {work.index + 1}: {clipped} numbers of the features of earlier images no "
                f"longer fit the grid, and were cut to its largest: answers of earlier classes may "
                f"suffer. The network moved far. Begin anew with a smaller training.lr, or a "
                f"method that holds the network, such as lfl."
            )
        return StageResult(prefixed(STATISTICS, moved.tensors()), {DRIFT: drift.json()})


def _same_weights(one: Network, other: Network) -> bool:
    """Whether two backbones are equal to the bit, running statistics of batch norms included."""
    first, second = one.backbone.state_dict(), other.backbone.state_dict()
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


@dataclass(frozen=True)
class ComputedAnswers(Computed):
    """The same, and known classes are answered so while the next task is learned.

    The classifier of the last task stands in the place of the head's rows of its classes, for the
    old network and for the one that learns: nothing of it is trained.
    """

    def correct(self, output: Output, extra: Params) -> Output:
        """Calibrated scores of the classes that the classifier knows, then the head's logits."""
        if not extra:
            return output
        scores = classifier_scores(output.features, extra) / extra["temperature"].to(output.logits)
        rest = output.logits[:, len(extra["weight"]) :]
        return output._replace(logits=torch.cat([scores, rest], dim=1))

    def student(self, extra: Params) -> Callable[[Output], Output] | None:
        """The same for the network that learns."""
        return (lambda output: self.correct(output, extra)) if extra else None

    def scores(self, output: Output, fixed: Params) -> Tensor:
        """Scores of the classifier alone."""
        return super().scores(output, {n: t for n, t in fixed.items() if n != "temperature"})


def with_statistics(method: Method, classifier: Classifier, transport: bool = True) -> Method:
    """The method with a classifier computed from statistics in place of its head.

    Args:
        method: A method that trains a network.
        classifier: Its name; ``head`` leaves the method as it is.
        transport: Whether statistics of earlier images follow when the network moves.

    Raises:
        MethodError: There is nothing to transport.
    """
    if classifier == HEAD:
        if not transport:
            raise MethodError(
                f"transport is false, and {method.name} keeps no statistics that could follow the "
                f"network: classifier is head. Leave transport out, or give a classifier: "
                f"{', '.join(RULES)}."
            )
        return method
    omega = method.old.regularizer if method.old else None
    answers = reads_logits(omega)
    move = (MoveStatistics(transport),) if method.main != "first" else ()
    compute = ComputeClassifier(RULES[classifier], calibrated=answers)
    return replace(
        method,
        finish=(*method.finish, *move, GatherStatistics(), compute),
        infer=ComputedAnswers() if answers else Computed(),
        clip=_CLIP if answers else method.clip,
    )


def reads_logits(omega: Regularizer | None) -> bool:
    """Whether an Ω compares answers."""
    return omega is not None and omega.reads == "logits"
