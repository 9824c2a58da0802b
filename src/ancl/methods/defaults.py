"""What a method decides where nobody else does: for runs and for learners, in one place."""

import dataclasses
from collections.abc import Mapping
from typing import Any

from ancl.methods.method import Method


def method_defaults(method: Method) -> dict[str, Any]:
    """The settings a method decides, by dotted key; all others have defaults of their own.

    A network has ``last_relu`` only where it ends with a ReLU or not. What is not listed of the
    auxiliary network's training is as the main network's.
    """
    found: dict[str, Any] = {} if method.last_relu else {"network.last_relu": False}
    if method.memory:
        found |= {f"memory.{name}": v for name, v in dataclasses.asdict(method.memory).items()}
    found["training.select_by"] = method.select_by
    if method.auxiliary_decay is not None:
        found["auxiliary.weight_decay"] = method.auxiliary_decay
    return found


def section_of(values: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The settings of one section, without its name."""
    start = f"{name}."
    return {k.removeprefix(start): v for k, v in values.items() if k.startswith(start)}
