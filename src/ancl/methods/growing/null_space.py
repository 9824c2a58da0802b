"""Steps in the null space of earlier inputs: the stable network of Lin et al.'s connector."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from ancl.errors import MethodError
from ancl.methods.method import Finish
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.seeding import generator
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.loop import trained
from ancl.training.objective import Objective
from ancl.types import prefixed

STABLE: Literal["stable"] = "stable"
"""The state that the stable network is kept under."""


@dataclass(frozen=True)
class Covariance(Finish):
    """Σ XᵀX of every layer's inputs, added up over tasks.  Equation: [null-space].

    The rows of X are the patches that a convolution reads of a batch's mean input, as in the
    released code.
    """

    name = "covariance"
    reads = ("covariance",)
    optional = reads
    yields = ("covariance",)
    first = True

    @torch.no_grad()
    def run(self, work: TaskWork) -> StageResult:
        """The sums, by the name of the layer."""
        network = work.network().eval()
        sums = {name: value.to(work.device) for name, value in work.state("covariance").items()}
        batches = work.batches(
            work.training_parts()[0][:1], augment=work.augment, size=work.training.batch_size
        )
        with LayerInputs(network.backbone) as inputs:
            for batch in batches.shuffled(generator(work.seed, work.index, "covariance")):
                network(batch.x)
                for name, rows in inputs.take():
                    square = rows.T.double() @ rows.double()
                    sums[name] = sums[name] + square if name in sums else square
        return StageResult(prefixed("covariance", {n: v.cpu() for n, v in sums.items()}), {})


class LayerInputs:
    """What the layers of a backbone read of one batch, as rows that their weights multiply."""

    def __init__(self, backbone: nn.Module) -> None:
        self._layers = projected_layers(backbone)
        self._read: dict[str, Tensor] = {}

    def __enter__(self) -> "LayerInputs":
        self._hooks = [
            layer.register_forward_pre_hook(self._keep(name))
            for name, layer in self._layers.items()
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self._hooks:
            hook.remove()

    def _keep(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def hook(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
            self._read[name] = given[0]

        return hook

    def take(self) -> Iterator[tuple[str, Tensor]]:
        """The rows of every layer that was run since the last time."""
        for name, x in self._read.items():
            yield name, input_rows(self._layers[name], x)
        self._read = {}


def projected_layers(backbone: nn.Module) -> dict[str, nn.Conv2d | nn.Linear]:
    """The convolutions and linear layers, whose updates are projected."""
    layers: dict[str, nn.Conv2d | nn.Linear] = {}
    for name, layer in backbone.named_modules():
        if isinstance(layer, nn.Conv2d) and layer.groups > 1:
            raise MethodError(
                f"stability=projected cannot project the grouped convolution {name}. Use "
                f"stability=old, or a network without such layers, such as resnet32."
            )
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layers[name] = layer
    return layers


def input_rows(layer: nn.Conv2d | nn.Linear, x: Tensor) -> Tensor:
    """The rows that a layer's weights multiply, of the batch's mean input."""
    mean = x.mean(dim=0, keepdim=True)
    if isinstance(layer, nn.Linear):
        return mean.flatten(0, -2)
    stride = getattr(layer, "every", None) or layer.stride
    assert not isinstance(layer.padding, str)
    patches = F.unfold(mean, layer.kernel_size, layer.dilation, layer.padding, stride)
    return patches.squeeze(0).T


def null_space(covariance: Tensor, threshold: float, energy: float | None) -> Tensor:
    """P = V₂V₂ᵀ / ‖V₂V₂ᵀ‖, V₂ the directions that earlier inputs hardly have.

    Equation: [null-space].

    Args:
        covariance: Σ XᵀX.
        threshold: V₂ are eigenvectors with at most this times the smallest eigenvalue.
        energy: Or those that together carry at most this share of all eigenvalues.
    """
    values, vectors = torch.linalg.eigh(covariance.double())
    noise = len(values) * torch.finfo(values.dtype).eps * values[-1].clamp(min=0)
    values = torch.where(values <= noise, torch.zeros_like(values), values)
    if energy is None:
        quiet = values <= threshold * values[0]
    else:
        quiet = values.cumsum(0) <= energy * values.sum()
    directions = vectors[:, quiet]
    projector = directions @ directions.T
    scaled: Tensor = projector / projector.norm() if quiet.any() else projector
    return scaled


class ProjectSteps(Constraint):
    """Every step of a layer's weights moves through its projector; whatever the optimizer does.

    Args:
        projectors: By the name of the layer.
        network: The network that is trained.
    """

    def __init__(self, projectors: Mapping[str, Tensor], network: Network) -> None:
        layers = projected_layers(network.backbone)
        self._pairs = [
            (layers[name].weight, projector.to(layers[name].weight))
            for name, projector in projectors.items()
        ]
        self._before: list[Tensor] = []

    def gradients(self, parameters: object, epoch: int, batch: int, randomness: Generator) -> None:
        """Remember the weights."""
        self._before = [weight.detach().clone() for weight, _ in self._pairs]

    @torch.no_grad()
    def weights(self, network: Network) -> None:
        """θ ← θ_before + (θ − θ_before) P."""
        for (weight, projector), before in zip(self._pairs, self._before, strict=True):
            step = (weight - before).reshape(len(weight), -1) @ projector
            weight.copy_(before + step.reshape(weight.shape))


@dataclass(frozen=True)
class Project(Finish):
    """Train the stable network: the task loss, with steps that earlier tasks' inputs hardly see.

    Args:
        threshold: Of eigenvalues that count as none, times the smallest.
        energy: Or the share of all eigenvalues that counts as none.
    """

    name = "project"
    reads = ("covariance", "rate")
    yields = (STABLE,)
    threshold: float = 10.0
    energy: float | None = None

    def run(self, work: TaskWork) -> StageResult:
        """The stable network."""
        network = work.main_network()
        projectors = {
            name: null_space(value, self.threshold, self.energy)
            for name, value in work.state("covariance").items()
        }
        train, val = work.training_parts()
        objective = Objective(work.task_loss)
        constrain = ProjectSteps(projectors, network)
        fit = work.fit(
            network, objective, train, val, work.training, self.name, constrain=constrain
        )
        return trained(fit, work.drive(fit))
