"""Networks tried before anything is trained: do they fit, and how many features do they give."""

import copy
import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ancl.errors import AnclError, SpecError
from ancl.networks.makers import WANTED, Maker
from ancl.networks.module_hash import weight_digest
from ancl.networks.network import as_backbone, grows
from ancl.runtime import check_memory
from ancl.seeding import seeded


class Tried(NamedTuple):
    """What a trial of a backbone shows.

    Args:
        feature_size: The number of features it yields.
        learns: Whether any of its weights learns.
        fixed: Whether it has weights and none of them ever learns: its features never change.
        weights: For code from outside, a hash of the weights it makes with a fixed seed.
    """

    feature_size: int
    learns: bool
    fixed: bool
    weights: str = ""


_TRIED: dict[str, Tried] = {}
"""Every trial of a named network, by all that it depends on."""


def try_named(
    name: str,
    maker: Maker,
    shape: tuple[int, ...],
    options: Mapping[str, object],
    pretrained: str = "",
) -> Tried:
    """Build a named network once for all runs that have it, and check it.

    ``pretrained`` is the hash of the weights it begins with, if it has any.
    """
    key = repr((name, maker.version, shape, options, pretrained))
    if key not in _TRIED:
        with seeded(0, "probe"):
            if maker.code is None:
                _check_size(name, maker, shape, options)
            backbone = _made(name, maker, shape, options)
        weights = weight_digest(backbone) if maker.code else ""
        tried = try_module(name, backbone, shape)
        if maker.code and tried.fixed:
            with seeded(1, "probe"):  # frozen weights that are random are others in every run
                again = weight_digest(_made(name, maker, shape, options))
            tried = tried._replace(fixed=again == weights)
        _TRIED[key] = tried._replace(weights=weights)
    return _TRIED[key]


def try_module(name: str, backbone: nn.Module, shape: tuple[int, ...]) -> Tried:
    """Check a backbone, which is changed by it, on two samples of zeros."""
    size = _probe(name, backbone, shape)
    weights = [parameter.requires_grad for parameter in backbone.parameters()]
    fixed = bool(weights) and not any(weights) and not grows(backbone)
    return Tried(size, any(weights), fixed)


def _check_size(
    name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]
) -> None:
    """Refuse a network that does not fit into memory, before it is made."""
    plain = {**options, "weights": None} if maker.library else options
    try:
        with torch.device("meta"):  # shapes alone
            made = maker.make(shape, **plain)
    except (RuntimeError, NotImplementedError, ValueError, AssertionError):
        if maker.library is None:
            raise
        return  # its layers look at numbers, or it does not fit: making it says which
    numbers = sum(each.numel() for each in made.parameters())
    check_memory(4 * numbers, f"The network {name} with {numbers:,} weights")


def _made(
    name: str, maker: Maker, shape: tuple[int, ...], options: Mapping[str, object]
) -> nn.Module:
    """A backbone; one that is not ours may stop with anything."""
    if maker.code is None and maker.library is None:
        return maker.make(shape, **options)
    try:
        made: object = maker.make(shape, **options)
    except AnclError:
        raise
    except Exception as error:  # a user's code may raise anything
        if maker.library:
            raise _misfit(name, shape, error) from error
        raise SpecError(
            f"{name} stopped with {type(error).__name__}: {error}. It was called with the shape "
            f"{shape} and {dict(options) or 'no options'}. Name {WANTED}."
        ) from error
    if not isinstance(made, nn.Module):
        raise SpecError(f"{name} returned a {type(made).__name__}. Name {WANTED}.")
    return copied(made)


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
    if any(nn.parameter.is_lazy(each) for each in (*module.parameters(), *module.buffers())):
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
