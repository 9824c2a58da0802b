"""What makes backbones of a name, and what a trial of them shows before anything is trained."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from pydantic import PydanticUserError, TypeAdapter
from torch import Tensor, nn

from ancl.catalogue import Catalogue
from ancl.errors import AnclError, SpecError, did_you_mean
from ancl.hashing import later_defaults
from ancl.networks.backbones import Mlp, ResNet, Vectors
from ancl.networks.efficientnet_lite0 import Lite0
from ancl.networks.identity import tensor_digest, weight_digest
from ancl.networks.learnable import limit
from ancl.networks.libraries import FORMS as LIBRARY_FORMS
from ancl.networks.libraries import library_backbone
from ancl.networks.network import as_backbone, base_names, grows, tensors_of
from ancl.networks.pretrainable import RANDOM, PretrainableBackbone
from ancl.outside import Loaded, in_library
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


def _features(shape: Sequence[int]) -> nn.Module:
    if len(shape) != 1:
        raise SpecError(
            f"features reads vectors (samples, features) as another model has made them, but the "
            f"samples have shape {tuple(shape)}. For images use efficientnet_lite0 or a resnet; "
            f"flatten features of several axes."
        )
    return Vectors(shape[0])


_PRETRAINABLE: dict[str, Callable[[], PretrainableBackbone]] = {Lite0.name: Lite0}
"""Ours that may begin with pretrained weights."""
NETWORKS: dict[str, Callable[..., nn.Module]] = {
    "resnet8": _resnet(8),
    "resnet14": _resnet(14),
    "resnet20": _resnet(20),
    "resnet32": _resnet(32),
    "resnet44": _resnet(44),
    "resnet56": _resnet(56),
    "mlp": _mlp,
    **{name: pretrainable().make for name, pretrainable in _PRETRAINABLE.items()},
    "features": _features,
}
"""Backbones by name; each takes the shape of one sample and its options by keyword."""
_PLAIN = (bool, int, float, str, tuple, list, type(None))
"""Types of options that can be settings: values that a file of settings can hold."""
_RESERVED = ("name", "network", "input_shape", "head", "head_options", "growth")
"""Names that are arguments of ``architecture``."""
WANTED = (
    "a function or class that takes the shape of a sample first and options by keyword, and "
    "returns an nn.Module: def net(shape, *, width=16)"
)
_LIMIT: Callable[..., nn.Module] = limit
_LIMITS = later_defaults(_LIMIT)
"""Options of every network that may be pretrained, with their defaults; see ``limit``."""
_CATALOGUE = Catalogue("network", NETWORKS, WANTED, SpecError, LIBRARY_FORMS)
NAMES = _CATALOGUE.names
"""All that a network may be called."""


class Maker(NamedTuple):
    """What makes backbones of a name.

    Args:
        make: From the shape of a sample, and options by keyword, to a backbone.
        code: Where it comes from, if from outside.
        library: The same for one that may begin with pretrained weights, ours or a library's.
    """

    make: Callable[..., nn.Module]
    code: Loaded | None = None
    library: PretrainableBackbone | None = None

    @property
    def version(self) -> str:
        """What else decides which networks it makes: a user's source, or a library's version."""
        if self.library:
            return self.library.version
        return self.code.sources.identity if self.code else ""

    def build(self, shape: Sequence[int], options: Mapping[str, object]) -> nn.Module:
        """A backbone, of which all learns, or what options say of one that may be pretrained."""
        if self.library is None:
            return self.make(shape, **options)
        limits = {name: value for name, value in options.items() if name in _LIMITS}
        rest = {name: value for name, value in options.items() if name not in _LIMITS}
        return _LIMIT(self.make(shape, **rest), **limits)

    @property
    def image_size(self) -> int | None:
        """Height and width of the images that its pretrained weights have seen, if it has any."""
        return self.library.size() if self.library else None


def network_maker(name: str) -> Maker:
    """What makes backbones of a name, or of code from outside.

    Raises:
        SpecError: There is no such network, or it is not a function or class.
    """
    if in_library(name) or name in _PRETRAINABLE:
        library = library_backbone(name) if in_library(name) else _PRETRAINABLE[name]()
        return Maker(library.make, None, library)
    network = _CATALOGUE.find(name)
    return Maker(network.value, network) if isinstance(network, Loaded) else Maker(network)


def later_network_options(name: object) -> Mapping[str, Any]:
    """Options of a network that came after results were stored, with their defaults.

    By the name alone: a spec that is read back must not load code from outside.
    """
    known = isinstance(name, str) and (name in _PRETRAINABLE or in_library(name))
    return _LIMITS if known else {}


def network_options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a named network, with type and default.

    Parameters of a user's code whose default is not a plain value are not among them.

    Raises:
        SpecError: There is no such network, or it does not take the shape of a sample.
    """
    maker = network_maker(name)
    parameters = _parameters(maker.make)
    if maker.library:
        parameters += _parameters(_LIMIT)[1:]
    if not parameters or parameters[0].kind is inspect.Parameter.KEYWORD_ONLY:
        raise SpecError(f"{name} does not take the shape of a sample. Name {WANTED}.")
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    options = {
        parameter.name: parameter.replace(annotation=_setting_type(parameter.annotation))
        for parameter in parameters[1:]
        if parameter.kind in named
        and (parameter.default is parameter.empty or isinstance(parameter.default, _PLAIN))
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
    defaults = {key: option.default for key, option in network_options(name).items()}
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


class ProbeResult(NamedTuple):
    """What a trial of a backbone shows.

    Args:
        feature_size: The number of features it yields.
        learns: Whether any of its weights learns.
        fixed: Whether it has weights and none of them ever learns: its features never change.
        weights: For code from outside, a hash of the weights it makes with a fixed seed.
        base: The names of what no training changes.
        base_is_random: Whether every seed makes another base.
    """

    feature_size: int
    learns: bool
    fixed: bool
    weights: str = ""
    base: frozenset[str] = frozenset()
    base_is_random: bool = False


_PROBES: dict[str, ProbeResult] = {}
"""Every trial of a named network, by all that it depends on."""


def probe_named(
    name: str,
    maker: Maker,
    shape: tuple[int, ...],
    options: Mapping[str, object],
    pretrained: str = "",
) -> ProbeResult:
    """Build a named network once for all runs that have it, and check it.

    ``pretrained`` is the hash of the weights it begins with, if it has any.
    """
    key = repr((name, maker.version, shape, options, pretrained))
    if key not in _PROBES:
        with seeded(0, "probe"):
            if maker.code is None:
                _check_size(name, maker, shape, options)
            backbone = _made(name, maker, shape, options)
        weights = weight_digest(backbone) if maker.code else ""
        base_digest = _base_digest(backbone) if maker.code else ""
        probe = probe_module(name, backbone, shape)
        if maker.code and probe.base:
            with seeded(1, "probe"):  # frozen weights that are random are others in every run
                random = _base_digest(_made(name, maker, shape, options)) != base_digest
            probe = probe._replace(fixed=probe.fixed and not random, base_is_random=random)
        _PROBES[key] = probe._replace(weights=weights)
    return _PROBES[key]


def probe_module(name: str, backbone: nn.Module, shape: tuple[int, ...]) -> ProbeResult:
    """Check a backbone, which is changed by it, on two samples of zeros."""
    base, size = base_names(backbone), _probe(name, backbone, shape)
    weights = [parameter.requires_grad for parameter in backbone.parameters()]
    fixed = bool(weights) and not any(weights) and not grows(backbone)
    return ProbeResult(size, any(weights), fixed, base=base)


def _base_digest(backbone: nn.Module) -> str:
    names = base_names(backbone)
    return tensor_digest({n: t for n, t in tensors_of(backbone).items() if n in names})


def _check_size(
    name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]
) -> None:
    """Refuse a network that does not fit into memory, before it is made."""
    plain = dict(options)
    if maker.library:
        plain = {name: value for name, value in options.items() if name not in _LIMITS}
        plain["weights"] = RANDOM
    try:
        with torch.device("meta"):  # shapes alone
            network = maker.make(shape, **plain)
    except (RuntimeError, NotImplementedError, ValueError, AssertionError):
        if maker.library is None:
            raise
        return  # its layers look at numbers, or it does not fit: making it says which
    numbers = sum(parameter.numel() for parameter in network.parameters())
    check_memory(4 * numbers, f"The network {name} with {numbers:,} weights")


