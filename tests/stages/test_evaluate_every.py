"""Tests on all tasks so far while a network learns: they say the truth and change nothing."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ancl
from ancl import Learner, SpecError

SHORT: dict[str, Any] = {"data.tasks": 2, "training.epochs": 4, "network.hidden": [8]}
SHORT |= {"training.schedule": "constant", "data.per_class": 20}


@pytest.mark.parametrize("method", ["lwf", "a-lwf", "afec-ewc", "freeze"])
def test_accuracies_stand_in_the_log_and_change_no_weight(tmp_path: Path, method: str) -> None:
    specs = [
        ancl.specs([method], "digits/5", settings={**SHORT, **more}, threads=1)[0]
        for more in ({}, {"training.evaluate_every": 2})
    ]
    plain, measured = ancl.run(specs, runs=tmp_path)

    found = [e for e in measured.log if "tasks" in e]
    assert [(e["stage"], e["task"], e["epoch"]) for e in found] == [
        ("main", task, epoch) for task in (0, 1) for epoch in (1, 3)
    ]
    for task in (0, 1):
        # A fixed schedule ends with the last weights: its last epoch is what is evaluated.
        last = found[2 * task + 1]["tasks"]
        for kind in ("taw", "tag"):
            assert last[kind] == measured.matrices[kind][task, : task + 1].tolist()
    ours, theirs = (result.network(1).tensors() for result in (plain, measured))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert plain.metrics == measured.metrics
    auxiliary = [i for i, name in enumerate(plain.seconds) if name.startswith("auxiliary 1")]
    assert not any("tasks" in epoch for epoch in plain.log)
    assert len(auxiliary) == (method == "a-lwf")


def test_they_are_in_the_tidy_table(tmp_path: Path) -> None:
    result = ancl.run(
        "lwf",
        "digits/5",
        settings={**SHORT, "training.evaluate_every": 3},
        threads=1,
        runs=tmp_path,
    )
    rows = [r for r in ancl.results(runs=tmp_path) if r["quantity"] == "accuracy_taw_in_training"]

    assert [(r["after"], r["epoch"], r["task"]) for r in rows] == [(1, 3, 1), (2, 3, 1), (2, 3, 2)]
    logged = [e["tasks"]["taw"] for e in result.log if "tasks" in e]
    assert [row["value"] for row in rows] == [value for shares in logged for value in shares]


def test_a_learner_has_nothing_to_test_on() -> None:
    with pytest.raises(SpecError, match="a learner has no test images of its tasks"):
        Learner("lwf", network="mlp", training={"evaluate_every": 1})
