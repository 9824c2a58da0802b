"""What decides a network's numbers: a user's module as JSON, and files of weights by their hash."""

import functools
import hashlib
import json
import math
import os
import sys
import zipfile
from collections.abc import Iterable, Mapping
from io import BytesIO
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import BinaryIO, NamedTuple

import safetensors.torch
import torch
from torch import Tensor, nn

from ancl.errors import AnclError, SpecError, printable
from ancl.files import open_plain
from ancl.hashing import UnstorableError, digest, source_hash
from ancl.runtime import check_memory

BARE = frozenset(vars(nn.Module()))
"""Attributes every module has: its parameters, buffers, children, hooks and mode."""


def module_identity(module: nn.Module) -> dict[str, object]:
    """All that can change what a module computes, and whether all of it could be seen.

    ``stored`` is False, with the reasons in ``why``, where some of it could not: results of
    such a module must not be found again under this identity.
    """
    survey = _Survey()
    for name, part in module.named_modules():
        survey.module(name, part)
    identity: dict[str, object] = {
        "weights": tensor_digest({**dict(module.named_buffers()), **module.state_dict()}),
        "repr": repr(module),
        "attributes": survey.attributes,
        "sources": dict(sorted(survey.sources.items())),
        "stored": not survey.gaps,
    }
    frozen = _frozen(module)
    if frozen:
        identity["frozen"] = frozen
    return {**identity, "why": "; ".join(dict.fromkeys(survey.gaps))} if survey.gaps else identity


def weight_digest(module: nn.Module) -> str:
    """A hash of a module's tensors, and of which weights do not learn where there are any."""
    tensors, frozen = tensor_digest(module.state_dict()), _frozen(module)
    return digest([tensors, frozen]) if frozen else tensors


def _frozen(module: nn.Module) -> list[str]:
    """The names of weights that do not learn."""
    return [name for name, weight in module.named_parameters() if not weight.requires_grad]


def tensor_digest(tensors: Mapping[str, Tensor]) -> str:
    """A hash of names, dtypes, shapes and values, whatever the strides."""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        values = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(values.view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _outside(module_name: str) -> bool:
    """Whether code is neither ours nor PyTorch's nor Python's, whose versions are known."""
    root = module_name.partition(".")[0]
    return root not in {"torch", "ancl"} and root not in sys.stdlib_module_names


class _Survey:
    """Collects attributes and sources, and notes what it cannot describe."""

    def __init__(self) -> None:
        self.attributes: dict[str, dict[str, object]] = {}
        self.sources: dict[str, str] = {}
        self.gaps: list[str] = []

    def module(self, name: str, part: nn.Module) -> None:
        """Note one submodule: its own attributes and the code of all its classes."""
        self.code(type(part).__mro__)
        settings = {key: value for key, value in vars(part).items() if key not in BARE}
        if settings:
            where = f"{name or type(part).__name__}."
            self.attributes[name] = {k: self.describe(where + k, v) for k, v in settings.items()}
        if any(getattr(part, hooks) for hooks in ("_forward_hooks", "_forward_pre_hooks")):
            self.gaps.append(f"{name or 'the module'} has forward hooks")

    def code(self, things: Iterable[type | FunctionType]) -> None:
        """Note the source of every class or function from outside."""
        for thing in things:
            if not _outside(thing.__module__):
                continue
            name = f"{thing.__module__}.{thing.__qualname__}"
            try:
                self.sources[name] = source_hash(thing)
            except UnstorableError as error:
                self.gaps.append(str(error))

    def describe(self, where: str, value: object) -> object:
        """A JSON value that differs whenever the attribute does."""
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else str(value)  # JSON has no infinity
        if isinstance(value, Tensor):
            return tensor_digest({"": value})
        if isinstance(value, list | tuple):
            return [self.describe(where, item) for item in value]
        if isinstance(value, dict):
            return {str(key): self.describe(where, item) for key, item in value.items()}
        if isinstance(value, functools.partial):
            return self.describe(where, [value.func, value.args, value.keywords])
        if isinstance(value, type | FunctionType):
            self.code([value])
            return f"{value.__module__}.{value.__qualname__}"
        if isinstance(value, BuiltinFunctionType):
            return f"{value.__module__}.{value.__qualname__}"
        self.code(type(value).__mro__)
        text = repr(value)
        if isinstance(value, nn.Module) or " at 0x" in text:
            self.gaps.append(f"the attribute {where} ({type(value).__name__}) cannot be described")
        return text


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
            ends = [entry["data_offsets"][1] for n, entry in header.items() if n != "__metadata__"]
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
        content = torch.load(BytesIO(data), map_location="cpu", weights_only=True)
    except AnclError:
        raise
    except OSError as error:
        raise _unreadable(file, error.strerror or error) from error
    except Exception as error:  # both readers have exceptions of their own
        raise _unreadable(file, f"{type(error).__name__}: {error}") from error
    for wrapper in _WRAPPERS:
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            content = content[wrapper]
    if not isinstance(content, dict) or not content:
        raise _unreadable(file, f"it holds a {type(content).__name__}, not tensors by name")
    odd = next((name for name, value in content.items() if not isinstance(value, Tensor)), None)
    if odd is not None:
        raise _unreadable(file, f"{odd} is not a tensor")
    return {str(name).removeprefix("module."): value for name, value in content.items()}


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
