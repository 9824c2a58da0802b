"""Metrics against values computed by hand."""

import math
from pathlib import Path

import numpy as np
import pytest

from ancl import StoreError
from tests.lab import (
    METRICS,
    Matrix,
    aac,
    aiac,
    backward_transfer,
    final_accuracy,
    first_rows,
    forgetting,
    forgetting_from_best,
    forgetting_from_learned,
    forgetting_without_newest,
    frontier_difference,
    holm,
    intransigence,
    learned_after,
    learning_accuracy,
    mean_and_error,
    read_matrix,
    summary,
    t_interval,
    t_probability,
    t_quantile,
    worst_case,
    write_matrix,
)


def triangle(*rows: list[float]) -> Matrix:
    r = np.full((len(rows), len(rows)), np.nan)
    for i, row in enumerate(rows):
        r[i, : i + 1] = row
    return r


R = triangle([0.8], [0.7, 0.75], [0.72, 0.6, 0.78])
SIZES = [50, 10, 20]


def test_aac_is_the_mean_of_the_last_row() -> None:
    # (0.72 + 0.6 + 0.78) / 3 = 0.7
    assert aac(R) == pytest.approx(0.7, abs=1e-12)


def test_aiac_weighs_tasks_by_size_and_steps_alike() -> None:
    # 0.8; (50 0.7 + 10 0.75) / 60 = 42.5 / 60; (50 0.72 + 10 0.6 + 20 0.78) / 80 = 57.6 / 80 = 0.72
    assert aiac(R, SIZES) == pytest.approx((0.8 + 42.5 / 60 + 0.72) / 3, abs=1e-12)


def test_pooling_fifty_classes_at_70_and_ten_at_50_percent_gives_two_thirds() -> None:
    r = triangle([0.9], [0.7, 0.5])
    assert final_accuracy(r, [50, 10]) == pytest.approx(2 / 3, abs=1e-12)  # (35 + 5) / 60
    assert aac(r) == pytest.approx(0.6, abs=1e-12)  # unweighted: another number
    assert aiac(r, [50, 10]) == pytest.approx((0.9 + 2 / 3) / 2, abs=1e-12)


def test_final_accuracy_is_the_pooled_last_row() -> None:
    assert final_accuracy(R, SIZES) == pytest.approx(0.72, abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # (80 - 72 + 75 - 60) / 2
        (([0.8], [0.7, 0.75], [0.72, 0.6, 0.78]), 0.115),
        # the last step counts as last only: (80 - 85 + 75 - 60) / 2
        (([0.8], [0.7, 0.75], [0.85, 0.6, 0.78]), 0.05),
        # the best is the second step: (84 - 72 + 75 - 60) / 2
        (([0.8], [0.84, 0.75], [0.72, 0.6, 0.78]), 0.135),
        # negative where the last task helped: 50 - 60
        (([0.5], [0.6, 0.9]), -0.1),
    ],
)
def test_forgetting_is_the_drop_from_the_best_earlier_step(
    rows: tuple[list[float], ...], expected: float
) -> None:
    assert forgetting(triangle(*rows)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (([0.8], [0.7, 0.75], [0.72, 0.6, 0.78]), (0.115, 0.115, 0.115, 0.04)),
        (([0.8], [0.7, 0.75], [0.85, 0.6, 0.78]), (0.05, 0.075, 0.05, -0.025)),
        (([0.8], [0.84, 0.75], [0.72, 0.6, 0.78]), (0.135, 0.135, 0.115, 0.04)),
    ],
)
def test_four_projects_mean_four_things_by_forgetting(
    rows: tuple[list[float], ...], expected: tuple[float, ...]
) -> None:
    r = triangle(*rows)
    found = [
        forgetting(r),
        forgetting_from_best(r),
        forgetting_from_learned(r),
        forgetting_without_newest(r),
    ]

    assert found == pytest.approx(expected, abs=1e-12)
    assert backward_transfer(r) == -found[2]


def test_intransigence_compares_what_was_learned_with_joint_training() -> None:
    joint = triangle([0.9], [0.5, 0.8], [0.5, 0.5, 0.7])
    # (0.9 - 0.8 + 0.8 - 0.75 + 0.7 - 0.78) / 3 = 0.07 / 3
    assert intransigence(R, joint) == pytest.approx(0.07 / 3, abs=1e-12)


