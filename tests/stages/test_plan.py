"""Keys: the hash of exactly what can change a stage's numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, Method, MethodError, Training, make_method
from ancl.extend import CrossEntropy, Finish, Step
from tests.lab import (
    COMPUTED,
    METHODS,
    NUMERICS,
    Architecture,
    MemoryStore,
    StageResult,
    from_arrays,
    make_stream,
    patch_part,
    plan,
)

OUTSIDE = """
from dataclasses import dataclass
from ancl import Method
from ancl.extend import Term
from ancl.extend import Regularizer

@dataclass(frozen=True)
class Mine(Regularizer):
    reads = "features"
    def penalty(self, step, anchor):
        return {factor} * (step.out.features - step.of(anchor).features).square().mean()

def mine(*, lamb: float = 1.0) -> Method:
    return Method("mine", old=Term(Mine(), lamb))
"""


@pytest.fixture
def keys(lab) -> Callable[..., dict[tuple[str, int], str]]:
    def of(method: str | Method, setting=None, tasks=None, **settings) -> dict:
        made = make_method(method, **settings) if isinstance(method, str) else method
        stages = plan(made, tasks or lab.tasks(), setting or lab.setting())
        return {(stage.name, stage.task): stage.key for stage in stages}

    return of


def test_a_plan_names_every_stage_in_order(lab) -> None:
    stages = plan(make_method("a-ewc"), lab.tasks()[:2], lab.setting())

    assert [(stage.name, stage.task) for stage in stages] == [
        ("grow", 0),
        ("main", 0),
        ("importance", 0),
        ("evaluate", 0),
        ("grow", 1),
        ("auxiliary", 1),
        ("auxiliary importance", 1),
        ("main", 1),
        ("importance", 1),
        ("evaluate", 1),
    ]
    seen: set[str] = set()
    for stage in stages:
        assert set(stage.inputs.values()) <= seen
        seen.add(stage.key)


@pytest.mark.parametrize("name", [*METHODS, "a-ewc", "a-si", "afec-lwf"])
def test_a_plan_builds_no_network(name, lab, monkeypatch) -> None:
    setting, tasks = lab.setting(), lab.tasks()

    def fail(*arguments: object) -> None:
        raise AssertionError("a network was built")

    monkeypatch.setattr(Architecture, "build", fail)
    patch_part(monkeypatch, "stream_load", fail)

    assert len({stage.key for stage in plan(make_method(name), tasks, setting)}) >= 9


def test_methods_share_the_first_task_unless_it_is_watched(keys) -> None:
    first = {name: keys(name)[("main", 0)] for name in METHODS if name not in COMPUTED}

    assert first["finetune"] == first["ewc"] == first["mas"] == first["lwf"]
    assert first["si"] != first["finetune"]
    assert keys("a-ewc")[("main", 0)] == keys("afec-lwf")[("main", 0)] == first["finetune"]


def test_scenarios_share_the_first_task_alone(keys, lab) -> None:
    til, cil = (keys("lwf", lab.setting(task_aware=told)) for told in (True, False))

    assert til[("main", 0)] == cil[("main", 0)]
    assert til[("main", 1)] != cil[("main", 1)]


def test_the_auxiliary_network_depends_on_no_lambda_and_no_regularizer(keys) -> None:
    one = keys("a-ewc", lamb_a=1.0)
    other, far = keys("a-ewc", lamb_a=2.0), keys("a-ewc", lamb=5.0)

    assert one[("auxiliary", 1)] == keys("a-lwf")[("auxiliary", 1)]
    assert one[("auxiliary", 1)] != keys("a-si")[("auxiliary", 1)]
    shared = [name for name, key in one.items() if other[name] == key]
    before_main_1 = list(one)[: list(one).index(("main", 1))]
    assert shared == before_main_1 == [name for name, key in one.items() if far[name] == key]


@pytest.mark.parametrize(
    ("setting", "first_changed"),
    [
        ({"temperature": 4.0}, ("main", 1)),
        ({"lamb": 3.0}, ("main", 1)),
        ({"lamb_a": 3.0}, ("main", 1)),
        ({"auxiliary_classes": "all"}, ("main", 1)),
    ],
)
def test_a_setting_changes_the_stages_that_read_it(setting, first_changed, keys) -> None:
    one, other = keys("a-lwf"), keys("a-lwf", **setting)

    assert next(name for name in one if one[name] != other[name]) == first_changed


def test_training_enters_the_stages_it_trains(keys, lab) -> None:
    setting = lab.setting()
    main = replace(setting, training=replace(setting.training, epochs_first=1))
    auxiliary = replace(setting, auxiliary=replace(setting.auxiliary, lr=0.01))
    one = keys("a-lwf", setting)

    assert keys("a-lwf", main)[("main", 0)] != one[("main", 0)]
    changed = [name for name, key in keys("a-lwf", auxiliary).items() if key != one[name]]
    assert changed[0] == ("auxiliary", 1)
    assert keys("a-lwf", replace(setting, augment="flip"))[("main", 0)] != one[("main", 0)]
    assert keys("a-lwf", replace(setting, seed=1))[("grow", 0)] != one[("grow", 0)]


def test_numerics_enter_every_key(keys, monkeypatch) -> None:
    one = keys("a-ewc")

    def all_differ() -> bool:
        other = keys("a-ewc")
        return not set(one.values()) & set(other.values())

    with monkeypatch.context() as patch:
        patch.setattr(torch, "get_num_threads", lambda: 7)
        assert all_differ()
    with monkeypatch.context() as patch:
        patch_part(patch, "NUMERICS", NUMERICS + 1)
        assert all_differ()
    with monkeypatch.context() as patch:
        patch.setattr(torch, "__version__", "0.0")
        assert all_differ()
    assert keys("a-ewc") == one


def test_an_edited_file_of_a_user_changes_the_keys_that_read_it(keys, tmp_path: Path) -> None:
    file = tmp_path / "methods.py"
    file.write_text(OUTSIDE.format(factor="1.0"))
    one, again = keys(f"{file}:mine"), keys(f"{file}:mine")
    file.write_text(OUTSIDE.format(factor="2.00"))
    other = keys(f"{file}:mine")
    moved = tmp_path / "elsewhere.py"
    moved.write_text(OUTSIDE.format(factor="2.00"))

    assert one == again
    assert one[("main", 0)] == other[("main", 0)]
    assert one[("main", 1)] != other[("main", 1)]
    assert keys(f"{moved}:mine") == other


def test_the_order_of_images_changes_no_key(keys, lab) -> None:
    train, test = lab.source.train, lab.source.test
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(1))
    shuffled = from_arrays(train.x[order], train.y[order], test.x.dense().flip(0), test.y.flip(0))
    tasks = make_stream(shuffled, tasks=3, val_fraction=0.2).tasks

    assert keys("a-ewc", tasks=tasks) == keys("a-ewc")
    assert keys("a-ewc", tasks=lab.tasks(seed=1)) != keys("a-ewc")


def local_loss(factor: float) -> Callable[[Step], Tensor]:
    """A function without a source of its own: its factor is seen by no hash."""

    def loss(step: Step) -> Tensor:
        return factor * CrossEntropy()(step)

    return loss


def test_code_that_cannot_be_described_is_stored_nowhere(lab) -> None:
    store = MemoryStore()

    one = lab.learn(Method("own", local_loss(1.0)), store=store)
    other = lab.learn(Method("own", local_loss(3.0)), store=store)

    assert all("local_loss" in stage.unstored for stage in one.stages)
    assert all(store.load(stage.key) is None for stage in one.stages)
    mains = [learned.stage("main", 0).key for learned in (one, other)]
    assert mains[0] != mains[1]
    assert any(not torch.equal(one.final[n], other.final[n]) for n in one.final)


@dataclass(frozen=True)
class Scaled:
    """A task loss with a source file: this one."""

    factor: float = 1.0

    def __call__(self, step: Step) -> Tensor:
        return self.factor * CrossEntropy()(step)


def test_a_dataclass_of_a_file_is_stored_by_its_fields(lab, keys) -> None:
    one, other = keys(Method("own", Scaled())), keys(Method("own", Scaled(2.0)))
    stages = plan(Method("own", Scaled()), lab.tasks(), lab.setting())

    assert not any(stage.unstored for stage in stages)
    assert one == keys(Method("own", Scaled()))
    assert one[("main", 0)] != other[("main", 0)]
    assert one[("grow", 0)] == other[("grow", 0)]


@dataclass(frozen=True)
class Own(Finish):
    """A finishing stage of a user, by any name."""

    name: str = "own"

    def run(self, work: Any) -> StageResult:
        return StageResult(dict(work.inputs["network"].tensors), {"mine": True})


BUILT_IN = (
    "grow",
    "rate trial",
    "rate",
    "auxiliary",
    "auxiliary importance",
    "main",
    "importance",
    "memory",
    "evaluate",
)


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_finishing_stage_named_like_one_of_ours_is_refused(name: str, lab) -> None:
    method = Method("mine", finish=(Own(name),))

    with pytest.raises(MethodError) as refused:
        plan(method, lab.tasks(), lab.fitted(method, lab.setting(memory=Memory(per_class=4))))

    assert f"'{name}'" in str(refused.value)
    assert "mine" in str(refused.value)
    assert "another name" in str(refused.value)


def test_two_finishing_stages_of_one_name_are_refused(lab) -> None:
    method = Method("mine", finish=(Own("own"), Own("own")))

    with pytest.raises(MethodError, match="'own'"):
        plan(method, lab.tasks(), lab.setting(memory=Memory(per_class=4)))


def test_the_names_of_our_stages_are_those_that_are_planned(lab) -> None:
    """The list above is whole: plans with every kind of stage have these names, and no others."""
    searched = lab.setting(training=Training(epochs=1, lr_search=True), memory=Memory(per_class=4))
    names = {stage.name for stage in plan(make_method("a-ewc"), lab.tasks(), searched)}

    assert names == set(BUILT_IN)


def test_a_finishing_stage_by_its_own_name_is_planned_and_run(lab) -> None:
    learned = lab.learn(Method("mine", finish=(Own(),)), lab.setting(memory=Memory(per_class=4)))

    assert [task for name, task in learned.names if name == "own"] == [1, 2]
    assert learned.entry("own", 1).meta["mine"] is True
