"""Means of squared or absolute gradients over a task's images: Fisher information and MAS."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from ancl.regularizers.base import Evidence, WeightRegularizer
from ancl.types import Importance, Output, Params

Estimator = Literal["batch", "sample"]
Loss = Callable[[Output, Tensor], Tensor]
"""(output, labels) -> the mean over the batch of what is differentiated."""


@dataclass(frozen=True)
class GradientRegularizer(WeightRegularizer):
    """A quadratic whose curvature is a mean of measured gradients, averaged over tasks.

    Args:
        alpha: Share of earlier tasks' importance when a task's own is added (from zero: the
            first task's is weighted 1 − alpha too).
        estimator: Gradients of ``batch`` means (the published scale), or of each ``sample``.
        batch_norm: ``train`` normalises by the batch, ``eval`` by running statistics.
        augment: Whether the images are augmented as in training.
        drop_last: Whether a last batch that is not full is left out (released code). A task of
            less than one batch is always used whole.
    """

    alpha: float = 0.5
    estimator: Estimator = "batch"
    batch_norm: Literal["train", "eval"] = "train"
    augment: bool = True
    drop_last: bool = False

    @abstractmethod
    def loss(self, evidence: Evidence) -> Loss:
        """What is differentiated."""

    @abstractmethod
    def measure(self, gradient: Tensor) -> Tensor:
        """What is averaged of each gradient, element by element."""

    def curvature(self, importance: Importance) -> Params:
        """The averaged measure itself."""
        return importance["gradients"]

    def importance(self, evidence: Evidence) -> Importance:
        """The measure of one task, from its own images."""
        return {
            "gradients": mean_gradients(
                evidence,
                self.loss(evidence),
                self.measure,
                estimator=self.estimator,
                augment=self.augment,
                batch_statistics=self.batch_norm == "train",
                drop_last=self.drop_last,
            )
        }

    def merge(self, before: Importance | None, now: Importance) -> Importance:
        """α · before + (1 − α) · now."""
        new, share = now["gradients"], 1 - self.alpha
        if before is None:
            return {"gradients": {name: share * new[name] for name in new}}
        old = before["gradients"]
        return {"gradients": {n: self.alpha * old[n] + share * new[n] for n in new}}


def mean_gradients(
    evidence: Evidence,
    loss: Loss,
    measure: Callable[[Tensor], Tensor],
    *,
    estimator: Estimator,
    augment: bool,
    batch_statistics: bool,
    drop_last: bool = False,
) -> Params:
    """(1/N) Σ_b B_b m(g_b): the measured gradient of every batch, weighted by its size.

    ``batch`` measures the gradient of a batch's mean, as the published λ assume; it is not the
    Fisher information, which ``sample`` computes exactly from each image's own gradient.
    Batch norm then needs its running statistics: one image has no batch.
    """
    if not evidence.weights:
        return {}  # a backbone that rests altogether
    per_sample = estimator == "sample"
    totals = [torch.zeros_like(weight) for weight in evidence.weights.values()]
    count = full = 0
    with _mode(evidence.network, train=batch_statistics and not per_sample):
        for x, y in evidence.batches(augment):
            full = full or len(y)
            if drop_last:
                if len(y) < full:
                    break
                x, y = x[:full], y[:full]  # a last image alone was joined to the batch before
            if per_sample:
                parts = _sample_sums(evidence, loss, measure, x, y)
            else:
                mean = loss(evidence.network(x), y)
                gradients = torch.autograd.grad(
                    mean, list(evidence.weights.values()), allow_unused=True, materialize_grads=True
                )
                parts = [measure(gradient) * len(y) for gradient in gradients]
            torch._foreach_add_(totals, parts)
            count += len(y)
    return dict(zip(evidence.weights, (total / count for total in totals), strict=True))


def _sample_sums(
    evidence: Evidence, loss: Loss, measure: Callable[[Tensor], Tensor], x: Tensor, y: Tensor
) -> list[Tensor]:
    """Σ_i m(g_i) with g_i the gradient of one image, 32 images at a time."""
    weights = {name: weight.detach() for name, weight in evidence.weights.items()}

    def one(weights: Params, x: Tensor, y: Tensor) -> Tensor:
        named = {f"backbone.{name}": weight for name, weight in weights.items()}
        output = functional_call(evidence.network, named, (x.unsqueeze(0),))
        return loss(output, y.unsqueeze(0))

    totals = [torch.zeros_like(weight) for weight in weights.values()]
    for chunk, labels in zip(torch.split(x, 32), torch.split(y, 32), strict=True):
        with torch.no_grad():  # else the head, which learns too, would keep every chunk's graph
            gradients = vmap(grad(one), in_dims=(None, 0, 0), randomness="different")(
                weights, chunk, labels
            )
        torch._foreach_add_(totals, [measure(gradients[name]).sum(0) for name in weights])
    return totals


@contextmanager
def _mode(network: nn.Module, *, train: bool) -> Iterator[None]:
    """Set train or eval mode, and put mode and running statistics back afterwards."""
    before, buffers = network.training, [b.clone() for b in network.buffers()]
    network.train(train)
    try:
        yield
    finally:
        network.train(before)
        for buffer, saved in zip(network.buffers(), buffers, strict=True):
            buffer.copy_(saved)
