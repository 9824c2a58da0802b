"""What a task costs must not be dominated by the number of tasks before it: work is counted."""

from collections import Counter

import pytest
import torch
from torch import nn

import ancl
from ancl import architecture
from tests.lab import HEADS, own_task_logits

MANY = 40


@pytest.fixture
def counted(monkeypatch) -> Counter:
    """Counts look-ups in lists of parameters, drawn layers and assignments to parts of tensors."""
    calls: Counter = Counter()
    for kind, name in (
        (nn.ParameterList, "__getitem__"),
        (nn.Linear, "reset_parameters"),
        (torch.Tensor, "__setitem__"),
    ):
        true = getattr(kind, name)

        def counting(*given, true=true, name=name, **named):
            calls[name] += 1
            return true(*given, **named)

        monkeypatch.setattr(kind, name, counting)
    return calls


@pytest.mark.parametrize("name", [name for name in HEADS if name != "paths"])
def test_an_answer_looks_up_no_block_by_its_number(name, counted) -> None:
    head = HEADS[name](4)
    for _ in range(MANY):
        head.grow(2)
    counted.clear()

    answers = head(torch.ones(3, 4))

    assert answers.shape == (3, 2 * MANY)
    assert not counted["__getitem__"]


@pytest.mark.parametrize("name", ["linear", "unbiased", "cosine", "proxies"])
def test_stored_blocks_are_not_drawn_first(name) -> None:
    plan = architecture("mlp", (1, 4, 4), head=name, hidden=[4])
    left = []
    for count in (1, MANY):
        stored = plan.build([2] * count).tensors()
        torch.manual_seed(0)
        restored = plan.restore([2] * count, stored)
        left.append(torch.rand(()))
        again = restored.tensors()
        assert all(torch.equal(again[key], value) for key, value in stored.items())
        torch.manual_seed(0)
        plan.restore([2] * count, stored, draw=True)
        drawn = torch.rand(())
        torch.manual_seed(0)
        plan.build([2] * count)
        assert drawn == torch.rand(())  # the stream goes on as after a network that is new

    assert left[0] == left[1]


def test_a_task_of_a_learner_draws_its_head_once(counted) -> None:
    training = ancl.Training(epochs=1, schedule="constant")
    learner = ancl.Learner("lwf", "mlp", scenario="til", training=training, verbose=False)
    per_task = []
    for task in range(12):
        counted.clear()
        x = torch.randint(256, (6, 4, 4), dtype=torch.uint8)
        learner.learn(x, [2 * task, 2 * task + 1] * 3)
        per_task.append(Counter(counted))

    # To begin task t, the stream of random numbers passes t blocks; nothing else draws any.
    assert per_task[11]["reset_parameters"] - per_task[5]["reset_parameters"] == 6
    # Each block is frozen once for every network that learns, and looked up for nothing else.
    assert per_task[11]["__getitem__"] - per_task[5]["__getitem__"] <= 2 * 6


def test_the_own_task_of_samples_is_found_without_a_step_for_each_task(counted) -> None:
    tasks = tuple(slice(2 * index, 2 * index + 2) for index in range(MANY))
    logits = torch.arange(2.0 * MANY).repeat(3, 1)

    alone = own_task_logits(logits, torch.tensor([0, 5, 2 * MANY - 1]), tasks)

    assert not counted["__setitem__"]
    places = [row.isfinite().nonzero().flatten().tolist() for row in alone]
    assert places == [[0, 1], [4, 5], [2 * MANY - 2, 2 * MANY - 1]]


def test_where_tasks_share_classes_the_last_one_has_them() -> None:
    alone = own_task_logits(torch.zeros(1, 3), torch.tensor([2]), (slice(0, 3), slice(0, 3)))

    assert alone.isfinite().all()
