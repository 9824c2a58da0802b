"""Which images of the memory are replayed: those that the next step would harm most."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor
from torch.func import functional_call
from torch.nn import functional as F

from ancl.data import Batch, ReplayStream
from ancl.networks import Network, train_mode
from ancl.types import Output, Params


@dataclass(frozen=True)
class Interference:
    """Maximally interfered retrieval: the largest ℓ(θ') − ℓ(θ).  Equation: [mir].

    θ' = θ − lr · gradient of the task loss alone: a step of plain SGD, without momentum, weight
    decay or any other term. Both losses are cross-entropies over all classes, in eval mode; batch
    norm keeps its statistics.

    Args:
        candidates: Images that are drawn from the memory and compared.
    """

    candidates: int = 50

    def drawn(
        self,
        stream: ReplayStream,
        randomness: Generator,
        network: Network,
        loss: Callable[[Output], Tensor],
        x: Tensor,
        lr: float,
    ) -> tuple[Batch, Params]:
        """A replay batch, and what was recorded of its images; see ``chosen`` for the others."""
        count = stream.batches.size
        candidates, extra = stream.drawn(randomness, max(count, self.candidates))
        index = self.chosen(network, loss, x, candidates, lr, count)
        mask = candidates.exemplars
        images, labels = candidates.x[index], candidates.y[index]
        batch = Batch(images, labels, None if mask is None else mask[index])
        return batch, {name: rows[index] for name, rows in extra.items()}

    def chosen(
        self,
        network: Network,
        loss: Callable[[Output], Tensor],
        x: Tensor,
        candidates: Batch,
        lr: float,
        count: int,
    ) -> Tensor:
        """The positions of this number of candidates, the most interfered first.

        Args:
            network: The network, in training mode.
            loss: The task loss, of its output for the task's batch.
            x: The task's batch.
            candidates: Images of the memory.
            lr: The learning rate of the step.
            count: How many are replayed.
        """
        weights = {n: p for n, p in network.named_parameters() if p.requires_grad}
        # Copies: a pass in training mode moves the statistics of batch norm.
        buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
        value = loss(functional_call(network, buffers, (x,)))
        slopes = torch.autograd.grad(value, list(weights.values()), allow_unused=True)
        with torch.no_grad():
            moved = {
                name: weight if slope is None else weight - lr * slope
                for (name, weight), slope in zip(weights.items(), slopes, strict=True)
            }
            network.eval()
            harm = _losses(network, moved, candidates) - _losses(network, {}, candidates)
            train_mode(network)
        return harm.argsort(descending=True, stable=True)[:count]


def _losses(network: Network, weights: Params, batch: Batch) -> Tensor:
    """The loss of every image, with some weights in the place of the network's."""
    logits = functional_call(network, weights, (batch.x,)).logits
    return F.cross_entropy(logits, batch.y, reduction="none")
