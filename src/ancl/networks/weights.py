"""Files of weights: read as tensors alone, and known by their hash."""

import hashlib
import os
from functools import lru_cache
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from ancl.errors import AnclError, SpecError, printable
from ancl.files import open_plain
from ancl.runtime import check_memory

_WRAPPERS = ("state_dict", "model", "model_state_dict")
"""What training scripts put weights under."""


def file_digest(file: Path) -> str:
    """The sha256 of a file, read again only where it has changed.

    Raises:
        SpecError: It cannot be read.
    """
    try:
        status = os.stat(file)
        return _digest(Path(os.path.abspath(file)), status.st_mtime_ns, status.st_size)
    except OSError as error:
        raise _unreadable(file, error.strerror) from error


@lru_cache(maxsize=64)
def _digest(file: Path, time: int, size: int) -> str:
    total = hashlib.sha256()
    with open_plain(file) as opened:
        while block := opened.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors or torch file, by name; nothing in it is executed.

    Raises:
        SpecError: It cannot be read, or holds something else.
    """
    try:
        with open_plain(file) as opened:
            check_memory(2 * os.fstat(opened.fileno()).st_size, f"The weights in {file}")
            if file.suffix == ".safetensors":
                return safetensors.torch.load(opened.read())
            found = torch.load(opened, map_location="cpu", weights_only=True)
    except AnclError:
        raise
    except OSError as error:
        raise _unreadable(file, error.strerror or error) from error
    except Exception as error:  # both readers have exceptions of their own
        raise _unreadable(file, f"{type(error).__name__}: {error}") from error
    for wrapper in _WRAPPERS:
        if isinstance(found, dict) and isinstance(found.get(wrapper), dict):
            found = found[wrapper]
    if not isinstance(found, dict) or not found:
        raise _unreadable(file, f"it holds a {type(found).__name__}, not tensors by name")
    odd = next((name for name, value in found.items() if not isinstance(value, Tensor)), None)
    if odd is not None:
        raise _unreadable(file, f"{odd} is not a tensor")
    return {str(name).removeprefix("module."): value for name, value in found.items()}


def _unreadable(file: Path, reason: object) -> SpecError:
    return SpecError(
        f"{file} holds no weights that can be read ({printable(str(reason), 300)}). Give a "
        f".safetensors file, or a state dict that torch.save wrote: network.weights=FILE."
    )
