"""AANets: any method with a memory, on a stable and a plastic branch.  Equation: [aanets]."""

import copy
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor, nn
from torch.func import functional_call

from ancl.errors import MethodError, SpecError
from ancl.methods.method import Method
from ancl.networks import Backbone, Growth, as_backbone
from ancl.training.outer import Outer

Kind = Literal["scaled", "frozen", "free"]
"""How a branch learns: by one factor for each kernel, not at all, or by all its weights."""


class Scaled(nn.Module):
    """A frozen convolution whose kernels W are used as W ⊙ μ, one learnable μ for each kernel.

    Args:
        conv: The convolution; every μ begins as 1, which changes nothing.
    """

    def __init__(self, conv: nn.Conv2d) -> None:
        super().__init__()
        self.conv = conv.requires_grad_(False)
        self.scale = nn.Parameter(torch.ones_like(conv.weight[:, :, :1, :1]))

    def forward(self, x: Tensor) -> Tensor:
        """The convolution with the scaled kernels."""
        out: Tensor = functional_call(self.conv, {"weight": self.conv.weight * self.scale}, (x,))
        return out

    @torch.no_grad()
    def merged(self) -> nn.Conv2d:
        """A plain convolution that gives the same."""
        twin = copy.deepcopy(self.conv)
        twin.weight.mul_(self.scale)
        return twin


