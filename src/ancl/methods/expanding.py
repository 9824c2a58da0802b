"""What DER's loss has besides cross-entropy, and the classifier that it learns at the end."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.data import Samples
from ancl.errors import MethodError
from ancl.losses import TaskLoss
from ancl.methods.method import Finish
from ancl.methods.work import TaskWork
from ancl.networks.extractors import SIDE, USED
from ancl.seeding import generator, seeded
from ancl.store.entry import StageResult
from ancl.training.config import Training
from ancl.training.loop import trained
from ancl.training.objective import Objective
from ancl.types import Step


@dataclass(frozen=True)
class SideLoss:
    """Cross-entropy of the side head: all old classes are one, the task's own follow.

    Equation: [der].
    """

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        return F.cross_entropy(step.out.side[SIDE], side_labels(step.y, step.current))


def side_labels(y: Tensor, current: slice) -> Tensor:
    """0 for every class before the task's, then 1, 2, … for its own.

    >>> side_labels(torch.tensor([3, 49, 50, 59]), slice(50, 60)).tolist()
    [0, 0, 1, 10]
    """
    first: int = current.start
    return (y - first + 1).clamp(min=0)


@dataclass(frozen=True)
class UsedWeights:
    """The share of the newest extractor's weights that its masks leave in use."""

    def __call__(self, step: Step) -> Tensor:
        """The share, the same for every image."""
        return step.out.side[USED].mean()


@dataclass(frozen=True)
class Tempered:
    """A task loss of logits divided by δ.

    Args:
        loss: The task loss.
        temperature: δ.
    """

    loss: TaskLoss
    temperature: float

    def __call__(self, step: Step) -> Tensor:
        """The loss of one batch."""
        logits = step.out.logits / self.temperature
        return self.loss(step.with_output(step.out._replace(logits=logits)))


@dataclass(frozen=True)
class FreshClassifier(Finish):
    """Draw the classifier anew and train it alone, on equally many images of every class.

    The images are drawn at random from the task's and the memory's: of each class as many as the
    smallest has. The backbone rests in eval mode.

    Args:
        epochs: Number of epochs; the rate is divided by 10 after half of them.
        lr: The learning rate at the start; optimizer, batch and weight decay are the training's.
        temperature: δ, by which logits are divided.
    """

    name = "classifier"
    reads = ("memory",)
    epochs: int = 30
    lr: float = 0.1
    temperature: float = 5.0

    def run(self, work: TaskWork) -> StageResult:
        """The network with a classifier that prefers no task."""
        network = work.network()
        network.backbone.requires_grad_(False)
        with seeded(work.seed, work.index, self.name):
            network.head.reset()
        own, *others = work.training_parts()[0]
        if not others:
            raise MethodError(
                "A fresh classifier learns old classes from exemplars, and there are none. Give "
                "memory.per_class or memory.total."
            )
        images = drawn([own, *others], (work.seed, work.index))
        objective = Objective(Tempered(work.task_loss, self.temperature))
        fit = work.fit(network, objective, images, [], self._training(work.training), self.name)
        return trained(fit, work.drive(fit))

    def _training(self, own: Training) -> Training:
        half = self.epochs // 2
        return replace(
            own,
            epochs=self.epochs,
            lr=self.lr,
            lr_search=False,
            schedule="multistep" if half else "constant",
            milestones=(half,) if half else (),
            gamma=0.1,
            warmup=0.0,
        )


def drawn(parts: list[Samples], path: tuple[int, int]) -> list[Samples]:
    """As many images of every class as the smallest class has, drawn by (seed, task)."""
    whole = Samples.concatenate(parts)
    order = torch.randperm(len(whole), generator=generator(*path, "balanced"))
    classes = sorted(set(whole.y.tolist()))
    least = min(len(whole.of_class(label)) for label in classes)
    shuffled = whole.y[order]
    keep = [order[(shuffled == label).nonzero().squeeze(1)[:least]] for label in classes]
    chosen = torch.cat(keep).sort().values
    own = chosen < len(parts[0])
    return [whole.take(chosen[own]), whole.take(chosen[~own])]
