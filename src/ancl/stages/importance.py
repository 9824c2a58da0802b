"""Importance of weights as stages store it."""

import torch

from ancl.store.entry import StageResult
from ancl.types import Importance, Params, strip_prefix


def write_importance(importance: Importance) -> Params:
    """Importance as named tensors."""
    return {
        f"importance/{kind}/{name}": tensor
        for kind, params in importance.items()
        for name, tensor in params.items()
    }


def read_importance(result: StageResult, device: torch.device | None = None) -> Importance:
    """Importance from named tensors."""
    found: Importance = {}
    for name, tensor in strip_prefix("importance", result.tensors).items():
        kind, weight = name.split("/", 1)
        found.setdefault(kind, {})[weight] = tensor.to(device) if device else tensor
    return found
