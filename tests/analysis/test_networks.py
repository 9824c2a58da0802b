from dataclasses import replace
from typing import Any

import pytest
import torch

from ancl import Events, MethodError, ScenarioError, make_method
from ancl.extend import with_ancl
from tests.lab import MemoryStore, parameter_names, plan, plan_networks, storage_for, train_networks


class Counting(Events):
    def __init__(self) -> None:
        self.computed: list[str] = []

    def stage_ends(self, stage: Any, *, found: bool, seconds: float) -> None:
        if not found:
            self.computed.append(f"{stage.name} {stage.task}")


def test_all_but_the_multitask_network_are_stages_of_ordinary_runs(experiment: Any) -> None:
    made = experiment("a-ewc")
    plans = plan_networks(made, 1, (0.5, 5.0))
    tasks, setting = made.stream.tasks, made.setting
    cl = make_method("ewc", lamb=10.0)

    plain = {stage.key for stage in plan(cl, tasks, setting)}
    ancl = {stage.key for stage in plan(with_ancl(cl, 5.0), tasks, setting)}

    assert plans.cl.state["network"] in plain
    assert plans.ancl[5.0].state["network"] in ancl
    assert {s.key for p in plans.before for s in p.stages} <= plain
    assert plans.multi.key("grow") == plans.cl.key("grow")


def test_shared_networks_are_trained_once_and_nothing_beyond_the_task(experiment: Any) -> None:
    made, counting = experiment("a-ewc"), Counting()
    plans = plan_networks(made, 1, (0.5, 5.0))

    train_networks(plans, made, MemoryStore(), counting)

    # The first task, then CL, ANCL twice and multitask; importance of the old network alone.
    names = counting.computed
    assert names.count("main 0") == 1
    assert names.count("main 1") == 4
    assert names.count("auxiliary 1") == 1
    assert [name for name in names if "importance" in name] == [
        "importance 0",
        "auxiliary importance 1",
    ]


def test_the_old_network_has_the_auxiliary_networks_new_rows(ewc: Any) -> None:
    old, auxiliary = ewc.networks.old.tensors, ewc.networks.auxiliary.tensors

    assert torch.equal(old["head.weights.1"], auxiliary["head.weights.1"])
    assert torch.equal(old["head.weights.0"], auxiliary["head.weights.0"])  # frozen in TIL
    assert not torch.equal(old["backbone.0.weight"], auxiliary["backbone.0.weight"])
    assert "head.weights.1" not in ewc.networks.old_names
    assert "head.weights.0" in ewc.networks.old_names


def test_a_later_task_starts_from_the_multitask_network_before_it(experiment: Any) -> None:
    made, counting = experiment("a-ewc"), Counting()
    plans = plan_networks(made, 2, (0.5,))

    networks = train_networks(plans, made, MemoryStore(), counting)

    multi = plans.before[1]
    stages = {stage.key: stage for each in plans.in_order for stage in each.stages}
    assert multi.method.name == "joint"
    assert networks.old.key == multi.state["network"]
    assert stages[plans.cl.key("grow")].inputs == {"network": networks.old.key}
    assert stages[plans.multi.key("grow")].inputs == {"network": networks.old.key}
    merged = stages[plans.before[2].state["importance"]]
    assert merged.inputs["network"] == networks.old.key
    assert merged.inputs["before"] == plans.before[0].state["importance"]
    assert len(networks.cl.accuracy) == 3
    assert counting.computed.count("importance 1") == 1


@pytest.mark.parametrize("task", [0, 3])
def test_a_task_without_old_network_or_that_is_not_there_is_refused(
    experiment: Any, task: int
) -> None:
    with pytest.raises(ScenarioError, match=f"Task {task + 1} cannot be analysed.*task=1 to 2"):
        plan_networks(experiment(), task, (1.0,))


def test_importance_gathered_while_training_is_analysed_at_the_second_task_only(
    experiment: Any,
) -> None:
    made = experiment("a-si")

    networks = train_networks(plan_networks(made, 1, (1.0,)), made, MemoryStore(), Events())

    assert set(networks.importance) == set(networks.auxiliary_importance) != set()
    with pytest.raises(MethodError, match="gathers importance while it trains"):
        plan_networks(made, 2, (1.0,))


def test_code_without_a_source_file_is_analysed_in_memory(experiment: Any) -> None:
    made = experiment("a-lwf")
    plans = plan_networks(made, 1, (1.0,))
    stages = tuple(replace(stage, unstored="no source") for stage in plans.cl.stages)
    odd, store, said = plans._replace(cl=plans.cl._replace(stages=stages)), MemoryStore(), []

    assert storage_for(plans, store, said.append) is store
    assert storage_for(odd, store, said.append) is not store
    assert said == ["Results of this analysis are not stored: no source"]


def test_a_task_in_which_the_network_gains_weights_is_refused(experiment: Any, lab: Any) -> None:
    made = experiment("a-aanets-icarl")
    setting = lab.fitted(made.method, replace(made.setting, architecture=lab.resnet()))
    made = replace(made, setting=setting)

    with pytest.raises(MethodError, match=r"In task 2 .*its old network does not have"):
        plan_networks(made, 1, (1.0,))
    assert plan_networks(made, 2, (1.0,)).cl.method.auxiliary is None
    names = parameter_names(setting.architecture.build((2, 2)))
    assert "backbone.stable.conv1.scale" in names
    assert "backbone.plastic.conv1.weight" in names
    assert not {"backbone.alpha", "backbone.stable.conv1.conv.weight"} & {*names}
