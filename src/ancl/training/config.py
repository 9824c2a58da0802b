"""How a network is trained: optimizer, schedule and when to stop."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor, nn

from ancl.hashing import LATER
from ancl.networks.network import BACKBONE
from ancl.training.quadratic import like
from ancl.types import Params, prefixed, strip_prefix

FIRST_RATES = (0.5, 0.1, 0.05)
"""What is tried for the first task where the rate is searched."""
LATER_RATES = (0.1, 0.05, 0.01, 0.005, 0.001)
"""The rates of later tasks; the largest three below the first task's are tried."""
TRIALS = 3


def candidate_rate(first: float | None, trial: int) -> float:
    """The rate of one trial; ``first`` is the rate found for the first task, if it is not this.

    Examples:
        >>> candidate_rate(None, 0), candidate_rate(0.1, 0), candidate_rate(0.05, 2)
        (0.5, 0.05, 0.001)
    """
    if first is None:
        return FIRST_RATES[trial]
    return [rate for rate in LATER_RATES if rate < first][trial]


Positive = Annotated[float, Gt(0)]
Share = Annotated[float, Ge(0), Lt(1)]
SelectBy = Literal["loss", "task_loss", "accuracy"]


@dataclass(frozen=True)
class Training:
    """One network's training on one task.

    Args:
        epochs: Largest number of epochs per task.
        epochs_first: The same for the first task, where it differs.
        lr: Learning rate at the start of a task; ``search`` turns ``lr_search`` on.
        lr_first: The same for the first task, where it differs.
        lr_search: Whether each task's rate is searched by fine-tuning, on its validation images.
        batch_size: Images per step.
        optimizer: ``sgd`` or ``adamw``.
        momentum: Momentum of SGD.
        weight_decay: Added by the optimizer.
        schedule: ``patience`` divides the rate when the validation loss stops improving and
            ends below ``lr_min``; ``cosine``, ``multistep`` and ``constant`` follow the epochs.
        patience: Epochs without improvement before the rate is divided.
        select_by: What ``patience`` judges an epoch by, on validation images: the whole ``loss``,
            the ``task_loss`` alone, or ``accuracy``; as the method says if left out.
        factor: What the rate is divided by.
        lr_min: Training ends when the rate would fall below it.
        reset_momentum: Whether going back to the best weights also clears the optimizer.
        milestones: Epochs after which ``multistep`` multiplies the rate.
        gamma: What ``multistep`` multiplies by.
        warmup: Share of a fixed schedule's steps in which the rate rises from zero.
        clip: Largest norm of the gradient; none if left out.
        penalty_step: ``plain`` adds an Ω on weights to the gradient; ``proximal`` takes an
            implicit step for it, stable for every λ.
        backbone_factor: What the backbone learns with, as a share of the rate; the head has all of
            it. With pretrained weights it is below 1 unless a run says otherwise.
    """

    epochs: Annotated[int, Ge(1)] = 200
    epochs_first: Annotated[int, Ge(1)] | None = None
    lr: Positive = 0.05
    lr_first: Positive | None = 0.1
    lr_search: bool = False
    batch_size: Annotated[int, Ge(1)] = 128
    optimizer: Literal["sgd", "adamw"] = "sgd"
    momentum: Share = 0.9
    weight_decay: Annotated[float, Ge(0)] = 2e-4
    schedule: Literal["patience", "cosine", "multistep", "constant"] = "patience"
    patience: Annotated[int, Ge(1)] = 5
    select_by: SelectBy | None = None
    factor: Annotated[float, Gt(1)] = 3.0
    lr_min: Positive = 1e-4
    reset_momentum: bool = False
    milestones: tuple[int, ...] = ()
    gamma: Positive = 0.1
    warmup: Share = 0.0
    clip: Positive | None = None
    penalty_step: Literal["plain", "proximal"] = "plain"
    backbone_factor: Annotated[Positive, LATER] = 1.0

    def at(self, task: int) -> Self:
        """The same with the values of one task filled in; a rate to be searched has none yet."""
        lr, epochs = self.lr, self.epochs
        if task == 0:
            lr, epochs = self.lr_first or lr, self.epochs_first or epochs
        if self.lr_search:
            lr = FIRST_RATES[0]
        return replace(self, lr=lr, lr_first=None, epochs=epochs, epochs_first=None)

    def problems(self) -> list[str]:
        """What does not go together, beyond each value's own range."""
        found = []
        if self.penalty_step == "proximal" and self.optimizer != "sgd":
            found.append(
                f"penalty_step=proximal is an implicit step of SGD, but optimizer is "
                f"{self.optimizer}. Use optimizer=sgd or penalty_step=plain."
            )
        if self.schedule == "multistep" and not self.milestones:
            found.append("schedule=multistep needs milestones, e.g. milestones=[80,120].")
        if any(epoch < 1 for epoch in self.milestones):
            found.append(f"milestones={list(self.milestones)}: epochs are numbered from 1.")
        return found


def scheduled_rate(training: Training, step: int, total: int, epoch: int) -> float:
    """The learning rate of a fixed schedule at one of its ``total`` steps."""
    warm = round(training.warmup * total)
    if step < warm:
        return training.lr * (step + 1) / warm
    if training.schedule == "cosine":
        progress = (step - warm) / max(total - warm, 1)
        return training.lr * 0.5 * (1 + math.cos(math.pi * progress))
    if training.schedule == "multistep":
        passed = sum(milestone <= epoch for milestone in training.milestones)
        return training.lr * training.gamma**passed
    return training.lr


Parameters = dict[str, nn.Parameter]


def make_optimizer(parameters: Parameters, training: Training) -> torch.optim.Optimizer:
    """A fresh optimizer of these parameters, the backbone's before the head's."""
    groups, decay = _groups(parameters, training), training.weight_decay
    if training.optimizer == "adamw":
        return torch.optim.AdamW(groups, training.lr, weight_decay=decay, fused=True)
    return torch.optim.SGD(
        groups, training.lr, momentum=training.momentum, weight_decay=decay, fused=True
    )


def _groups(parameters: Parameters, training: Training) -> list[dict[str, Any]]:
    """What learns with one rate; ``factor`` is its share of the training's."""
    if training.backbone_factor == 1:
        return [{"params": list(parameters.values()), "factor": 1.0}]
    parts: dict[float, list[nn.Parameter]] = {training.backbone_factor: [], 1.0: []}
    for name, parameter in parameters.items():
        parts[training.backbone_factor if name.startswith(BACKBONE) else 1.0].append(parameter)
    return [{"params": own, "factor": factor} for factor, own in parts.items() if own]


def moments(optimizer: torch.optim.Optimizer, parameters: Parameters) -> Params:
    """A copy of what an optimizer knows of each parameter."""
    known: Params = {}
    for name, parameter in parameters.items():
        held = optimizer.state.get(parameter, {})
        known |= prefixed(name, {k: v.clone() for k, v in held.items() if isinstance(v, Tensor)})
    return known


def load_moments(optimizer: torch.optim.Optimizer, parameters: Parameters, tensors: Params) -> None:
    """Give a fresh optimizer what ``moments`` found, with each parameter's own strides."""
    for name, parameter in parameters.items():
        held = strip_prefix(name, tensors)
        if held:
            optimizer.state[parameter] = {
                key: like(parameter, value)
                if value.shape == parameter.shape
                else value.to(parameter.device, copy=True)
                for key, value in held.items()
            }
