"""AANets on its hosts: what each level changes, the host inside, and what is refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, MethodError, Training, list_methods, make_method
from tests.lab import Batches, MethodRef, OuterStep, aanets, patch_part, plan

HOSTS = ("icarl", "eeil", "bic", "wa", "lucir", "podnet")
CHEAP = {
    # Its noise is drawn for one parameter after the other, of which two branches have more.
    "eeil": {"balanced_epochs": 1, "enlarge": False, "noise": 0.0},
    "bic": {"bias_epochs": 2},
    "podnet": {"balanced_epochs": 1, "proxies": 2},
}
TRAINING = Training(epochs=2, lr=0.05, batch_size=16, schedule="constant", weight_decay=1e-3)


def learn(lab: Any, name: str, tasks: int = 3, **options: Any) -> Any:
    host = name.rpartition("-")[2]
    method = make_method(name, **CHEAP.get(host, {}), **options)
    setting = lab.setting(lab.resnet(), training=TRAINING, task_aware=False)
    return lab.learn(method, setting, lab.tasks()[:tasks])


def part(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors of a branch by their names in a plain network."""
    start = f"network/backbone.{prefix}"
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


@pytest.mark.parametrize("host", HOSTS)
def test_with_a_free_stable_branch_and_alpha_1_it_is_the_host_to_the_bit(host, lab) -> None:
    tasks = 3 if host == "lucir" else 2
    own = learn(lab, host, tasks)
    joined = learn(lab, f"aanets-{host}", tasks, stable="free", alpha=1.0, alpha_lr=0)

    assert joined.names == own.names
    for task in range(tasks):
        host_network, network = own.network(task), joined.network(task)
        backbone, stable = part(host_network, ""), part(network, "stable.")
        assert stable.keys() == backbone.keys()
        assert all(torch.equal(stable[n], backbone[n]) for n in backbone)
        heads = [n for n in host_network if n.startswith("network/head.")]
        assert all(torch.equal(network[n], host_network[n]) for n in heads)
        of_host, of_joined = (each.entry("evaluate", task).meta for each in (own, joined))
        assert of_joined["tag"] == of_host["tag"]
        assert of_joined["taw"] == of_host["taw"]


def test_stable_kernels_stay_for_ever_and_plastic_ones_do_not(lab) -> None:
    learned = learn(lab, "aanets-lucir")
    first, last = learned.network(0), learned.network(2)

    kernels = {n: t for n, t in part(first, "stable.").items() if t.dim() == 4}
    assert len(kernels) == 9
    for name, kernel in kernels.items():
        layer = name.removesuffix(".weight")
        assert torch.equal(part(last, "stable.")[f"{layer}.conv.weight"], kernel)
        assert not torch.equal(part(last, "plastic.")[name], kernel)
        assert not torch.equal(part(last, "stable.")[f"{layer}.scale"], torch.ones(()))


def test_level_1_leaves_alpha_and_level_2_everything_else(lab) -> None:
    """One epoch, so that the weights of both are those of the same steps."""
    training = replace(TRAINING, epochs=1)
    found = {}
    for rate in (0.0, 0.5):
        method = make_method("aanets-icarl", alpha_lr=rate)
        setting = lab.setting(lab.resnet(), training=training, task_aware=False)
        found[rate] = lab.learn(method, setting, lab.tasks()[:2]).network(1)

    alpha = "network/backbone.alpha"
    assert found[0.0][alpha].tolist() == [0.5, 0.5, 0.5]
    moved = [n for n in found[0.0] if not torch.equal(found[0.0][n], found[0.5][n])]
    assert moved == [alpha]
    assert all(0 <= value <= 1 for value in found[0.5][alpha].tolist())


@pytest.mark.parametrize("alpha", [0.25, 0.5])
def test_fixed_weights_are_the_dual_baseline(alpha, lab) -> None:
    learned = learn(lab, "aanets-icarl", tasks=2, alpha=alpha, alpha_lr=0)

    assert learned.network(1)["network/backbone.alpha"].tolist() == [alpha] * 3
    assert all("lambs" not in row for row in learned.entry("main", 1).meta["log"])


def test_the_log_has_the_weights_of_every_epoch(lab) -> None:
    learned = learn(lab, "aanets-icarl", tasks=2)
    rows = learned.entry("main", 1).meta["log"]

    final = learned.network(1)["network/backbone.alpha"].tolist()
    assert list(rows[-1]["lambs"].values()) == final
    assert rows[0]["lambs"] != rows[1]["lambs"]


@pytest.fixture
def outer_images(monkeypatch) -> list[Batches]:
    """What every outer step of a run reads."""
    made: list[Batches] = []

    def recorded(outer: Any, network: Any, batches: Batches, path: Any) -> Any:
        made.append(batches)
        return OuterStep(outer, network, batches, path)

    patch_part(monkeypatch, "stages_outer_step", recorded)
    return made


