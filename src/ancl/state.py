"""The state that a task leaves to the next: named pieces, each part of a stage's result.

A piece lies in the result of its stage under its own name: the network's tensors as
``network/…``, those of a bias correction as ``bias/…``. A method's own stages may yield others.
"""

from collections.abc import Mapping

import torch

from ancl.types import Importance, Params, strip_prefix

NETWORK = "network"
"""The main network; and the tensors of any network in a result."""
MEMORY = "memory"
"""The exemplars."""
IMPORTANCE = "importance"
"""The importance of the old network's weights."""
BIAS = "bias"
"""The correction of logits that a task ended with (BiC)."""
CARRIED = "carried"
"""The last task's auxiliary network, where the next one begins with it (AFEC)."""
LAMB = "lamb"
"""The training whose λ the next one begins with."""
FIRST_RATE = "first rate"
"""The learning rate that was found for the first task."""
BASE = "base"
"""What no training changes of a network that is frozen in part or as a whole."""
STATISTICS = "statistics"
"""The ledger of all images and their sums, of methods that train nothing."""
CLASSIFIER = "classifier"
"""The classifier that was computed from them."""
CHOICE = "choice"
"""What its stage chose, among what it stores besides tensors."""
DRIFT = "drift"
"""How far the backbone moved, in the same place."""

START = "start"
"""What a task's trainings begin with: the last network with rows for new classes."""
OLD = "old"
"""The last task's network, where the main training does not begin with it."""
AUXILIARY = "auxiliary"
"""The auxiliary network."""
AUXILIARY_IMPORTANCE = "auxiliary importance"
"""The importance of its weights."""
RATE = "rate"
"""The learning rate that was found for the task."""
RENEWED = "renewed"
"""What a memory held at the end of a training that renewed it, in its result."""
WATCHED = "watched"
"""What followed a training step by step, in its result."""

StateKeys = Mapping[str, str]
"""The keys of what the next task starts from, by the name of the piece."""


def write_importance(importance: Importance) -> Params:
    """Importance as named tensors."""
    return {
        f"{IMPORTANCE}/{kind}/{name}": tensor
        for kind, params in importance.items()
        for name, tensor in params.items()
    }


def read_importance(tensors: Params, device: torch.device | None = None) -> Importance:
    """Importance from named tensors."""
    importance: Importance = {}
    for name, tensor in strip_prefix(IMPORTANCE, tensors).items():
        kind, weight = name.split("/", 1)
        importance.setdefault(kind, {})[weight] = tensor.to(device) if device else tensor
    return importance
