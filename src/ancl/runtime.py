"""Where to compute, and with how many threads."""

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ancl.errors import ScenarioError, SpecError

MOST_AT_ONCE = 1024
"""More threads or processes than this would take what the machine needs for everything else."""


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
    if not there.get(device.type, False) or (device.type == "cpu" and device.index):
        raise SpecError(f"The device {name!r} is not available here. Use --device auto or cpu.")
    return device


def send(tensor: Tensor, device: torch.device) -> Tensor:
    """A tensor on a device; nobody waits for the copy, which begins in pinned memory."""
    if device.type == "cuda" and tensor.device.type == "cpu":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


def room_on(device: torch.device) -> int | None:
    """Bytes of a device that images may take, a quarter of what is free; None if not known."""
    if device.type == "mps":
        return torch.mps.recommended_max_memory() // 4
    return torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else None


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Have a GPU give the same bits every time, where PyTorch has kernels that do."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_deterministic_debug_mode(), torch.backends.cudnn.benchmark
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_deterministic_debug_mode("warn")
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.set_deterministic_debug_mode(before[0])
        torch.backends.cudnn.benchmark = before[1]


def one_device(device: str, number: int) -> dict[str, str]:
    """The environment of a process that sees one GPU of several: the turn of its number.

    Args:
        device: What it computes on; one that is named by its index is not another's.
        number: Which of the processes it is.
    """
    count = torch.cuda.device_count() if device == "cuda" else 0
    if count < 2:
        return {}
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = visible.split(",") if visible else [str(index) for index in range(count)]
    return {"CUDA_VISIBLE_DEVICES": names[number % count]}


def check_memory(needed: int, what: str) -> None:
    """Refuse what does not fit into the memory that is free.

    Raises:
        ScenarioError: It does not.
    """
    free = free_memory()
    if free is not None and needed > free:
        raise ScenarioError(
            f"{what} would need {needed / 1e9:,.1f} GB of memory, and {free / 1e9:,.1f} GB are "
            "free. Use fewer or smaller images, or a smaller network."
        )


def free_memory() -> int | None:
    """Bytes of memory that are free, where the system says it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvail")))
    except (OSError, ValueError, StopIteration):
        return None


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


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None