class Branches(Backbone):
    """One backbone at first; from the second task on two, joined after every level.

    h_k = α_k φ_k(h_{k−1}) + (1 − α_k) η_k(h_{k−1}): both branches read the joined map. They begin
    as copies of the first task's network, so that joining them changes nothing, whatever α is.
    α takes no part in a training of the weights: an outer step moves it.

    Args:
        backbone: With a method ``levels()``, see ``ResNet.levels``.
        stable: How φ learns.
        plastic: How η learns.
        alpha: What every α begins as.

    Raises:
        SpecError: The backbone has no levels.
    """

    alpha: nn.Parameter | None
    plastic: nn.Module | None

    def __init__(self, backbone: nn.Module, stable: Kind, plastic: Kind, alpha: float) -> None:
        super().__init__()
        if not as_backbone(backbone).levels():
            raise SpecError(
                f"AANets joins two branches after every level of a residual network, and "
                f"{type(backbone).__name__} has none. Use a resnet, such as network.name=resnet8, "
                f"or give your module a method levels()."
            )
        self.stable, self.plastic = backbone, None
        self.register_parameter("alpha", None)
        self._kinds, self._start, self._tasks = (stable, plastic), alpha, 0

    def add_task(self, classes: int) -> None:
        """Split in two when the second task comes; never again."""
        self._tasks += 1
        for branch in self.branches:
            as_backbone(branch).add_task(classes)
        if self._tasks != 2:
            return
        self.plastic = copy.deepcopy(self.stable)
        for branch, kind in zip(self.branches, self._kinds, strict=True):
            _let_learn(branch, kind)
        like = next(self.stable.parameters())
        start = like.new_full((len(as_backbone(self.stable).levels()),), self._start)
        self.alpha = nn.Parameter(start, requires_grad=False)

    @property
    def branches(self) -> list[nn.Module]:
        """The stable branch, and the plastic one where there is one."""
        return [self.stable] if self.plastic is None else [self.stable, self.plastic]

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, D) of the joined branches."""
        if self.plastic is None:
            features: Tensor = self.stable(x)
            return features
        return self._joined(x, None)

    def with_maps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Features, and every level's map before its last activation, joined by the same α."""
        maps: list[Tensor] = []
        return self._joined(x, maps), tuple(maps)

    def _joined(self, x: Tensor, maps: list[Tensor] | None) -> Tensor:
        ladders = [as_backbone(branch).levels() for branch in self.branches]
        for index, levels in enumerate(zip(*ladders, strict=True)):
            outputs = [level(x) for level in levels]
            x = self._join(index, [out for out, _ in outputs])
            if maps is not None:
                maps.append(self._join(index, [before for _, before in outputs]))
        return x

    def _join(self, index: int, maps: Sequence[Tensor]) -> Tensor:
        """α φ + (1 − α) η; exact for α = 0, for α = 1, and where both are equal."""
        return maps[0] if self.alpha is None else torch.lerp(maps[1], maps[0], self.alpha[index])

    def last_layers(self) -> list[str]:
        """The last layers of both branches."""
        return [
            f"{name}.{layer}"
            for name, branch in zip(("stable", "plastic"), self.branches, strict=False)
            for layer in as_backbone(branch).last_layers()
        ]

    def folded(self) -> "Branches":
        """A copy for inference: kernels carry their factors, and batch norms where they can."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        for parent in list(twin.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, Scaled):
                    setattr(parent, name, child.merged())
        for name, branch in zip(("stable", "plastic"), twin.branches, strict=False):
            setattr(twin, name, as_backbone(branch).folded())
        return twin


def _let_learn(branch: nn.Module, kind: Kind) -> None:
    """Freeze what a kind of branch does not learn, in place."""
    if kind == "frozen":
        branch.requires_grad_(False)
    if kind == "scaled":
        for parent in list(branch.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, nn.Conv2d):
                    setattr(parent, name, Scaled(child))


@dataclass(frozen=True)
class TwoBranches(Growth):
    """Two branches from the second task on; see ``Branches``."""

    stable: Kind = "scaled"
    plastic: Kind = "free"
    alpha: float = 0.5

    def around(self, backbone: nn.Module, feature_size: int) -> nn.Module:
        """The backbone as the stable branch."""
        return Branches(backbone, self.stable, self.plastic, self.alpha)


Share = Annotated[float, Ge(0), Le(1)]
_ONE_SET_OF_CLASSES = (
    "its second branch is made when the first new classes come, and there all classes come with "
    "the first task"
)
_BALANCED = "it learns from the memory's images how to join its branches"


def aanets(
    method: Method,
    *,
    stable: Kind = "scaled",
    plastic: Kind = "free",
    alpha: Share = 0.5,
    alpha_lr: Annotated[float, Ge(0)] = 1e-2,
) -> Method:
    """Two branches from the second task on, joined by weights that balanced images decide.

    Differs: the released code's rate of 1e-8 moves α only where its gradients are never cleared;
    here they are cleared at every step, and the rate is one that moves it.

    Args:
        method: The host; its loss, memory, head and inference stay as they are.
        stable: The stable branch learns one factor for each kernel and its batch norms (scaled),
            nothing (frozen), or all its weights (free).
        plastic: The same for the plastic branch.
        alpha: The stable branch's share in every level at first; the plastic one has the rest.
        alpha_lr: The rate at which balanced images move these shares after every epoch; 0 leaves
            them as they are.
    """
    if method.memory is None:
        raise MethodError(
            f"aanets-{method.name}: AANets learns from exemplars how to join its branches, and "
            f"{method.name} keeps none. Use a method that does, such as aanets-icarl or "
            f"aanets-lucir."
        )
    outer = Outer(("backbone.alpha",), alpha_lr, bounds=(0.0, 1.0))
    return replace(
        method,
        name=f"aanets-{method.name}",
        growth=TwoBranches(stable, plastic, alpha),
        outer=outer if alpha_lr else None,
        refused={"dil": _ONE_SET_OF_CLASSES, **method.refused},
        needs_memory=dict.fromkeys(("til", "cil", "cir"), _BALANCED),
    )


def on_branches(host: Callable[..., Method]) -> Callable[..., Method]:
    """What makes a host's method on two branches, of the settings of both."""
    added_settings = {
        name: parameter
        for name, parameter in inspect.signature(aanets, eval_str=True).parameters.items()
        if name != "method"
    }
    hosts = inspect.signature(host, eval_str=True)

    def make(**settings: object) -> Method:
        taken = {name: value for name, value in settings.items() if name in added_settings}
        rest = {name: value for name, value in settings.items() if name not in added_settings}
        return aanets(host(**rest), **taken)  # type: ignore[arg-type]

    name, _, text = (inspect.getdoc(host) or "").partition(":")
    _, _, arguments = text.partition("Args:\n")
    _, _, added = (inspect.getdoc(aanets) or "").partition("as they are.\n")
    make.__doc__ = (
        f"AANets on {name}: a stable and a plastic branch, joined by weights that are learned.\n\n"
        f"Args:\n{arguments.rstrip()}\n{added}"
    )
    parameters = [*hosts.parameters.values(), *added_settings.values()]
    make.__signature__ = hosts.replace(parameters=parameters)  # type: ignore[attr-defined]
    return make
