"""What is done to gradients before, and to weights after, every step."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Generator, nn

from ancl.networks import Network


class Constraint:
    """Changes gradients or weights in place; by default neither."""

    def gradients(
        self, parameters: Sequence[nn.Parameter], epoch: int, batch: int, randomness: Generator
    ) -> None:
        """Called with the whole loss's gradients, before the update of a batch of this size."""

    def weights(self, network: Network) -> None:
        """Called after the update."""


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
