"""DER: its losses, its last classifier, and what a run of it leaves behind."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Events, Memory, MethodError, Store, Training, make_method
from ancl.extend import CrossEntropy, Output, Step, TaskWork, architecture
from tests.lab import (
    SIDE,
    USED,
    Align,
    Samples,
    SideLoss,
    Tempered,
    UsedWeights,
    herd,
    patch_part,
    side_labels,
    strip_prefix,
)
from tests.lab import sampled_evenly as drawn

TRAINING = Training(epochs=3, lr=0.05, lr_first=0.1, batch_size=16, schedule="constant")


def resnet(lab: Any, **options: Any) -> Any:
    given = {"task_aware": False, **options}
    return lab.setting(architecture("resnet8", (1, 6, 6), width=4), TRAINING, **given)


def network_of(learned: Any, stage: str, task: int) -> dict[str, Tensor]:
    return strip_prefix("network", learned.entry(stage, task).tensors)


def backbone(tensors: dict[str, Tensor], task: int) -> dict[str, Tensor]:
    """What belongs to one extractor, by the names that it has alone."""
    start = f"backbone.extractors.{task}."
    return {n.removeprefix(start): t for n, t in tensors.items() if n.startswith(start)}


def step(logits: Tensor, y: list[int], tasks: tuple[slice, ...], **side: Tensor) -> Step:
    out = Output(logits, logits, side=side)
    return Step(logits, torch.tensor(y), out, {}, tasks)


# -- losses ------------------------------------------------------------------------------------


def test_side_labels_have_all_old_classes_as_one() -> None:
    assert side_labels(torch.tensor([3, 49, 50, 59]), slice(50, 60)).tolist() == [0, 0, 1, 10]


def test_the_side_loss_by_hand() -> None:
    side = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 2.0]])
    given = step(torch.zeros(2, 6), [1, 5], (slice(0, 4), slice(4, 6)), **{SIDE: side})

    wanted = (-math.log(math.e / (math.e + 2)) - math.log(math.e**2 / (math.e**2 + 2))) / 2
    assert SideLoss()(given).item() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(("temperature", "wanted"), [(5.0, 0.313262), (1.0, 0.006715)])
def test_the_tempered_loss_by_hand(temperature, wanted) -> None:
    logits = torch.tensor([[5.0, 0.0]], requires_grad=True)
    loss = Tempered(CrossEntropy("seen"), temperature)(step(logits, [0], (slice(0, 2),)))
    (gradient,) = torch.autograd.grad(loss, logits)

    # dL/dz = (p − y)/δ
    p = (logits.detach() / temperature).softmax(dim=1)
    assert loss.item() == pytest.approx(wanted, abs=1e-6)
    assert torch.allclose(gradient, (p - torch.tensor([[1.0, 0.0]])) / temperature)
    assert (logits / temperature).argmax() == logits.argmax()


def test_the_share_of_used_weights_is_a_term() -> None:
    given = step(torch.zeros(2, 2), [0, 1], (slice(0, 2),), **{USED: torch.tensor([0.25])})

    assert UsedWeights()(given).item() == 0.25


def test_balanced_images_are_as_many_of_every_class() -> None:
    own = Samples(torch.arange(30).float().unsqueeze(1), torch.tensor([2] * 20 + [3] * 10))
    kept = Samples(torch.arange(100, 111).float().unsqueeze(1), torch.tensor([0] * 5 + [1] * 6))

    first, second = drawn([own, kept], (0, 1))
    again, other = drawn([own, kept], (0, 1))[0], drawn([own, kept], (0, 2))[0]

    assert first.y.bincount().tolist() == [0, 0, 5, 5]
    assert second.y.bincount().tolist() == [5, 5]
    assert torch.equal(first.x.dense(), again.x.dense())
    assert not torch.equal(first.x.dense(), other.x.dense())
    assert len(set(first.x.dense().flatten().tolist())) == 10


# -- a run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def learned(lab) -> Any:
    return lab.learn(make_method("der", balanced_epochs=3), resnet(lab))


def test_stages_and_what_they_read(learned) -> None:
    assert [name for name, task in learned.names if task == 0] == [
        *("grow", "main", "memory", "evaluate")
    ]
    assert [name for name, task in learned.names if task == 1] == [
        *("grow", "main", "classifier", "memory", "evaluate")
    ]
    # The next task grows from the network with its last classifier.
    assert learned.stage("grow", 2).inputs["network"] == learned.stage("classifier", 1).key


def test_the_first_task_is_finetunings_to_the_bit(lab, learned) -> None:
    finetune = replace(make_method("finetune"), head="unbiased", memory=Memory(per_class=4))
    plain = lab.learn(finetune, resnet(lab), lab.tasks()[:1])
    ours, theirs = (network_of(each, "main", 0) for each in (learned, plain))

    renamed = {n.replace("backbone.", "backbone.extractors.0."): t for n, t in theirs.items()}
    assert ours.keys() == renamed.keys()
    assert all(torch.equal(ours[name], renamed[name]) for name in ours)
    terms = [epoch["train"].keys() for epoch in learned.entry("main", 0).meta["log"]]
    assert all(list(each) == ["task"] for each in terms)


def test_later_tasks_have_a_side_term(learned) -> None:
    for epoch in learned.entry("main", 1).meta["log"]:
        assert list(epoch["train"]) == ["task", "side"]
        assert epoch["train"]["side"] > 0


def test_extractors_of_earlier_tasks_never_change(learned) -> None:
    first = backbone(network_of(learned, "main", 0), 0)
    second = backbone(network_of(learned, "main", 1), 1)
    last = network_of(learned, "classifier", 2)

    # Parameters and running statistics, bit for bit.
    assert any("running" in name for name in first)
    assert all(torch.equal(backbone(last, 0)[name], first[name]) for name in first)
    assert all(torch.equal(backbone(last, 1)[name], second[name]) for name in second)
    moved = [n for n in second if not torch.equal(second[n], first[n])]
    assert any("running_mean" in name for name in moved)
    assert any(name.endswith("conv1.weight") for name in moved)


def test_a_task_begins_with_a_copy_of_the_newest_extractor(learned) -> None:
    for task in (1, 2):
        start = network_of(learned, "grow", task)
        old, new = backbone(start, task - 1), backbone(start, task)
        assert all(torch.equal(new[name], old[name]) for name in old)
        assert start["head.weights.0"].shape == (2, 16 * (task + 1))
        assert start["backbone.side.weight"].shape == (3, 16)


def test_the_last_classifier_changes_no_tensor_of_the_backbone(learned) -> None:
    before, after = network_of(learned, "main", 2), network_of(learned, "classifier", 2)

    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {f"head.weights.{block}" for block in range(3)}
    log = learned.entry("classifier", 2).meta["log"]
    assert [epoch["lr"] for epoch in log] == pytest.approx([0.1, 0.01, 0.01])


def test_the_last_classifier_sees_as_many_images_of_every_class(lab, monkeypatch) -> None:
    seen: dict[str, list[int]] = {}
    fit = TaskWork.fit

    def recorded(self, network, objective, train, val, training, role, *rest, **more) -> Any:
        seen[f"{role} {self.index}"] = Samples.concatenate(train).y.bincount().tolist()
        return fit(self, network, objective, train, val, training, role, *rest, **more)

    monkeypatch.setattr(TaskWork, "fit", recorded)
    lab.learn(make_method("der", balanced_epochs=1), resnet(lab), lab.tasks()[:2])

    assert seen["classifier 1"] == [4] * 4
    assert seen["main 1"] == [4, 4, 16, 16]


def test_both_counts_of_parameters_are_told(learned) -> None:
    one = architecture("resnet8", (1, 6, 6), width=4).build().stored()

    for task in range(3):
        head = 2 * (task + 1) * 16 * (task + 1)
        side = 16 * 3 if task else 0
        assert learned.entry("evaluate", task).meta["stored"] == (task + 1) * one + head
        assert learned.entry("main", task).meta["trained"] == one + head + side
    assert learned.entry("classifier", 2).meta["trained"] == 6 * 48


def test_exemplars_are_chosen_by_the_features_of_all_extractors(lab, monkeypatch) -> None:
    sizes = []

    def recorded(features: Tensor, count: int) -> Tensor:
        sizes.append(features.shape[1])
        return herd(features, count)

    patch_part(monkeypatch, "herd", recorded)
    lab.learn(make_method("der", balanced_epochs=1), resnet(lab), lab.tasks()[:2])

    assert sizes == [16, 16, 32, 32]


def test_pruning_masks_sparsity_and_the_smaller_network(lab) -> None:
    settings = {"balanced_epochs": 1, "sparsity": 30.0, "mask_scale": 20.0}
    training = replace(TRAINING, epochs=6, lr=0.2)
    setting = replace(resnet(lab), training=training)
    learned = lab.learn(make_method("der", **settings), setting, lab.tasks()[:2])
    log, meta = learned.entry("main", 1).meta["log"], learned.entry("evaluate", 1).meta
    one = architecture("resnet8", (1, 6, 6), width=4).build().stored()
    whole = 2 * one + 4 * 32

    assert list(log[0]["train"]) == ["task", "side", "sparsity"]
    assert log[-1]["val"]["sparsity"] < log[0]["val"]["sparsity"] <= 30.0
    assert meta["stored"] < whole
    masks = [t for n, t in network_of(learned, "main", 1).items() if n.endswith(".e")]
    cut = [min(int((mask <= 0).sum()), len(mask) - 1) for mask in masks]  # one channel stays
    # γ, β, rows to and columns from every inner channel that is gone: widths 4, 8, 16.
    gone = [9 * inputs + 9 * outputs + 2 for inputs, outputs in ((4, 4), (4, 8), (8, 16))]
    assert meta["stored"] == whole - sum(n * each for n, each in zip(cut, gone, strict=True))


def test_told_the_task_and_without_a_memory_nothing_is_forgotten(lab) -> None:
    made = replace(make_method("der", reuse=True, classifier="none"), memory=None)
    learned = lab.learn(made, resnet(lab, task_aware=True))
    setting = lab.fitted(made, resnet(lab))
    x = torch.randn(7, 1, 6, 6)
    early = setting.architecture.restore((2,), network_of(learned, "main", 0)).eval()
    late = setting.architecture.restore((2, 2, 2), network_of(learned, "main", 2)).eval()

    assert torch.allclose(late(x).logits[:, :2], early(x).logits, atol=1e-6)
    rows = [learned.entry("evaluate", task).meta["taw"][0] for task in range(3)]
    assert rows == [rows[0]] * 3


def test_other_classifiers(lab) -> None:
    assert make_method("der", classifier="align").finish == (Align(),)
    assert make_method("der", classifier="none").finish == ()
    assert make_method("der", side=0).extras == ()
    assert make_method("der", bias=True).head == "linear"
    learned = lab.learn(make_method("der", classifier="align"), resnet(lab), lab.tasks()[:2])
    rows = network_of(learned, "align", 1)
    old, new = (rows[f"head.weights.{block}"].norm(dim=1).mean() for block in (0, 1))
    assert old.item() == pytest.approx(new.item(), rel=1e-5)


# -- resume ------------------------------------------------------------------------------------


class Stop(Events):
    """Interrupts a training after an epoch, as Ctrl-C does."""

    def __init__(self, stage: str, task: int, epoch: int) -> None:
        self._where = (stage, task, epoch)

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        if (stage.name, stage.task, epoch.epoch) == self._where:
            raise KeyboardInterrupt


@pytest.mark.parametrize(("stage", "sparsity"), [("main", 2.0), ("classifier", 0.0)])
def test_resumed_in_the_middle_it_ends_in_the_same_bits(stage, sparsity, lab, tmp_path) -> None:
    made, tasks = make_method("der", balanced_epochs=3, sparsity=sparsity), lab.tasks()[:2]
    setting = resnet(lab)
    whole = lab.learn(made, setting, tasks)
    store = Store(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        lab.learn(made, setting, tasks, store, Stop(stage, 1, 1))
    key = whole.stage(stage, 1).key
    assert store.load(key) is None
    assert store.load_checkpoint(key) is not None

    resumed = lab.learn(made, setting, tasks, store)

    for each in whole.stages:
        wanted, found = whole.entries[each.key].tensors, resumed.entries[each.key].tensors
        assert all(torch.equal(found[name], wanted[name]) for name in wanted), each.name


# -- what does not go together -----------------------------------------------------------------


def test_scenarios_and_memories_that_do_not_fit() -> None:
    der, kept = make_method("der"), Memory(per_class=2)

    assert der.problems("cil", kept, 4) == der.problems("til", kept, 4) == []
    (domains,) = der.problems("dil", kept, 4)
    assert "it adds an extractor for new classes, and there are none" in domains
    for scenario in ("til", "cil"):
        (problem,) = der.problems(scenario, None, 4)
        assert f"der needs a memory in the scenario {scenario}" in problem
    lasting = make_method("der", reuse=True, classifier="none")
    assert lasting.problems("til", None, 4) == []
    assert len(lasting.problems("cil", None, 4)) == 1


def test_a_classifier_without_exemplars_says_so(lab) -> None:
    made = replace(make_method("der"), memory=None, needs_memory={})

    with pytest.raises(MethodError, match="learns old classes from exemplars, and there are none"):
        lab.learn(made, resnet(lab), lab.tasks()[:2])
