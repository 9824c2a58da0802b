"""How a network is trained: optimizer, schedule and when to stop."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Lt, MinLen
from pydantic import AfterValidator

from ancl.hashing import LATER, describe, described_fields
from ancl.training.optimizers import optimizer_code, optimizer_name, optimizer_problems
from ancl.training.precision import Precision

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
        epochs_first: The same for the first task, if it differs.
        lr: Learning rate at the start of a task; ``search`` turns ``lr_search`` on.
        lr_first: The same for the first task, if it differs.
        lr_search: Whether each task's learning rate is searched by fine-tuning, on its validation
            images.
        batch_size: Images per step.
        optimizer: A class of ``torch.optim`` (``sgd``, ``adamw``, ``adam``, ``rmsprop`` …), or your
            own: ``path/file.py:NAME``.
        momentum: Momentum of SGD.
        weight_decay: Added by the optimizer.
        schedule: ``patience`` divides the learning rate when the validation loss stops improving,
            and ends below ``lr_min``; ``cosine``, ``multistep`` and ``constant`` follow the epochs;
            ``restarts`` begins with a tenth of the rate, then falls in cycles of 1, 2, 4 … epochs.
        patience: Epochs without improvement before the rate is divided.
        select_by: What ``patience`` judges an epoch by, on validation images: the whole ``loss``,
            the ``task_loss`` alone, or ``accuracy``; as the method says if left out.
        factor: What the rate is divided by.
        lr_min: Training ends when the rate would fall below it; ``restarts`` falls to it.
        reset_momentum: Whether going back to the best weights also clears the optimizer.
        milestones: Epochs after which ``multistep`` multiplies the rate.
        gamma: What ``multistep`` multiplies by.
        warmup: Share of a fixed schedule's steps in which the rate rises from zero.
        clip: Largest norm of the gradient; left out, as the method says: any length for most.
        penalty_step: ``plain`` adds an Ω on weights to the gradient; ``proximal`` takes an
            implicit step for it, stable for every λ.
        precision: In which numbers networks compute while training: ``fp32``, or ``bf16`` or
            ``fp16`` by autocast. Losses, Ω, importance, weights and evaluation are in fp32.
        optimizer_options: More arguments of the optimizer, such as ``{betas: [0.9, 0.95]}``.
        epochs_by_task: The largest number of epochs of each task; the last value is for all tasks
            that follow. A list for ``epochs`` sets it.
        lr_by_task: The learning rate of each task, in the same way. A list for ``lr`` sets it.
        evaluate_every: Also test the main network on all tasks so far, each time this many epochs
            are done, by its own answers; the log holds the result. It decides nothing.
        inner: Number of steps on every batch of the task, each with a replay batch of its own if
            there is a memory to replay from.
        backbone_factor: The backbone's learning rate, as a share of that of the head. With
            pretrained weights it is below 1 unless a run says otherwise.
    """

    epochs: Annotated[int, Ge(1)] = 200
    epochs_first: Annotated[int, Ge(1)] | None = None
    lr: Positive = 0.05
    lr_first: Positive | None = 0.1
    lr_search: bool = False
    batch_size: Annotated[int, Ge(1)] = 128
    optimizer: Annotated[str, AfterValidator(optimizer_name)] = "sgd"
    momentum: Share = 0.9
    weight_decay: Annotated[float, Ge(0)] = 2e-4
    schedule: Literal["patience", "cosine", "multistep", "constant", "restarts"] = "patience"
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
    precision: Annotated[Precision, LATER] = "fp32"
    optimizer_options: Annotated[Mapping[str, Any] | None, LATER] = None
    epochs_by_task: Annotated[
        Annotated[tuple[Annotated[int, Ge(1)], ...], MinLen(1)] | None, LATER
    ] = None
    lr_by_task: Annotated[Annotated[tuple[Positive, ...], MinLen(1)] | None, LATER] = None
    evaluate_every: Annotated[Annotated[int, Ge(1)] | None, LATER] = None
    inner: Annotated[Annotated[int, Ge(1)], LATER] = 1
    backbone_factor: Annotated[Positive, LATER] = 1.0

    def at(self, task: int) -> Self:
        """The same with the values of one task filled in; a rate to be searched has none yet."""
        lr, epochs = self.lr, self.epochs
        if task == 0:
            lr, epochs = self.lr_first or lr, self.epochs_first or epochs
        if self.epochs_by_task:
            epochs = self.epochs_by_task[min(task, len(self.epochs_by_task) - 1)]
        if self.lr_by_task:
            lr = self.lr_by_task[min(task, len(self.lr_by_task) - 1)]
        if self.lr_search:
            lr = FIRST_RATES[0]
        alike = replace(
            self, epochs_first=None, epochs_by_task=None, lr_first=None, lr_by_task=None
        )
        return replace(alike, lr=lr, epochs=epochs)

    def key_description(self) -> dict[str, Any]:
        """What stage keys hold of it: a user's own optimizer by its source."""
        fields = described_fields(self)
        if code := optimizer_code(self.optimizer):
            fields["optimizer"] = code.value
        return {"is": "Training", **{name: describe(value) for name, value in fields.items()}}

    def problems(self) -> list[str]:
        """What does not go together, beyond each value's own range."""
        mistakes = []
        if self.penalty_step == "proximal" and self.optimizer != "sgd":
            mistakes.append(
                f"penalty_step=proximal is an implicit step of SGD, but optimizer is "
                f"{self.optimizer}. Use optimizer=sgd or penalty_step=plain."
            )
        if self.penalty_step == "proximal" and self.precision == "fp16":
            mistakes.append(
                "precision=fp16 leaves out steps whose gradients overflow, and "
                "penalty_step=proximal would take its part of them nevertheless. Use "
                "precision=bf16 or penalty_step=plain."
            )
        if self.lr_search and self.lr_by_task:
            mistakes.append("lr_by_task gives every task's rate, and lr_search looks for it.")
        mistakes += optimizer_problems(self)
        if self.schedule == "multistep" and not self.milestones:
            mistakes.append("schedule=multistep needs milestones, e.g. milestones=[80,120].")
        if any(epoch < 1 for epoch in self.milestones):
            mistakes.append(f"milestones={list(self.milestones)}: epochs are numbered from 1.")
        return mistakes


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
    if training.schedule == "restarts":
        return _restarted_rate(training, epoch)
    return training.lr


def _restarted_rate(training: Training, epoch: int) -> float:
    """The rate of an epoch with cycles of 1, 2, 4 … epochs, as in GDumb's code.

    >>> [round(_restarted_rate(Training(lr=0.05, lr_min=0.0005), e), 4) for e in range(6)]
    [0.005, 0.05, 0.05, 0.0252, 0.05, 0.0428]
    """
    if epoch == 0:
        return training.lr / 10
    start = 1 << (epoch.bit_length() - 1)  # also the length of the cycle
    share = 0.5 * (1 + math.cos(math.pi * (epoch - start) / start))
    return training.lr_min + (training.lr - training.lr_min) * share
