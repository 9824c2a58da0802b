"""Which weights of a network learn, and whether its batch norms keep their statistics."""

import re
from collections.abc import Callable
from typing import Annotated, Literal

from annotated_types import Ge
from torch import nn

from ancl.errors import SpecError, did_you_mean
from ancl.hashing import LATER
from ancl.networks.adapters import adapt, nothing_to_adapt

ALL, BODY, HEAD, ADAPTER = "all", "body", "head", "adapter"
"""Of ``trains``: every weight, all but a patch embedding, none of the backbone's, and adapters."""
RANK = 10
BatchNorm = nn.modules.batchnorm._BatchNorm
_NORMS = (BatchNorm, nn.LayerNorm, nn.GroupNorm)
_STAGES = ("stages", "blocks")
"""What networks call the sequence of their stages: ours, and timm's."""
_EMBEDDING = "patch_embed"
"""What transformers call the layer that makes vectors of patches."""
_NUMBERED = re.compile(r"layer\d+")
"""What residual networks call each stage."""
_SHOWN = 24


def limit(
    module: nn.Module,
    *,
    trains: Annotated[str, LATER] = ALL,
    rank: Annotated[Annotated[int, Ge(1)], LATER] = RANK,
    norms: Annotated[Literal["moving", "fixed"], LATER] = "moving",
) -> nn.Module:
    """Decide what of a backbone learns, in place.

    Args:
        module: The backbone.
        trains: ``all``; ``head``: nothing of it; ``body``: all but the patch embedding, tokens and
            positions of a transformer; ``affine``: scales and shifts of its norms; ``last``: its
            last stage and what follows; ``adapter``: a low-rank one for every layer; or the names
            of modules, as in stages.5,stages.6.
        rank: r of adapters; from 1 to the largest that one of the layers admits.
        norms: Whether batch norms follow the batches they see while training (``moving``), or keep
            the statistics that they have (``fixed``).

    Raises:
        SpecError: There is no such part, or the rank does not fit.
    """
    _choose(module, "network.trains", trains, TRAINS, rank)
    if norms == "fixed":
        module.fixed_norms = True  # type: ignore[assignment]  # of any module: see Backbone
    return module


def narrow(module: nn.Module, trains: str) -> None:
    """Let a part alone learn of what learns of a backbone now, in place.

    Args:
        module: The backbone.
        trains: As for ``limit``; a part has weights, and no adapter is added.

    Raises:
        SpecError: There is no such part, or nothing of it learns.
    """
    if trains == ALL:
        return
    setting, words = "auxiliary_trains", (ALL, "affine", "last")
    learning = {name for name, weight in module.named_parameters() if weight.requires_grad}
    if trains in (HEAD, ADAPTER):
        why = "would learn nothing." if trains == HEAD else "has adapters by network.trains alone."
        raise _misfit(module, setting, trains, words, why)
    _choose(module, setting, trains, words)
    for name, weight in module.named_parameters():
        weight.requires_grad_(weight.requires_grad and name in learning)
    if learning and not any(weight.requires_grad for weight in module.parameters()):
        raise _misfit(module, setting, trains, words, "learns nothing of that (network.trains).")


def _choose(
    module: nn.Module, setting: str, trains: str, words: tuple[str, ...], rank: int = RANK
) -> None:
    choose = _CHOICES.get(trains)
    try:
        if choose is not None:
            choose(module, rank)
        else:
            _named(module, trains)
    except _MissingPartError as error:
        raise _misfit(module, setting, trains, words, str(error)) from None


class _MissingPartError(Exception):
    """Why a module has no such part: the rest of a sentence, to its end."""


def _all(module: nn.Module, rank: int) -> None:
    pass


def _head(module: nn.Module, rank: int) -> None:
    module.requires_grad_(False)


def embeds_patches(module: nn.Module) -> bool:
    """Whether a backbone begins with a patch embedding, and has no batch norm."""
    norms = any(isinstance(part, BatchNorm) for part in module.modules())
    return _EMBEDDING in dict(module.named_children()) and not norms


def _body(module: nn.Module, rank: int) -> None:
    parts = dict(module.named_children())
    if _EMBEDDING not in parts:
        raise _MissingPartError(f"has no part named {_EMBEDDING}.")
    module.requires_grad_(False)
    for name, part in parts.items():
        part.requires_grad_(name != _EMBEDDING)


def _affine(module: nn.Module, rank: int) -> None:
    parts = [part for part in module.modules() if isinstance(part, _NORMS)]
    weights = [weight for part in parts for weight in part.parameters(recurse=False)]
    if not weights:
        raise _MissingPartError("has no norms with a scale and a shift.")
    module.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_(True)


def _last(module: nn.Module, rank: int) -> None:
    children = dict(module.named_children())
    stages = {name: list(children[name].children()) for name in _STAGES if name in children}
    numbered = [name for name in children if _NUMBERED.fullmatch(name)]
    stages |= {name: [children[name]] for name in numbered[-1:]}
    name = next((name for name, parts in stages.items() if parts), "")
    if not name:
        raise _MissingPartError(f"has no part named {', '.join(_STAGES)} or layer1.")
    module.requires_grad_(False)
    after = list(children.values())[list(children).index(name) + 1 :]
    for part in (stages[name][-1], *after):
        part.requires_grad_(True)


def _adapter(module: nn.Module, rank: int) -> None:
    if why := nothing_to_adapt(module):
        raise _MissingPartError(why)
    adapt(module, rank)


def _named(module: nn.Module, names: str) -> None:
    """The modules of these names, and all inside them."""
    parts = dict(module.named_modules())
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if not name or name not in parts:
            near = did_you_mean(name, filter(None, parts))
            raise _MissingPartError(f"has no part {name!r}.{near}")
    module.requires_grad_(False)
    for name in wanted:
        parts[name].requires_grad_(True)
    if not any(weight.requires_grad for weight in module.parameters()):
        raise _MissingPartError("has no weights in these parts.")


_CHOICES: dict[str, Callable[[nn.Module, int], None]] = {
    ALL: _all,
    HEAD: _head,
    BODY: _body,
    "affine": _affine,
    "last": _last,
    ADAPTER: _adapter,
}
TRAINS = tuple(_CHOICES)
"""Words that ``trains`` may be; else it names modules."""


def _misfit(
    module: nn.Module, setting: str, trains: str, words: tuple[str, ...], why: str
) -> SpecError:
    paths = [
        name
        for name, part in module.named_modules()
        if name and name.count(".") < 2 and next(part.parameters(), None) is not None
    ]
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return SpecError(
        f"{setting} is {trains}, but {type(module).__name__} {why} Give one of "
        f"{', '.join(words)}, or names of its parts: {', '.join(paths[:_SHOWN])}{more}."
    )
