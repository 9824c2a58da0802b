"""Which differences are taken, and what is named beside them."""

from dataclasses import replace

import pytest

from tests.lab import Conditions, Layer, ParameterCount, pairing, resolve, values_tried

IMAGES = ((40, 10, 10), (40, 10, 10))


def made(method: str, benchmark: str = "digits/5", **values: object) -> Conditions:
    given = {key.replace("__", "."): value for key, value in values.items()}
    spec = resolve(method, benchmark, [Layer("test", {"threads": 1, **given})]).spec
    return Conditions(spec.settings(), IMAGES, ("a", "b"))


def test_a_variant_and_its_host_with_equal_settings_have_nothing_to_name() -> None:
    assert pairing(made("a-lwf", lamb_a=3.0), made("lwf")) == ((), ())


def test_the_seed_and_where_it_ran_do_not_count() -> None:
    assert pairing(made("a-lwf", seed=3, threads=2), made("lwf")) == ((), ())


@pytest.mark.parametrize(
    ("ours", "theirs", "named"),
    [
        ({"lamb": 10.0}, {"lamb": 1e9}, ("λ 10 instead of 1e+09",)),
        ({"training__epochs": 5}, {}, ("epochs 5 instead of 30",)),
        ({"training__milestones": [5, 9]}, {}, ("milestones [5, 9] instead of []",)),
        ({"auxiliary__epochs": 5}, {}, ()),
    ],
)
def test_other_settings_are_named_with_both_values(
    ours: dict[str, object], theirs: dict[str, object], named: tuple[str, ...]
) -> None:
    assert pairing(made("a-lwf", **ours), made("lwf", **theirs)) == ((), named)


def test_settings_that_are_left_out_at_their_default_count_too() -> None:
    kept = {"data__scenario": "cil", "network__name": "resnet8", "memory__per_class": 20}
    plain, fair = (made("aanets-icarl", **kept, memory__fair=fair) for fair in (False, True))
    old, new = (made("lucir", train_old_rows=rows) for rows in (False, True))

    assert pairing(fair, plain) == ((), ("memory.fair true instead of false",))
    assert pairing(plain, fair) == ((), ("memory.fair false instead of true",))
    assert pairing(new, old) == ((), ("train_old_rows true instead of false",))
    assert pairing(plain, plain) == ((), ())


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"data__scenario": "cil"}, "data.scenario cil instead of til"),
        ({"data__tasks": 2}, "data.tasks 2 instead of 5"),
        ({"data__per_class": 9}, "data.per_class 9 instead of none"),
        ({"network__name": "resnet8"}, "network.name resnet8 instead of mlp"),
        ({"data__order": list(range(9, -1, -1)), "data__tasks": 5}, "another data.order"),
    ],
)
def test_other_data_network_or_scenario_are_refused(values: dict[str, object], reason: str) -> None:
    found = pairing(made("a-lwf", **values), made("lwf"))

    assert reason in found.refused
    assert found.text.startswith("not compared: ")


def test_equal_settings_on_other_images_are_refused() -> None:
    ours, theirs = made("a-lwf"), made("lwf")
    fewer, others = replace(theirs, images=IMAGES[:1]), replace(theirs, tests=("a", "c"))

    assert pairing(ours, fewer).refused == ("the images are not the same",)
    assert pairing(ours, others).refused == ("the images are not the same",)
    assert pairing(ours, replace(others, tests=())).refused == ()


def test_options_of_unlike_methods_are_not_the_same_thing() -> None:
    assert pairing(made("ewc", lamb=100.0), made("lwf", lamb=10.0)).differing == ()


def test_unequal_exemplars_parameters_and_searches_are_named() -> None:
    plain = replace(made("lwf"), size=ParameterCount(1000, 900, 0), searched=3)
    grown = replace(made("a-lwf"), size=ParameterCount(2500, 900, 40), searched=8)
    alike = replace(plain, size=ParameterCount(1009, 900, 0))

    assert pairing(grown, plain).differing == (
        "40 images kept instead of 0",
        "2,500 parameters instead of 1,000",
        "8 values of λ and λ_a searched instead of 3",
    )
    assert pairing(alike, plain).differing == ()
    assert pairing(replace(grown, size=None, searched=None), plain).differing == ()


def test_searches_are_counted_where_they_chose_the_value() -> None:
    spec = resolve("a-lwf", "digits/5", [Layer("test", {"lamb": 3.0, "lamb_a": 0.5})]).spec
    host = resolve("lwf", "digits/5", [Layer("test", {"lamb": 3.0})]).spec
    trials = [{"step": "lamb", "lamb": v} for v in (1.0, 3.0, 10.0)]
    trials += [{"step": "lamb_a", "lamb_a": v} for v in (0.1, 0.5)]
    search = {"method": "a-lwf", "benchmark": "digits/5", "protocol": "two-stage"}
    search |= {"lamb": 3.0, "lamb_a": 0.5, "trials": trials}

    assert (values_tried(spec, [search]), values_tried(host, [search])) == (5, 3)
    assert values_tried(spec, [search, search]) == 5
    assert values_tried(spec, [{**search, "lamb_a": 0.1}]) == 3
    assert values_tried(spec, [{**search, "benchmark": "hard-digits/5"}]) == 0
    assert values_tried(resolve("finetune", "digits/5", []).spec, [search]) is None
