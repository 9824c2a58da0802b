"""The bound on forgetting: ½ λ_max ‖θ₂ − θ₁‖², beside what was forgotten."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from ancl.analysis.curvature import top_eigenvalue
from ancl.analysis.images import Part
from ancl.analysis.weights import distance
from ancl.data import Batches
from ancl.networks import Network
from ancl.stages import Setting
from ancl.types import Params
from ancl.workbench import answering


class OldLoss:
    """The loss of earlier tasks on their own training images.  Equation: [forgetting-bound].

    Args:
        network: Any network of the right shape; it is overwritten.
        old: What the old network knows.
        names: The old network's parameters.
        parts: Training images of earlier tasks.
        classes: What competes for each of them, by task.
        setting: The run's.
    """

    def __init__(
        self,
        network: Network,
        old: Params,
        names: Sequence[str],
        parts: Sequence[Part],
        classes: Mapping[int, slice],
        setting: Setting,
    ) -> None:
        self._network, self._old, self._names = network, old, list(names)
        self._parts, self._classes, self._setting = parts, classes, setting
        self._total = sum(len(part.samples) for part in parts)

    def value(self, tensors: Params) -> float:
        """The mean loss of a network with its own batch norms."""
        self._network.load(tensors)
        answers = answering(self._network, self._setting)
        losses = [
            len(part.samples) * self._loss(answers(part.samples).logits, part.samples.y, part.task)
            for part in self._parts
        ]
        return float(sum(losses)) / self._total

    def row(self, tensors: Params, sharpness: float) -> dict[str, float]:
        """Distance, bound and the loss's increase: with a network's own statistics and the old."""
        learned = {name for name, _ in self._network.named_parameters()}
        fixed = {n: t if n in learned else self._old.get(n, t) for n, t in tensors.items()}
        away, before = distance(tensors, self._old, self._names), self.value(self._old)
        return {
            "distance": away,
            "sharpness": sharpness,
            "bound": 0.5 * sharpness * away**2,
            "loss_before": before,
            "increase": self.value(tensors) - before,
            "increase_old_statistics": self.value(fixed) - before,
        }

    def sharpness(self, *, double: bool = False) -> float:
        """λ_max of the loss's Hessian at the old network, its batch norms fixed."""
        network = self._network
        network.load(self._old)
        network.eval().to(torch.float64 if double else torch.float32)
        own = dict(network.named_parameters())
        found = top_eigenvalue(self._losses, [own[name] for name in self._names])
        network.to(torch.float32)
        return found

    def _losses(self) -> Iterator[Tensor]:
        dtype = next(self._network.parameters()).dtype
        setting = self._setting
        size, device = setting.training.batch_size, setting.device
        for part in self._parts:
            batches = Batches(part.samples, size, setting.normalization, device=device)
            for batch in batches.in_order():
                logits = self._network(batch.x.to(dtype)).logits
                loss = self._loss(logits, batch.y, part.task)
                yield len(batch.y) / self._total * loss

    def _loss(self, logits: Tensor, y: Tensor, task: int) -> Tensor:
        competing = self._classes[task]
        return F.cross_entropy(logits[:, competing], y - competing.start)
