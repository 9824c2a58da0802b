"""Rules for λ, by the published factors."""

import pytest

from ancl.methods.lambda_rules import AdaptiveAllNew, AdaptiveOldNew, Factor, NewShare, OldShare
from ancl.methods.method import weight_at
from ancl.methods.registry import make_method
from ancl.methods.variants import with_ancl


@pytest.mark.parametrize(
    ("rule", "counts", "expected"),
    [
        (AdaptiveOldNew(5.0), (50, 10), 11.180340),
        (AdaptiveOldNew(5.0), (90, 10), 15.0),
        (AdaptiveOldNew(5.0), (50, 5), 15.811388),
        (AdaptiveAllNew(1.0), (50, 10), 2.449490),
        (OldShare(), (50, 10), 0.833333),
        (NewShare(), (50, 10), 0.166667),
    ],
)
def test_a_rule_follows_the_numbers_of_classes(rule: Factor, counts, expected: float) -> None:
    assert weight_at(rule, *counts) == pytest.approx(expected, abs=1e-6)


def test_convex_weights_by_hand() -> None:
    bic = make_method("bic", lamb="convex")

    # 50 old and 10 new classes, distillation .7, cross-entropy 1.2: 5/6 · .7 + 1/6 · 1.2
    lamb, own = (weight_at(w, 50, 10) for w in (bic.old.lamb, bic.task_weight))
    assert lamb * 0.7 + own * 1.2 == pytest.approx(0.783333, abs=1e-6)
    assert make_method("bic").task_weight == 1.0
    assert make_method("bic").old.lamb == 10.0


def test_where_no_classes_are_new_the_number_stands_alone() -> None:
    assert weight_at(AdaptiveOldNew(5.0), 10, 0) == 5.0
    assert weight_at(AdaptiveAllNew(3.0), 10, 0) == 3.0
    assert weight_at(2.0, 10, 0) == 2.0


@pytest.mark.parametrize(("name", "rule"), [("lucir", AdaptiveOldNew), ("podnet", AdaptiveAllNew)])
def test_the_auxiliary_networks_lambda_follows_the_same_rule(name, rule) -> None:
    both = make_method(f"a-{name}", lamb=4.0, lamb_a=2.0)
    old_only = make_method(f"a-{name}", lamb_a=2.0, adaptive_auxiliary="old_only")
    off = make_method(f"a-{name}", lamb_a=2.0, adaptive=False)

    assert (both.old.lamb, both.auxiliary.lamb_a) == (rule(4.0), rule(2.0))
    assert old_only.auxiliary.lamb_a == off.auxiliary.lamb_a == 2.0
    # A zero stays a number, by which the term is known to be nothing.
    assert make_method(f"a-{name}", lamb_a=0).auxiliary.lamb_a == 0
    assert make_method(name, lamb=0).old.lamb == 0
    assert with_ancl(make_method(name), rule(7.0)).auxiliary.lamb_a == rule(7.0)
