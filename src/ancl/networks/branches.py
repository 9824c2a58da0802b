"""AANets' network: a stable and a plastic branch, joined after every level.  Equation: [aanets]."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from ancl.errors import SpecError
from ancl.networks.backbones import Level
from ancl.networks.growth import Growth
from ancl.networks.network import grow_backbone

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
        found: Tensor = functional_call(self.conv, {"weight": self.conv.weight * self.scale}, (x,))
        return found

    @torch.no_grad()
    def merged(self) -> nn.Conv2d:
        """A plain convolution that gives the same."""
        twin = copy.deepcopy(self.conv)
        twin.weight.mul_(self.scale)
        return twin


class Branches(nn.Module):
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
        if not callable(getattr(backbone, "levels", None)):
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
            grow_backbone(branch, classes)
        if self._tasks != 2:
            return
        self.plastic = copy.deepcopy(self.stable)
        for branch, kind in zip(self.branches, self._kinds, strict=True):
            _let_learn(branch, kind)
        like = next(self.stable.parameters())
        start = like.new_full((len(_levels(self.stable)),), self._start)
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
        for index, levels in enumerate(zip(*map(_levels, self.branches), strict=True)):
            found = [level(x) for level in levels]
            x = self._join(index, [out for out, _ in found])
            if maps is not None:
                maps.append(self._join(index, [before for _, before in found]))
        return x

    def _join(self, index: int, maps: Sequence[Tensor]) -> Tensor:
        """α φ + (1 − α) η; exact for α = 0, for α = 1, and where both are equal."""
        return maps[0] if self.alpha is None else torch.lerp(maps[1], maps[0], self.alpha[index])

    def last_layers(self) -> list[str]:
        """The last layers of both branches."""
        found = []
        for name, branch in zip(("stable", "plastic"), self.branches, strict=False):
            named = getattr(branch, "last_layers", None)
            found += [f"{name}.{layer}" for layer in named()] if callable(named) else []
        return found

    def folded(self) -> "Branches":
        """A copy for inference: kernels carry their factors, and batch norms where they can."""
        twin = copy.deepcopy(self).eval().requires_grad_(False)
        for parent in list(twin.modules()):
            for name, child in list(parent.named_children()):
                if isinstance(child, Scaled):
                    setattr(parent, name, child.merged())
        for name, branch in zip(("stable", "plastic"), twin.branches, strict=False):
            folded = getattr(branch, "folded", None)
            if callable(folded):
                setattr(twin, name, folded())
        return twin


def _levels(branch: nn.Module) -> Sequence[Level]:
    levels: Callable[[], Sequence[Level]] = getattr(branch, "levels")  # noqa: B009
    return levels()


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
