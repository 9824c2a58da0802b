"""Learning without Memorizing: keep the anchor's soft answers and where it looks."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.errors import MethodError
from ancl.regularizers.base import Regularizer
from ancl.regularizers.lwf import Lwf
from ancl.types import Anchor, Step, positions


@dataclass(frozen=True)
class Lwm(Regularizer):
    """Distillation plus γ times the distance of attention maps.  Equation: [lwm].

    λ multiplies both parts, so γ is the attention's weight relative to the distillation's.

    Differs: in the released code the attention has no gradient, and the maps of a batch are
    mixed. Here a map belongs to the anchor's top class for that image, and the gradient flows
    unless ``attention="detached"`` asks for a term that moves the reported loss alone.

    Args:
        temperature: T of the distillation.
        gamma: The attention's relative weight.
        attention: Whether its ``gradient`` flows or is ``detached``.
        smoothing: ε of the distillation, as LwF has it.
    """

    reads = "maps"
    temperature: float = 2.0
    gamma: float = 0.1
    attention: Literal["gradient", "detached"] = "gradient"
    smoothing: float = 0.0

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        """Distillation + γ · Σ |a/‖a‖ − a*/‖a*‖| over space, averaged over the batch."""
        if step.rows is None or anchor.rows is None:
            raise MethodError(
                "LwM reads a head's class weights, and this head does not have one row per class. "
                "Use head='linear'."
            )
        theirs = step.of(anchor)
        top = positions(anchor.classes, theirs.logits[:, anchor.classes].argmax(dim=1))
        ours = attention_map(step.out.maps[-1], step.rows[top])
        wanted = attention_map(theirs.maps[-1], anchor.rows[top])
        distance = (ours - wanted).abs().sum(dim=1).mean()
        if self.attention == "detached":
            distance = distance.detach()
        answers = Lwf(self.temperature, self.smoothing).penalty(step, anchor)
        return answers + self.gamma * distance


def attention_map(stage: Tensor, rows: Tensor) -> Tensor:
    """Where a class is seen: ReLU(Σ_c w_c A_c) of length 1, for every image's own class row.

    Grad-CAM weighs the activations A by the score's gradient averaged over space. Where averaged
    activations meet a linear head, that gradient is the class's row over the number of pixels,
    and the length 1 cancels that number: no second backward pass is needed.
    """
    weighted = torch.einsum("bchw,bc->bhw", F.relu(stage), rows)
    return F.normalize(F.relu(weighted).flatten(1), dim=1)
