"""Where to compute, and with how many threads."""

from typing import Any

import torch

from ancl.errors import SpecError


def resolve_device(name: str) -> torch.device:
    """The device a name stands for; ``auto`` takes an accelerator where there is one.

    Raises:
        SpecError: The name is unknown, or the device is not there.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise SpecError(
            f"There is no device {name!r}. Use auto, cpu, cuda, cuda:N or mps."
        ) from error
    there = {
        "cpu": True,
        "cuda": torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count(),
        "mps": torch.backends.mps.is_available(),
    }
    if not there.get(device.type, False):
        raise SpecError(f"The device {name!r} is not available here. Use --device auto or cpu.")
    return device


NUMERICS = 2
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
