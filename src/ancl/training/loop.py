"""The one training loop: an iterator over epochs whose whole state is one saveable value."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple, Protocol

import torch
from torch import Generator, Tensor

from ancl.data import Batch, Batches, ReplayStream
from ancl.errors import TrainingError
from ancl.losses import View, correct_answers
from ancl.networks import Network, train_mode
from ancl.regularizers import Watcher
from ancl.seeding import generator, seeded
from ancl.state import RENEWED
from ancl.step_hooks import Constraint
from ancl.store.entry import StageResult
from ancl.training.config import Training, scheduled_rate
from ancl.training.cost import Cost, CostMeter
from ancl.training.objective import Objective
from ancl.training.optimizers import load_state, make_optimizer, moments, numbers
from ancl.training.outer import OuterStep
from ancl.training.precision import LossScale, answering_in
from ancl.training.quadratic import like
from ancl.training.renewal import RenewedStream
from ancl.training.retrieval import Interference
from ancl.types import Anchor, Output, Params, Step, prefixed, split_output, strip_prefix

RandomPath = tuple[int, int, str, *tuple[str, ...]]
"""(seed, task, role), and of a task's piece which: where random streams come from."""


@dataclass(frozen=True)
class Epoch:
    """What one epoch did. Terms are means over samples, each already times its λ.

    A term on weights is its value at the end of the epoch; so is everything on validation
    images, from which ``accuracy`` comes too. ``lambs`` has what rules yielded: the ``lamb`` and
    the mean ``lamb_a`` of the epoch; ``tasks`` the test accuracy on every task so far, ``taw`` and
    ``tag``, where ``evaluate_every`` asks for it.
    """

    role: str
    epoch: int
    lr: float
    train: dict[str, float]
    val: dict[str, float]
    accuracy: float | None
    best: bool
    note: str
    seconds: float
    lambs: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, list[float | None]] = field(default_factory=dict)


class Saved(NamedTuple):
    """The whole state of a training between two epochs."""

    tensors: Params
    meta: dict[str, Any]


class Trainer(Protocol):
    """Can be driven epoch by epoch, saved where it is settled, and stored at its end."""

    def __iter__(self) -> Iterator[Epoch]: ...
    def state(self) -> Saved: ...  # noqa: D102
    def restore(self, saved: Saved) -> None: ...  # noqa: D102
    def tensors(self) -> Params: ...  # noqa: D102

    @property
    def settled(self) -> bool: ...  # noqa: D102
    @property
    def lambs(self) -> dict[str, float]: ...  # noqa: D102
    @property
    def trainable_parameters(self) -> int: ...  # noqa: D102


Drive = Callable[[Trainer], list[dict[str, Any]]]
"""Runs a training to its end, from a checkpoint if there is one, and returns its log."""


