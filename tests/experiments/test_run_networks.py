"""A run's networks by task and role, and what they answer."""

from pathlib import Path
from typing import Any

import pytest
import torch

import ancl
from ancl import RunResult, ScenarioError, StoreError, load_run

TINY: dict[str, Any] = {
    "network": {"name": "mlp", "hidden": [16]},
    "training": {"epochs": 2},
    "data": {"scenario": "cil", "tasks": 3, "per_class": 12, "test_per_class": 6},
    "threads": 1,
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("networks")


@pytest.fixture(scope="module")
def result(runs: Path) -> RunResult:
    settings = {"data.order": list(range(9)), "memory.per_class": 3}
    return ancl.run("a-lwf", "digits/5", lamb_a=1.0, runs=runs, settings=settings, **TINY)


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    pairs = zip(one.state_dict().values(), other.state_dict().values(), strict=True)
    return all(a.shape == b.shape and torch.equal(a, b) for a, b in pairs)


def test_each_role_is_the_network_that_it_names(result: RunResult) -> None:
    first, second = result.network(0), result.network(1)
    auxiliary = result.network(1, "auxiliary")

    assert same(result.network(1, role="old"), first)
    assert [network.head.sizes for network in (first, second)] == [(3,), (3, 3)]
    assert not same(auxiliary, second)
    assert auxiliary.head.sizes == (3, 3)
    assert not second.training
    assert not any(parameter.requires_grad for parameter in second.parameters())


def test_predictions_give_the_accuracies_of_the_run(result: RunResult, runs: Path) -> None:
    for task in range(3):
        answers = result.predictions(task)
        right = answers.logits.argmax(dim=1) == answers.labels
        shares = [right[answers.tasks == n].double().mean() for n in range(task + 1)]
        measured = result.matrices["tag"][task, : task + 1]

        assert torch.allclose(torch.stack(shares), torch.from_numpy(measured.copy()))
        assert answers.features.shape == (6 * 3 * (task + 1), 16)
    learner = load_run(next(runs.glob("*/result.json")).parent)
    assert len(learner.classes) == result.predictions(2).logits.shape[1]


@pytest.mark.parametrize(
    ("task", "role", "message"),
    [
        (3, "main", "the run has 3, counted from 0 to 2"),
        (-1, "main", "There is no task -1"),
        (0, "old", "has no old network"),
        (0, "auxiliary", "stores no auxiliary network of task 0"),
        (1, "axiliary", "Did you mean 'auxiliary'"),
    ],
)
def test_what_is_not_there_is_said(result: RunResult, task: int, role: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        result.network(task, role)


def test_a_result_without_a_store_says_so(result: RunResult, tmp_path: Path) -> None:
    alone = ancl.run(result.spec, runs=None)
    with pytest.raises(StoreError, match="not on disk"):
        alone.network(0)
    empty = ancl.run(result.spec, runs=tmp_path)
    for entry in (tmp_path / ".store/entries").rglob("entry.json"):
        entry.unlink()
    with pytest.raises(StoreError, match="does not hold the main network of task 2"):
        empty.network(2)
