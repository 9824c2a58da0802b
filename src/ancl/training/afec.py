"""AFEC's training: an auxiliary network one epoch ahead of the main one.  Equation: [afec]."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from ancl.training.config import Training
from ancl.training.cost import Cost
from ancl.training.loop import Epoch, Fit, Saved
from ancl.training.objective import Objective, PenaltyTerm
from ancl.types import Params, prefixed, strip_prefix

Renew = Callable[[int], PenaltyTerm]
"""Epoch -> the term of the auxiliary network as it is now."""


def following(auxiliary: Training, main: Training) -> Training:
    """The auxiliary network's training, with the main one's rate and number of epochs.

    Patience belongs to the main network alone: the auxiliary one takes the rate it is given.
    """
    patient = main.schedule == "patience"
    return replace(
        auxiliary,
        epochs=main.epochs,
        lr=main.lr,
        schedule="constant" if patient else main.schedule,
        milestones=main.milestones,
        gamma=main.gamma,
        warmup=0.0 if patient else main.warmup,
    )


class AlternatingTraining:
    """Two trainings in turn: an auxiliary epoch, a renewed anchor, a main epoch.

    The auxiliary network follows the main network's rate; when patience takes the main network
    back to its best weights, the auxiliary one stays where it is.

    Args:
        main: The main network's training.
        auxiliary: The auxiliary network's.
        base: The main network's loss without the auxiliary term.
        renew: Makes that term anew, from the auxiliary network as it is.
        lamb_a: Its λ_a.
    """

    def __init__(
        self, main: Fit, auxiliary: Fit, base: Objective, renew: Renew, lamb_a: float
    ) -> None:
        self._main, self._auxiliary, self._base, self._renew = main, auxiliary, base, renew
        self._lamb_a = lamb_a
        self.settled = True

    def __iter__(self) -> Iterator[Epoch]:
        return self

    def __next__(self) -> Epoch:
        """The auxiliary network's epoch, then the main network's."""
        if self._main.finished:
            raise StopIteration
        self.settled = not self.settled
        if self.settled:
            term = self._renew(self._main.epoch)
            self._main.objective = replace(self._base, terms=(*self._base.terms, term))
            return next(self._main)
        if self._main.patient:
            self._auxiliary.training = replace(self._auxiliary.training, lr=self._main.lr)
        return next(self._auxiliary)

    def tensors(self) -> Params:
        """What the main training leaves behind, and the auxiliary network as ``carried/``."""
        return self._main.tensors() | prefixed("carried", self._auxiliary.network.tensors())

    @property
    def lambs(self) -> dict[str, float]:
        """Each term's λ; a training that was found finished has no auxiliary term yet."""
        return {**self._main.lambs, "auxiliary": self._lamb_a}

    @property
    def trainable_parameters(self) -> int:
        """The number of parameters of the main network that change."""
        return self._main.trainable_parameters

    @property
    def cost(self) -> Cost:
        """What both trainings took."""
        return self._main.cost.plus(self._auxiliary.cost)

    def state(self) -> Saved:
        """Both trainings' states; the anchor is made anew at the next epoch."""
        main, auxiliary = self._main.state(), self._auxiliary.state()
        tensors = prefixed("main", main.tensors) | prefixed("auxiliary", auxiliary.tensors)
        return Saved(tensors, {"main": main.meta, "auxiliary": auxiliary.meta})

    def restore(self, saved: Saved) -> None:
        """Resume from a saved state, bit for bit."""
        for part, fit in (("main", self._main), ("auxiliary", self._auxiliary)):
            fit.restore(Saved(strip_prefix(part, saved.tensors), saved.meta[part]))