class Fit:
    """Trains a network on one task, an epoch at each ``next``.

    The patience schedule keeps the weights of the best epoch by ``select_by`` (the lowest
    validation loss unless it says otherwise), goes back to them when the rate falls, and ends
    with them. Fixed schedules end with the last weights.
    """

    settled = True

    def __init__(
        self,
        network: Network,
        objective: Objective,
        train: Batches,
        val: Batches | None,
        view: View,
        training: Training,
        path: RandomPath,
        watcher: Watcher | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.network, self.train, self.val, self.view = network, train, val, view
        self.training, self.path, self.watcher = training, path, watcher
        self._constraint, self._noise = constraint, generator(*path, "constraint", 0)
        if self.patient and val is None:
            raise TrainingError(
                f"schedule=patience needs validation images, and task {path[1] + 1} has none. Give "
                f"val_fraction above 0, or use training.schedule=cosine, multistep or constant."
            )
        self.weights = {n: w for n, w in network.weights().items() if w.requires_grad}
        self._parameters = {n: p for n, p in network.named_parameters() if p.requires_grad}
        self._optimizer = make_optimizer(self._parameters, self.training)
        self._precision = answering_in(training.precision, train.device)
        self._scale = LossScale(train.device) if training.precision == "fp16" else None
        self._answers: list[dict[Anchor, Output]] = []
        self._meter = CostMeter()
        self._reference: tuple[Tensor | None, ...] = ()
        self.outer: OuterStep | None = None
        self.replay: ReplayStream | None = None
        self.retrieve: Interference | None = None
        self.objective = objective
        self.epoch, self.lr, self.finished = 0, training.lr, False
        self._left, self._lowest = training.patience, math.inf
        self._best, self._best_watched = self._state_dict(), self._watched()

    @property
    def objective(self) -> Objective:
        """The loss; a new one may be set between epochs."""
        return self._objective

    @objective.setter
    def objective(self, objective: Objective) -> None:
        self._objective = objective
        self._quadratic = objective.quadratic(self.weights)

    @property
    def patient(self) -> bool:
        """Whether validation decides the rate, the end and the weights that are kept."""
        return self.training.schedule == "patience"

    @property
    def proximal(self) -> bool:
        """Whether terms on weights get an implicit step."""
        return self.training.penalty_step == "proximal"

    def __iter__(self) -> Iterator[Epoch]:
        return self

    def __next__(self) -> Epoch:
        """Train one epoch, judge it, and say what happened."""
        if self.finished:
            raise StopIteration
        began, epoch = perf_counter(), self.epoch
        self._set_rate(0)
        lr = self.lr
        with seeded(*self.path, "epoch", epoch):
            train = self._train_epoch()
            moved = self.outer(epoch) if self.outer else {}
            val, accuracy = self._validate()
        if self._scale and self._scale.vanished:
            raise TrainingError(self._no_finite_gradient())
        best, note = self._judge(train, val, accuracy)
        ended, limits = self._objective.end_epoch()
        lambs = {**ended, **moved}
        note = "; ".join(filter(None, (note, limits)))
        if "lamb" in lambs:  # terms on weights follow it
            self.objective = self._objective
        self.epoch += 1
        self.finished = self.finished or self.epoch >= self.training.epochs
        if self.finished and self.patient:
            self._restore_best()
            if math.isinf(self._lowest):
                raise TrainingError(self._no_finite_loss(train, val))
        seconds = perf_counter() - began
        return Epoch(self.path[2], epoch, lr, train, val, accuracy, best, note, seconds, lambs)

    def tensors(self) -> Params:
        """The network, what the watcher saw of the steps to its weights, and a renewed memory."""
        tensors = prefixed("network", self.network.tensors())
        tensors |= prefixed("watched", self._watched())
        return tensors | (prefixed(RENEWED, self._renewed.state()) if self._renewed else {})

    @property
    def lambs(self) -> dict[str, float]:
        """Each term's λ."""
        return self._objective.lambs

    @property
    def trainable_parameters(self) -> int:
        """The number of parameters that the training changes."""
        outer = self.outer.parameters if self.outer else {}
        return sum(parameter.numel() for parameter in (*self._parameters.values(), *outer.values()))

    @property
    def cost(self) -> Cost:
        """What the training took so far."""
        return self._meter.total

    def steepest(self) -> float:
        """The largest curvature of the terms on weights; 0 where there are none."""
        return self._quadratic.steepest() if self._quadratic else 0.0

    # -- one epoch ---------------------------------------------------------------------------

    def _train_epoch(self) -> dict[str, float]:
        train_mode(self.network)
        self._noise = generator(*self.path, "constraint", self.epoch)
        totals: dict[str, Tensor] = {}
        batches = self.train.shuffled(generator(*self.path, "batches", self.epoch))
        draws = generator(*self.path, "replay", self.epoch)
        inner, renewed = self.training.inner, self._renewed
        came = self.train.positions(generator(*self.path, "batches", self.epoch)) if renewed else []
        steps = ((n, b, i + 1 == inner) for n, b in enumerate(batches) for i in range(inner))
        for number, batch, last in steps:
            self._set_rate(number)
            self.network.at(self.epoch, number, len(self.train))
            part = number / len(self.train)
            replay = self._replayed(batch, part, draws)
            with self._meter.step(len(batch.y) + (len(replay[0].y) if replay else 0)):
                step = self._step(batch, part, replay=replay)
                terms = self._objective.answers(step)
                self._backward(terms)
            self._update(len(batch.y))
            if renewed and last:
                renewed.learned(came[number], step.out)
            for name, term in terms.items():
                weighted = term.detach() * len(batch.y)
                totals[name] = totals[name].add_(weighted) if name in totals else weighted
        means = self._means(totals, self.train.count * inner)
        return dict(zip(means, torch.stack(list(means.values())).tolist(), strict=True))

    @property
    def _renewed(self) -> RenewedStream | None:
        """What is replayed, where it takes the batches that are learned."""
        return self.replay if isinstance(self.replay, RenewedStream) else None

    def _replayed(self, batch: Batch, part: float, draws: Generator) -> tuple[Batch, Params] | None:
        """The replay batch of a step, where there is one: drawn, or chosen among more of them."""
        if self.replay is None or self.retrieve is None:
            return self.replay.drawn(draws) if self.replay else None

        def loss(out: Output) -> Tensor:
            return self._objective.task_loss(self._read(part)(batch.x, batch.y, out))

        lr: float = self._optimizer.param_groups[0]["lr"]
        return self.retrieve.drawn(self.replay, draws, self.network, loss, batch.x, lr)

    def _backward(self, terms: dict[str, Tensor]) -> None:
        """Gradients of all terms; those of terms kept apart are not among the parameters'."""
        self._optimizer.zero_grad(set_to_none=True)
        apart, self._reference = self._objective.apart, ()
        # Features of a frozen backbone have no gradient.
        learning = {name: term for name, term in terms.items() if term.requires_grad}
        if others := [term for name, term in learning.items() if name in apart]:
            parameters = list(self._parameters.values())
            self._reference = torch.autograd.grad(
                others, parameters, retain_graph=True, allow_unused=True
            )
        # Gradients add up: the sum is never needed.
        losses = [term for name, term in learning.items() if name not in apart]
        torch.autograd.backward(self._scale.scaled(losses) if self._scale else losses)

    def _update(self, batch: int) -> None:
        if self._scale:
            self._scale.unscale(self._optimizer)
        if self.watcher:
            self.watcher.before(self.weights)
        if self._quadratic:
            self._objective.observe_gradients(self.weights, self._quadratic)
        if self._quadratic and not self.proximal:
            self._quadratic.add_gradient()
        if self.training.clip is not None:
            torch.nn.utils.clip_grad_norm_(list(self._parameters.values()), self.training.clip)
        if self._constraint:
            parameters = list(self._parameters.values())
            if self._reference:
                self._constraint.against(parameters, self._reference)
            self._constraint.gradients(parameters, self.epoch, batch, self._noise)
        if self._scale:
            self._scale.step(self._optimizer)
        else:
            self._optimizer.step()
        if self._quadratic and self.proximal:
            # Momentum makes SGD's steady step lr / (1 − m); the same here keeps the minimum.
            lr: float = self._optimizer.param_groups[0]["lr"]
            self._quadratic.proximal(lr / (1 - self.training.momentum))
        if self._constraint:
            self._constraint.weights(self.network)
        if self.watcher:
            self.watcher.after(self.weights)

    @torch.no_grad()
    def _validate(self) -> tuple[dict[str, float], float | None]:
        if self.val is None:
            return {}, None
        self.network.eval()
        totals: dict[str, Tensor] = {}
        correct = torch.zeros((), dtype=torch.long, device=self.val.device)
        for number, batch in enumerate(self.val.in_order()):
            if number == len(self._answers):
                self._answers.append({})
            step = self._step(batch, 1.0, self._answers[number])
            for name, term in self._objective.answers(step).items():
                totals[name] = totals.get(name, torch.zeros_like(term)) + term * len(batch.y)
            logits = self._objective.scored(step.out).logits
            correct += correct_answers(logits, batch.y, self.view)
        count = len(self.val.samples)
        means = self._means(totals, count)
        *values, right = torch.stack([*means.values(), correct]).tolist()
        return dict(zip(means, values, strict=True)), right / count

    def _step(
        self,
        batch: Batch,
        part: float,
        answers: dict[Anchor, Output] | None = None,
        replay: tuple[Batch, Params] | None = None,
    ) -> Step:
        """What the loss may look at, after a part of the epoch.

        A replay batch passes together with the task's: batch norm has the statistics of both.
        """
        read = self._read(part)
        if replay is None:
            with self._precision():
                out = self.network(batch.x, self._objective.maps)
            return read(batch.x, batch.y, out, exemplars=batch.exemplars, answers=answers)
        again, extra = replay
        with self._precision():
            both = self.network(torch.cat([batch.x, again.x]), self._objective.maps)
        new_part, other = split_output(both, len(batch.y))
        read = partial(read, passed=both.features)
        replayed = read(again.x, again.y, other, exemplars=again.exemplars, extra=extra)
        return read(batch.x, batch.y, new_part, exemplars=batch.exemplars, replay=replayed)

    def _read(self, part: float) -> partial[Step]:
        """What makes a step, after a part of the epoch, of a batch and the network's output."""
        return partial(
            Step,
            weights=self.weights,
            tasks=self.view.tasks,
            task_aware=self.view.task_aware,
            rehearses=self.view.rehearses,
            present=self.view.present,
            rows=self.network.head.rows() if self._objective.maps else None,
            scale=self.network.head.scale,
            epoch=self.epoch,
            progress=(self.epoch + part) / self.training.epochs,
            precision=self._precision,
        )

    def _means(self, totals: dict[str, Tensor], count: int) -> dict[str, Tensor]:
        """Term means with the weight terms beside them, still on the device: it is read once."""
        values = {name: total / count for name, total in totals.items()}
        if self._quadratic:
            values.update(self._quadratic.values())
        return values

    # -- schedule ----------------------------------------------------------------------------

    def _judge(
        self, train: dict[str, float], val: dict[str, float], accuracy: float | None
    ) -> tuple[bool, str]:
        """Apply the schedule to a finished epoch: is it the best so far, and what is to be said."""
        if not all(map(math.isfinite, (*train.values(), *val.values()))):
            return False, self._recover(train, val)
        if not self.patient:
            self._check_last_weights()
            return False, ""
        value = self._selection_value(val, accuracy)
        if value < self._lowest:
            self._lowest, self._left = value, self.training.patience
            self._best, self._best_watched = self._state_dict(), self._watched()
            return True, ""
        self._left -= 1
        return False, self._lower_rate() if self._left == 0 else ""

    def _selection_value(self, val: dict[str, float], accuracy: float | None) -> float:
        """What the best epoch has the lowest value of."""
        if self.training.select_by == "task_loss":
            return val["task"]
        if self.training.select_by == "accuracy":
            assert accuracy is not None, "patience has validation images"
            return -accuracy
        return self._objective.selection_loss(val)

    def _check_last_weights(self) -> None:
        """A last step may spoil weights that no later loss would show."""
        last = self.epoch + 1 == self.training.epochs
        finite = [parameter.isfinite().all() for parameter in self._parameters.values()]
        if last and not bool(torch.stack(finite).all()):
            raise TrainingError(self._no_finite_loss({"weights": math.nan}, {}))

    def _lower_rate(self) -> str:
        self.lr /= self.training.factor
        if self.lr < self.training.lr_min:
            self.finished = True
            return f"no improvement for {self.training.patience} epochs: done"
        self._left = self.training.patience
        self._restore_best()
        if self.training.reset_momentum:
            self._optimizer = make_optimizer(self._parameters, self.training)
        return f"no improvement for {self.training.patience} epochs: rate {self.lr:.2g}"

    def _recover(self, train: dict[str, float], val: dict[str, float]) -> str:
        """After a non-finite epoch: the best weights again, a fresh optimizer, a lower rate."""
        names = _non_finite(train, val)
        if not self.patient:
            raise TrainingError(self._no_finite_loss(train, val))
        self.lr /= self.training.factor
        self.finished = self.lr < self.training.lr_min
        self._left = self.training.patience
        self._restore_best()
        self._optimizer = make_optimizer(self._parameters, self.training)
        return f"{' and '.join(names)} not finite: back to the best weights, rate {self.lr:.2g}"

    def _no_finite_loss(self, train: dict[str, float], val: dict[str, float]) -> str:
        blamed = []
        for name in _non_finite(train, val):
            lamb = self._objective.lambs.get(name)
            blamed.append(name if lamb is None else f"{name} (λ = {lamb:g})")
        task, role = self.path[1:3]
        fuller = ", or training.precision=bf16" if self._scale else ""
        return (
            f"Training the {role} network on task {task + 1} found no finite loss down to a rate "
            f"of {self.lr:.2g}; not finite: {', '.join(blamed)}. Lower training.lr or that λ, or "
            f"use training.penalty_step=proximal for a term on weights{fuller}."
        )

    def _no_finite_gradient(self) -> str:
        return (
            f"Training the {self.path[2]} network on task {self.path[1] + 1} with "
            f"training.precision=fp16 found no gradient that does not overflow. Use "
            f"training.precision=bf16 or fp32, or lower training.lr."
        )

    def _set_rate(self, number: int) -> None:
        rate = self.lr
        if not self.patient:
            steps = len(self.train)
            position, total = self.epoch * steps + number, self.training.epochs * steps
            rate = self.lr = scheduled_rate(self.training, position, total, self.epoch)
        for group in self._optimizer.param_groups:
            group["lr"] = rate * group["factor"]

    # -- state -------------------------------------------------------------------------------

    def state(self) -> Saved:
        """A copy of everything that decides how training continues."""
        tensors = prefixed("network", self._state_dict()) | prefixed("best", self._best)
        tensors |= prefixed("watched", self._watched())
        tensors |= prefixed("best_watched", self._best_watched)
        tensors |= prefixed("optimizer", moments(self._optimizer, self._parameters))
        tensors |= self._objective.state()
        if self._scale:
            tensors |= prefixed("scale", self._scale.state())
        if self.outer:
            tensors |= prefixed("outer", self.outer.state())
        if self._renewed:
            tensors |= prefixed(RENEWED, self._renewed.state())
        meta = {
            "epoch": self.epoch,
            "lr": self.lr,
            "finished": self.finished,
            "left": self._left,
            "lowest": None if math.isinf(self._lowest) else self._lowest,
            "cost": self._meter.state(),
            "optimizer": numbers(self._optimizer, self._parameters),
        }
        return Saved(tensors, meta)

    def restore(self, saved: Saved) -> None:
        """Resume from a saved state, bit for bit."""
        tensors, meta = saved
        self.epoch, self.lr, self.finished = meta["epoch"], meta["lr"], meta["finished"]
        self._left = meta["left"]
        self._lowest = math.inf if meta["lowest"] is None else meta["lowest"]
        if "cost" in meta:  # a checkpoint of an earlier version has none
            self._meter.restore(meta["cost"])
        self.network.load(strip_prefix("network", tensors))
        best = strip_prefix("best", tensors)
        self._best = {name: like(now, best[name]) for name, now in self._state_dict().items()}
        self._best_watched = self._aligned(strip_prefix("best_watched", tensors))
        if self.watcher:
            self.watcher.restore(self._aligned(strip_prefix("watched", tensors)))
        self._optimizer = make_optimizer(self._parameters, self.training)
        known = strip_prefix("optimizer", tensors)
        load_state(self._optimizer, self._parameters, known, meta.get("optimizer", {}))
        self._objective.restore(tensors)
        self.objective = self._objective
        if self._scale:
            self._scale.restore(strip_prefix("scale", tensors))
        if self.outer:
            self.outer.restore(strip_prefix("outer", tensors))
        if self._renewed:
            self._renewed.restore(strip_prefix(RENEWED, tensors))

    def _state_dict(self) -> Params:
        return {name: value.detach().clone() for name, value in self.network.changeable().items()}

    def _watched(self) -> Params:
        return self.watcher.state() if self.watcher else {}

    def _aligned(self, watched: Params) -> Params:
        return {name: like(self.weights[name], value) for name, value in watched.items()}

    def _restore_best(self) -> None:
        self.network.load(self._best)
        if self.watcher:
            self.watcher.restore(self._best_watched)


def trained(trainer: Trainer, log: list[dict[str, Any]]) -> StageResult:
    """What a training leaves behind, as a stage stores it."""
    meta = {"log": log, "lambs": trainer.lambs, "trained": trainer.trainable_parameters}
    cost: Cost | None = getattr(trainer, "cost", None)  # an author's trainer need not count
    if cost:
        meta["cost"] = cost._asdict()
    return StageResult(trainer.tensors(), meta)


def epoch_record(epoch: Epoch) -> dict[str, Any]:
    """An epoch as JSON; what is not finite is written as text, and no λ where no rule moved it."""
    record = asdict(epoch)
    for rare in ("lambs", "tasks"):
        if not record[rare]:
            del record[rare]
    for split in ("train", "val"):
        record[split] = {k: v if math.isfinite(v) else str(v) for k, v in record[split].items()}
    return record


def epoch_of(record: Mapping[str, Any]) -> Epoch:
    """The epoch of a record that :func:`epoch_record` made."""
    terms = {s: {n: float(v) for n, v in record[s].items()} for s in ("train", "val")}
    return Epoch(**{**record, **terms})


def _non_finite(train: dict[str, float], val: dict[str, float]) -> list[str]:
    names = [name for terms in (train, val) for name, v in terms.items() if not math.isfinite(v)]
    return list(dict.fromkeys(names))
