"""AFEC: the auxiliary network is one epoch ahead, at the main network's rate."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from ancl import Training, make_method
from ancl.extend import CrossEntropy, Network, Objective, PenaltyTerm, anchor_for, architecture
from tests.lab import AlternatingTraining, Batches, Ewc, Fit, Samples, View, following

VIEW = View((slice(0, 3),), task_aware=True)
MAIN = Training(epochs=6, lr=0.3, batch_size=4, patience=1)


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    return architecture("mlp", (4,), hidden=(5,)).build([3])


def batches(seed: int) -> Batches:
    draw = torch.Generator().manual_seed(seed)
    return Batches(Samples(torch.randn(12, 4, generator=draw), torch.arange(12) % 3), 4, None)


def make(
    main: Training, auxiliary: Training, seen: list[int] | None = None
) -> tuple[AlternatingTraining, Fit, Fit]:
    objective = Objective(CrossEntropy())
    follower = following(auxiliary, main)
    one = Fit(network(0), objective, batches(0), batches(1), VIEW, main, (0, 1, "main"))
    two = Fit(network(1), objective, batches(0), None, VIEW, follower, (0, 1, "auxiliary"))
    return AlternatingTraining(one, two, objective, renewing(two, seen), 1.0), one, two


def renewing(fit: Fit, seen: list[int] | None) -> Callable[[int], PenaltyTerm]:
    def renew(epoch: int) -> PenaltyTerm:
        if seen is not None:
            seen.append(epoch)
        ones = {name: torch.ones_like(w) for name, w in fit.weights.items()}
        anchor = anchor_for(Ewc(), fit.network, slice(0, 3), {"gradients": ones})
        return PenaltyTerm("auxiliary", 0.5, Ewc(), anchor, steady=False)

    return renew


def test_epochs_alternate_and_the_anchor_is_renewed_before_each_main_one() -> None:
    seen: list[int] = []
    ahead, main, auxiliary = make(MAIN, MAIN, seen)

    roles = [(epoch.role, epoch.epoch) for epoch in ahead]

    assert roles == [(role, n) for n in range(main.epoch) for role in ("auxiliary", "main")]
    assert seen == list(range(main.epoch))
    assert auxiliary.epoch == main.epoch


def test_the_anchor_is_the_auxiliary_network_as_it_is_now() -> None:
    ahead, main, auxiliary = make(MAIN, MAIN)

    for epoch in ahead:
        if epoch.role == "main":
            (pull,) = main.objective.terms
            now = auxiliary.network.weights()
            assert all(torch.equal(pull.anchor.weights[n], w) for n, w in now.items())
            assert "auxiliary" in epoch.train


def test_the_auxiliary_network_follows_the_rate_of_patience() -> None:
    ahead, _, _ = make(replace(MAIN, epochs=12, lr=2.0), replace(MAIN, lr=0.001, epochs=1))

    rates: dict[str, list[float]] = {"main": [], "auxiliary": []}
    for epoch in ahead:
        rates[epoch.role].append(epoch.lr)

    assert rates["main"] == rates["auxiliary"]
    assert len(set(rates["main"])) > 1
    assert len(rates["main"]) > 1


@pytest.mark.parametrize("schedule", ["constant", "cosine", "multistep"])
def test_a_fixed_schedule_is_shared_and_runs_to_its_end(schedule) -> None:
    """Whatever the auxiliary network's own schedule and length are."""
    main = replace(MAIN, schedule=schedule, milestones=(2,), epochs=4)
    ahead, _, _ = make(main, replace(MAIN, epochs=2, patience=1))

    found = list(ahead)

    assert [epoch.role for epoch in found] == ["auxiliary", "main"] * 4
    assert [e.lr for e in found[::2]] == [e.lr for e in found[1::2]]


def test_the_auxiliary_network_keeps_its_own_optimizer() -> None:
    follower = following(Training(weight_decay=5e-4, momentum=0.5, optimizer="sgd"), MAIN)

    assert (follower.weight_decay, follower.momentum) == (5e-4, 0.5)
    assert (follower.lr, follower.epochs, follower.schedule) == (0.3, 6, "constant")


def test_it_can_be_saved_after_a_main_epoch_and_gone_on_with() -> None:
    whole, main, _ = make(MAIN, MAIN)
    list(whole)
    broken, _, _ = make(MAIN, MAIN)
    settled = []
    for _ in range(4):
        next(broken)
        settled.append(broken.settled)
    saved = broken.state()
    resumed, again, _ = make(MAIN, MAIN)
    resumed.restore(saved)
    list(resumed)

    assert settled == [False, True, False, True]
    one, other = main.network.tensors(), again.network.tensors()
    assert all(torch.equal(one[n], other[n]) for n in one)


def test_a_short_auxiliary_training_shortens_no_main_one(lab) -> None:
    setting = lab.setting(training=replace(MAIN, epochs=5, schedule="constant", batch_size=16))
    setting = replace(setting, auxiliary=replace(setting.auxiliary, epochs=2, schedule="patience"))

    learned = lab.learn(make_method("afec-lwf"), setting, lab.tasks()[:2])

    roles = [row["role"] for row in learned.entry("main", 1).meta["log"]]
    assert roles == ["auxiliary", "main"] * 5