def _made(
    name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]
) -> nn.Module:
    """A backbone; one that is not ours may stop with anything."""
    if maker.code is None and maker.library is None:
        return maker.build(shape, options)
    try:
        module: object = maker.build(shape, options)
    except AnclError:
        raise
    except Exception as error:  # a user's code may raise anything
        if maker.library:
            raise _misfit(name, shape, error) from error
        raise SpecError(
            f"{name} stopped with {type(error).__name__}: {error}. It was called with the shape "
            f"{shape} and {dict(options) or 'no options'}. Name {WANTED}."
        ) from error
    if not isinstance(module, nn.Module):
        raise SpecError(f"{name} returned a {type(module).__name__}. Name {WANTED}.")
    return copied(module)


def _misfit(name: str, shape: tuple[int, ...], error: Exception) -> SpecError:
    patches = " Or give smaller patches: network.patch_size." if "patch" in name else ""
    return SpecError(
        f"{name} does not fit samples of shape {shape}: it stopped with {type(error).__name__}: "
        f"{error}. Check that its first layer reads {shape} and that no layer shrinks the sample "
        f"to nothing, or resize the data.{patches}"
    )


def _probe(name: str, backbone: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of features that come out for two samples of zeros."""
    problem = f"{name} does not fit samples of shape {shape}: "
    try:
        with seeded(0, "probe"), torch.no_grad():
            as_backbone(backbone).add_task(2)
            features = backbone.eval()(torch.zeros(2, *shape))
    except AnclError:
        raise
    except Exception as error:  # a user's module may raise anything
        raise _misfit(name, shape, error) from error
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


def copied(module: nn.Module) -> nn.Module:
    """A copy of the user's module, if it can be copied and stored as tensors."""
    name = type(module).__name__
    if any(nn.parameter.is_lazy(tensor) for tensor in (*module.parameters(), *module.buffers())):
        raise SpecError(f"{name} has lazy layers without a size. Run it once on a batch first.")
    if not all(isinstance(value, Tensor) for value in module.state_dict().values()):
        raise SpecError(
            f"{name} keeps state that is not a tensor (get_extra_state), which cannot be stored. "
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
