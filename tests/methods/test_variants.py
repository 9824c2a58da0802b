"""Methods made of methods: what a weight of zero leaves of them."""

import pytest

from ancl import make_method
from tests.lab import drop_zero_terms


def test_terms_of_weight_zero_are_no_part_of_the_method() -> None:
    made = drop_zero_terms(make_method("a-ewc", lamb=0, lamb_a=0))

    assert (made.old, made.auxiliary) == (None, None)
    assert drop_zero_terms(make_method("a-ewc", lamb=0, lamb_a=1.0)).auxiliary is not None
    assert drop_zero_terms(make_method("a-ewc", lamb_a=0)).old is not None


@pytest.mark.parametrize(
    ("lamb", "lamb_a", "left"),
    [
        (1.0, "balance:0", ["old"]),
        (1.0, "balance:0.3", ["old", "auxiliary"]),
        (0.0, "balance:0.3", []),  # nothing to balance with
        ("auto", "balance:0", ["old"]),
    ],
)
def test_a_balance_that_pulls_with_nothing_trains_nothing(
    lamb: float | str, lamb_a: str, left: list[str]
) -> None:
    made = drop_zero_terms(make_method("a-lwf", lamb=lamb, lamb_a=lamb_a))

    assert [part for part in ("old", "auxiliary") if getattr(made, part)] == left
