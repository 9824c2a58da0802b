"""Memory Aware Synapses: weights matter as much as the answers' length depends on them."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ancl.regularizers.base import Evidence
from ancl.regularizers.gradients import GradientRegularizer, Loss
from ancl.types import Output


@dataclass(frozen=True)
class Mas(GradientRegularizer):
    """½ Σ M (θ − θ*)² with M the mean absolute gradient of ‖z‖.  Equation: [mas].

    Args:
        norm: ``l2`` differentiates ‖z‖ (released code), ``squared`` its square (MAS paper).
    """

    norm: Literal["l2", "squared"] = "l2"

    def loss(self, evidence: Evidence) -> Loss:
        """The length of the logits; no label is read."""

        def length(output: Output, y: Tensor) -> Tensor:
            norms: Tensor = torch.linalg.vector_norm(output.logits, dim=1)
            return (norms.square() if self.norm == "squared" else norms).mean()

        return length

    def measure(self, gradient: Tensor) -> Tensor:
        """The absolute value."""
        return gradient.abs()
