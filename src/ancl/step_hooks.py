"""What is done to gradients before, and to weights after, every step."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn

from ancl.networks import Network
from ancl.regularizers import eeil_noise
from ancl.runtime import send


class Constraint:
    """Changes gradients or weights in place; by default neither."""

    def gradients(
        self, parameters: Sequence[nn.Parameter], epoch: int, batch: int, randomness: Generator
    ) -> None:
        """Called with the whole loss's gradients, before the update of a batch of this size."""

    def against(
        self, parameters: Sequence[nn.Parameter], reference: Sequence[Tensor | None]
    ) -> None:
        """Called before ``gradients`` with the gradient of terms that are kept apart, if any are.

        It has a tensor for each parameter, or nothing where these terms do not read it.
        """

    def weights(self, network: Network) -> None:
        """Called after the update."""


@dataclass(frozen=True)
class ProjectGradient(Constraint):
    """No step that would raise the loss of the reference batch, as in A-GEM.  Equation: [agem].

    Where gᵀr < 0, g becomes g − (gᵀr / rᵀr) r: all weights are one vector. Momentum and weight
    decay act afterwards, and may undo it.
    """

    @torch.no_grad()
    def against(
        self, parameters: Sequence[nn.Parameter], reference: Sequence[Tensor | None]
    ) -> None:
        """Project in place, without waiting for the device."""
        both = [(p, r) for p, r in zip(parameters, reference, strict=True) if r is not None]
        if not both:
            return
        length = torch.stack([r.float().square().sum() for _, r in both]).sum()
        product = torch.zeros_like(length)
        for parameter, slope in both:
            if parameter.grad is not None:
                product += (parameter.grad.float() * slope.float()).sum()
        share = torch.where(product < 0, product / length, torch.zeros_like(product))
        for parameter, slope in both:
            back = (share * slope).to(slope.dtype)
            parameter.grad = -back if parameter.grad is None else parameter.grad.sub_(back)


@dataclass(frozen=True)
class ClampGradients(Constraint):
    """Every element of the gradient held within ±limit, as PODNet does."""

    limit: float = 5.0

    def gradients(
        self, parameters: Sequence[nn.Parameter], epoch: int, batch: int, randomness: Generator
    ) -> None:
        """Clamp in place."""
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.clamp_(-self.limit, self.limit)


@dataclass(frozen=True)
class GradientNoise(Constraint):
    """Gaussian noise on the batch's summed gradient, less of it every epoch.  Equation: [noise].

    Args:
        scale: Its deviation in the first epoch.
        decay: How fast it falls.
    """

    scale: float = 0.3
    decay: float = 0.55

    def gradients(
        self, parameters: Sequence[nn.Parameter], epoch: int, batch: int, randomness: Generator
    ) -> None:
        """Add noise in place; gradients are means, so that on their sum is divided by the batch."""
        deviation = eeil_noise(epoch, self.scale, self.decay) / batch
        for parameter in parameters:
            if parameter.grad is not None:
                noise = torch.randn(parameter.shape, generator=randomness)
                parameter.grad.add_(
                    send(noise, parameter.device).to(parameter.dtype), alpha=deviation
                )


@dataclass(frozen=True)
class NonNegativeRows(Constraint):
    """No weight of the head below 0, so that longer rows mean larger logits, as in WA.

    Features must not be negative either: they end with a ReLU.
    """

    @torch.no_grad()
    def weights(self, network: Network) -> None:
        """Clamp in place."""
        for rows in network.head.row_blocks():
            rows.clamp_(min=0)
