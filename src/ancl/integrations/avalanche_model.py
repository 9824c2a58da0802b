"""An Avalanche strategy's model as the library sees a network: its answers, weights and copies."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.utils.data import DataLoader

from ancl.errors import MethodError, TrainingError
from ancl.losses import TaskLoss
from ancl.methods.task_history import ClassHistory
from ancl.regularizers import Evidence, Regularizer, Watcher, WeightRegularizer
from ancl.seeding import seeded
from ancl.training.lambda_rules import weight_at
from ancl.training.objective import Auxiliary, Objective, PenaltyTerm, anchor_from
from ancl.types import Anchor, Importance, Output, Params, Step


class Experience(Protocol):
    """What is read of an experience."""

    classes_in_this_experience: Any
    dataset: Any


class Strategy(Protocol):
    """What is read of a strategy; Avalanche's supervised ones have it."""

    model: nn.Module
    optimizer: Optimizer
    experience: Any
    device: Any
    train_epochs: int
    train_mb_size: int
    loss: Tensor
    mb_output: Any

    @property
    def mb_x(self) -> Any:
        """The images of the batch."""
        ...

    @property
    def mb_y(self) -> Any:
        """Their classes."""
        ...


class _Answering(nn.Module):
    """A model with its logits in order of arrival, and what enters its classifier."""

    def __init__(self, model: nn.Module, columns: Tensor, head: str | None) -> None:
        super().__init__()
        self.backbone = model  # the name under which per-sample gradients look for weights
        self._columns, self._head = columns, head

    def forward(self, x: Tensor) -> Output:
        """The answer to one batch."""
        if self._head is None:
            logits = self.backbone(x)[:, self._columns]
            return Output(logits, logits[:, :0])
        entered, hook = listen(self.backbone, self._head)
        try:
            logits = self.backbone(x)[:, self._columns]
        finally:
            hook.remove()
        return Output(logits, entered[-1].flatten(1))


