"""The linear connector: a network between a stable and a plastic one."""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch.nn import functional as F

from ancl.data import Samples, even_size, interleaved
from ancl.errors import MethodError
from ancl.losses import own_task_logits
from ancl.memory import Exemplars
from ancl.methods.method import Finish
from ancl.methods.null_space import STABLE
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.networks.merging import (
    estimate_statistics,
    importance_shares,
    merge,
    pooled_statistics,
    write_statistics,
)
from ancl.regularizers import Ewc
from ancl.store.entry import StageResult
from ancl.training.loop import trained
from ancl.training.objective import Objective
from ancl.types import Params, prefixed

Ratio = Literal["task", "classes", "search"]
BatchNorms = Literal["average", "pooled", "estimate"]
CANDIDATES = tuple(tenth / 10 for tenth in range(11))
"""What ``ratio=search`` tries."""


@dataclass(frozen=True)
class Connect(Finish):
    """(1 − β) θ_stable + β θ_plastic: no network is trained.  Equation: [connector].

    Where the stable network is the old one, rows of new classes are the plastic network's: the
    old network's are as they were drawn.

    Args:
        ratio: β: 1/t in task t (``task``), n_new/n (``classes``), the one of eleven with the
            lowest loss on validation images and exemplars (``search``), or a number.
        stable: The old network (``start``), or one trained by projected steps (``stable``).
        weight: One β, or λ_aF_aux / (λF_old + λ_aF_aux) for every weight, with λ_a/λ = β/(1 − β).
        batch_norm: Running statistics: averaged as weights are, those of both networks' inputs
            mixed (``pooled``), or estimated from training images and exemplars.
    """

    name = "connect"
    reads = (STABLE, "importance", "auxiliary importance", "memory")
    optional = reads
    ratio: Ratio | float = "task"
    stable: Literal["start", "stable"] = "start"
    weight: Literal["scalar", "importance"] = "scalar"
    batch_norm: BatchNorms = "average"

    def run(self, work: TaskWork) -> StageResult:
        """The network between both."""
        share = self._share(work)
        network = self.between(work, share)
        return StageResult(prefixed("network", network.tensors()), {"share": share})

    def between(self, work: TaskWork, share: float) -> Network:
        """The network at one β."""
        network, plastic = work.network(self.stable), work.network()
        pooled = pooled_statistics(network, plastic, share)
        merge(network, plastic, share, self._shares(work, share))
        if self.stable == "start" and work.history.adds_classes:
            copy_newest_block(plastic, network)
        if self.batch_norm == "pooled":
            write_statistics(network, pooled)
        elif self.batch_norm == "estimate":
            images = balanced_images(work)
            batches = work.batches([images], size=even_size(len(images), 256))
            estimate_statistics(network, (batch.x for batch in batches.in_order()))
        return network

    def _shares(self, work: TaskWork, share: float) -> Params | None:
        if self.weight == "scalar":
            return None
        omega = Ewc()
        parts = (work.importance_of(part) for part in ("importance", "auxiliary importance"))
        old, other = (omega.curvature(importance) for importance in parts)
        return importance_shares(old, other, 1 - share, share)

    def _share(self, work: TaskWork) -> float:
        if self.ratio == "task":
            return 1 / (work.index + 1)
        if self.ratio == "classes":
            old, new = work.history.counts
            return new / (old + new)
        if self.ratio != "search":
            return float(self.ratio)
        return min(CANDIDATES, key=lambda share: self._loss(work, self.between(work, share)))

    @torch.no_grad()
    def _loss(self, work: TaskWork, network: Network) -> float:
        """The mean of every class's loss, on images that the plastic network did not learn from."""
        if work.exemplars is None:
            raise MethodError(
                "ratio=search compares shares on exemplars too, and there is no memory. Give "
                "memory.per_class or memory.total, or another ratio."
            )
        train, val = work.training_parts()
        own = val[0] if len(val[0]) else train[0]
        total, counts = torch.zeros(work.history.current.stop), work.history.current.stop
        number = torch.zeros(counts)
        network.eval()
        for batch in work.batches([own, work.exemplars.samples]).in_order():
            logits = network(batch.x).logits
            if work.view.task_aware:
                logits = own_task_logits(logits, batch.y, work.view.tasks)
            losses = F.cross_entropy(logits, batch.y, reduction="none").cpu()
            total.index_add_(0, batch.y.cpu(), losses)
            number += batch.y.cpu().bincount(minlength=counts)
        seen = number > 0
        return float((total[seen] / number[seen]).mean())


@torch.no_grad()
def copy_newest_block(source: Network, target: Network) -> None:
    """Give a network another one's rows of the newest classes."""
    index = len(target.head.sizes) - 1
    for own, other in zip(target.head.block(index), source.head.block(index), strict=True):
        own.copy_(other)


def balanced_images(work: TaskWork) -> Samples:
    """The task's training images, and exemplars repeated until earlier classes count as much."""
    own = work.training_parts()[0][0]
    if work.exemplars is None:
        return interleaved([own])
    most = int(own.y.bincount().max())
    return interleaved([own, repeated(work.exemplars, most)])


def repeated(exemplars: Exemplars, count: int) -> Samples:
    """This number of images of each class and task, the same ones again and again."""
    group = exemplars.samples.y * (int(exemplars.task.max()) + 1) + exemplars.task
    parts = []
    for value in sorted(set(group.tolist())):
        index = (group == value).nonzero().squeeze(1)
        parts.append(index.repeat(-(-count // len(index)))[:count])
    return exemplars.samples.take(torch.cat(parts))


@dataclass(frozen=True)
class Refit(Finish):
    """Train the newest classes' rows alone on the task's images; the backbone rests.

    Args:
        epochs: Number of epochs; the rate is the training's, falling to 0 by a cosine.
    """

    name = "refit"
    new_classes = True
    reads = ("rate",)
    epochs: int = 5

    def run(self, work: TaskWork) -> StageResult:
        """The network with rows that fit its features."""
        network = work.network()
        network.requires_grad_(False)
        for parameter in network.head.block(len(network.head.sizes) - 1):
            parameter.requires_grad_(True)
        training = replace(work.training, epochs=self.epochs, schedule="cosine", warmup=0.0)
        images = work.training_parts()[0][:1]
        objective = Objective(work.task_loss, own_classes=True)
        fit = work.fit(network, objective, images, [], training, self.name)
        return trained(fit, work.drive(fit))
