"""How to make a network again, anywhere: from a name, or from a user's own module."""

import copy
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ancl.errors import AnclError, SpecError, did_you_mean, unknown
from ancl.hashing import UnstorableError
from ancl.networks.heads import HEADS
from ancl.networks.mlp import Mlp
from ancl.networks.module_hash import module_identity
from ancl.networks.network import Network, channels_last
from ancl.networks.resnet import ResNet
from ancl.seeding import seeded


def _resnet(depth: int) -> Callable[..., nn.Module]:
    def make(shape: Sequence[int], *, width: int = 16, last_relu: bool = True) -> nn.Module:
        if len(shape) != 3:
            raise SpecError(
                f"resnet{depth} reads images (channels, height, width), but the samples have "
                f"shape {tuple(shape)}. Use mlp, or a module of your own."
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
_SIZES: dict[str, int] = {}
"""The number of features of each that was tried, by all that it depends on."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """All it takes to build a network; made and checked by ``architecture``.

    Args:
        name: A key of ``NETWORKS``, or "module" for a user's own.
        input_shape: The shape of one sample.
        feature_size: The number of features the backbone yields.
        options: Every option of the named backbone, defaults included.
        head: A key of ``HEADS``.
        head_options: The head's own options; its defaults where left out.
        prototype: The user's module; its weights are the initial ones.
    """

    name: str
    input_shape: tuple[int, ...]
    feature_size: int
    options: Mapping[str, object]
    head: str = "linear"
    head_options: Mapping[str, object] = field(default_factory=dict)
    prototype: nn.Module | None = None

    @property
    def learns(self) -> bool:
        """Whether any weight of the backbone learns; a user's module may be frozen as a whole."""
        return self.prototype is None or any(p.requires_grad for p in self.prototype.parameters())

    def backbone(self) -> nn.Module:
        """A fresh backbone: new weights from the global generator, or a copy of the prototype."""
        if self.prototype is not None:
            return copy.deepcopy(self.prototype)
        return NETWORKS[self.name](self.input_shape, **self.options)

    def build(self, sizes: Sequence[int] = ()) -> Network:
        """A network on the CPU whose head has a block for each size; the caller seeds it."""
        network = Network(self.backbone(), HEADS[self.head](self.feature_size, **self.head_options))
        if len(self.input_shape) == 3:
            channels_last(network)
        for classes in sizes:
            network.head.grow(classes)
        return network

    def key_description(self) -> dict[str, object]:
        """What decides the numbers, as JSON.

        Raises:
            UnstorableError: A part of the user's module cannot be described.
        """
        found = self.identity()
        if not found["stored"]:
            raise UnstorableError(str(found["why"]))
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
        return own if self.prototype is None else own | module_identity(self.prototype)


def architecture(
    network: str | nn.Module,
    input_shape: Sequence[int],
    *,
    head: str = "linear",
    head_options: Mapping[str, object] | None = None,
    **options: object,
) -> Architecture:
    """Check a network, its options and its fit to the samples, and describe it.

    A user's module yields features (B, D); it is copied to the CPU in the default dtype.

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
                f"A module of your own takes no options, but {', '.join(options)} was given. "
                "Set them where you make the module."
            )
        prototype = _copied(network)
        size = _probe(type(network).__name__, copy.deepcopy(prototype), shape)
        return Architecture("module", shape, size, {}, head, own, prototype)
    if not isinstance(network, str):
        raise SpecError(
            f"{network!r} is no network. Give an nn.Module (an instance, not its class), "
            f"or a name: {', '.join(NETWORKS)}."
        )
    resolved = _resolved(network, options)
    size = _named_size(network, shape, resolved)
    return Architecture(network, shape, size, resolved, head, own)


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
    if name not in NETWORKS:
        raise SpecError(unknown("network", name, NETWORKS))
    parameters = list(inspect.signature(NETWORKS[name]).parameters.values())[1:]
    defaults: dict[str, object] = {each.name: each.default for each in parameters}
    for key in options:
        if key not in defaults:
            raise SpecError(
                f"{name} has no option {key!r}.{did_you_mean(key, defaults)} "
                f"{name} accepts: {', '.join(defaults)}."
            )
    chosen = defaults | dict(options)
    return {key: tuple(v) if isinstance(v, list) else v for key, v in chosen.items()}


def _copied(module: nn.Module) -> nn.Module:
    """The user's module, apart from theirs, if it can be copied and stored as tensors."""
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


def _named_size(network: str, shape: tuple[int, ...], options: Mapping[str, object]) -> int:
    """The number of features of a named network, tried once however many runs have it."""
    tried = repr((network, shape, options))
    if tried not in _SIZES:
        with seeded(0, "probe"):
            backbone = NETWORKS[network](shape, **options)
        _SIZES[tried] = _probe(network, backbone, shape)
    return _SIZES[tried]


def _probe(name: str, backbone: nn.Module, shape: tuple[int, ...]) -> int:
    """The number of features that come out for two samples of zeros."""
    problem = f"{name} does not fit samples of shape {shape}: "
    try:
        with seeded(0, "probe"), torch.no_grad():
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
