"""Optimizers by name: those of ``torch.optim``, or your own, with a state that can be resumed."""

import inspect
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from ancl.catalogue import Catalogue
from ancl.errors import AnclError, SpecError
from ancl.networks.network import BACKBONE
from ancl.outside import Loaded
from ancl.training.quadratic import like
from ancl.types import Params, prefixed, strip_prefix

if TYPE_CHECKING:
    from ancl.training.config import Training

Parameters = dict[str, nn.Parameter]
_CLOSURES = ("lbfgs", "sparseadam")
"""Those that need more than a gradient: a function that computes the loss, or sparse gradients."""
_FUSED = ("sgd", "adamw")


@cache
def _catalogue() -> Catalogue[type[Optimizer]]:
    classes = {n.lower(): c for n, c in vars(torch.optim).items() if inspect.isclass(c)}
    ours = {
        name: kind
        for name, kind in classes.items()
        if issubclass(kind, Optimizer) and kind is not Optimizer and name not in _CLOSURES
    }
    return Catalogue("optimizer", ours, "a class like those of torch.optim", SpecError)


def optimizer_name(given: str) -> str:
    """The name of an optimizer as settings hold it; no code is loaded.

    >>> optimizer_name("Adam"), optimizer_name("mine.py:Lion")
    ('adam', 'mine.py:Lion')

    Raises:
        ValueError: There is none of this name.
    """
    known = _catalogue()
    if known.names_code(given):
        return given
    if given.lower() not in known.things:
        raise ValueError(f"must be an optimizer. {known.missing(given)}".removesuffix("."))
    return given.lower()


def optimizer_code(name: str) -> Loaded | None:
    """The code that a name stands for; none for one of ``torch.optim``."""
    return _catalogue().code(name)


def make_optimizer(parameters: Parameters, training: "Training") -> Optimizer:
    """A fresh optimizer of these parameters.

    It is given the rate, the weight decay where it has one, and ``optimizer_options``; SGD has
    the momentum too.
    """
    kind = _catalogue().find(training.optimizer)
    make: Any = kind.value if isinstance(kind, Loaded) else kind
    accepted = inspect.signature(make).parameters
    given: dict[str, Any] = {"lr": training.lr}
    if "weight_decay" in accepted:
        given["weight_decay"] = training.weight_decay
    if training.optimizer == "sgd":
        given["momentum"] = training.momentum
    if training.optimizer in _FUSED:
        given["fused"] = True
    given |= training.optimizer_options or {}
    made: Optimizer = make(_groups(parameters, training), **given)
    return made


def _groups(parameters: Parameters, training: "Training") -> list[dict[str, Any]]:
    """What learns with one rate, the backbone first; ``factor`` is its share of the training's."""
    if training.backbone_factor == 1:
        return [{"params": list(parameters.values()), "factor": 1.0}]
    parts: dict[float, list[nn.Parameter]] = {training.backbone_factor: [], 1.0: []}
    for name, parameter in parameters.items():
        factor = training.backbone_factor if name.startswith(BACKBONE) else 1.0
        parts[factor].append(parameter)
    return [{"params": group, "factor": factor} for factor, group in parts.items() if group]


# -- state -----------------------------------------------------------------------------------

Numbers = dict[str, Any]
"""What an optimizer knows besides tensors, as JSON."""
_PLAIN = bool | int | float | str | None


def moments(optimizer: Optimizer, parameters: Parameters) -> Params:
    """A copy of the tensors that an optimizer knows of each parameter."""
    known: Params = {}
    for name, parameter in parameters.items():
        held = optimizer.state.get(parameter, {})
        known |= prefixed(name, {k: v.clone() for k, v in held.items() if isinstance(v, Tensor)})
    return known


def numbers(optimizer: Optimizer, parameters: Parameters) -> Numbers:
    """What it knows besides: of each parameter, and of each group of them."""
    states = {name: optimizer.state.get(parameter, {}) for name, parameter in parameters.items()}
    return {
        "groups": [_plain(group) for group in optimizer.param_groups],
        "state": {name: plain for name, state in states.items() if (plain := _plain(state))},
    }


def _plain(values: dict[Any, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if isinstance(k, str) and isinstance(v, _PLAIN)}


def load_state(
    optimizer: Optimizer, parameters: Parameters, tensors: Params, plain: Numbers
) -> None:
    """Give a fresh optimizer what was found, with each parameter's own strides."""
    for group, values in zip(optimizer.param_groups, plain.get("groups", []), strict=False):
        group.update(values)
    for name, parameter in parameters.items():
        held = strip_prefix(name, tensors)
        values = plain.get("state", {}).get(name, {})
        if held or values:
            optimizer.state[parameter] = {
                key: like(parameter, value)
                if value.shape == parameter.shape
                else value.to(parameter.device, copy=True)
                for key, value in held.items()
            } | dict(values)


def optimizer_problems(training: "Training") -> list[str]:
    """Why a training cannot use its optimizer, tried on a few weights, each as a sentence.

    It must take a step by gradients alone, and go on from a saved state as if it had not stopped.
    """
    if training.optimizer in _FUSED and not training.optimizer_options:
        return []
    start = f"optimizer={training.optimizer}"
    try:
        whole, stopped = _Trial(training), _Trial(training)
        whole.step(2)
        stopped.step(1)
        resumed = stopped.resumed()
        resumed.step(1)
    except AnclError as error:
        return [str(error)]
    except Exception as error:  # a user's own may raise anything
        return [f"{start} cannot be used: {type(error).__name__}: {error}. Change its options."]
    if not whole.same_as(resumed):
        return [
            f"{start} does not go on from a saved state as it was: keep all of it in state and "
            f"param_groups, as tensors or numbers."
        ]
    return []


class _Trial:
    """An optimizer on two small weights."""

    def __init__(self, training: "Training") -> None:
        self._training, self._steps = training, 0
        start = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones(3)}
        self._parameters = {name: nn.Parameter(value) for name, value in start.items()}
        self._optimizer = make_optimizer(self._parameters, training)

    def step(self, count: int) -> None:
        for _ in range(count):
            self._steps += 1
            for parameter in self._parameters.values():
                parameter.grad = parameter.detach().cos() * self._steps
            self._optimizer.step()

    def resumed(self) -> "_Trial":
        other = _Trial(self._training)
        other._steps = self._steps
        for name, parameter in other._parameters.items():
            parameter.data.copy_(self._parameters[name].data)
        load_state(
            other._optimizer,
            other._parameters,
            moments(self._optimizer, self._parameters),
            numbers(self._optimizer, self._parameters),
        )
        return other

    def same_as(self, other: "_Trial") -> bool:
        pairs = zip(self._parameters.values(), other._parameters.values(), strict=True)
        return all(torch.equal(ours, theirs) for ours, theirs in pairs)
