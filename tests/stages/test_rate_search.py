"""The searched learning rate: what is tried, what is chosen, what is shared, and resume."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from ancl import Events, Store, make_method
from tests.lab import (
    FIRST_RATES,
    LATER_RATES,
    TRIALS,
    Epoch,
    Rate,
    Stage,
    StageResult,
    candidate_rate,
)

SEARCHES = ("rate trial", "rate")


def searching(lab: Any) -> Any:
    training = replace(lab.setting().training, lr_search=True)
    return lab.setting(training=training)


@pytest.mark.parametrize(
    ("first", "rates"),
    [
        (None, (0.5, 0.1, 0.05)),
        (0.5, (0.1, 0.05, 0.01)),
        (0.1, (0.05, 0.01, 0.005)),
        (0.05, (0.01, 0.005, 0.001)),
    ],
)
def test_later_rates_are_the_three_largest_below_the_first(
    first: float | None, rates: tuple[float, ...]
) -> None:
    assert tuple(candidate_rate(first, trial) for trial in range(TRIALS)) == rates


def test_the_first_of_equal_trials_is_chosen() -> None:
    accuracies = {"trial 0": 0.4, "trial 1": 0.9, "trial 2": 0.9}
    inputs = {
        name: StageResult({}, {"lr": FIRST_RATES[number], "accuracy": accuracies[name]})
        for number, name in enumerate(accuracies)
    }

    stage = Rate(task=0, seed=0, numerics={}, inputs={name: name for name in inputs})
    chosen = stage.run(inputs, None)  # type: ignore[arg-type]

    assert chosen.meta["lr"] == 0.1
    assert chosen.meta["trials"] == [[0.5, 0.4], [0.1, 0.9], [0.05, 0.9]]


def test_every_task_is_trained_by_the_rate_that_was_found(lab: Any) -> None:
    learned = lab.learn(make_method("a-lwf", lamb=2.0), searching(lab))

    found = [learned.entry("rate", task).meta["lr"] for task in range(3)]
    assert found[0] in FIRST_RATES
    assert all(lr in LATER_RATES and lr < found[0] for lr in found[1:])
    for task, lr in enumerate(found):
        assert learned.entry("main", task).meta["log"][0]["lr"] == lr
        trials = learned.entry("rate", task).meta["trials"]
        assert lr == max(trials, key=lambda trial: trial[1])[0]
    assert learned.entry("auxiliary", 1).meta["log"][0]["lr"] == found[1]


def test_methods_share_the_search_while_their_networks_are_the_same(lab: Any) -> None:
    ewc = lab.learn(make_method("ewc", lamb=20.0), searching(lab))
    lwf = lab.learn(make_method("lwf", lamb=2.0), searching(lab))

    def keys(learned: Any, task: int) -> list[str]:
        return [s.key for s in learned.stages if s.name in SEARCHES and s.task == task]

    assert len(keys(ewc, 0)) == TRIALS + 1
    assert keys(ewc, 0) == keys(lwf, 0)
    assert keys(ewc, 1) == keys(lwf, 1)
    assert not set(keys(ewc, 2)) & set(keys(lwf, 2))


def test_a_key_holds_the_rule_and_not_the_rate_it_found(lab: Any) -> None:
    stages = lab.learn(make_method("finetune"), searching(lab)).stages

    trainings = [s.parts.training for s in stages if s.name == "main"]
    assert all(training == trainings[0] for training in trainings)


class Stopping(Events):
    """Raises as Ctrl-C does at an epoch of the second task's second trial."""

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        if (stage.name, stage.task, epoch.role) == ("rate trial", 1, "rate 1"):
            raise KeyboardInterrupt


def test_a_stopped_search_goes_on_to_the_same_bits(lab: Any, tmp_path: Any) -> None:
    method, setting = make_method("lwf", lamb=2.0), searching(lab)
    expected = lab.learn(method, setting)
    with pytest.raises(KeyboardInterrupt):
        lab.learn(method, setting, store=Store(tmp_path), reporter=Stopping())

    resumed = lab.learn(method, setting, store=Store(tmp_path))

    assert resumed.final.keys() == expected.final.keys()
    assert all(torch.equal(resumed.final[name], expected.final[name]) for name in expected.final)
    rates = [learned.entry("rate", 2).meta["trials"] for learned in (resumed, expected)]
    assert rates[0] == rates[1]
