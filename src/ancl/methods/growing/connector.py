"""The linear connector: a network between a stable and a plastic one.  Equation: [connector]."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor, nn
from torch.nn import functional as F

from ancl.data import Samples, even_size, interleaved
from ancl.errors import MethodError
from ancl.losses import CrossEntropy, Over, own_task_logits
from ancl.memory import Exemplars
from ancl.methods.growing.null_space import STABLE, Covariance, Project
from ancl.methods.method import Finish, Method
from ancl.methods.moving import Classifier, Transport, with_statistics
from ancl.methods.variants import RELEASED_AUXILIARY_DECAY
from ancl.methods.work import TaskWork
from ancl.networks import Network
from ancl.regularizers import Ewc, Lfl
from ancl.store.entry import StageResult
from ancl.training.loop import trained
from ancl.training.objective import Auxiliary, Objective, Term
from ancl.types import Params, prefixed

BatchNorm = nn.modules.batchnorm._BatchNorm
"""Every kind of batch norm."""


def between(first: Tensor, second: Tensor, share: float | Tensor) -> Tensor:
    """(1 − β) first + β second, exact for β = 0, for β = 1 and for equal tensors.

    Equation: [connector]. What cannot be averaged, such as a count of batches, is the nearer one's.
    """
    if first.is_floating_point():
        weight = share.to(first) if isinstance(share, Tensor) else first.new_tensor(share)
        return torch.lerp(first, second, weight)
    return (second if float(torch.as_tensor(share).mean()) >= 0.5 else first).clone()


@torch.no_grad()
def merge(
    first: Network, second: Network, share: float, shares: Mapping[str, Tensor] | None = None
) -> None:
    """Move every tensor of the first network to a point between it and the second, in place.

    Args:
        first: The network at β = 0.
        second: The network at β = 1.
        share: β.
        shares: β of every element of some of the backbone's weights, by name.
    """
    elementwise = {f"backbone.{name}": value for name, value in (shares or {}).items()}
    targets = second.state_dict()
    for name, value in first.changeable().items():
        value.copy_(between(value, targets[name], elementwise.get(name, share)))


def importance_shares(old: Params, other: Params, lamb: float, lamb_a: float) -> Params:
    """λ_aF_aux / (λF_old + λ_aF_aux), weight by weight; 0 where neither has importance.

    Equation: [interpolation]. Two quadratic penalties with these curvatures are one around the
    point that has this share of the way from the old to the auxiliary network.
    """
    shares: Params = {}
    for name, importance in old.items():
        pull = lamb_a * other[name].double()
        both = lamb * importance.double() + pull
        free = both == 0
        shares[name] = torch.where(free, torch.zeros_like(both), pull / both.masked_fill(free, 1.0))
    return shares


def norms_of(network: Network) -> list[BatchNorm]:
    """All batch norms with running statistics, but for those of a frozen base."""
    return [
        norm
        for name, norm in network.named_modules()
        if isinstance(norm, BatchNorm)
        and norm.running_mean is not None
        and f"{name}.running_mean" not in network.base
    ]


@torch.no_grad()
def pooled_statistics(first: Network, second: Network, share: float) -> list[tuple[Tensor, Tensor]]:
    """Mean and variance of a mixture of both networks' inputs, for every batch norm in order."""
    statistics = []
    for one, other in zip(norms_of(first), norms_of(second), strict=True):
        (mean, var), (its_mean, its_var) = _statistics(one), _statistics(other)
        middle = between(mean, its_mean, share)
        square = between(var + mean.square(), its_var + its_mean.square(), share)
        statistics.append((middle, square - middle.square()))
    return statistics


