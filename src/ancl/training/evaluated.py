"""A training that is measured on all tasks so far every few epochs; nothing else changes."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ancl.training.cost import Cost
from ancl.training.loop import Epoch, Saved, Trainer
from ancl.types import Params

Measure = Callable[[Params], dict[str, list[float | None]]]
"""Accuracy on each task so far, by kind, of a network that is given by its tensors."""


class Evaluated:
    """Passes a training on, and adds accuracies to some of its epochs.

    Args:
        trainer: The training.
        every: After how many epochs it is measured.
        measure: How.
    """

    def __init__(self, trainer: Trainer, every: int, measure: Measure) -> None:
        self._trainer, self._every, self._measure = trainer, every, measure

    def __iter__(self) -> Iterator[Epoch]:
        for epoch in self._trainer:
            # AFEC's auxiliary network has epochs of its own in between.
            if epoch.role != "auxiliary" and (epoch.epoch + 1) % self._every == 0:
                epoch = replace(epoch, tasks=self._measure(self._trainer.tensors()))
            yield epoch

    @property
    def settled(self) -> bool:
        """Whether it can be saved now."""
        return self._trainer.settled

    def state(self) -> Saved:
        """As the training's."""
        return self._trainer.state()

    def restore(self, saved: Saved) -> None:
        """As the training's."""
        self._trainer.restore(saved)

    def tensors(self) -> Params:
        """As the training's."""
        return self._trainer.tensors()

    @property
    def lambs(self) -> dict[str, float]:
        """As the training's."""
        return self._trainer.lambs

    @property
    def trainable_parameters(self) -> int:
        """As the training's."""
        return self._trainer.trainable_parameters

    @property
    def cost(self) -> Cost | None:
        """As the training's, where it counts."""
        return getattr(self._trainer, "cost", None)