@pytest.mark.parametrize(
    ("memory", "counts"),
    [(Memory(per_class=5), [5, 5]), (Memory(total=24), [12, 6]), (Memory(per_class=99), [16, 16])],
)
def test_the_outer_step_reads_exactly_as_many_images_of_every_class(
    memory, counts, lab, outer_images
) -> None:
    setting = lab.setting(lab.resnet(), training=TRAINING, task_aware=False, memory=memory)
    lab.learn(make_method("aanets-icarl"), setting)

    # 12 = 24 / 2 classes, 6 = 24 / 4; a class has 16 images to train on.
    assert [each.samples.y.bincount().tolist() for each in outer_images] == [
        [counts[0]] * 4,
        [counts[1]] * 6,
    ]


def test_new_images_of_the_outer_step_are_those_the_memory_would_keep(lab, outer_images) -> None:
    setting = lab.setting(lab.resnet(), training=TRAINING, task_aware=False)
    picked = []
    for selection in ("herding", "random"):
        memory = Memory(per_class=3, selection=selection)
        learned = lab.learn(
            make_method("aanets-icarl"), replace(setting, memory=memory), lab.tasks()[:2]
        )
        picked.append(outer_images[-1].samples)
        old = learned.entry("memory", 0).tensors["memory/x"]
        assert torch.equal(picked[-1].x[6:].sort(0).values, old.sort(0).values)

    assert not torch.equal(picked[0].x[:6], picked[1].x[:6])


def test_the_first_task_knows_nothing_of_branches(lab) -> None:
    """Its training has the host's numbers, and no setting of the branches moves them."""
    host, joined = learn(lab, "lucir", tasks=1), learn(lab, "aanets-lucir", tasks=1)
    backbone, stable = part(host.network(0), ""), part(joined.network(0), "stable.")

    assert all(torch.equal(stable[n], backbone[n]) for n in backbone)
    assert not any("plastic" in name or "alpha" in name for name in joined.network(0))


def test_alpha_lr_is_in_the_key_of_later_trainings_alone(lab) -> None:
    setting = lab.setting(lab.resnet(), training=TRAINING, task_aware=False)
    keys = []
    for rate in (0.0, 1e-2, 1e-3):
        method = make_method("aanets-icarl", alpha_lr=rate)
        stages = plan(method, lab.tasks()[:2], lab.fitted(method, setting))
        keys.append({(stage.name, stage.task): stage.key for stage in stages})

    assert len({each["main", 1] for each in keys}) == 3
    assert len({each["main", 0] for each in keys}) == 1
    assert len({each["grow", 1] for each in keys}) == 1


@pytest.mark.parametrize("host", HOSTS)
def test_settings_are_those_of_the_host_and_of_the_branches(host) -> None:
    own, joined = MethodRef(host), MethodRef(f"aanets-{host}")

    assert list(joined.settings) == [*own.settings, "stable", "plastic", "alpha", "alpha_lr"]
    assert all(joined.settings[n].default == p.default for n, p in own.settings.items())
    texts = joined.explanations()
    assert texts.keys() == joined.settings.keys()
    assert all(texts[name] == text for name, text in own.explanations().items())
    assert all(text.endswith((".", ".)")) for text in texts.values())
    assert joined.explanation.startswith("AANets on ")
    method = joined.make({"alpha": 0.25, **({"lamb": 3.0} if host == "lucir" else {})})
    assert method.name == f"aanets-{host}"
    assert method.growth.alpha == 0.25
    assert method.memory == own.make({}).memory


def test_every_host_has_both_variants_and_they_hold_joined_answers(lab) -> None:
    found = {each["name"]: each["variants"] for each in list_methods()}
    for host in HOSTS:
        variants = found[f"aanets-{host}"]
        assert variants["a"] == {"name": f"a-aanets-{host}"}
        assert variants["afec"] == {"name": f"afec-aanets-{host}"}

    learned = learn(lab, "a-aanets-lucir", tasks=2)
    start = learned.entry("grow", 1).tensors["network/backbone.alpha"]
    auxiliary = learned.network(1, "auxiliary")
    assert torch.equal(auxiliary["network/backbone.alpha"], start)
    assert "network/backbone.plastic.conv1.weight" in auxiliary
    assert learned.entry("main", 1).meta["log"][-1]["train"]["auxiliary"] > 0


def test_a_host_without_a_memory_and_one_set_of_classes_are_refused() -> None:
    with pytest.raises(MethodError, match=r"aanets-ewc.*ewc keeps none.*aanets-icarl"):
        aanets(make_method("ewc"))
    with pytest.raises(MethodError, match="There is no method 'aanets-ewc'"):
        make_method("aanets-ewc")
    method = make_method("aanets-icarl")
    assert "all classes come with the first task" in method.problems("dil", Memory(5), 4)[0]
    assert "needs a memory in the scenario cil" in method.problems("cil", None, 4)[0]
    assert method.problems("til", Memory(5), 4) == []
