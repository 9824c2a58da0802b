from typing import Any

import pytest

from ancl import ScenarioError
from tests.lab import class_order, task_sizes


def test_tinyimagenet_order_is_the_published_one() -> None:
    order = class_order("tinyimagenet", 200)
    assert order[:5] == (107, 58, 38, 24, 52)
    assert order[-5:] == (177, 29, 123, 126, 45)
    assert sorted(order) == list(range(200))


def test_icarl_order_is_the_published_one() -> None:
    order = class_order("icarl", 100)
    assert order[:10] == (68, 56, 78, 8, 23, 84, 90, 65, 74, 76)
    assert order[-5:] == (67, 29, 49, 57, 33)
    assert sorted(order) == list(range(100))


def test_named_and_listed_orders() -> None:
    assert class_order("natural", 4) == (0, 1, 2, 3)
    assert class_order([3, 0], 4) == (3, 0)
    assert sorted(class_order("seed:1", 20)) == list(range(20))
    assert class_order("seed:1", 20) == class_order("seed:1", 20)
    assert class_order("seed:1", 20) != class_order("seed:2", 20)


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("tinyimagenet", "one of 200 classes, and this data has 10"),
        ("icarl", "one of 100 classes, and this data has 10"),
        ("naturall", "Did you mean 'natural'"),
        ("seed:x", "no class order 'seed:x'"),
        ([0, 1, 0], "names 0 more than once"),
        ([0, 10], "names 10, and the classes are 0 to 9"),
        ([], "empty"),
    ],
)
def test_orders_that_do_not_exist_are_refused(order: Any, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        class_order(order, 10)


@pytest.mark.parametrize(
    ("n", "options", "expected"),
    [
        (10, {"tasks": 5}, (2, 2, 2, 2, 2)),
        (10, {"tasks": 1}, (10,)),
        (100, {"tasks": 6, "first": 50}, (50, 10, 10, 10, 10, 10)),
        (10, {"tasks": 1, "first": 10}, (10,)),
        (100, {"classes": "50,10x5"}, (50, 10, 10, 10, 10, 10)),
        (100, {"classes": "10x10"}, (10,) * 10),
        (7, {"classes": " 3, 2 ,2"}, (3, 2, 2)),
        (7, {"classes": [3, 4]}, (3, 4)),
    ],
)
def test_sizes(n: int, options: dict[str, Any], expected: tuple[int, ...]) -> None:
    assert task_sizes(n, **options) == expected


def test_unequal_tasks_are_refused_with_what_is_possible() -> None:
    with pytest.raises(ScenarioError) as caught:
        task_sizes(100, tasks=7)
    assert str(caught.value) == (
        "100 classes cannot be split into 7 equal tasks. Use 2, 4, 5, 10, 20, 25 or 50, "
        "or give the sizes: --classes 40,10x6."
    )
    assert task_sizes(100, classes="40,10x6") == (40, 10, 10, 10, 10, 10, 10)


@pytest.mark.parametrize(
    ("n", "options", "message"),
    [
        (7, {"tasks": 3}, "3 equal tasks. Give the sizes: --classes 3,2x2."),
        (7, {"tasks": 9}, "9 equal tasks. Use fewer tasks."),
        (10, {"tasks": 0}, "0 tasks were asked for"),
        (10, {}, "neither was given"),
        (10, {"tasks": 5, "classes": "2x5"}, "both were given"),
        (10, {"first": 4, "classes": "4,6"}, "given twice"),
        (10, {"classes": "4,4"}, "sizes 4x2 add up to 8 classes, and there are 10"),
        (10, {"classes": "10,0"}, "task without classes"),
        (10, {"classes": "5;5"}, "'5;5' in the sizes '5;5' is not a size"),
        (10, {"tasks": 4, "first": 5}, "5 classes after the first 5 .* Use 2 or 6 tasks"),
        (10, {"tasks": 1, "first": 5}, "does not go with 1 tasks"),
        (10, {"tasks": 3, "first": 10}, "first task of 10 classes out of 10"),
        (10, {"tasks": 3, "first": 12}, "first task of 12 classes out of 10"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(n: int, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        task_sizes(n, **options)
