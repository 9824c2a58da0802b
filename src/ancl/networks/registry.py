"""How to make a network again, anywhere: from a name, a file of code, or a user's module."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from pydantic import PydanticUserError, TypeAdapter
from torch import Tensor, nn

from ancl.errors import AnclError, SpecError, did_you_mean, unknown
from ancl.hashing import UnstorableError, known_digest
from ancl.networks.backbones import Mlp, ResNet
from ancl.networks.heads import HEADS
from ancl.networks.module_hash import module_identity, weight_digest
from ancl.networks.network import Network, channels_last, grow_backbone
from ancl.outside import FORMS, Loaded, is_outside, load
from ancl.runtime import check_memory
from ancl.seeding import seeded


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
_RESERVED = ("name", "network", "input_shape", "head", "head_options")
"""Names that are arguments of ``architecture``."""
_WANTED = (
    "a function or class that takes the shape of a sample first and options by keyword, and "
    "returns an nn.Module: def net(shape, *, width=16)"
)


class _Tried(NamedTuple):
    """What a trial of a network shows: its number of features, and a hash of its weights."""

    feature_size: int
    weights: str


_TRIED: dict[str, _Tried] = {}
"""Every trial of a named network, by all that it depends on."""


class Maker(NamedTuple):
    """What makes backbones of a name; ``code`` is where it comes from, if from outside."""

    make: Callable[..., nn.Module]
    code: Loaded | None = None


def network_maker(name: str) -> Maker:
    """What makes backbones of a name, or of code from outside.

    Raises:
        SpecError: There is no such network, or it is no function or class.
    """
    if name in NETWORKS:
        return Maker(NETWORKS[name])
    if not is_outside(name):
        raise SpecError(unknown("network", name, [*NETWORKS, *FORMS]))
    code = load(name, _WANTED, SpecError)
    return Maker(code.value, code)


def network_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a named network, with type and default.

    Parameters of a user's code whose default is no plain value are not among them.

    Raises:
        SpecError: There is no such network, or it does not take the shape of a sample.
    """
    maker = network_maker(name)
    found = _parameters(maker.make)
    if not found or found[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise SpecError(f"{name} does not take the shape of a sample. Name {_WANTED}.")
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


@dataclass(frozen=True, eq=False)
class Architecture:
    """All it takes to build a network; made and checked by ``architecture``.

    Args:
        name: A key of ``NETWORKS``, code from outside, or "module" for a user's own.
        input_shape: The shape of one sample.
        feature_size: The number of features the backbone yields.
        options: Every option of the named backbone, defaults included.
        head: A key of ``HEADS``.
        head_options: The head's own options; its defaults where left out.
        prototype: The user's module; its weights are the initial ones.
        maker: What makes the named backbone.
        weights: For code from outside, a hash of the weights it makes with a fixed seed.
    """

    name: str
    input_shape: tuple[int, ...]
    feature_size: int
    options: Mapping[str, object]
    head: str = "linear"
    head_options: Mapping[str, object] = field(default_factory=dict)
    prototype: nn.Module | None = None
    maker: Maker | None = None
    weights: str = ""

    @property
    def learns(self) -> bool:
        """Whether any weight of the backbone learns; a user's module may be frozen as a whole."""
        return self.prototype is None or any(p.requires_grad for p in self.prototype.parameters())

    def backbone(self) -> nn.Module:
        """A fresh backbone: new weights from the global generator, or a copy of the prototype."""
        if self.prototype is not None:
            return copy.deepcopy(self.prototype)
        assert self.maker is not None
        made = self.maker.make(self.input_shape, **self.options)
        return made.to("cpu", torch.get_default_dtype()) if self.maker.code else made

    def build(self, sizes: Sequence[int] = ()) -> Network:
        """A network on the CPU whose head has a block for each size; the caller seeds it."""
        network = Network(self.backbone(), HEADS[self.head](self.feature_size, **self.head_options))
        for classes in sizes:
            network.add_task(classes)
        if len(self.input_shape) == 3:
            channels_last(network)
        return network

    def key_description(self) -> dict[str, object]:
        """What decides the numbers, as JSON.

        Raises:
            UnstorableError: A part of the user's module cannot be described.
        """
        found = self.identity()
        if not found["stored"]:
            raise UnstorableError(str(found["why"]), found)
        return found

    def identity(self) -> dict[str, object]:
        """What decides the numbers, as JSON; ``stored`` says whether all of it is known."""
        own: dict[str, object] = {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "options": {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in self.options.items()
            },
            "head": [self.head, dict(self.head_options)] if self.head_options else self.head,
            "stored": True,
        }
        if self.prototype is not None:
            return own | module_identity(self.prototype)
        code = self.maker.code if self.maker else None
        return own | self._code_identity(code) if code else own

    def _code_identity(self, code: Loaded) -> dict[str, object]:
        """Its source, without its path; what else it reads shows in its weights."""
        found = {"name": code.attribute, "weights": self.weights, "source": code.sources.digest}
        try:
            known_digest(code.name, code.sources)
        except UnstorableError as error:
            return {**found, "stored": False, "why": str(error)}
        return dict(found)


def architecture(
    network: str | nn.Module,
    input_shape: Sequence[int],
    *,
    head: str = "linear",
    head_options: Mapping[str, object] | None = None,
    **options: object,
) -> Architecture:
    """Check a network, its options and its fit to the samples, and describe it.

    Args:
        network: A key of ``NETWORKS``; ``path/file.py:NAME`` or ``package.module:NAME`` for a
            function or class that takes ``input_shape`` and options by keyword and returns a
            module; or a module. A module yields features (B, D). A given one is copied to the CPU
            in the default dtype.
        input_shape: The shape of one sample.
        head: A key of ``HEADS``.
        head_options: The head's own options.
        options: Those of a named network.

    Raises:
        SpecError: If a name or an option does not exist, or the network does not fit.
    """
    shape = _checked_shape(input_shape)
    if head not in HEADS:
        raise SpecError(unknown("head", head, HEADS))
    own = dict(head_options or {})
    if isinstance(network, nn.Module):
        if options:
            raise SpecError(
                f"Your own module takes no options, but {', '.join(options)} was given. "
                "Set them where you make the module."
            )
        prototype = _copied(network)
        size = _probe(type(network).__name__, copy.deepcopy(prototype), shape)
        return Architecture("module", shape, size, {}, head, own, prototype)
    if not isinstance(network, str):
        raise SpecError(
            f"{network!r} is no network. Give an nn.Module (an instance, not its class), "
            f"or a name: {', '.join([*NETWORKS, *FORMS])}."
        )
    maker = network_maker(network)
    resolved = _resolved(network, options)
    tried = _try(network, maker, shape, resolved)
    weights = tried.weights if maker.code else ""
    return Architecture(
        network, shape, tried.feature_size, resolved, head, own, None, maker, weights
    )


def without_head(module: nn.Module, name: str = "fc") -> nn.Module:
    """A copy of a classifier whose named layer passes its input on, so that it yields features."""
    found = dict(module.named_modules())
    if not name or name not in found:
        linear = [path for path, part in found.items() if path and isinstance(part, nn.Linear)]
        raise SpecError(
            f"{type(module).__name__} has no layer {name!r}.{did_you_mean(name, linear)} "
            f"Its last linear layers: {', '.join(linear[-3:]) or 'none'}."
        )
    twin = copy.deepcopy(module)
    parent, _, child = name.rpartition(".")
    setattr(twin.get_submodule(parent), child, nn.Identity())
    return twin


def _checked_shape(input_shape: Sequence[int]) -> tuple[int, ...]:
    shape = tuple(input_shape)
    if not shape or any(type(size) is not int or size < 1 for size in shape):
        raise SpecError(
            f"{shape} is no shape of a sample. Give whole numbers from 1, such as (3, 32, 32)."
        )
    return shape


def _resolved(name: str, options: Mapping[str, object]) -> dict[str, object]:
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


def _copied(module: nn.Module) -> nn.Module:
    """A copy of the user's module, if it can be copied and stored as tensors."""
    name = type(module).__name__
    if any(nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
        raise SpecError(f"{name} has lazy layers without a size. Run it once on a batch first.")
    if not all(isinstance(value, Tensor) for value in module.state_dict().values()):
        raise SpecError(
            f"{name} keeps state that is no tensor (get_extra_state), which cannot be stored. "
            "Keep it in buffers."
        )
    try:
        twin = copy.deepcopy(module)
    except (RuntimeError, TypeError) as error:
        raise SpecError(
            f"{name} cannot be copied ({error}). An auxiliary network is a copy, so give a "
            "module that copy.deepcopy accepts."
        ) from error
    return twin.to("cpu", torch.get_default_dtype())


def _try(name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]) -> _Tried:
    """Build a named network once for all runs that have it, and check it."""
    version = maker.code.sources.digest if maker.code else ""
    key = repr((name, version, shape, options))
    if key not in _TRIED:
        with seeded(0, "probe"):
            if maker.code is None:
                _check_size(name, maker, shape, options)
            backbone = _made(name, maker, shape, options)
        weights = weight_digest(backbone) if maker.code else ""
        _TRIED[key] = _Tried(_probe(name, backbone, shape), weights)
    return _TRIED[key]


def _check_size(
    name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]
) -> None:
    """Refuse a network of ours that does not fit into memory, before it is made."""
    with torch.device("meta"):  # shapes alone
        made = maker.make(shape, **options)
    numbers = sum(each.numel() for each in made.parameters())
    check_memory(4 * numbers, f"The network {name} with {numbers:,} weights")


