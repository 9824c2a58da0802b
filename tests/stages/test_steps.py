"""What stages do with the stream: who trains on what, and what is measured."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl import Memory, Method, MethodError, Training, make_method
from ancl.extend import CrossEntropy, Step, architecture
from tests.lab import as_input, plan

LONG = Training(epochs=15, lr=0.05, lr_first=0.1, batch_size=16, schedule="constant")


def heads(tensors: dict[str, Tensor], task: int) -> list[Tensor]:
    return [tensors[f"network/head.{kind}.{task}"] for kind in ("weights", "biases")]


@pytest.mark.parametrize("task_aware", [True, False], ids=["til", "cil"])
@pytest.mark.parametrize(
    ("over", "kept", "rest"),
    [("auto", 0, True), ("own_task", 0, True), ("seen", 0, False), ("auto", 3, False)],
)
def test_old_rows_of_the_head_rest_where_nothing_old_is_learned_from(
    over, kept, rest, task_aware, lab
) -> None:
    setting = lab.setting(task_aware=task_aware, memory=Memory(per_class=kept) if kept else None)
    learned = lab.learn(make_method("lwf", loss_over=over), setting)

    before, after = (heads(learned.network(task), 0) for task in (0, 1))

    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True)) is rest


@pytest.mark.parametrize("task_aware", [True, False], ids=["til", "cil"])
@pytest.mark.parametrize(
    ("over", "kept", "start"),
    [("auto", 0, 4), ("seen", 0, 0), ("auto", 3, 0), ("own_task", 3, 4), ("seen", 3, 0)],
)
@pytest.mark.parametrize("own", [False, True])
def test_the_classes_that_compete_in_validation(over, kept, start, task_aware, own, lab) -> None:
    """New classes without a memory, all classes with one, whatever is known at test time."""
    setting = lab.setting(
        training=LONG, task_aware=task_aware, memory=Memory(per_class=kept) if kept else None
    )
    loss = Wrapped(CrossEntropy(over)) if own else CrossEntropy(over)
    learned = lab.learn(Method("own", loss), setting)
    network = setting.architecture.build([2, 2, 2]).eval()
    network.load({n.removeprefix("network/"): t for n, t in learned.network(2).items()})
    val = lab.tasks()[2].load().val

    x = as_input(val.x.dense(), lab.source.normalization, torch.device("cpu"))
    expected = F.cross_entropy(network(x).logits[:, start:], val.y - start).item()

    assert learned.entry("main", 2).meta["log"][-1]["val"]["task"] == pytest.approx(expected)


@dataclass(frozen=True)
class Wrapped:
    """A loss of a user's own, which computes one of ours."""

    loss: CrossEntropy

    def __call__(self, step: Step) -> Tensor:
        return self.loss(step)


def test_joint_learns_among_all_classes_or_within_each_task(lab) -> None:
    auto, seen, own = (
        lab.learn(make_method("joint", loss_over=over), lab.setting(training=LONG))
        for over in ("auto", "seen", "own_task")
    )

    assert all(torch.equal(auto.final[name], seen.final[name]) for name in auto.final)
    val = [each.entry("main", 2).meta["log"][-1]["val"]["task"] for each in (seen, own)]
    assert val[1] < val[0]


def test_what_patience_judges_by_is_the_methods_or_the_runs(lab) -> None:
    def judged(name: str, **options: Any) -> list[str]:
        training = replace(lab.setting().training, **options)
        made = make_method(name)
        setting = lab.fitted(made, lab.setting(training=training, task_aware=False))
        stages = plan(made, lab.tasks(), setting)
        return [
            stage.parts.training.select_by
            for task in (0, 1)
            for stage in stages
            if stage.task == task and stage.name in ("main", "auxiliary")
        ]

    # Where the loss is the task loss alone, both mean the same.
    assert judged("lucir") == judged("eeil") == ["loss", "task_loss"]
    assert judged("a-lucir") == ["loss", "loss", "task_loss"]
    assert judged("lwf") == judged("lucir", select_by="loss") == ["loss", "loss"]
    assert judged("lwf", select_by="task_loss") == ["loss", "task_loss"]
    assert judged("a-lwf", select_by="accuracy") == ["accuracy"] * 3


def test_the_auxiliary_network_starts_from_the_old_one_and_learns_its_own_head(lab) -> None:
    learned = lab.learn(make_method("a-lwf"))
    grown, auxiliary = (learned.entry(s, 1).tensors for s in ("grow", "auxiliary"))

    assert all(torch.equal(a, b) for a, b in zip(heads(grown, 0), heads(auxiliary, 0), strict=True))
    assert not torch.equal(heads(grown, 1)[0], heads(auxiliary, 1)[0])
    # Growing keeps the old network as it was.
    main = learned.network(0)
    assert all(torch.equal(grown[name], tensor) for name, tensor in main.items())


