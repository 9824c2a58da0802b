"""Streams in which known classes come again: which classes, and which of their images."""

from typing import Any

import pytest
import torch

from ancl import ScenarioError
from tests.lab import (
    ClassVisit,
    Samples,
    Stream,
    class_visits,
    from_arrays,
    make_stream,
    not_in,
    returning_classes,
    task_from,
)


def numbered(classes: int = 6, each: int = 20) -> Any:
    """A source whose images hold their own number, so that each can be told."""
    count = classes * each
    x = torch.arange(count, dtype=torch.float32).reshape(count, 1)
    y = torch.arange(classes).repeat_interleave(each)
    return from_arrays(x.numpy(), y.numpy(), -1 - x[::5].numpy(), y[::5].numpy())


def stream(**options: Any) -> Stream:
    given = {"scenario": "cir", "classes": "2,2,0,2", "val_fraction": 0.2, **options}
    return make_stream(numbered(), **given)


def test_a_share_of_the_known_classes_returns() -> None:
    drawn = returning_classes((4, 3, 0, 3), 0.5, seed=0)

    # After 4, 7 and 7 known classes: 2, round(3.5) = 4 and 4 of them.
    assert [len(each) for each in drawn] == [0, 2, 4, 4]
    assert all(each == tuple(sorted(set(each))) for each in drawn)
    assert max(drawn[1]) < 4
    assert max(drawn[3]) < 7
    assert drawn == returning_classes((4, 3, 0, 3), None, seed=0)
    assert drawn != returning_classes((4, 3, 0, 3), 0.5, seed=1)
    assert len(returning_classes((4, 3), 0.01, seed=0)[1]) == 1
    assert returning_classes((4, 3, 2), 1.0, seed=0)[1:] == (tuple(range(4)), tuple(range(7)))


def test_a_task_has_its_new_classes_and_all_that_are_present() -> None:
    tasks = stream().tasks

    assert [task.classes for task in tasks] == [slice(0, 2), slice(2, 4), slice(4, 4), slice(4, 6)]
    assert [task.names for task in tasks] == [(0, 1), (2, 3), (), (4, 5)]
    assert [task.is_column for task in tasks] == [True, True, False, True]
    for task in tasks:
        split = task.load()
        assert sorted(set(split.train.y.tolist())) == list(task.present)
        assert task.counts == tuple(int((split.train.y == c).sum()) for c in task.present)
        assert task.sizes == (len(split.train), len(split.val), len(split.test))
        assert sorted(set(split.test.y.tolist())) == list(range(*task.classes.indices(6)))
        assert task.returning == tuple(c for c in task.present if c < task.classes.start)
    assert [len(task.returning) for task in tasks] == [0, 1, 2, 2]


def test_the_tasks_share_the_images_of_a_class() -> None:
    splits = [task.load() for task in stream().tasks]

    for number in range(6):
        parts = [s.train.x[s.train.y == number].flatten().tolist() for s in splits]
        parts = [part for part in parts if part]
        together = sorted(value for part in parts for value in part)
        held = {tuple(s.val.x[s.val.y == number].flatten().tolist()) for s in splits} - {()}
        assert len(together) == len(set(together)) == 16  # 20 images, 4 of them held out
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
        assert len(held) == 1  # the same whenever it comes
        assert not set(together) & set(held.pop())


def test_a_number_of_images_goes_round() -> None:
    kept = torch.arange(10)
    taken = [ClassVisit(number, 4, 4, seed=3).taken(kept, 0).tolist() for number in range(4)]

    assert all(part == sorted(part) and len(part) == 4 for part in taken)
    assert len({*taken[0], *taken[1]}) == 8  # no image twice before all came once
    assert {*taken[0], *taken[1], *taken[2]} == set(range(10))
    assert ClassVisit(1, 2, 99, seed=3).taken(kept, 0).tolist() == list(range(10))
    assert [ClassVisit(0, 3, images, 0).count(10, "a") for images in (None, 4, 99)] == [4, 4, 10]
    for number in range(3):
        part = ClassVisit(number, 3, None, seed=3)
        assert part.count(10, "a") == len(part.taken(kept, 0))
    with pytest.raises(ScenarioError, match=r"'a' comes 3 times and has 2 .* data.per_coming"):
        ClassVisit(0, 3, None, 0).count(2, "a")


def test_comings_are_counted_class_by_class() -> None:
    found = class_visits([(0, 1), (1, 2), (1,)], 5, seed=0)

    assert [[(c.number, c.of) for c in task] for task in found] == [
        [(0, 1), (0, 3)],
        [(1, 3), (0, 1)],
        [(2, 3)],
    ]


def test_keys_follow_what_comes() -> None:
    keys = [task.key for task in stream().tasks]

    assert keys == [task.key for task in stream().tasks]
    assert len(set(keys)) == 4
    for other in ({"seed": 1}, {"returning": 1.0}, {"per_coming": 3}):
        assert not set(keys) & {task.key for task in stream(**other).tasks}, other
    plain = make_stream(numbered(), scenario="cil", classes="2,2,2", val_fraction=0.2).tasks
    again = stream(classes="2,2,2").tasks
    assert [task.test_key for task in plain] == [task.test_key for task in again]
    assert not {task.key for task in plain} & {task.key for task in again}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scenario": "cil", "classes": "2,2,2", "returning": 0.5}, "data.returning: for the"),
        ({"scenario": "til", "classes": "2,2,2", "per_coming": 5}, "data.per_coming: for the"),
        ({"returning": 0.0}, "data.returning is 0.0"),
        ({"returning": 1.5}, "1 at most"),
        ({"per_coming": 0}, "at least 1 image"),
        ({"scenario": "cil"}, "a task without classes"),
        ({"classes": "0,6"}, "a task without classes"),
    ],
)
def test_what_cannot_be_is_said(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ScenarioError, match=said):
        stream(**options)


def test_a_task_from_images_may_bring_known_classes() -> None:
    x, y = torch.arange(8.0).reshape(8, 1), torch.tensor([0, 0, 2, 2, 3, 3, 3, 3])
    made = task_from(
        Samples(x, y),
        index=1,
        classes=slice(3, 4),
        names=("d",),
        seed=0,
        val_fraction=0.0,
        test=None,
        known=("a", "b", "c"),
    )

    assert (made.present, made.returning, made.counts) == ((0, 2, 3), (0, 2), (2, 2, 4))
    assert sorted(made.load().train.x.dense().flatten().tolist()) == list(range(8))


def test_images_like_others_are_left_out() -> None:
    samples = Samples(
        torch.tensor([[1.0], [2.0], [1.0], [1.0], [3.0]]), torch.tensor([0, 0, 0, 1, 1])
    )
    others = Samples(torch.tensor([[3.0]]), torch.tensor([0]))

    left = not_in(samples, others)

    # The 3 is one of the others; of the three 1s, one of each class stays.
    assert list(zip(left.x.dense().flatten().tolist(), left.y.tolist(), strict=True)) == [
        (1.0, 0),
        (2.0, 0),
        (1.0, 1),
    ]
