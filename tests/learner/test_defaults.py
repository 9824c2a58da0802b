"""A learner and a run have the same defaults: a method's own come from one place."""

import pytest

from ancl import Learner, Memory, MethodError, RunSpec, SpecError, Training, make_method
from tests.lab import METHODS, VARIANTS, Layer, MethodRef, method_defaults, resolve


def possible(name: str) -> bool:
    try:
        MethodRef(name).make({})
    except MethodError:
        return False
    return True


NAMES = [*METHODS, *(n for v in VARIANTS for m in METHODS if possible(n := f"{v}-{m}"))]


def run_of(method: str, **values: object) -> RunSpec:
    given = {"data.source": "digits", "data.tasks": 5, "data.scenario": "cil", **values}
    return resolve(method, None, [Layer("test", given)]).spec


@pytest.mark.parametrize("name", NAMES)
def test_a_learner_is_made_as_a_run_is(name: str) -> None:
    own = MethodRef(name).make({})
    given = Memory(per_class=9) if "cil" in own.needs_memory and own.memory is None else None
    spec = run_of(name, **({"memory.per_class": 9} if given else {}))
    made = Learner(name, memory=given)._recipe

    assert (made.training, made.auxiliary) == (spec.training, spec.auxiliary)
    kept = spec.memory
    assert made.memory == Memory(kept.per_class, kept.total, kept.selection, kept.batch)
    assert not kept.fair  # a learner cannot know what it would have to pay for
    assert made.make_method() == MethodRef(name).make(spec.options)
    assert made.network == spec.network


def test_what_a_method_decides() -> None:
    assert method_defaults(make_method("lwf")) == {"training.select_by": "loss"}
    assert method_defaults(make_method("a-lucir")) == {
        "network.last_relu": False,
        "memory.per_class": 20,
        "memory.total": None,
        "memory.selection": "herding",
        "memory.batch": None,
        "memory.bytes": None,
        "training.select_by": "task_loss",
        "auxiliary.weight_decay": 5e-4,
    }


def test_what_is_given_to_a_learner_is_kept() -> None:
    training = Training(weight_decay=0.1, select_by="loss")
    given = Learner("a-lucir", training=training, memory=Memory(total=100))._recipe
    both = Learner("a-lucir", training=training, auxiliary=Training(weight_decay=0.2))._recipe
    relu = Learner("lucir", network_options={"last_relu": True})._recipe

    assert given.training == training
    assert (given.auxiliary.weight_decay, given.auxiliary.select_by) == (5e-4, "loss")
    assert given.memory == Memory(total=100)
    assert both.auxiliary == Training(weight_decay=0.2)
    assert relu.network["last_relu"]
    assert Learner("lucir", "mlp")._recipe.network == {"name": "mlp", "hidden": (256, 256)}


def test_a_learner_refuses_to_select_by_a_loss_that_is_not_there() -> None:
    with pytest.raises(SpecError, match="select_by is task_loss, but dmc has no task loss"):
        Learner("dmc", training=Training(select_by="task_loss"))
