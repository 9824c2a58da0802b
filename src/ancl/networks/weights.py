"""Files of weights: read as tensors alone, and known by their hash."""

import hashlib
import json
import os
import zipfile
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, NamedTuple

import safetensors.torch
import torch
from torch import Tensor

from ancl.errors import AnclError, SpecError, printable
from ancl.files import open_plain
from ancl.runtime import check_memory

_WRAPPERS = ("state_dict", "model", "model_state_dict")
"""What training scripts put weights under."""
_MOST_HEADER = 100_000_000
"""The most bytes that the header of a safetensors file may have, as its own reader has it."""


class WeightFile(NamedTuple):
    """A file of weights by its content.

    Args:
        digest: The sha256 of the file.
        size: Its bytes; 0 where the file is not known any more.
        file: Where it is.
    """

    digest: str
    size: int = 0
    file: Path | None = None


def weight_file(file: Path) -> WeightFile:
    """A file of weights with its hash, read again only where it has changed.

    What cannot be one, by its size or its first and last bytes, is refused before it is hashed.

    Raises:
        SpecError: It cannot be read, or is not a file of weights.
    """
    try:
        with open_plain(file) as opened:
            status = os.fstat(opened.fileno())
            mark = (status.st_ino, status.st_mtime_ns, status.st_ctime_ns, status.st_size)
            key = (os.path.abspath(file), *mark)
            if key not in _DIGESTS:
                _check_form(opened, file, status.st_size)
                opened.seek(0)
                total = hashlib.sha256()
                while block := opened.read(1 << 20):
                    total.update(block)
                _DIGESTS[key] = total.hexdigest()
    except OSError as error:
        raise _unreadable(file, error.strerror or error) from error
    return WeightFile(_DIGESTS[key], status.st_size, file)


_DIGESTS: dict[tuple[object, ...], str] = {}
"""The hash of every file so far, by its path and what changes whenever it is written."""


def _check_form(opened: BinaryIO, file: Path, size: int) -> None:
    """Refuse what is not a whole file of weights, from a few of its bytes."""
    start = opened.read(8)
    if file.suffix == ".safetensors":
        length = int.from_bytes(start, "little")
        if not 2 <= length <= min(_MOST_HEADER, size - 8):
            raise _unreadable(file, "it does not begin as safetensors do")
        try:
            header = json.loads(opened.read(length))
            ends = [each["data_offsets"][1] for n, each in header.items() if n != "__metadata__"]
            expected = 8 + length + max(ends, default=0)
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _unreadable(file, "it does not begin as safetensors do") from error
        if expected != size:
            raise _unreadable(file, f"its header tells of {expected:,} bytes, and it has {size:,}")
    elif start.startswith(b"PK"):
        if not zipfile.is_zipfile(opened):
            raise _unreadable(file, "its end is not that of a file that torch.save wrote")
    elif not start.startswith(b"\x80"):
        raise _unreadable(file, "it does not begin as a file that torch.save wrote")
    check_memory(2 * size, f"The weights in {file}")


def read_weights(wanted: WeightFile) -> dict[str, Tensor]:
    """The tensors of a safetensors or torch file, by name; nothing in it is executed.

    The very bytes that become tensors are hashed: a file that was replaced since its hash became
    part of a run's keys is refused.

    Raises:
        SpecError: It cannot be read, holds something else, or is not the file it was.
    """
    file = wanted.file
    assert file is not None
    try:
        with open_plain(file) as opened:
            size = os.fstat(opened.fileno()).st_size
            if size != wanted.size:
                raise _replaced(file, f"it had {wanted.size:,} bytes and now has {size:,}")
            check_memory(2 * size, f"The weights in {file}")
            data = opened.read(size + 1)
        now = hashlib.sha256(data).hexdigest()
        if now != wanted.digest:
            raise _replaced(file, f"its sha256 was {wanted.digest[:12]}… and now is {now[:12]}…")
        if file.suffix == ".safetensors":
            return safetensors.torch.load(data)
        found = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
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


def _replaced(file: Path, what: str) -> SpecError:
    return SpecError(
        f"{file} was replaced while it was in use: {what}. Results of two files of weights are not "
        f"mixed. Put the first one back, or run the same command again to begin with this one."
    )


def _unreadable(file: Path, reason: object) -> SpecError:
    return SpecError(
        f"{file} holds no weights that can be read ({printable(str(reason), 300)}). Give a "
        f".safetensors file, or a state dict that torch.save wrote: network.weights=FILE."
    )
