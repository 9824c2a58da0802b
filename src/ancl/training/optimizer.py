"""The optimizer of a training, and its state as named tensors."""

import torch
from torch import Tensor, nn

from ancl.training.config import Training
from ancl.training.quadratic import like
from ancl.types import Params, prefixed, strip_prefix

Parameters = dict[str, nn.Parameter]


def make_optimizer(parameters: Parameters, training: Training) -> torch.optim.Optimizer:
    """A fresh optimizer of these parameters."""
    own, decay = list(parameters.values()), training.weight_decay
    if training.optimizer == "adamw":
        return torch.optim.AdamW(own, training.lr, weight_decay=decay, fused=True)
    return torch.optim.SGD(
        own, training.lr, momentum=training.momentum, weight_decay=decay, fused=True
    )


def moments(optimizer: torch.optim.Optimizer, parameters: Parameters) -> Params:
    """A copy of what an optimizer knows of each parameter."""
    found: Params = {}
    for name, parameter in parameters.items():
        held = optimizer.state.get(parameter, {})
        found |= prefixed(name, {k: v.clone() for k, v in held.items() if isinstance(v, Tensor)})
    return found


def load_moments(optimizer: torch.optim.Optimizer, parameters: Parameters, tensors: Params) -> None:
    """Give a fresh optimizer what ``moments`` found, with each parameter's own strides."""
    for name, parameter in parameters.items():
        held = strip_prefix(name, tensors)
        if held:
            optimizer.state[parameter] = {
                key: like(parameter, value)
                if value.shape == parameter.shape
                else value.to(parameter.device, copy=True)
                for key, value in held.items()
            }
