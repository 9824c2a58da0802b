"""One dialect of settings: in specs, runs and learners."""

from pathlib import Path
from typing import Any

import pytest

import ancl
from ancl import Learner, Memory, SpecError, Training

TINY: dict[str, Any] = {
    "training": {"epochs": 1},
    "network": "mlp",
    "data": {"per_class": 6, "test_per_class": 4, "tasks": 2},
    "threads": 1,
}


def test_a_run_takes_a_name_or_a_spec(tmp_path: Path) -> None:
    named = ancl.run("lwf", "digits/5", lamb=3, runs=tmp_path, **TINY)
    spec = ancl.spec("lwf", "digits/5", lamb=3, **TINY)

    assert named.spec == spec
    assert ancl.run(spec, runs=tmp_path).metrics == named.metrics
    assert spec.options["lamb"] == 3
    assert spec.training.epochs == spec.auxiliary.epochs == 1
    with pytest.raises(SpecError, match="lamb, benchmark: a spec has its settings already"):
        ancl.run(spec, "digits/5", lamb=3, runs=tmp_path)


def test_sections_are_given_whole() -> None:
    dotted = {"training.epochs": 3, "memory.per_class": 7, "network.name": "mlp"}
    cil = {"data.scenario": "cil"}
    spec = ancl.spec("icarl", "digits/5", settings={**dotted, **cil})
    whole = {"training": {"epochs": 3}, "memory": 7, "network": {"name": "mlp"}}

    assert ancl.spec("icarl", "digits/5", settings=cil, **whole) == spec
    assert ancl.spec("icarl", "digits/5", settings=cil, memory=Memory(5)).memory.per_class == 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory": "x"}, "memory is 'x'. Write memory=20"),
        ({"memory": True}, "memory is True"),
        ({"training": 3}, "training is 3. Write training=dict"),
        ({"training": {"epoch": 3}}, "no setting 'epoch'. Did you mean 'epochs'"),
        ({"training": {"epochs": 0}}, "epochs is 0; it must be greater than or equal to 1"),
    ],
)
def test_what_is_no_section_is_refused_alike(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as by_spec:
        ancl.spec("icarl", "digits/5", **values)
    with pytest.raises(SpecError) as by_learner:
        Learner("icarl", "mlp", **values)

    assert message in str(by_spec.value)
    assert message in str(by_learner.value)


def test_a_learner_takes_sections_as_mappings_and_values() -> None:
    learner = Learner("icarl", "mlp", training={"epochs": 3}, memory=20)
    same = Learner("icarl", "mlp", training=Training(epochs=3), memory=Memory(per_class=20))

    assert learner._recipe == same._recipe
    assert learner._recipe.auxiliary.epochs == 3


def test_all_mistakes_of_a_learner_are_found_together() -> None:
    wrong: dict[str, Any] = {"training": {"epochs": 0}, "network_options": {"depth": 3}, "seed": -1}
    with pytest.raises(SpecError) as caught:
        Learner("lwf", "mlp", **wrong, lambd=3)

    assert [line.split(".")[0] for line in str(caught.value).splitlines()] == [
        "Learner: seed is -1; it must be greater than or equal to 0",
        "Learner: network mlp has no setting 'depth'",
        "Learner: training",
        "Learner: lwf has no setting 'lambd'",
    ]


def test_a_learner_takes_a_recipe_alone() -> None:
    recipe = Learner("a-lwf", "mlp", lamb=3, scenario="til")._recipe

    assert Learner(recipe)._recipe is recipe
    with pytest.raises(SpecError, match="seed, lamb: a recipe has its settings already"):
        Learner(recipe, seed=1, lamb=3)
    with pytest.raises(SpecError, match="a run's spec names them"):
        Learner(ancl.spec("lwf", "digits/5"))


def test_a_setting_of_the_training_is_not_one_of_the_method() -> None:
    with pytest.raises(SpecError, match=r"epochs=3: lwf has no such setting, the training has"):
        Learner("lwf", epochs=3)
    with pytest.raises(SpecError, match=r"Give memory=dict\(per_class=3\)"):
        Learner("lwf", per_class=3)