def test_accuracy_is_that_of_a_loop_over_images(lab) -> None:
    learned = lab.learn(make_method("ewc", lamb=20.0), lab.setting(training=LONG))
    rows, tasks = learned.entry("evaluate", 2).meta, lab.tasks()
    network = lab.setting().architecture.build([2, 2, 2]).eval()
    network.load({n.removeprefix("network/"): t for n, t in learned.network(2).items()})

    for index, task in enumerate(tasks):
        split = task.load()
        for suffix, samples in (("", split.test), ("_val", split.val)):
            aware = agnostic = 0
            for x, y in zip(samples.x, samples.y.tolist(), strict=True):
                image = as_input(x[None], lab.source.normalization, torch.device("cpu"))
                logits = network(image).logits[0].tolist()
                own = range(task.classes.start, task.classes.stop)
                aware += max(own, key=logits.__getitem__) == y
                agnostic += max(range(6), key=logits.__getitem__) == y
            assert rows[f"taw{suffix}"][index] == aware / len(samples)
            assert rows[f"tag{suffix}"][index] == agnostic / len(samples)
    assert rows["taw"][2] > 0.8


def test_a_task_without_validation_images_has_no_validation_accuracy(lab) -> None:
    tasks = lab.tasks(val_fraction=0.0)[:1]
    learned = lab.learn(make_method("finetune"), lab.setting(training=LONG), tasks)

    assert learned.entry("evaluate", 0).meta["taw_val"] == [None]
    assert learned.entry("main", 0).meta["log"][0]["accuracy"] is None


def test_the_auxiliary_network_has_its_own_batch_size(lab) -> None:
    setting = lab.setting(training=LONG)
    one, other = (
        lab.learn(
            make_method("a-lwf"),
            replace(setting, auxiliary=replace(setting.auxiliary, batch_size=size)),
            lab.tasks()[:2],
        )
        for size in (16, 4)
    )

    auxiliary = [learned.network(1, "auxiliary") for learned in (one, other)]
    assert any(not torch.equal(auxiliary[0][n], auxiliary[1][n]) for n in auxiliary[0])


def test_a_steep_penalty_is_told_before_it_diverges(lab) -> None:
    tasks, training = lab.tasks()[:2], lab.setting().training
    proximal = replace(training, penalty_step="proximal")

    quiet = lab.learn(make_method("ewc", lamb=1.0), tasks=tasks)
    loud = lab.learn(make_method("ewc", lamb=1e5), tasks=tasks)
    held = lab.learn(make_method("ewc", lamb=1e9), lab.setting(training=proximal), tasks)

    assert quiet.said == held.said == []
    assert len(loud.said) == 1
    assert "penalty_step=proximal" in loud.said[0]
    # Implicit steps stay finite, and hold the weights the penalty is about.
    importance = held.entry("importance", 0).tensors
    for name, weight in importance.items():
        of = f"network/backbone.{name.removeprefix('importance/gradients/')}"
        heavy = weight > weight.max() / 10
        moved = (held.network(1)[of] - held.network(0)[of]).abs()
        assert float(moved[heavy].max()) < 1e-3


class Partial(nn.Module):
    """A user's network with a layer that rests and one that is never used."""

    def __init__(self) -> None:
        super().__init__()
        self.resting, self.learning = nn.Linear(36, 8), nn.Linear(8, 8)
        self.unused = nn.Linear(8, 8)
        self.resting.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.learning(torch.relu(self.resting(x.flatten(1)))))


@pytest.mark.parametrize("name", ["a-ewc", "a-mas", "a-si", "a-lwf", "afec-si"])
def test_layers_that_rest_or_are_unused_stay_as_they_are(name, lab) -> None:
    torch.manual_seed(0)
    module = Partial()
    training = replace(lab.setting().training, weight_decay=0)
    setting = lab.setting(architecture(module, (1, 6, 6)), training)
    setting = replace(setting, auxiliary=training)

    learned = lab.learn(make_method(name, lamb=0.1), setting)

    final, base = learned.final, learned.entry("base", 0).tensors
    assert torch.equal(base["base/backbone.resting.weight"], module.resting.weight)
    assert torch.equal(final["network/backbone.unused.weight"], module.unused.weight)
    assert not torch.equal(final["network/backbone.learning.weight"], module.learning.weight)


def test_a_backbone_that_rests_altogether_has_no_weights_to_hold(lab) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(36, 32), nn.ReLU()).requires_grad_(False)
    setting = lab.setting(architecture(module, (1, 6, 6)), LONG)

    learned = lab.learn(make_method("a-lwf"), setting)

    base = learned.entry("base", 0).tensors
    assert torch.equal(base["base/backbone.1.weight"], module[1].weight)
    assert min(learned.entry("evaluate", 2).meta["taw"]) > 0.8
    for name in ("ewc", "a-si", "afec-lwf"):
        with pytest.raises(MethodError, match="none of them learns"):
            lab.learn(make_method(name), setting)
