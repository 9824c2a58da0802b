"""The one loop: schedules, what is kept, what a non-finite loss does."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Training
from ancl.extend import CrossEntropy, Network, Objective, Output, Step, architecture
from tests.lab import Batches, Fit, Params, Quadratic, Samples, TrainingError, View, epoch_record

VIEW = View((slice(0, 3),), task_aware=True)


def network(seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return architecture("mlp", (4,), hidden=(5,)).build([3])


def batches(count: int = 12, size: int = 4, seed: int = 0) -> Batches:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 4, generator=draw)
    return Batches(Samples(x, torch.arange(count) % 3), size, None)


class Scripted:
    """Learns by cross-entropy; what validation shows is written down beforehand."""

    maps = False
    apart: frozenset[str] = frozenset()
    lambs: dict[str, float] = {"old": 7.0}  # noqa: RUF012

    def __init__(self, val: list[dict[str, float]], unsteady: frozenset[str] = frozenset()) -> None:
        self.val, self.unsteady = val, unsteady
        self.epoch, self.poison = 0, ""
        self.network: Network | None = None
        self.seen: list[Params] = []

    def answers(self, step: Step) -> dict[str, Tensor]:
        task = CrossEntropy()(step)
        if torch.is_grad_enabled():
            poisoned = {self.poison: task * math.nan} if self.poison else {}
            return {"task": task, **poisoned}
        assert self.network is not None
        self.seen.append(self.network.tensors())
        shown, self.epoch = self.val[self.epoch], self.epoch + 1
        return {name: torch.tensor(value) for name, value in shown.items()}

    def scored(self, output: Output) -> Output:
        return output

    def quadratic(self, weights: Params) -> Quadratic | None:
        return None

    def observe_gradients(self, weights: Params, quadratic: Quadratic) -> None:
        raise AssertionError("no term is on weights")

    def selection_loss(self, terms: Mapping[str, float]) -> float:
        return sum(value for name, value in terms.items() if name not in self.unsteady)

    def end_epoch(self) -> tuple[dict[str, float], str]:
        return {}, ""

    def state(self) -> Params:
        return {}

    def restore(self, state: Params) -> None:
        pass


def scripted_fit(losses: list[Any], training: Training, **options: Any) -> tuple[Fit, Scripted]:
    shown = [{"task": x} if isinstance(x, int | float) else x for x in losses]
    objective = Scripted(shown, **options)
    objective.network = network()
    path = (0, 1, "main")
    val = batches(4)
    train = batches(size=training.batch_size)
    return Fit(objective.network, objective, train, val, VIEW, training, path), objective


def slow_patience(losses: list[float], training: Training) -> tuple[list[float], list[int], int]:
    """The patience rule written out: rates by epoch, epochs of a drop, the epoch that is kept."""
    lr, best, left, kept = training.lr, math.inf, training.patience, -1
    rates, drops = [], []
    for epoch in range(training.epochs):
        rates.append(lr)
        if losses[epoch] < best:
            best, left, kept = losses[epoch], training.patience, epoch
            continue
        left -= 1
        if left == 0:
            lr /= training.factor
            if lr < training.lr_min:
                break
            drops.append(epoch)
            left = training.patience
    return rates, drops, kept


LOSSES = [3.0, 2.5, 2.6, 2.4, 2.4, 2.5, 2.45, 2.3, 2.9, 2.8, 2.2, 2.2, 2.2, 2.2] + [2.5] * 40


@pytest.mark.parametrize("patience", [1, 2, 3, 5])
@pytest.mark.parametrize("epochs", [9, 50])
def test_patience_follows_the_rule(patience, epochs) -> None:
    training = Training(epochs=epochs, lr=0.1, patience=patience, batch_size=4)
    fit, objective = scripted_fit(LOSSES, training)
    rates, drops, kept = slow_patience(LOSSES, training)

    found, restored = [], {}
    for epoch in fit:
        found.append(epoch)
        if "rate" in epoch.note:
            restored[epoch.epoch] = fit.network.tensors()

    assert [epoch.lr for epoch in found] == rates
    assert list(restored) == drops
    for at, tensors in restored.items():
        best = min(range(at + 1), key=LOSSES.__getitem__)
        assert all(torch.equal(tensors[n], objective.seen[best][n]) for n in tensors)
    final = fit.network.tensors()
    assert all(torch.equal(final[n], objective.seen[kept][n]) for n in final)
    assert [e.epoch for e in found if e.best][-1] == kept


@pytest.mark.parametrize(
    ("lr", "levels"), [(0.5, 8), (0.1, 7), (0.05, 6), (0.01, 5), (0.005, 4), (0.001, 3)]
)
def test_the_rate_has_as_many_levels_as_fit_above_the_floor(lr, levels) -> None:
    fit, _ = scripted_fit([1.0] * 50, Training(lr=lr, patience=1, batch_size=12))

    rates = [epoch.lr for epoch in fit]

    assert len(set(rates)) == levels
    assert len(rates) == levels + 1  # the first epoch improves on infinity


@pytest.mark.parametrize("reset", [False, True])
def test_momentum_outlives_a_drop_unless_it_is_reset(reset) -> None:
    training = Training(lr=0.1, patience=1, batch_size=4, reset_momentum=reset)
    fit, _ = scripted_fit([1.0, 2.0], training)

    next(fit)
    dropped = next(fit)

    held = [name for name in fit.state().tensors if name.startswith("optimizer/")]
    assert "rate 0.033" in dropped.note
    assert bool(held) is not reset


def test_what_moves_within_a_task_selects_no_weights() -> None:
    shown = [{"task": 2.0, "auxiliary": 0.0}, {"task": 1.0, "auxiliary": 9.0}]
    training = Training(epochs=2, batch_size=4)

    steady, _ = scripted_fit(shown, training)
    moving, _ = scripted_fit(shown, training, unsteady=frozenset({"auxiliary"}))

    assert [epoch.best for epoch in steady] == [True, False]
    assert [epoch.best for epoch in moving] == [True, True]


@pytest.mark.parametrize(
    ("by", "best"),
    [
        (None, [True, False, True, False]),
        ("loss", [True, False, True, False]),
        ("task_loss", [True, True, False, False]),
    ],
)
def test_patience_judges_by_the_whole_loss_or_by_the_task_loss(by, best) -> None:
    # Sums 5, 6, 4, 4.5; task losses 3, 2, 2.5, 2.2
    shown = [{"task": 3.0, "old": 2.0}, {"task": 2.0, "old": 4.0}]
    shown += [{"task": 2.5, "old": 1.5}, {"task": 2.2, "old": 2.3}]
    fit, objective = scripted_fit(shown, Training(epochs=4, batch_size=4, select_by=by))

    assert [epoch.best for epoch in fit] == best
    kept = objective.seen[max(index for index, each in enumerate(best) if each)]
    final = fit.network.tensors()
    assert all(torch.equal(final[name], kept[name]) for name in final)


def test_patience_may_judge_by_accuracy() -> None:
    training = Training(epochs=12, lr=0.5, patience=12, batch_size=4, select_by="accuracy")
    fit, _ = scripted_fit([1.0] * 12, training)

    found = list(fit)

    highest, best = -1.0, []
    for epoch in found:
        best.append(epoch.accuracy > highest)
        highest = max(highest, epoch.accuracy)
    assert [epoch.best for epoch in found] == best
    assert len({epoch.accuracy for epoch in found}) > 1
    # By the loss, which never falls, the first epoch would be the only best one.
    assert sum(best) > 1


def rates_of(training: Training) -> list[float]:
    """The rate of every step, three an epoch."""
    net, rates = network(), []
    fit = Fit(net, Objective(CrossEntropy()), batches(), None, VIEW, training, (0, 0, "main"))
    step = fit._optimizer.step
    fit._optimizer.step = lambda: rates.append(fit._optimizer.param_groups[0]["lr"]) or step()
    list(fit)
    return rates


def test_fixed_schedules_give_every_step_its_rate() -> None:
    base = Training(epochs=4, lr=0.2, batch_size=4, schedule="constant")
    cosine = rates_of(replace(base, schedule="cosine"))
    stepped = rates_of(replace(base, schedule="multistep", milestones=(1, 3), gamma=0.1))
    # A quarter of 12 steps are warm-up: 1/3, 2/3, 3/3; then half a cosine over the other nine.
    warm = rates_of(replace(base, schedule="cosine", warmup=0.25))

    assert rates_of(base) == [0.2] * 12
    assert cosine == pytest.approx([0.1 * (1 + math.cos(math.pi * k / 12)) for k in range(12)])
    assert cosine[6] == pytest.approx(0.1)
    assert stepped == pytest.approx([0.2] * 3 + [0.02] * 6 + [0.002] * 3)
    assert warm[:4] == pytest.approx([0.2 / 3, 0.4 / 3, 0.2, 0.2])
    assert warm[6] == pytest.approx(0.1 * (1 + math.cos(math.pi / 3)))


def test_an_epoch_tells_the_rate_it_began_with() -> None:
    training = Training(
        epochs=3, lr=0.2, batch_size=4, schedule="multistep", milestones=(1,), gamma=0.5
    )
    fit = Fit(network(), Objective(CrossEntropy()), batches(), None, VIEW, training, (0, 0, "main"))

    assert [epoch.lr for epoch in fit] == [0.2, 0.1, 0.1]


def test_a_fixed_schedule_ends_with_the_last_weights() -> None:
    fit, objective = scripted_fit(
        [1.0, 2.0, 3.0], Training(epochs=3, batch_size=4, schedule="constant")
    )

    assert [epoch.best for epoch in fit] == [False] * 3
    final = fit.network.tensors()
    assert all(torch.equal(final[n], objective.seen[2][n]) for n in final)


def test_a_non_finite_epoch_goes_back_with_a_lower_rate_and_a_fresh_optimizer() -> None:
    fit, objective = scripted_fit([3.0, 2.0, 2.5, 1.0], Training(epochs=4, lr=0.3, batch_size=12))
    next(fit)
    next(fit)

    objective.poison = "old"
    spoiled = next(fit)
    state = fit.state()
    objective.poison = ""
    after = next(fit)

    assert spoiled.note == "old not finite: back to the best weights, rate 0.1"
    assert math.isnan(spoiled.train["old"])
    assert epoch_record(spoiled)["train"]["old"] == "nan"
    assert not [name for name in state.tensors if name.startswith("optimizer/")]
    best = {n.removeprefix("network/"): t for n, t in state.tensors.items() if "network/" in n}
    assert all(torch.equal(best[n], objective.seen[1][n]) for n in best)
    assert after.lr == pytest.approx(0.1)
    assert after.best


def test_nothing_finite_down_to_the_floor_is_an_error_that_names_the_term() -> None:
    fit, objective = scripted_fit([1.0] * 20, Training(lr=0.001, batch_size=4))
    objective.poison = "old"

    with pytest.raises(TrainingError, match=r"main network on task 2.*old \(λ = 7\).*proximal"):
        list(fit)


def test_a_non_finite_end_keeps_what_was_found_before() -> None:
    fit, objective = scripted_fit([1.0] * 20, Training(lr=0.001, batch_size=4))
    next(fit)
    objective.poison = "old"

    list(fit)

    final = fit.network.tensors()
    assert all(torch.equal(final[n], objective.seen[0][n]) for n in final)


def test_a_non_finite_loss_ends_a_fixed_schedule() -> None:
    fit, objective = scripted_fit([1.0] * 3, Training(batch_size=4, schedule="cosine"))
    objective.poison = "old"

    with pytest.raises(TrainingError, match=r"old \(λ = 7\)"):
        next(fit)


def test_a_last_step_that_spoils_the_weights_is_an_error() -> None:
    training = Training(epochs=1, lr=1e38, batch_size=12, schedule="constant")
    objective = Objective(CrossEntropy())
    train = batches(size=12)
    fit = Fit(network(), objective, train, None, VIEW, training, (0, 0, "main"))
    with torch.no_grad():
        fit.network.head.block(0)[0].mul_(1e4)

    with pytest.raises(TrainingError, match="not finite: weights"):
        next(fit)


def test_patience_needs_validation_images() -> None:
    with pytest.raises(TrainingError, match=r"task 3 has none.*schedule=cosine"):
        Fit(network(), Objective(CrossEntropy()), batches(), None, VIEW, Training(), (0, 2, "main"))


def test_an_epochs_loss_is_the_mean_over_all_versions_of_its_images() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (9, 8, 8, 1), dtype=torch.uint8, generator=draw)
    train = Batches(Samples(x, torch.arange(9) % 3), 4, None).enlarged(draw)
    torch.manual_seed(0)
    net = architecture("mlp", (1, 8, 8), hidden=(5,)).build([3])
    with torch.no_grad():
        seen = [
            -float(net(batch.x).logits.log_softmax(dim=1)[n, label])
            for batch in train.shuffled(torch.Generator().manual_seed(1))
            for n, label in enumerate(batch.y.tolist())
        ]
    training = Training(epochs=1, lr=1e-12, schedule="constant")
    epoch = next(Fit(net, Objective(CrossEntropy()), train, None, VIEW, training, (0, 1, "main")))

    assert len(seen) == 12 * 9
    assert epoch.train["task"] == pytest.approx(sum(seen) / len(seen), rel=1e-4)
