"""What decides the numbers of a user's module, as JSON: weights, attributes and source code."""

import functools
import hashlib
import math
import sys
from collections.abc import Iterable, Mapping
from types import BuiltinFunctionType, FunctionType

import torch
from torch import Tensor, nn

from ancl.hashing import UnstorableError, digest, source_hash

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
    found: dict[str, object] = {
        "weights": tensor_digest({**dict(module.named_buffers()), **module.state_dict()}),
        "repr": repr(module),
        "attributes": survey.attributes,
        "sources": dict(sorted(survey.sources.items())),
        "stored": not survey.gaps,
    }
    frozen = _frozen(module)
    if frozen:
        found["frozen"] = frozen
    return {**found, "why": "; ".join(dict.fromkeys(survey.gaps))} if survey.gaps else found


def weight_digest(module: nn.Module) -> str:
    """A hash of a module's tensors, and of which weights do not learn where there are any."""
    found, frozen = tensor_digest(module.state_dict()), _frozen(module)
    return digest([found, frozen]) if frozen else found


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
        own = {key: value for key, value in vars(part).items() if key not in BARE}
        if own:
            where = f"{name or type(part).__name__}."
            self.attributes[name] = {k: self.describe(where + k, v) for k, v in own.items()}
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
