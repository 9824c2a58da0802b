"""Where to compute, and with how many threads."""

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