def _made(
    name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]
) -> nn.Module:
    """A backbone; that of a user's code is checked."""
    if maker.code is None:
        return maker.make(shape, **options)
    try:
        made: object = maker.make(shape, **options)
    except AnclError:
        raise
    except Exception as error:  # a user's code may raise anything
        raise SpecError(
            f"{name} stopped with {type(error).__name__}: {error}. It was called with the shape "
            f"{shape} and {dict(options) or 'no options'}. Name {_WANTED}."
        ) from error
    if not isinstance(made, nn.Module):
        raise SpecError(f"{name} returned a {type(made).__name__}. Name {_WANTED}.")
    return _copied(made)


def _probe(name: str, backbone: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of features that come out for two samples of zeros."""
    problem = f"{name} does not fit samples of shape {shape}: "
    try:
        with seeded(0, "probe"), torch.no_grad():
            grow_backbone(backbone, 2)
            features = backbone.eval()(torch.zeros(2, *shape))
    except AnclError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise SpecError(
            f"{problem}it stopped with {type(error).__name__}: {error}. Check that its first layer "
            f"reads {shape} and that no layer shrinks the sample to nothing, or resize the data."
        ) from error
    if not isinstance(features, Tensor):
        given = f"it returned a {type(features).__name__}"
        raise SpecError(f"{problem}{given}. Return one tensor of features (samples, features).")
    came = f"features of shape {tuple(features.shape)} came out for 2 samples"
    if features.dim() > 2:
        raise SpecError(
            f"{problem}{came}. Pool and flatten them to (2, features): "
            "nn.Sequential(module, nn.AdaptiveAvgPool2d(1), nn.Flatten())."
        )
    if features.dim() != 2 or features.shape[0] != 2 or math.prod(features.shape) == 0:
        raise SpecError(f"{problem}{came}. They must be (2, features), one row for each sample.")
    if not features.isfinite().all():
        raise SpecError(f"{problem}features that are not finite came out for samples of zeros.")
    return features.shape[1]
