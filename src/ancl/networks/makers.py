"""What makes backbones of a name: ours, those of other libraries, and a user's own code."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import PydanticUserError, TypeAdapter
from torch import nn

from ancl.errors import SpecError, did_you_mean, unknown
from ancl.networks.backbones import Mlp, ResNet
from ancl.networks.libraries import FORMS as LIBRARY_FORMS
from ancl.networks.libraries import LibraryBackbone, library_backbone
from ancl.outside import FORMS, Loaded, in_library, is_outside, load


def _resnet(depth: int) -> Callable[..., nn.Module]:
    def make(shape: Sequence[int], *, width: int = 16, last_relu: bool = True) -> nn.Module:
        if len(shape) != 3:
            raise SpecError(
                f"resnet{depth} reads images (channels, height, width), but the samples have "
                f"shape {tuple(shape)}. Use mlp, or your own module."
            )
        return ResNet(depth, width, in_channels=shape[0], last_relu=last_relu)

    return make


def _mlp(shape: Sequence[int], *, hidden: Sequence[int] = (256, 256)) -> nn.Module:
    return Mlp(shape, hidden)


NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet8": _resnet(8),
    "resnet14": _resnet(14),
    "resnet20": _resnet(20),
    "resnet32": _resnet(32),
    "resnet44": _resnet(44),
    "resnet56": _resnet(56),
    "mlp": _mlp,
}
"""Backbones by name; each takes the shape of one sample and its options by keyword."""
_PLAIN = (bool, int, float, str, tuple, list, type(None))
"""Types of options that can be settings: values that a file of settings can hold."""
_RESERVED = ("name", "network", "input_shape", "head", "head_options", "growth")
"""Names that are arguments of ``architecture``."""
NAMES = (*NETWORKS, *LIBRARY_FORMS, *FORMS)
"""All that a network may be called."""
WANTED = (
    "a function or class that takes the shape of a sample first and options by keyword, and "
    "returns an nn.Module: def net(shape, *, width=16)"
)


class Maker(NamedTuple):
    """What makes backbones of a name.

    Args:
        make: From the shape of a sample, and options by keyword, to a backbone.
        code: Where it comes from, if from outside.
        library: The same for a network of another library.
    """

    make: Callable[..., nn.Module]
    code: Loaded | None = None
    library: LibraryBackbone | None = None

    @property
    def version(self) -> str:
        """What else decides which networks it makes: a user's source, or a library's version."""
        if self.library:
            return self.library.version
        return self.code.sources.identity if self.code else ""


def network_maker(name: str) -> Maker:
    """What makes backbones of a name, or of code from outside.

    Raises:
        SpecError: There is no such network, or it is not a function or class.
    """
    if name in NETWORKS:
        return Maker(NETWORKS[name])
    if in_library(name):
        library = library_backbone(name)
        return Maker(library.make, None, library)
    if not is_outside(name):
        raise SpecError(unknown("network", name, NAMES))
    code = load(name, WANTED, SpecError)
    return Maker(code.value, code)


def network_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a named network, with type and default.

    Parameters of a user's code whose default is not a plain value are not among them.

    Raises:
        SpecError: There is no such network, or it does not take the shape of a sample.
    """
    maker = network_maker(name)
    found = _parameters(maker.make)
    if not found or found[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise SpecError(f"{name} does not take the shape of a sample. Name {WANTED}.")
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    options = {
        each.name: each.replace(annotation=_setting_type(each.annotation))
        for each in found[1:]
        if each.kind in named and (each.default is each.empty or isinstance(each.default, _PLAIN))
    }
    taken = [option for option in options if option in _RESERVED]
    if taken:
        raise SpecError(f"{name} has an option {taken[0]!r}, a name that is taken. Rename it.")
    return options


def _parameters(make: Callable[..., nn.Module]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(make, eval_str=True).parameters.values())
    except NameError:  # types that are imported for a type checker alone
        return list(inspect.signature(make).parameters.values())
    except ValueError:  # no signature at all
        return []


def _setting_type(annotation: Any) -> Any:
    """The type, where values of it can be checked; anything otherwise."""
    try:
        TypeAdapter(annotation)
    except (PydanticUserError, NameError):
        return inspect.Parameter.empty
    return annotation


def resolved_options(name: str, options: Mapping[str, object]) -> dict[str, object]:
    """All options of a named network, each given or default, lists as tuples."""
    defaults = {key: each.default for key, each in network_options(name).items()}
    for key in options:
        if key not in defaults:
            raise SpecError(
                f"{name} has no option {key!r}.{did_you_mean(key, defaults)} "
                f"{name} accepts: {', '.join(defaults) or 'none'}."
            )
    chosen = defaults | dict(options)
    for key, value in chosen.items():
        if value is inspect.Parameter.empty:
            raise SpecError(f"{name} needs a value for its option {key!r}.")
    return {key: tuple(v) if isinstance(v, list) else v for key, v in chosen.items()}