def test_forgetting_ignores_what_stands_above_the_diagonal() -> None:
    zeros, ones = np.nan_to_num(R, nan=0.0), np.nan_to_num(R, nan=1.0)
    assert forgetting(zeros) == forgetting(ones) == forgetting(R)


def test_one_task_has_no_forgetting() -> None:
    variants = (forgetting, forgetting_from_best, forgetting_from_learned, backward_transfer)
    for variant in (*variants, forgetting_without_newest):
        assert math.isnan(variant(triangle([0.8])))
    assert summary(triangle([0.8]), [10])["aiac"] == 0.8


def test_learning_accuracy_is_the_mean_of_the_diagonal() -> None:
    # (0.8 + 0.75 + 0.78) / 3 = 2.33 / 3
    assert learning_accuracy(R) == pytest.approx(2.33 / 3, abs=1e-12)


def test_a_summary_has_every_metric() -> None:
    assert summary(R, SIZES) == {
        "aac": aac(R),
        "aiac": aiac(R, SIZES),
        "final_accuracy": final_accuracy(R, SIZES),
        "forgetting": forgetting(R),
        "learning_accuracy": learning_accuracy(R),
        "backward_transfer": backward_transfer(R),
        "forgetting_from_best": forgetting_from_best(R),
        "forgetting_from_learned": forgetting_from_learned(R),
        "forgetting_without_newest": forgetting_without_newest(R),
        "worst_case": worst_case(R),
    }
    assert [metric.name for metric in METRICS.values()] == list(METRICS)


def test_the_standard_error_divides_by_n_minus_1_and_by_the_root_of_n() -> None:
    # deviations -1, 0, 1: s = sqrt(2 / 2) = 1, error 1 / sqrt(3)
    mean, error, n = mean_and_error([1.0, 2.0, 3.0])
    assert (mean, n) == (2.0, 3)
    assert error == pytest.approx(1 / math.sqrt(3), abs=1e-12)


def test_one_value_has_no_standard_error() -> None:
    mean, error, n = mean_and_error([0.25])
    assert (mean, n) == (0.25, 1)
    assert math.isnan(error)


def test_a_matrix_is_written_as_a_readable_triangle(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    write_matrix(path, triangle([0.8], [0.7, 2 / 3]))
    assert path.read_text() == "after,task 0,task 1\ntask 0,0.800000,\ntask 1,0.700000,0.666667\n"
    np.testing.assert_array_equal(read_matrix(path), triangle([0.8], [0.7, 0.666667]))


@pytest.mark.parametrize(
    "text", ["", "loss\n1.0\n", "after,task 0\ntask 0,high\n", "after,task 0\ntask 0,0.1,0.2\n"]
)
def test_another_file_is_not_a_matrix(tmp_path: Path, text: str) -> None:
    path = tmp_path / "accuracy.csv"
    path.write_text(text)
    with pytest.raises(StoreError, match=r"accuracy\.csv is not an accuracy matrix"):
        read_matrix(path)


def test_a_missing_matrix_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"none\.csv cannot be read: No such file"):
        read_matrix(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("freedom", "t"), [(1, 12.7062), (2, 4.30265), (3, 3.18245), (4, 2.77645), (7, 2.36462)]
)
def test_quantiles_of_t_are_those_of_the_tables(freedom: int, t: float) -> None:
    assert t_quantile(0.95, freedom) == pytest.approx(t, abs=5e-5)
    assert t_probability(t, freedom) == pytest.approx(0.95, abs=1e-6)
    # The density integrated numerically, which knows nothing of the finite sums.
    x = np.linspace(0, t, 200_001)
    constant = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi)
    density = constant / math.gamma(freedom / 2) * (1 + x**2 / freedom) ** (-(freedom + 1) / 2)
    area = np.sum((density[1:] + density[:-1]) / 2) * (x[1] - x[0])
    assert 2 * area == pytest.approx(t_probability(t, freedom), abs=1e-7)


def test_a_t_interval_by_hand() -> None:
    # 1, 2, 3, 4, 5: mean 3, s = sqrt(2.5), error 0.70711, t = 4.24264 with 4 degrees of freedom.
    found = t_interval([1, 2, 3, 4, 5])

    assert found.mean == 3
    assert (found.low, found.high) == pytest.approx((1.03676, 4.96324), abs=1e-5)
    assert found.p == pytest.approx(0.013236, abs=1e-6)
    assert found.n == 5
    assert t_interval([0.0, 0.0]).p == 1.0
    assert t_interval([1.0, 1.0])[:4] == (1.0, 1.0, 1.0, 0.0)
    assert math.isnan(t_interval([1.0]).low)


