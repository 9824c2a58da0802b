"""Whole runs of a stream that comes once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ancl
from tests.lab import aiac, worst_case

ONLINE: dict[str, Any] = {
    "network": {"name": "mlp", "hidden": [16]},
    "data": {"scenario": "cir", "every": 6, "per_class": 30, "val_fraction": 0.0},
    "training": {"epochs": 1, "schedule": "constant", "batch_size": 10, "momentum": 0.0},
    "memory": {"total": 40, "selection": "reservoir"},
    "threads": 1,
}


def online(method: str, runs: Path | None = None, **settings: Any) -> Any:
    given = {**ONLINE, **{n: {**ONLINE[n], **v} for n, v in settings.items() if n in ONLINE}}
    options = {n: v for n, v in settings.items() if n not in ONLINE}
    return ancl.run(method, "digits/5", runs=runs, **given, **options)


@pytest.mark.parametrize("method", ["er", "mir", "a-dark-er-pp", "a-lwf"])
def test_methods_learn_a_stream_that_comes_once(method: str) -> None:
    memory = {} if method != "a-lwf" else {"batch": None}
    result = online(method, memory=memory)
    matrix = result.matrices["tag"]

    assert matrix.shape[0] == 5  # 300 images, an evaluation after every 60
    tested = [test for _, _, test in result.images if test]
    assert result.metrics["aiac"] == pytest.approx(aiac(matrix, tested))
    assert result.metrics["worst_case"] == pytest.approx(worst_case(matrix))
    assert sum(train for train, _, _ in result.images) == 300
    assert [row["epoch"] for row in result.log if row["role"] == "main"] == [0] * 5


def test_without_lamb_a_it_is_the_plain_method() -> None:
    plain, zero = online("dark-er-pp"), online("a-dark-er-pp", lamb_a=0)
    pulled = online("a-dark-er-pp", lamb_a=5.0)

    assert np.array_equal(plain.matrices["tag"], zero.matrices["tag"], equal_nan=True)
    assert not np.array_equal(plain.matrices["tag"], pulled.matrices["tag"], equal_nan=True)


def test_worst_case_accuracy_is_that_of_the_definition() -> None:
    nan = np.nan
    first, second = (0.5, 0.7, 0.9, 0.4, 0.6, 0.7), (nan, nan, nan, 0.3, 0.6, 0.8)
    matrix = np.array([first, second]).T

    assert worst_case(matrix) == pytest.approx(0.6)
    assert aiac(matrix, [10, 10]) == pytest.approx(0.633333, abs=1e-6)
    assert worst_case(matrix[:2, :1]) == 0.7
    three = np.array([[0.9, nan, nan], [0.5, 0.8, nan], [0.6, 0.2, 0.7]])
    assert worst_case(three) == pytest.approx((0.5 + 0.2 + 0.7) / 3)


def test_a_run_is_resumed_and_opened(tmp_path: Path) -> None:
    whole = online("a-dark-er-pp", tmp_path / "one")
    again = online("a-dark-er-pp", tmp_path / "one")
    learner = ancl.load_run(next((tmp_path / "one").glob("digits*")))

    assert np.array_equal(whole.matrices["tag"], again.matrices["tag"], equal_nan=True)
    assert len(learner.classes) == 10


def test_the_auxiliary_network_may_pass_more_often() -> None:
    result = online("a-dark-er-pp", auxiliary={"epochs": 3})
    passes = [row["epoch"] for row in result.log if row["role"] == "auxiliary"]
    assert passes == [0, 1, 2] * 4
