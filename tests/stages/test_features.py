"""A frozen backbone: features are computed once, and nothing else changes."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Learner, Memory, Method, MethodError, Training, make_method
from ancl.extend import Anchor, Network, Step, architecture
from tests.lab import Architecture, Features, Lwf, Setting, patch_part, plan, plan_notes

METHODS = [
    ("a-lwf", {}, True),
    ("a-icarl", {}, False),
    ("bic", {"bias_epochs": 3}, False),
    ("joint", {}, True),
    *(
        pytest.param(name, {}, aware, marks=pytest.mark.slow)
        for name in ("wa", "lucir", "lfl", "dmc", "a-bic", "freeze")
        for aware in (False, True)
    ),
]


class Counting(nn.Module):
    """A small network that counts the images it sees, for all copies of it together."""

    seen = 0

    def __init__(self) -> None:
        super().__init__()
        layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        Counting.seen += len(x)
        return self.layers(x)


def frozen_network(learns: bool = False) -> Architecture:
    torch.manual_seed(3)
    module = Counting()
    module.layers[1].running_mean.fill_(0.1)
    return architecture(module.requires_grad_(learns), (1, 6, 6))


@pytest.fixture
def uncached(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: patch_part(monkeypatch, "keeps_features", lambda method: False)


@pytest.mark.parametrize(("method", "options", "task_aware"), METHODS)
def test_features_that_are_kept_change_no_number(
    lab: Any,
    uncached: Callable[[], None],
    method: str,
    options: dict[str, Any],
    task_aware: bool,
) -> None:
    memory = None if method == "joint" else Memory(per_class=4)
    setting = lab.setting(frozen_network(), task_aware=task_aware, memory=memory)
    made = make_method(method, **options)

    kept = lab.learn(made, setting)
    uncached()
    plain = lab.learn(made, setting)

    assert sum(isinstance(stage, Features) for stage in kept.stages) == 3
    assert not any(isinstance(stage, Features) for stage in plain.stages)
    assert kept.final.keys() == plain.final.keys()
    for name, value in plain.final.items():
        torch.testing.assert_close(kept.final[name], value, rtol=1e-4, atol=1e-5)
    for task in range(3):
        rows, expected = (each.entry("evaluate", task).meta for each in (kept, plain))
        for kind in ("taw", "tag", "taw_val", "tag_val"):
            assert rows[kind] == expected[kind]


def test_every_image_is_seen_once_and_exemplars_keep_their_features(lab: Any) -> None:
    setting = lab.setting(frozen_network(), task_aware=False, memory=Memory(per_class=4))
    Counting.seen = 0

    learned = lab.learn(make_method("a-lwf"), setting)

    # 6 classes of 20 training and 6 test images, each of them once.
    assert Counting.seen == 6 * 26
    memory = learned.entry("memory", 2).tensors
    whole = setting.architecture.build([2])
    again = lab.source.normalization
    inputs = (memory["memory/x"].permute(0, 3, 1, 2) / 255 - again.mean[0]) / again.std[0]
    features = whole.eval()(inputs).features
    assert memory["memory/features"].shape == (24, 32)
    torch.testing.assert_close(memory["memory/features"], features.detach())


def test_methods_and_lambdas_share_the_features(lab: Any) -> None:
    setting, tasks = lab.setting(frozen_network(), task_aware=True), lab.tasks()
    plans = [plan(make_method("lwf", lamb=lamb), tasks, setting) for lamb in (1.0, 5.0)]
    keys = [[s.key for s in stages if isinstance(s, Features)] for stages in plans]

    assert keys[0] == keys[1]
    assert len(keys[0]) == len(set(keys[0])) == 3
    other = replace(setting, normalization=replace(setting.normalization, mean=(0.5,)))
    assert not {s.key for s in plan(make_method("lwf"), tasks, other)} & set(keys[0])


@dataclass(frozen=True)
class LooksAtImages:
    """A task loss from outside."""

    def __call__(self, step: Step) -> Tensor:
        return step.x.mean() * step.out.logits.sum()


@dataclass(frozen=True)
class OwnOmega(Lwf):
    """An Ω from outside; it says what it reads."""

    def penalty(self, step: Step, anchor: Anchor) -> Tensor:
        return 2 * super().penalty(step, anchor)


def with_own_omega() -> Method:
    made = make_method("lwf")
    assert made.old is not None
    return replace(made, old=replace(made.old, regularizer=OwnOmega()))


def own_loss() -> Method:
    return replace(make_method("lwf"), task_loss=LooksAtImages())


@pytest.mark.parametrize(
    ("made", "change", "kept"),
    [
        (lambda: make_method("lwf"), {}, True),
        (with_own_omega, {}, True),
        (lambda: make_method("lwf"), {"augment": "flip"}, False),
        (own_loss, {}, False),
        (lambda: make_method("lwm"), {}, False),
        (lambda: make_method("eeil", enlarge=True), {}, False),
    ],
)
def test_features_are_kept_only_where_nothing_looks_at_images(
    lab: Any, made: Callable[[], Method], change: dict[str, Any], kept: bool
) -> None:
    method, memory = made(), Memory(per_class=4)
    setting = lab.fitted(method, lab.setting(frozen_network(), memory=memory, **change))

    stages = plan(method, lab.tasks(), setting)

    assert any(isinstance(stage, Features) for stage in stages) == kept


def test_a_backbone_that_learns_or_grows_or_reads_vectors_keeps_no_features(lab: Any) -> None:
    class Growing(Counting):
        def add_task(self, classes: int) -> None:
            pass

    growing = architecture(Growing().requires_grad_(False), (1, 6, 6))
    partly = frozen_network()
    assert partly.prototype is not None
    partly.prototype.layers[0].requires_grad_(True)
    vectors = architecture(nn.Linear(5, 3).requires_grad_(False), (5,))

    assert frozen_network().fixed
    assert not any(
        net.fixed
        for net in (
            growing,
            vectors,
            architecture(partly.prototype, (1, 6, 6)),
            frozen_network(learns=True),
            architecture(nn.Flatten(), (1, 6, 6)),
        )
    )
    stages = plan(make_method("lwf"), lab.tasks(), lab.setting(frozen_network(learns=True)))
    assert {"features"} & {stage.name for stage in stages} == set()
    assert all("features" not in part for stage in stages for part in stage.inputs)


def test_frozen_weights_of_a_file_of_code_are_fixed_only_if_no_seed_changes_them(
    write: Any,
) -> None:
    code = """
