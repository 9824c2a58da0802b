"""Lower precision: networks answer in it; losses, Ω, importance and weights stay in fp32."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from ancl.types import Params

Precision = Literal["fp32", "bf16", "fp16"]
_TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_LEAST_SCALE = 2.0**-14
"""Below it no gradient of any size would pass: the training stands still."""


def answering_in(
    precision: Precision, device: torch.device
) -> Callable[[], AbstractContextManager[object]]:
    """Makes the context in which networks answer in a precision."""
    if precision == "fp32":
        return nullcontext
    return partial(torch.autocast, device.type, _TYPES[precision])


class LossScale:
    """The factor of a loss in fp16, whose small gradients would be zero without it.

    It halves where a gradient overflows, and that step is left out; it doubles after many steps
    without one. Nothing is read of the device before the end of an epoch.

    Args:
        device: Where the loss is.
    """

    def __init__(self, device: torch.device) -> None:
        self._scaler = torch.amp.GradScaler(device.type)

    def scaled(self, losses: Sequence[Tensor]) -> list[Tensor]:
        """The losses times the factor."""
        return [self._scaler.scale(loss) for loss in losses]

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide gradients by the factor; what overflowed becomes 0, for those who look at it."""
        self._scaler.unscale_(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.nan_to_num_(0.0, 0.0, 0.0)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """A step where no gradient overflowed; a fused optimizer decides it on the device."""
        self._scaler.step(optimizer)
        self._scaler.update()

    @property
    def vanished(self) -> bool:
        """Whether even the smallest factor overflows."""
        return self._scaler.get_scale() < _LEAST_SCALE

    def state(self) -> Params:
        """The factor, and the steps since it changed."""
        state = self._scaler.state_dict()
        names = ("scale", "_growth_tracker")
        return {name: torch.tensor(state[name], dtype=torch.float64) for name in names}

    def restore(self, state: Params) -> None:
        """Go back to an earlier ``state()``."""
        numbers = {"scale": float(state["scale"]), "_growth_tracker": int(state["_growth_tracker"])}
        assert math.isfinite(numbers["scale"])
        self._scaler.load_state_dict({**self._scaler.state_dict(), **numbers})
