"""How to make a network again, anywhere: from a name, a file of code, or a user's module."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import nn

from ancl.data.samples import Normalization
from ancl.errors import SpecError, did_you_mean, unknown
from ancl.hashing import UnstorableError, describe, known_digest, not_later
from ancl.networks.adapters import is_adapted
from ancl.networks.growth import Growth
from ancl.networks.heads import HEADS
from ancl.networks.identity import module_identity
from ancl.networks.learnable import ADAPTER, ALL, HEAD, RANK, narrow
from ancl.networks.makers import (
    NAMES,
    Maker,
    ProbeResult,
    copied,
    later_network_options,
    network_maker,
    probe_module,
    probe_named,
    resolved_options,
)
from ancl.networks.network import (
    BACKBONE,
    Network,
    channels_last,
    packed,
    share_equal,
    tensors_of,
)
from ancl.networks.pretrainable import RANDOM, PretrainableBackbone
from ancl.outside import Loaded
from ancl.seeding import seeded
from ancl.types import Params


@dataclass(frozen=True, eq=False)
class Architecture:
    """All it takes to build a network; made and checked by ``architecture``.

    Args:
        name: A key of ``NETWORKS``, ``timm:NAME`` or ``torchvision:NAME``, code from outside, or
            "module" for a user's own.
        input_shape: The shape of one sample.
        feature_size: The number of features the backbone yields.
        options: Every option of the named backbone, defaults included.
        head: A key of ``HEADS``.
        head_options: The head's own options; its defaults if left out.
        prototype: The user's module; its weights are the initial ones.
        maker: What makes the named backbone.
        probe: What a trial of the backbone has shown.
        pretrained: The hash of the file of pretrained weights that it begins with, if there is one.
        normalization: What these weights expect of images, in place of the images' own moments.
        notes: What a user should know of them before training.
        growth: How a method changes the backbone from task to task; not at all if left out.
    """

    name: str
    input_shape: tuple[int, ...]
    probe: ProbeResult
    options: Mapping[str, object]
    head: str = "linear"
    head_options: Mapping[str, object] = field(default_factory=dict)
    prototype: nn.Module | None = None
    maker: Maker | None = None
    pretrained: str | None = None
    normalization: Normalization | None = None
    notes: tuple[str, ...] = ()
    growth: Growth | None = None

    @property
    def feature_size(self) -> int:
        """The number of features the backbone yields in the first task."""
        return self.probe.feature_size

    @property
    def learns(self) -> bool:
        """Whether any weight of the backbone learns; it may be frozen as a whole."""
        return self.probe.learns

    @property
    def fixed(self) -> bool:
        """Whether features of an image never change, so that they are computed once and kept."""
        return self.probe.fixed and len(self.input_shape) == 3 and self.growth is None

    @property
    def base(self) -> frozenset[str]:
        """The names of tensors that no training changes; see ``base_names``.

        They are stored once, and shared by all networks of a process. A method that lets the
        network grow may change any of its parts: then there are none.
        """
        names = self.probe.base if self.growth is None else ()
        return frozenset(BACKBONE + name for name in names)

    def moments(self, images: Normalization | None) -> Normalization | None:
        """The normalization of images whose own moments are these; none for other inputs."""
        return images and (self.normalization or images)

    def build(self, sizes: Sequence[int] = (), base: Params | None = None) -> Network:
        """A network on the CPU whose head has a block for each size; the caller seeds it.

        Its backbone has new weights from the global generator, pretrained ones, or those of the
        prototype; and this base, if it is given, in place of the one that was made.
        """
        network = self._around(self.backbone(), sizes)
        self._share(network, base)
        return network

    def restore(
        self,
        sizes: Sequence[int],
        tensors: Params | None,
        base: Params | None = None,
        *,
        draw: bool = False,
        device: torch.device | None = None,
    ) -> Network:
        """The same with stored tensors: no file of pretrained weights is read.

        Args:
            sizes: Of the head's blocks.
            tensors: What was stored of the network; None where its base alone is asked.
            base: What is stored once for all networks, on the device; it is shared, not copied.
            draw: Whether the head is drawn first, as ``build`` does: what is drawn from the
                generator afterwards depends on it.
            device: Where the network is used; the CPU if left out.

        Raises:
            StoreError: They do not fit.
        """
        plain = {**self.options, "weights": RANDOM} if self.pretrained else self.options
        network = self._around(self._backbone(plain), sizes, draw)
        if device is not None:
            network.to(device)
        self._share(network, base)
        if tensors is not None:
            network.load(tensors)
        return network

    def make_base(self) -> Params:
        """What no training changes, as ``build`` makes it; the caller seeds it."""
        tensors = tensors_of(self.build())
        return packed({name: tensors[name] for name in sorted(self.base)})

    def _share(self, network: Network, base: Params | None) -> None:
        if not base:
            return
        network.share(base)
        if self.prototype is not None:  # it needs no copy of its own either
            share_equal(self.prototype, {n.removeprefix(BACKBONE): t for n, t in base.items()})

    def check_auxiliary(self, trains: str, *, cleared: bool) -> None:
        """Refuse what an auxiliary network of this kind cannot be.

        Args:
            trains: What of it is to learn; see ``narrow``.
            cleared: Whether its adapters are to begin at 0.

        Raises:
            SpecError: It has no such part, or no adapters.
        """
        with seeded(0, "probe"):
            backbone = self.restore((2, 2), None).backbone
        if cleared and not is_adapted(backbone):
            raise SpecError(
                f"auxiliary_start is zero, where adapters begin, and {self.name} has none. Use "
                f"network.trains=adapter, or leave auxiliary_start out."
            )
        narrow(backbone, trains)

    def gained(self, sizes: Sequence[int]) -> int:
        """The number of parameters that it stores in the end more than a network that stays."""
        with seeded(0, "count"):
            return self.build(sizes).stored() - replace(self, growth=None).build(sizes).stored()

    def backbone(self) -> nn.Module:
        """A fresh backbone, as ``build`` makes it."""
        return self._backbone(self.options)

    def _backbone(self, options: Mapping[str, object]) -> nn.Module:
        if self.prototype is not None:
            return copy.deepcopy(self.prototype)
        assert self.maker is not None
        backbone = self.maker.build(self.input_shape, options)
        foreign = self.maker.code or self.maker.library
        return backbone.to("cpu", torch.get_default_dtype()) if foreign else backbone

    def _around(self, backbone: nn.Module, sizes: Sequence[int], draw: bool = True) -> Network:
        if self.growth:
            backbone = self.growth.around(backbone, self.feature_size)
        head = HEADS[self.head](self.feature_size, **self.head_options)
        network = Network(backbone, head, reads_features=self.fixed)
        for classes in sizes:
            network.add_task(classes, draw=draw)
        if len(self.input_shape) == 3:
            channels_last(network)
        return network

    def key_description(self) -> dict[str, object]:
        """What decides the numbers, as JSON.

        Raises:
            UnstorableError: A part of the user's module cannot be described.
        """
        identity = self.identity()
        if not identity["stored"]:
            raise UnstorableError(str(identity["why"]), identity)
        return identity

    def identity(self) -> dict[str, object]:
        """What decides the numbers, as JSON; ``stored`` says whether all of it is known."""
        described: dict[str, object] = {
            "name": self.name,
            "input_shape": list(self.input_shape),
            "options": {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in not_later(later_network_options(self.name), self.options).items()
            },
            "head": [self.head, dict(self.head_options)] if self.head_options else self.head,
            "stored": True,
        }
        if self.growth:
            described["growth"] = describe(self.growth)
        if self.prototype is not None:
            return described | module_identity(self.prototype)
        if self.maker and self.maker.library:
            return described | self._library_identity(described["options"], self.maker.library)
        code = self.maker.code if self.maker else None
        return described | self._code_identity(code) if code else described

    def _library_identity(
        self, options: object, library: PretrainableBackbone
    ) -> dict[str, object]:
        """Weights by the hash of their file, whatever its place."""
        assert isinstance(options, dict)
        return {
            "options": {key: value for key, value in options.items() if key != "weights"},
            "pretrained": self.pretrained,
            "library": library.version,
        }

    def _code_identity(self, code: Loaded) -> dict[str, object]:
        """Its source, without its path, and the weights it makes with a fixed seed."""
        described = {
            "name": code.attribute,
            "weights": self.probe.weights,
            "source": code.sources.identity,
        }
        try:
            known_digest(code.name, code.sources)
        except UnstorableError as error:
            return {**described, "stored": False, "why": str(error)}
        return dict(described)


def architecture(
    network: str | nn.Module,
    input_shape: Sequence[int],
    *,
    head: str = "linear",
    head_options: Mapping[str, object] | None = None,
    growth: Growth | None = None,
    **options: object,
) -> Architecture:
    """Check a network, its options and its fit to the samples, and describe it.

    Args:
        network: A key of ``NETWORKS``; ``timm:NAME`` or ``torchvision:NAME`` for a model of
            these libraries' own lists, without its classifier; ``path/file.py:NAME`` or
            ``package.module:NAME`` for a function or class that takes ``input_shape`` and options
            by keyword and returns a module; or a module. A module yields features (B, D). A given
            one is copied to the CPU in the default dtype.
        input_shape: The shape of one sample.
        head: A key of ``HEADS``.
        head_options: The head's own options.
        growth: How a method changes the backbone from task to task.
        options: Those of a named network.

    Raises:
        SpecError: If a name or an option does not exist, or the network does not fit.
    """
    plain = _architecture(network, input_shape, head, head_options, options)
    if growth is None:
        return plain
    if not plain.learns:
        raise SpecError(
            f"The method adds parts to the network that learn, and {plain.name} is frozen. Use "
            f"network.frozen=false, or a method that trains the head alone, such as freeze."
        )
    grown = replace(plain, growth=growth)
    with seeded(0, "probe"):  # says now what does not fit, and not after the first task
        grown.build((2, 2))
    return grown


def _architecture(
    network: str | nn.Module,
    input_shape: Sequence[int],
    head: str,
    head_options: Mapping[str, object] | None,
    options: Mapping[str, object],
) -> Architecture:
    shape = _checked_shape(input_shape)
    if head not in HEADS:
        raise SpecError(unknown("head", head, HEADS))
    chosen = dict(head_options or {})
    if isinstance(network, nn.Module):
        if options:
            raise SpecError(
                f"Your own module takes no options, but {', '.join(options)} was given. "
                "Set them where you make the module."
            )
        prototype = copied(network)
        probe = probe_module(type(network).__name__, copy.deepcopy(prototype), shape)
        return Architecture("module", shape, probe, {}, head, chosen, prototype)
    if not isinstance(network, str):
        raise SpecError(
            f"{network!r} is not a network. Give an nn.Module (an instance, not its class), "
            f"or a name: {', '.join(NAMES)}."
        )
    maker, resolved = network_maker(network), resolved_options(network, options)
    if maker.library:
        return _of_library(maker, maker.library, shape, resolved, head, chosen)
    probe = probe_named(network, maker, shape, resolved)
    return Architecture(network, shape, probe, resolved, head, chosen, None, maker)


def _of_library(
    maker: Maker,
    library: PretrainableBackbone,
    shape: tuple[int, ...],
    options: Mapping[str, object],
    head: str,
    head_options: Mapping[str, object],
) -> Architecture:
    """A network that may be pretrained, with the weights it begins with."""
    weights = None if options["weights"] is None else str(options["weights"])
    random = library.starts_random(weights)
    _check_frozen(options)
    frozen = next((f"{n}={v}" for n, v in _freezing(options)), "").replace("True", "true")
    if frozen and random and weights is None:
        raise SpecError(
            f"network.{frozen} freezes weights that never learned: {library.name} begins with "
            f"random ones. Give network.weights=FILE, or network.weights={library.stock_weights}. "
            f"Methods that compute their classifier always freeze them; random ones are taken only "
            f"if you say so: network.weights={RANDOM}."
        )
    pretrained = library.located(weights)
    here = pretrained is not None and pretrained.file is not None
    shown = options if here else {**options, "weights": RANDOM}
    digest = pretrained.digest if pretrained and here else ""
    probe = probe_named(library.name, maker, shape, shown, digest)
    return Architecture(
        library.name,
        shape,
        probe._replace(base_is_random=random),
        options,
        head,
        head_options,
        maker=maker,
        pretrained=pretrained.digest if pretrained else None,
        # Without its file a network is made again: its normalization is stored with it.
        normalization=library.moments(shape[0]) if here else None,
        notes=library.notes(shape) if here else (),
    )


def _freezing(options: Mapping[str, object]) -> Iterator[tuple[str, object]]:
    """The options that let weights stay as they are."""
    if options["frozen"]:
        yield "frozen", True
    if options["trains"] != ALL:
        yield "trains", options["trains"]


def _check_frozen(options: Mapping[str, object]) -> None:
    """Refuse options that say two things of what learns."""
    trains = options["trains"]
    if options["frozen"] and trains not in (ALL, HEAD):
        raise SpecError(
            f"network.frozen is true, and network.trains={trains} lets weights of the backbone "
            f"learn. Methods that compute their classifier never train it, and set network.frozen "
            f"themselves: leave network.trains out, or use a method that trains, and leave "
            f"network.frozen out."
        )
    if options["rank"] != RANK and trains != ADAPTER:
        raise SpecError(
            f"network.rank is {options['rank']}, and there are no adapters: network.trains is "
            f"{trains}. Use network.trains=adapter, or leave network.rank out."
        )


def without_head(module: nn.Module, name: str = "fc") -> nn.Module:
    """A copy of a classifier whose named layer passes its input on, so that it yields features."""
    layers = dict(module.named_modules())
    if not name or name not in layers:
        linear = [path for path, part in layers.items() if path and isinstance(part, nn.Linear)]
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
            f"{shape} is not a shape of a sample. Give whole numbers from 1, such as (3, 32, 32)."
        )
    return shape