def test_holms_values_never_fall_and_end_at_one() -> None:
    found = holm({"a": 0.5, "b": 0.011, "c": 0.01, "d": 0.9})

    assert found == pytest.approx({"a": 1.0, "b": 0.04, "c": 0.04, "d": 1.0})


def test_frontiers_by_hand() -> None:
    ours = [(0.0, 0.6), (0.1, 0.7), (0.3, 0.7)]
    theirs = [(0.05, 0.6), (0.25, 0.7)]

    # Over [0.05, 0.25]: ours has area 0.03375 + 0.105, theirs 0.13.
    assert frontier_difference(ours, theirs) == pytest.approx((0.13875 - 0.13) / 0.2)
    assert frontier_difference(theirs, ours) == pytest.approx(-(0.13875 - 0.13) / 0.2)
    assert frontier_difference(ours, [(0.4, 0.9), (0.5, 0.9)]) is None
    assert frontier_difference(ours, [(0.3, 0.9), (0.5, 0.9)]) is None
    assert frontier_difference([(0.1, 0.5)], theirs) is None
    # Two points of equal forgetting are one at their mean.
    assert frontier_difference([(0.0, 0.4), (0.0, 0.6), (1.0, 0.5)], [(0, 0), (1, 0)]) == 0.5


NAN = math.nan
WIDE = np.array([[0.8, NAN, NAN], [0.7, 0.75, NAN], [0.9, 0.65, NAN], [0.6, 0.7, 0.5]])
"""The third task brought known classes alone: a row, and no column."""


def test_a_task_of_known_classes_alone_has_a_row_and_no_column() -> None:
    assert learned_after(WIDE) == [0, 1, 3]
    assert learned_after(R) == [0, 1, 2]
    assert np.array_equal(first_rows(WIDE, 3), WIDE[:3, :2], equal_nan=True)
    # From the best row: 0.9 − 0.6 and 0.75 − 0.7; when learned: 0.8 − 0.6 and 0.75 − 0.7
    assert forgetting(WIDE) == pytest.approx((0.3 + 0.05) / 2, abs=1e-12)
    assert forgetting_from_best(WIDE) == pytest.approx(0.175, abs=1e-12)
    assert forgetting_from_learned(WIDE) == pytest.approx(0.125, abs=1e-12)
    assert forgetting_without_newest(WIDE) == pytest.approx(0.2 / 2, abs=1e-12)
    assert backward_transfer(WIDE) == pytest.approx(-0.125, abs=1e-12)
    assert learning_accuracy(WIDE) == pytest.approx((0.8 + 0.75 + 0.5) / 3, abs=1e-12)
    assert aac(WIDE) == pytest.approx(0.6, abs=1e-12)
    steps = [0.8, (2 * 0.7 + 0.75) / 3, (2 * 0.9 + 0.65) / 3, (2 * 0.6 + 0.7 + 0.5) / 4]
    assert aiac(WIDE, [20, 10, 10]) == pytest.approx(sum(steps) / 4, abs=1e-12)
    assert intransigence(WIDE, WIDE + 0.1) == pytest.approx(0.1, abs=1e-12)


def test_where_known_classes_come_last_every_task_is_an_earlier_one() -> None:
    r = np.array([[0.8, NAN], [0.6, 0.9], [0.7, 0.8]])

    # 0.8 − 0.7 and 0.9 − 0.8
    assert forgetting(r) == pytest.approx(0.1, abs=1e-12)
    assert backward_transfer(r) == pytest.approx(-0.1, abs=1e-12)


def test_a_matrix_with_fewer_columns_is_written_and_read(tmp_path: Path) -> None:
    write_matrix(tmp_path / "r.csv", WIDE)

    text = (tmp_path / "r.csv").read_text().splitlines()
    assert text[0] == "after,task 0,task 1,task 3"
    assert text[3] == "task 2,0.900000,0.650000,"
    assert np.array_equal(read_matrix(tmp_path / "r.csv"), WIDE, equal_nan=True)
