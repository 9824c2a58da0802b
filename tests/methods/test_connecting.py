"""The linear connector: what is merged with what, and by how much."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Events, Memory, MethodError, SpecError, Training, make_method
from ancl.extend import architecture
from tests.lab import (
    CANDIDATES,
    Batches,
    Connect,
    Ewc,
    Exemplars,
    MemoryStore,
    Quadratic,
    QuadraticPenalty,
    Runner,
    Samples,
    between,
    plan,
    read_importance,
    repeated,
    strip_prefix,
)

TRAINING = Training(epochs=4, lr=0.05, lr_first=0.1, batch_size=16, schedule="constant")


def network_of(learned: Any, stage: str, task: int) -> dict[str, Tensor]:
    return strip_prefix("network", learned.entry(stage, task).tensors)


def conv_setting(lab: Any, **options: Any) -> Any:
    return lab.setting(architecture("resnet8", (1, 6, 6), width=4), TRAINING, **options)


def test_a_task_is_its_auxiliary_network_and_a_merge(lab) -> None:
    stages = plan(make_method("connector"), lab.tasks()[:2], lab.setting())

    assert [(stage.name, stage.task) for stage in stages] == [
        ("grow", 0),
        ("main", 0),
        ("evaluate", 0),
        ("grow", 1),
        ("auxiliary", 1),
        ("connect", 1),
        ("evaluate", 1),
    ]
    connect = stages[-2]
    assert connect.inputs == {"network": stages[-3].key, "start": stages[-4].key}
    assert connect.epochs == 0


@pytest.mark.parametrize("settings", [{}, {"weight": "importance"}])
@pytest.mark.parametrize("name", ["a-ewc", "a-mas", "a-lwf", "a-lfl"])
def test_the_auxiliary_network_of_the_second_task_is_anclss_own(settings, name, lab) -> None:
    connector, ancl = (
        {(s.name, s.task): s.key for s in plan(make_method(n, **o), lab.tasks()[:2], lab.setting())}
        for n, o in (("connector", settings), (name, {}))
    )

    assert connector["auxiliary", 1] == ancl["auxiliary", 1]
    assert connector["main", 0] == ancl["main", 0]


def test_the_auxiliary_weight_decay_is_that_of_ancl() -> None:
    assert make_method("connector").auxiliary_decay == make_method("a-ewc").auxiliary_decay


def test_a_sweep_over_the_ratio_trains_nothing_twice(lab) -> None:
    plans = [
        {s.key: s for s in plan(make_method("connector", ratio=r), lab.tasks()[:2], lab.setting())}
        for r in (0.2, 0.7, "task", "classes")
    ]
    shared = set.intersection(*(set(each) for each in plans))

    assert {stage.name for key, stage in plans[0].items() if key not in shared} == {
        "connect",
        "evaluate",
    }


def test_weights_are_averaged_and_heads_are_taken_by_block(lab) -> None:
    learned = lab.learn(make_method("connector"), conv_setting(lab))

    for task in (1, 2):
        old, other = network_of(learned, "grow", task), network_of(learned, "auxiliary", task)
        merged = network_of(learned, "connect", task)
        share = 1 / (task + 1)
        assert learned.entry("connect", task).meta["share"] == share
        for name, value in merged.items():
            block = int(name.rpartition(".")[2]) if name.startswith("head.") else -1
            if block == task:  # the old network's rows are as they were drawn
                assert torch.equal(value, other[name])
            elif block >= 0:  # which the auxiliary network never trained
                assert torch.equal(value, old[name])
                assert torch.equal(value, other[name])
            else:
                assert torch.equal(value, between(old[name], other[name], share))
        assert not torch.equal(merged["backbone.conv1.weight"], old["backbone.conv1.weight"])


@pytest.mark.parametrize(("ratio", "stage"), [(0.0, "grow"), (1.0, "auxiliary")])
def test_the_ends_are_the_two_networks(ratio, stage, lab) -> None:
    learned = lab.learn(make_method("connector", ratio=ratio), conv_setting(lab), lab.tasks()[:2])
    end, merged = network_of(learned, stage, 1), network_of(learned, "connect", 1)

    names = [name for name in merged if name.startswith("backbone.")]
    assert all(torch.equal(merged[name], end[name]) for name in names)
    trained = network_of(learned, "auxiliary", 1)
    assert torch.equal(merged["head.weights.1"], trained["head.weights.1"])


def test_shares_by_classes(lab) -> None:
    uneven = lab.tasks(tasks=None, classes=(4, 2))
    learned = lab.learn(make_method("connector", ratio="classes"), tasks=uneven)

    assert learned.entry("connect", 1).meta["share"] == 2 / 6


def test_in_domains_the_one_head_is_averaged_too(lab) -> None:
    tasks = lab.tasks(scenario="dil", domains="permutation", per_class=8)
    learned = lab.learn(make_method("connector"), lab.setting(task_aware=False), tasks)
    old, other = network_of(learned, "grow", 1), network_of(learned, "auxiliary", 1)

    merged = network_of(learned, "connect", 1)["head.weights.0"]

    assert torch.equal(merged, between(old["head.weights.0"], other["head.weights.0"], 0.5))
    assert not torch.equal(old["head.weights.0"], other["head.weights.0"])


def test_importance_decides_weight_by_weight(lab) -> None:
    learned = lab.learn(make_method("connector", weight="importance"), conv_setting(lab))
    task = 2
    old, other = network_of(learned, "grow", task), network_of(learned, "auxiliary", task)
    merged, omega = network_of(learned, "connect", task), Ewc()
    f_old = omega.curvature(read_importance(learned.entry("importance", task - 1).tensors))
    f_aux = omega.curvature(read_importance(learned.entry("auxiliary importance", task).tensors))

    for name in ("conv1.weight", "layer2.0.conv2.weight", "bn1.bias"):
        key = f"backbone.{name}"
        # λ_a/λ = 1/t
        pulls = f_old[name].double(), f_aux[name].double() / task
        expected = (pulls[0] * old[key] + pulls[1] * other[key]) / (pulls[0] + pulls[1])
        known = pulls[0] + pulls[1] > 0
        assert torch.allclose(merged[key][known].double(), expected[known], atol=1e-6)
        assert torch.equal(merged[key][~known], old[key][~known])
    key = "backbone.bn1.running_mean"
    assert torch.equal(merged[key], between(old[key], other[key], 1 / 3))


def test_the_average_is_where_unit_importance_of_any_strength_ends() -> None:
    """A-EWC with F = 1 and λ_a/λ = 1/t, by proximal steps, as λ grows."""
    torch.manual_seed(0)
    task, old, other = 3, torch.randn(7), torch.randn(7)
    weight = torch.randn(7, requires_grad=True)
    ones = {"w": torch.ones(7)}
    wells = [
        QuadraticPenalty("old", 1e6, ones, {"w": old}),
        QuadraticPenalty("auxiliary", 1e6 / task, ones, {"w": other}),
    ]
    quadratic = Quadratic(wells, {"w": weight})

    for _ in range(20):
        with torch.no_grad():
            weight -= 0.1 * torch.randn(7)  # whatever the task loss does
        quadratic.proximal(0.1)

    # (t θ_old + θ_aux) / (t + 1)
    assert torch.allclose(weight, (task * old + other) / (task + 1), atol=1e-4)
    assert torch.allclose(weight, between(old, other, 1 / (task + 1)), atol=1e-4)


# -- batch norms, refit, search ----------------------------------------------------------------


def statistics(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {n: t for n, t in tensors.items() if "running" in n}


def test_batch_norms_change_statistics_alone(lab) -> None:
    kinds = ("average", "pooled", "estimate")
    setting, tasks = conv_setting(lab), lab.tasks()[:2]
    methods = {kind: make_method("connector", batch_norm=kind) for kind in kinds}
    made = {
        kind: network_of(lab.learn(method, setting, tasks), "connect", 1)
        for kind, method in methods.items()
    }
    others = {
        kind: {n: t for n, t in each.items() if "running" not in n and "tracked" not in n}
        for kind, each in made.items()
    }

    for kind in kinds[1:]:
        assert all(torch.equal(t, others["average"][n]) for n, t in others[kind].items())
        own, average = statistics(made[kind]), statistics(made["average"])
        assert not any(torch.equal(own[n], average[n]) for n in own if n.endswith("var"))
    means = [n for n in statistics(made["pooled"]) if n.endswith("mean")]
    assert all(torch.equal(made["pooled"][n], made["average"][n]) for n in means)


def test_estimated_statistics_are_those_of_the_tasks_images(lab) -> None:
    setting, tasks = conv_setting(lab), lab.tasks()[:2]
    learned = lab.learn(make_method("connector", batch_norm="estimate"), setting, tasks)
    merged = network_of(learned, "connect", 1)
    network = setting.architecture.restore((2, 2), merged)
    images = tasks[1].load().train

    x = next(iter(Batches(images, len(images), setting.normalization).in_order())).x
    maps = network.backbone.conv1(x)

    assert torch.allclose(merged["backbone.bn1.running_mean"], maps.mean(dim=(0, 2, 3)), atol=1e-5)
    found = merged["backbone.bn1.running_var"]
    assert torch.allclose(found, maps.var(dim=(0, 2, 3)), rtol=1e-4)


def test_a_refit_trains_the_newest_rows_alone(lab) -> None:
    learned = lab.learn(make_method("connector", refit=3), conv_setting(lab))
    before, after = network_of(learned, "connect", 1), network_of(learned, "refit", 1)

    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"head.weights.1", "head.biases.1"}
    log = learned.entry("refit", 1).meta["log"]
    assert len(log) == 3
    assert log[-1]["train"]["task"] < log[0]["train"]["task"]
    assert learned.stage("grow", 2).inputs["network"] == learned.stage("refit", 1).key


@pytest.mark.parametrize("task_aware", [True, False])
def test_a_search_takes_the_share_with_the_lowest_loss(task_aware, lab) -> None:
    setting = conv_setting(lab, memory=Memory(per_class=4), task_aware=task_aware)
    tasks = lab.tasks()[:2]
    learned = lab.learn(make_method("connector", ratio="search"), setting, tasks)
    old, other = network_of(learned, "grow", 1), network_of(learned, "auxiliary", 1)
    kept = strip_prefix("memory", learned.entry("memory", 0).tensors)
    images = Samples.concatenate([tasks[1].load().val, Samples(kept["x"], kept["y"])])
    x = next(iter(Batches(images, 100, setting.normalization).in_order())).x

    losses = {}
    for share in CANDIDATES:
        merged = {n: between(old[n], other[n], share) for n in old}
        merged |= {n: other[n] for n in ("head.weights.1", "head.biases.1")}
        network = setting.architecture.restore((2, 2), merged).eval()
        logits, each = network(x).logits.detach().double(), []
        for label in range(4):
            own = range(label // 2 * 2, label // 2 * 2 + 2) if task_aware else range(4)
            rows = [row for row, y in zip(logits, images.y, strict=True) if y == label]
            each.append([-float(row[label] - torch.logsumexp(row[list(own)], 0)) for row in rows])
        losses[share] = sum(sum(one) / len(one) for one in each) / 4

    assert learned.entry("connect", 1).meta["share"] == min(losses, key=losses.__getitem__)
    assert 0 < losses[0.0] != losses[1.0]


def test_exemplars_count_as_much_as_new_images() -> None:
    x = torch.arange(5).float().unsqueeze(1)
    exemplars = Exemplars(
        Samples(x, torch.tensor([0, 0, 1, 1, 1])), torch.zeros(5).long(), torch.zeros(5).bool()
    )

    found = repeated(exemplars, 5)

    assert found.y.tolist() == [0] * 5 + [1] * 5
    assert found.x.dense().squeeze().tolist() == [0, 1, 0, 1, 0, 2, 3, 4, 2, 3]


# -- what does not go together -----------------------------------------------------------------


def problems(scenario: str, memory: Memory | None = None, **settings: Any) -> list[str]:
    return make_method("connector", **settings).problems(scenario, memory, 4)


@pytest.mark.parametrize("scenario", ["til", "cil", "dil"])
def test_a_search_needs_a_memory(scenario) -> None:
    (problem,) = problems(scenario, ratio="search")

    assert "sees the new task alone and takes β = 1" in problem
    assert problems(scenario, Memory(per_class=2), ratio="search") == []
    assert problems(scenario) == []


def test_a_search_without_exemplars_stops_with_a_message(lab) -> None:
    with pytest.raises(MethodError, match="ratio=search compares shares on exemplars too"):
        lab.learn(make_method("connector", ratio="search"), tasks=lab.tasks()[:2])


@pytest.mark.parametrize("settings", [{"ratio": "classes"}, {"refit": 2}])
def test_what_needs_new_classes_is_refused_in_domains(settings) -> None:
    (problem,) = problems("dil", **settings)

    assert "there are none" in problem
    assert problems("cil", **settings) == []


def test_importance_belongs_to_the_old_network() -> None:
    with pytest.raises(MethodError, match="weight is importance and stability is projected"):
        make_method("connector", weight="importance", stability="projected")


def test_a_share_outside_0_to_1_is_refused() -> None:
    with pytest.raises(SpecError, match=r"ratio is 1\.5; it must be"):
        make_method("connector", ratio=1.5)
    assert make_method("connector", ratio=0.25).finish == (Connect(0.25),)


def test_an_interrupted_merge_is_done_again_to_the_bit(lab) -> None:
    """It has no epochs: what is not stored is computed from the two stored networks."""
    setting, tasks = conv_setting(lab), lab.tasks()[:2]
    made = make_method("connector")
    whole = lab.learn(made, setting, tasks)
    connect = whole.stage("connect", 1)
    store = MemoryStore()
    for part in connect.inputs.values():
        store.save(part, whole.entries[part])

    stages = plan(made, tasks, lab.fitted(made, setting))
    found = Runner(stages, tasks, setting.device, store, Events()).obtain(connect.key)

    wanted = whole.entries[connect.key].tensors
    assert all(torch.equal(found.tensors[name], wanted[name]) for name in wanted)
