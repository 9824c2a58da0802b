"""A cheaper auxiliary network: a part of it learns, and the rest stays the old network's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Events, Learner, SpecError, Store, make_method, run, spec
from ancl.extend import adapt, architecture
from tests.lab import Epoch, Stage, drop_zero_terms, equal_epochs, narrow

SMALL: dict[str, Any] = {
    "data.tasks": 2,
    "data.per_class": 12,
    "data.test_per_class": 5,
    "network.name": "resnet8",
    "network.width": 4,
    "training.epochs": 2,
    "threads": 1,
}
HOSTS = ("lwf", "lfl", "ewc", "mas", "si", "rwalk", "lwm", "icarl", "bic", "lucir", "podnet")
OF_LAST = ("layer3.", "head.")


def made(name: str, **settings: Any) -> Any:
    return make_method(name, lamb_a=1.0, auxiliary_trains="last", **settings)


def network(entry: Any, prefix: str = "network/") -> dict[str, Tensor]:
    found = {n: t for n, t in entry.tensors.items() if n.startswith(prefix)}
    return {name.removeprefix(prefix).removeprefix("backbone."): t for name, t in found.items()}


@pytest.mark.parametrize("host", HOSTS)
def test_what_does_not_learn_is_the_old_networks_to_the_bit(host: str, lab: Any) -> None:
    setting = lab.setting(lab.resnet(), task_aware=host in HOSTS[:7])
    learned = lab.learn(made(f"a-{host}"), setting)

    for task in (1, 2):
        start, auxiliary = (network(learned.entry(n, task)) for n in ("grow", "auxiliary"))
        frozen = [name for name in start if not name.startswith(OF_LAST)]
        assert sum("running_mean" in name for name in frozen) > 2
        assert all(torch.equal(auxiliary[name], start[name]) for name in frozen)
        moved = [name for name in start if name.startswith("layer3.")]
        assert moved
        assert not any(torch.equal(auxiliary[name], start[name]) for name in moved)
    whole = lab.learn(make_method(f"a-{host}", lamb_a=1.0), setting)
    costs = [each.entry("auxiliary", 1).meta["cost"] for each in (learned, whole)]
    assert costs[0]["flops"] < 0.7 * costs[1]["flops"]
    assert [costs[0][n] for n in ("images", "backward")] == [
        costs[1][n] for n in ("images", "backward")
    ]
    assert not torch.equal(*(next(iter(each.final.values())) for each in (learned, whole)))


@pytest.mark.parametrize("name", ["a-lwf", "a-ewc", "afec-lwf"])
def test_without_its_pull_it_is_the_plain_method(name: str, lab: Any) -> None:
    setting = lab.setting(lab.resnet())
    plain = lab.learn(make_method(name.partition("-")[2]), setting)
    zero = lab.learn(make_method(name, lamb_a=0, auxiliary_trains="last"), setting)

    assert [stage.key for stage in zero.stages] == [stage.key for stage in plain.stages]
    assert all(torch.equal(zero.final[n], plain.final[n]) for n in plain.final)
    assert drop_zero_terms(make_method(name, lamb_a=0, auxiliary_trains="last")).auxiliary is None


@pytest.mark.parametrize("host", ["ewc", "mas", "si", "rwalk"])
def test_weights_that_learned_nothing_have_no_importance(host: str, lab: Any) -> None:
    learned = lab.learn(made(f"a-{host}"), lab.setting(lab.resnet()))
    tensors = learned.entry("auxiliary importance", 1).tensors

    kinds = {name.rpartition("/")[0] for name in tensors}
    weights = {n for n in network(learned.entry("grow", 1)) if n.endswith((".weight", ".bias"))}
    for kind in kinds:
        own = {name.removeprefix(f"{kind}/"): t for name, t in tensors.items() if kind in name}
        assert own.keys() == {name for name in weights if not name.startswith("head.")}
        assert all(bool(t.any()) == name.startswith("layer3.") for name, t in own.items())


def test_afec_trains_the_part_alone_in_turns(lab: Any) -> None:
    learned = lab.learn(made("afec-lwf", afec_start="carried"), lab.setting(lab.resnet()))

    start = network(learned.entry("grow", 1))
    carried = network(learned.entry("main", 1), "carried/")
    same = {name for name in start if torch.equal(start[name], carried[name])}
    assert same >= {name for name in start if not name.startswith(OF_LAST)}
    assert not same & {name for name in start if name.startswith("layer3.")}


class Stop(Events):
    """Stops in the middle of the auxiliary training."""

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        if stage.name == "auxiliary" and epoch.epoch == 1:
            raise KeyboardInterrupt


def test_interrupted_and_resumed_it_is_the_same(lab: Any, tmp_path: Path) -> None:
    setting = lab.setting(lab.resnet())
    setting = replace(setting, auxiliary=replace(setting.auxiliary, epochs=4))
    expected = lab.learn(made("a-ewc"), setting)
    with pytest.raises(KeyboardInterrupt):
        lab.learn(made("a-ewc"), setting, store=Store(tmp_path), reporter=Stop())
    resumed = lab.learn(made("a-ewc"), setting, store=Store(tmp_path))

    for name in ("auxiliary", "auxiliary importance", "main"):
        one, other = (each.entry(name, 2).tensors for each in (resumed, expected))
        assert all(torch.equal(one[n], other[n]) for n in other)


def test_at_its_default_no_key_and_no_spec_knows_it(lab: Any) -> None:
    plain = lab.learn(make_method("a-lwf"), lab.setting())
    all_of_it = lab.learn(
        make_method("a-lwf", auxiliary_trains="all", auxiliary_start="old"), lab.setting()
    )

    assert [stage.key for stage in plain.stages] == [stage.key for stage in all_of_it.stages]
    written = spec("a-lwf", "digits/5", auxiliary_trains="all").plain()["options"]
    assert not {"auxiliary_trains", "auxiliary_start"} & written.keys()
    assert spec("a-lwf", "digits/5", settings={"auxiliary_trains": "layers"}).plain()["options"][
        "auxiliary_trains"
    ] == ("layers")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"network.name": "mlp"}, r"auxiliary_trains is last, but Mlp has no part named .*layers"),
        ({"auxiliary_trains": "layer4"}, r"has no part 'layer4'\. Did you mean 'layer\d'"),
        ({"auxiliary_trains": "head"}, r"would learn nothing"),
        ({"auxiliary_trains": "adapter"}, r"has adapters by network.trains alone"),
        ({"auxiliary_start": "zero"}, r"auxiliary_start is zero, .* resnet8 has none"),
    ],
)
def test_what_the_network_has_not_is_refused_before_training(
    settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    own = {**SMALL, "auxiliary_trains": "last", **settings}
    if own["network.name"] == "mlp":
        del own["network.width"]
    with pytest.raises(SpecError, match=message):
        run(spec("a-lwf", "digits/5", settings=own), runs=tmp_path)
    assert not list(tmp_path.rglob("*.safetensors"))


def test_a_learner_has_it_too() -> None:
    with pytest.raises(SpecError, match=r"auxiliary_trains is last, but Mlp"):
        Learner("a-lwf", "mlp", auxiliary_trains="last").learn(
            torch.randint(256, (8, 8, 8), dtype=torch.uint8), [0, 1] * 4
        )


def test_a_part_of_what_learns_is_never_more_than_that() -> None:
    made = architecture("resnet8", (3, 16, 16), width=4).backbone()
    made.layer1.requires_grad_(False)  # type: ignore[union-attr]
    narrow(made, "layer1.0,layer2")
    learning = {name for name, weight in made.named_parameters() if weight.requires_grad}
    assert learning == {n for n, _ in made.named_parameters() if n.startswith("layer2.")}

    adapted = adapt(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)), 2)
    with pytest.raises(SpecError, match=r"learns nothing of that"):
        narrow(adapted, "1")


def test_equal_computation_counts_whole_passes() -> None:
    own = {**SMALL, "auxiliary_trains": "last", "training.schedule": "cosine"}
    with pytest.raises(SpecError, match=r"auxiliary_trains is last: a backward pass"):
        equal_epochs(spec("a-lwf", "digits/5", settings=own), [(20, 2, 10)] * 2)


class Adapters(nn.Sequential):
    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(nn.Flatten(), nn.Linear(36, 12), nn.ReLU(), nn.Linear(12, 8))


@pytest.mark.parametrize("host", ["lwf", "ewc", "si"])
def test_adapters_may_begin_at_zero_and_not_where_the_old_network_left_them(
    host: str, lab: Any
) -> None:
    setting = lab.setting(architecture(adapt(Adapters(), 3), (1, 6, 6)))
    still = replace(setting.auxiliary, lr=1e-12, lr_first=None, schedule="constant", epochs=1)
    setting = replace(setting, auxiliary=replace(still, momentum=0.0))
    found = {}
    for start in ("old", "zero"):
        method = make_method(f"a-{host}", lamb_a=1.0, auxiliary_start=start)
        learned = lab.learn(method, setting)
        found[start] = [network(learned.entry(name, 1)) for name in ("grow", "auxiliary")]
    # Nothing learns at this rate, so that what is left is what was begun with.
    for start, (old, auxiliary) in found.items():
        adapters = [name for name in old if name.endswith(".b")]
        assert adapters
        assert all(bool(old[name].any()) for name in adapters)
        for name in adapters:
            began = old[name] if start == "old" else torch.zeros_like(old[name])
            assert torch.allclose(auxiliary[name], began, atol=1e-7)


def test_si_measures_the_way_of_adapters_from_zero(lab: Any) -> None:
    setting = lab.setting(architecture(adapt(Adapters(), 3), (1, 6, 6)))
    method = make_method("a-si", lamb_a=1.0, auxiliary_start="zero", damping=0.1)
    learned = lab.learn(method, setting)
    entry = learned.entry("auxiliary", 1)
    ends, paths = network(entry), network(entry, "watched/")

    importance = learned.entry("auxiliary importance", 1).tensors
    for name, path in paths.items():
        expected = (path / (ends[name].square() + 0.1)).clamp(min=0)
        assert torch.allclose(importance[f"importance/path/{name}"], expected, atol=1e-6)
