"""Rules for λ, by the published factors."""

from dataclasses import replace

import pytest

from ancl import Method, MethodError, SpecError, make_method
from ancl.extend import Auto, Auxiliary, Balance, Term, with_afec, with_ancl, with_auto
from tests.lab import (
    DEFAULT_RHO,
    KAPPA_ON_ANSWERS,
    KAPPA_ON_WEIGHTS,
    AdaptiveAllNew,
    AdaptiveOldNew,
    Ewc,
    Factor,
    Lwf,
    MethodRef,
    NewShare,
    OldShare,
    weight_at,
)


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


# -- balance ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lwf", "ewc", "lucir"])
@pytest.mark.parametrize("given", ["balance:0.25", Balance(0.25)])
def test_a_balance_is_the_same_as_a_value_and_as_text(name, given) -> None:
    by_name, by_hand = make_method(f"a-{name}", lamb_a=given), with_ancl(make_method(name), given)

    # A rule for λ multiplies λ alone: λ_a follows from it.
    assert by_name == by_hand
    assert by_name.auxiliary.lamb_a == Balance(0.25)
    assert by_name.old == make_method(name).old
    assert weight_at(Balance(0.25), 50, 10) == Balance(0.25)


def test_a_setting_keeps_its_rho() -> None:
    taken = MethodRef("a-lwf").check({"lamb_a": "balance"})

    assert taken == {"lamb_a": f"balance:{DEFAULT_RHO}"}
    assert MethodRef("a-lwf").check({"lamb_a": Balance(0.5)}) == {"lamb_a": "balance:0.5"}
    assert MethodRef("a-lwf").check({"lamb_a": "0.5"}) == {"lamb_a": 0.5}


@pytest.mark.parametrize("value", ["balnce", "balance:", "balance:-1", "convex"])
def test_what_is_neither_number_nor_balance_is_refused(value) -> None:
    with pytest.raises(SpecError, match=r"lamb_a is .*must be balance or balance:ρ with ρ ≥ 0"):
        make_method("a-lwf", lamb_a=value)
    with pytest.raises(MethodError, match=r"λ_a is .*must be balance or balance:ρ .*or a number"):
        with_ancl(make_method("lwf"), value)


def test_afec_is_offered_numbers_alone() -> None:
    with pytest.raises(SpecError, match=r"^lamb_a is 'balnce'; it must be a valid number\.$"):
        make_method("afec-lwf", lamb_a="balnce")


@pytest.mark.parametrize("name", ["ewc", "lwf", "lucir"])
@pytest.mark.parametrize("renewed", ["task", "epoch"])
def test_afec_has_no_balance(name, renewed) -> None:
    with pytest.raises(MethodError, match=rf"balance:0.3 with AFEC.*EWC's Ω.*or use a-{name}\."):
        make_method(f"afec-{name}", lamb_a="balance:0.3", afec_renewed=renewed)
    with pytest.raises(MethodError, match=r"Give a number, such as lamb_a=1\.$"):
        with_afec(make_method("finetune"), Balance())


def test_a_balance_needs_two_pulls_of_one_kind_that_stay() -> None:
    balance, lwf = Auxiliary(Lwf(), Balance()), Term(Lwf(), 1.0)

    assert Method("mine", old=lwf, auxiliary=balance).auxiliary == balance
    for old, auxiliary in (
        (None, balance),
        (lwf, Auxiliary(Ewc(), Balance())),
        (Term(Ewc(), 1.0), balance),
        (Term(Ewc(), 1.0), Auxiliary(Ewc(), Balance(), renewed="epoch")),
    ):
        with pytest.raises(MethodError, match=r"mine cannot balance λ_a.*Give a number for λ_a"):
            Method("mine", old=old, auxiliary=auxiliary)
    with pytest.raises(MethodError, match="a-lwf cannot balance"):
        replace(make_method("a-lwf", lamb_a="balance"), old=None)


# -- auto ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "start", "kappa"),
    [
        ("lwf", 10.0, KAPPA_ON_ANSWERS),
        ("a-ewc", 10_000.0, KAPPA_ON_WEIGHTS),
        ("lucir", 5.0, KAPPA_ON_ANSWERS),
        ("wa", 1.0, KAPPA_ON_ANSWERS),
    ],
)
def test_auto_begins_with_the_methods_own_lamb(name, start, kappa) -> None:
    assert make_method(name, lamb="auto").old.lamb == Auto(start, kappa)
    assert make_method(name, lamb="auto:0.25").old.lamb == Auto(start, 0.25)
    assert with_auto(make_method(name), 0.25).old.lamb == Auto(start, 0.25)


def test_auto_beside_a_balance_and_beside_a_rule() -> None:
    both = make_method("a-lucir", lamb="auto", lamb_a="balance")
    ruled = make_method("a-lucir", lamb="auto", lamb_a=2.0)

    assert both.auxiliary.lamb_a == Balance()
    assert ruled.auxiliary.lamb_a == AdaptiveOldNew(2.0)


def test_the_setting_auto_is_kept_as_text() -> None:
    assert MethodRef("lwf").check({"lamb": "auto"}) == {"lamb": "auto"}
    assert MethodRef("lwf").check({"lamb": "auto:5e-1"}) == {"lamb": "auto:0.5"}
    assert MethodRef("bic").check({"lamb": "convex"}) == {"lamb": "convex"}
    with pytest.raises(SpecError, match=r"lamb is 'automatic'.*must be auto or auto:κ with κ > 0"):
        MethodRef("lwf").check({"lamb": "automatic"})


def test_where_no_lamb_can_be_found() -> None:
    with pytest.raises(MethodError, match=r"λ cannot be auto with afec-lwf.*Give a number"):
        make_method("afec-lwf", lamb="auto")
    for name in ("finetune", "dmc"):
        with pytest.raises(MethodError, match=f"{name} has no λ to be found"):
            with_auto(make_method(name))
    with pytest.raises(MethodError, match="is auto already"):
        with_auto(make_method("lwf", lamb="auto"))
    with pytest.raises(MethodError, match="first λ of auto is 0"):
        with_auto(make_method("lwf", lamb=0.0))
