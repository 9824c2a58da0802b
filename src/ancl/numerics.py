"""What decides the bits of a computation besides its inputs."""

from typing import Any

import torch

NUMERICS = 1
"""Raised whenever a change of this package moves bits; the golden tests fail until it is."""


def numerics(device: torch.device) -> dict[str, Any]:
    """The numerics in force, as they enter every key."""
    return {
        "ancl": NUMERICS,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "device": device.type,
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "dtype": str(torch.get_default_dtype()).removeprefix("torch."),
    }
