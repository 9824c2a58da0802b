"""Elastic Weight Consolidation: weights matter as much as the task's Fisher information says."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.regularizers.base import Evidence
from ancl.regularizers.gradients import GradientRegularizer, Loss
from ancl.types import Output, places


@dataclass(frozen=True)
class Ewc(GradientRegularizer):
    """½ Σ F (θ − θ*)² with the diagonal Fisher information F.  Equation: [ewc].

    Differs: F is the mean of squared batch gradients, as in the released code, because the
    published λ were chosen on that scale; ``estimator="sample"`` is the Fisher information.

    Args:
        labels: ``true``, ``predicted`` (the network's own answer) or ``sampled`` from it.
        over: Cross-entropy over all classes ``seen``, or over the task's ``own`` alone.
    """

    labels: Literal["true", "predicted", "sampled"] = "true"
    over: Literal["seen", "own"] = "seen"

    def loss(self, evidence: Evidence) -> Loss:
        """Cross-entropy of the chosen labels."""
        classes = evidence.own if self.over == "own" else slice(0, evidence.tasks[-1].stop)

        def cross_entropy(output: Output, y: Tensor) -> Tensor:
            logits = output.logits[:, classes]
            return F.cross_entropy(logits, self._labels(logits.detach(), places(classes, y)))

        return cross_entropy

    def measure(self, gradient: Tensor) -> Tensor:
        """The square."""
        return gradient.square()

    def _labels(self, logits: Tensor, y: Tensor) -> Tensor:
        if self.labels == "true":
            return y
        if self.labels == "predicted":
            return logits.argmax(dim=1)
        return torch.multinomial(logits.softmax(dim=1), 1).squeeze(1)