@torch.no_grad()
def write_statistics(network: Network, statistics: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Give every batch norm its running mean and variance."""
    for norm, (mean, var) in zip(norms_of(network), statistics, strict=True):
        for running, value in zip(_statistics(norm), (mean, var), strict=True):
            running.copy_(value)


@torch.no_grad()
def estimate_statistics(network: Network, batches: Iterable[Tensor]) -> None:
    """Running statistics of every batch norm as the mean over batches of equal size.

    Weights that were computed and not trained have no running statistics of their own.
    """
    norms = norms_of(network)
    if not norms:
        return
    before = [norm.momentum for norm in norms]
    network.eval()
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a cumulative mean, which forgets the reset values at once
        norm.train()
    for x in batches:
        network(x)
    for norm, momentum in zip(norms, before, strict=True):
        norm.momentum = momentum
    network.eval()


def _statistics(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    assert norm.running_mean is not None
    assert norm.running_var is not None
    return norm.running_mean, norm.running_var


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
        images = val[0] if len(val[0]) else train[0]
        total, counts = torch.zeros(work.history.current.stop), work.history.current.stop
        number = torch.zeros(counts)
        network.eval()
        for batch in work.batches([images, work.exemplars.samples]).in_order():
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
    for parameter, other in zip(target.head.block(index), source.head.block(index), strict=True):
        parameter.copy_(other)


def balanced_images(work: TaskWork) -> Samples:
    """The task's training images, and exemplars repeated until earlier classes count as much."""
    images = work.training_parts()[0][0]
    if work.exemplars is None:
        return interleaved([images])
    most = int(images.y.bincount().max())
    return interleaved([images, repeated(work.exemplars, most)])


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


Share = Annotated[float, Ge(0), Le(1)]
_OWN_PLASTIC = "it already has its network for the new task, which it merges with the stable one"


def connector(
    *,
    ratio: Share | Ratio = "task",
    stability: Literal["old", "projected"] = "old",
    weight: Literal["scalar", "importance"] = "scalar",
    batch_norm: BatchNorms = "average",
    refit: Annotated[int, Ge(0)] = 0,
    threshold: Annotated[float, Ge(1)] = 10.0,
    energy: Annotated[float, Gt(0), Lt(1)] | None = None,
    loss_over: Over = "auto",
    classifier: Classifier = "head",
    transport: Transport = True,
) -> Method:
    """Linear connector: the average of old and auxiliary network, without any λ or third training.

    Args:
        ratio: β, the auxiliary network's part: 1/t in task t (task, the original), n_new/n
            (classes), a number, or the best of 0, 0.1, …, 1 on validation images and exemplars
            (search, which needs a memory).
        stability: What is averaged: the ``old`` network with the auxiliary one; or, as the
            original, one trained by steps in the null space of earlier inputs with one that keeps
            the old network's features (projected).
        weight: One β (scalar); or for every weight λ_aF_aux/(λF_old + λ_aF_aux) by the Fisher
            information, with λ_a/λ = β/(1 − β).
        batch_norm: Running statistics: their average (the original), those of mixed inputs
            (pooled), or an estimate from the task's images and the memory's. Without a memory the
            estimate fits the new task alone.
        refit: Epochs of training new classes' rows on the merged features.
        threshold: For stability=projected: eigenvalues up to this times the smallest count as none.
        energy: In place of threshold: directions with at most this share of all eigenvalues count
            as none.
        loss_over: Classes that compete in the task loss: all ``seen``, or the ``own_task``'s;
            auto is seen with old images to learn from, else own_task.
        classifier: What answers: the ``head`` that is trained; or one computed from statistics
            of all images: ncm, slda, ridge, logistic, auto.
        transport: Whether statistics of earlier images follow when the network moves.
    """
    refused = {}
    if ratio == "classes":
        refused["dil"] = "ratio=classes counts new classes, and there are none"
        refused["cir"] = "ratio=classes counts new classes alone, and known ones are learned too"
    if refit:
        refused["dil"] = "refit trains the rows of new classes, and there are none"
    alone = "without images of earlier tasks a search sees the new task alone and takes β = 1"
    after = (Refit(refit),) if refit else ()
    common = Method(
        "connector",
        CrossEntropy(loss_over),
        auxiliary_decay=RELEASED_AUXILIARY_DECAY,
        refused=refused,
        needs_memory=dict.fromkeys(("til", "cil", "dil", "cir"), alone)
        if ratio == "search"
        else {},
    )
    if stability == "old":
        omega = Ewc() if weight == "importance" else None
        merged = replace(
            common,
            old=Term(omega, 1.0) if omega else None,
            auxiliary=Auxiliary(omega, 1.0),
            main="auxiliary",
            finish=(Connect(ratio, "start", weight, batch_norm), *after),
        )
        return with_statistics(merged, classifier, transport)
    if weight == "importance":
        raise MethodError(
            "weight is importance and stability is projected, but Fisher information is that of "
            "the old and the auxiliary network. Use stability=old, or weight=scalar."
        )
    connect = Connect(ratio, STABLE, weight, batch_norm)
    merged = replace(
        common,
        old=Term(Lfl(centre=False, normalize=False), 1.0),
        finish=(Project(threshold, energy), connect, *after, Covariance()),
        no_variants={"a": _OWN_PLASTIC, "afec": _OWN_PLASTIC},
    )
    return with_statistics(merged, classifier, transport)