@dataclass(frozen=True, eq=False)
class Learning:
    """A model in one experience.

    Args:
        model: The strategy's, or the auxiliary network.
        columns: Its logits' columns in order of arrival.
        tasks: The classes of every experience so far, as slices of that order.
        head: The name of its classifier, where an Ω reads features or weights.
        dataset: The experience's images.
        batch_size: The strategy's.
        device: The strategy's.
    """

    model: nn.Module
    columns: Tensor
    tasks: tuple[slice, ...]
    head: str | None
    dataset: Any
    batch_size: int
    device: Any

    @property
    def history(self) -> ClassHistory:
        """Which classes came when."""
        return ClassHistory(self.tasks)

    @property
    def network(self) -> _Answering:
        """The model as an Ω sees it."""
        return _Answering(self.model, self.columns, self.head)

    def positions(self, y: Tensor) -> Tensor:
        """Labels as positions in the order of arrival."""
        return (y.unsqueeze(1) == self.columns).to(torch.long).argmax(dim=1)

    def weights(self) -> Params:
        """The weights that learn outside the classifier; none where no Ω reads them."""
        if self.head is None:
            return {}
        return {
            name: weight
            for name, weight in self.model.named_parameters()
            if weight.requires_grad and not name.startswith(f"{self.head}.")
        }

    def copied_weights(self) -> Params:
        """Their values now."""
        return {name: weight.detach().clone() for name, weight in self.weights().items()}

    def anchor(self, omega: Regularizer, classes: slice, importance: Importance) -> Anchor:
        """A frozen copy, with just what this Ω reads of it.

        Raises:
            TrainingError: Its weights are not finite: it would spoil all that follows.
        """
        if not all(bool(weight.isfinite().all()) for weight in self.model.parameters()):
            raise TrainingError(
                f"A network's weights are not finite in experience {len(self.tasks)}. Lower the "
                f"learning rate, or lamb and lamb_a."
            )
        if isinstance(omega, WeightRegularizer):
            return Anchor(classes, weights=self.copied_weights(), importance=importance)
        return anchor_from(self.network, classes)

    def batches(self, augmented: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """The experience's own images in a random order, with positions for labels."""
        images = self.dataset
        if hasattr(images, "train") and hasattr(images, "eval"):
            images = images.train() if augmented else images.eval()
        collate = getattr(images, "collate_fn", None)
        for x, y, *_ in DataLoader(images, self.batch_size, shuffle=True, collate_fn=collate):
            yield x.to(self.device), self.positions(y.to(self.device))

    def importance(
        self, omega: Regularizer, start: Params, watcher: Watcher | None, role: str, epoch: int
    ) -> Importance:
        """What an Ω on weights knows of them; estimated on a copy, so that nothing is touched."""
        if not isinstance(omega, WeightRegularizer):
            return {}
        copied = replace(self, model=copy.deepcopy(self.model))
        watched = watcher.state() if watcher else {}
        evidence = Evidence(
            copied.network, copied.weights(), start, copied.batches, copied.tasks, watched
        )
        with self.stream(role, "importance", epoch):
            return omega.importance(evidence)

    def stream(self, *path: int | str) -> Any:
        """Randomness of its own: the strategy's continues as if nothing had been drawn."""
        return seeded(torch.initial_seed(), len(self.tasks), *path)


def learning_of(
    strategy: Strategy, order: tuple[int, ...], tasks: tuple[slice, ...], head: str | None
) -> Learning:
    """The strategy's model in its present experience."""
    columns = torch.tensor(order, device=strategy.device)
    images, size = strategy.experience.dataset, strategy.train_mb_size
    return Learning(strategy.model, columns, tasks, head, images, size, strategy.device)


class AuxiliaryNetwork:
    """A copy of the model that learns the experience's own classes by the method's task loss.

    Its optimizer is a copy of the strategy's, without the state of earlier steps.
    """

    def __init__(
        self, auxiliary: Auxiliary, task_loss: TaskLoss, main: Learning, strategy: Strategy
    ) -> None:
        # Copied together, the optimizer holds the copy's parameters.
        model, self._optimizer = copy.deepcopy((main.model, strategy.optimizer))
        self._optimizer.state.clear()
        self._auxiliary, self._learning = auxiliary, replace(main, model=model)
        self._start, self._epoch = main.copied_weights(), 0
        self._objective = Objective(task_loss, own_classes=True)
        omega = auxiliary.regularizer
        watcher = omega.watcher if isinstance(omega, WeightRegularizer) else None
        self._watcher = watcher() if watcher else None

    def follow(self, optimizer: Optimizer) -> None:
        """Take the strategy's rates."""
        for group, theirs in zip(self._optimizer.param_groups, optimizer.param_groups, strict=True):
            group["lr"] = theirs["lr"]

    def learn(self, epochs: int) -> None:
        """Train this number of epochs."""
        for _ in range(epochs):
            with self._learning.stream("auxiliary", "epoch", self._epoch):
                for x, y in self._learning.batches(augmented=True):
                    self._step(x, y)
            self._epoch += 1

    def term(self) -> PenaltyTerm:
        """The pull to it as it is now."""
        history, of = self._learning.history, self._auxiliary
        classes = slice(history.current.start if of.classes == "new" else 0, history.current.stop)
        importance = self._learning.importance(
            of.omega, self._start, self._watcher, "auxiliary", self._epoch
        )
        anchor = self._learning.anchor(of.omega, classes, importance)
        return PenaltyTerm("auxiliary", weight_at(of.lamb_a, *history.counts), of.omega, anchor)

    def _step(self, x: Tensor, y: Tensor) -> None:
        out, weights = self._learning.network(x), self._learning.weights()
        terms = self._objective(Step(x, y, out, weights, self._learning.tasks))
        self._optimizer.zero_grad()
        torch.autograd.backward([terms["task"]])
        if self._watcher:
            self._watcher.before(weights)
        self._optimizer.step()
        if self._watcher:
            self._watcher.after(weights)


def listen(model: nn.Module, head: str) -> tuple[list[Tensor], Any]:
    """A list that what enters the classifier is put into, and the hook that does it."""
    entered: list[Tensor] = []
    listened = model.get_submodule(head)
    return entered, listened.register_forward_pre_hook(lambda _, given: entered.append(given[0]))


def check_model(model: nn.Module, head: str | None) -> None:
    """Refuse a model the plug-in cannot read."""
    kinds = {kind.__name__ for part in model.modules() for kind in type(part).__mro__}
    if "MultiTaskModule" in kinds:
        raise MethodError(
            "The model has one classifier for each task label. Use one classifier for all "
            "classes, such as IncrementalClassifier, and a benchmark without task labels."
        )
    names = [name for name, _ in model.named_modules() if name]
    if head is not None and head not in names:
        raise MethodError(
            f"The model has no part {head!r}, and the method reads what lies before its "
            f"classifier. Give head=… as one of: {', '.join(names)}."
        )