import torch
from torch import nn

def random(shape):
    return nn.Sequential(nn.Conv2d(shape[0], 4, 3), nn.Flatten()).requires_grad_(False)

def known(shape):
    made = random(shape)
    nn.init.constant_(made[0].weight, 0.1), nn.init.zeros_(made[0].bias)
    return made
"""
    folder = write("mine", {"nets.py": code})

    assert not architecture(f"{folder}/nets.py:random", (1, 6, 6)).fixed
    assert not architecture(f"{folder}/nets.py:random", (1, 6, 6)).learns
    assert architecture(f"{folder}/nets.py:known", (1, 6, 6)).fixed


def test_a_network_that_reads_features_gives_what_it_gives_for_their_images() -> None:
    network: Network = frozen_network().build([2, 1]).eval()
    images = torch.rand(3, 1, 6, 6)
    whole = network(images)

    assert torch.equal(network(whole.features).logits, whole.logits)
    assert torch.equal(network(whole.features).features, whole.features)


def part(lab: Any, *classes: int) -> tuple[Tensor, list[int]]:
    samples = lab.source.train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


@pytest.mark.parametrize("method", ["a-icarl", "dmc"])
def test_a_learner_with_a_frozen_module_saves_loads_and_learns_on(
    lab: Any, tmp_path: Any, method: str
) -> None:
    module = frozen_network().prototype
    training = Training(epochs=2, batch_size=16, lr=0.05)
    whole = Learner(
        method,
        module,
        training=training,
        memory=Memory(per_class=4),
        val_fraction=0.2,
        held=0,  # else their images are answered for a report
    )
    whole.learn(*part(lab, 0, 1))
    whole.save(tmp_path / "learner")
    again = Learner.load(tmp_path / "learner", network=module)

    Counting.seen = 0
    whole.learn(*part(lab, 2, 3))
    # Each new image once; class means are computed when an answer is asked for.
    assert Counting.seen == 2 * 20
    again.learn(*part(lab, 2, 3))

    test = lab.source.test.x
    assert torch.equal(whole.scores(test), again.scores(test))
    if method == "a-icarl":
        assert whole.evaluate(*part(lab, 0, 1, 2, 3)) > 0.4


def test_what_a_frozen_backbone_makes_of_a_term_is_said(lab: Any) -> None:
    setting: Setting = lab.setting(frozen_network())
    with pytest.raises(MethodError, match="none of them learns"):
        plan(make_method("ewc"), lab.tasks(), setting)

    assert plan_notes(make_method("lfl"), lab.tasks(), setting) == [
        "lfl holds the old network's features, which are frozen: its term changes nothing."
    ]
    assert plan_notes(make_method("lwf"), lab.tasks(), setting) == []
