import math

import pytest

from tests.lab import ranks, spearman


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert ranks([3.0, 1.0, 3.0, 2.0]).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_without_ties_it_is_one_minus_six_d_squared() -> None:
    first, second = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 1.0, 4.0, 3.0, 50.0]

    # rank differences -1, 1, -1, 1, 0: 1 - 6 * 4 / (5 * 24) = 0.8
    assert spearman(first, second) == pytest.approx(0.8, abs=1e-12)
    assert spearman(first, [-value for value in first]) == -1.0


def test_a_flat_list_has_no_correlation() -> None:
    assert math.isnan(spearman([1.0, 2.0, 3.0], [7.0, 7.0, 7.0]))
