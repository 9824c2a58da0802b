"""Stages after training: bias correction, alignment and balanced tuning."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, Method, MethodError, Training, make_method
from ancl.extend import CrossEntropy, Extra, Network, Objective, Step, TaskWork
from tests.lab import (
    Align,
    BalancedTuning,
    BiasCorrection,
    Correction,
    Fit,
    IdentityHead,
    Shift,
    alignment,
    as_input,
    extended,
    patch_part,
    strip_prefix,
)


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def network_of(learned: Any, stage: str, task: int) -> dict[str, Tensor]:
    tensors = learned.entry(stage, task).tensors
    return {name: t for name, t in tensors.items() if name.startswith("network/")}


def test_the_loss_of_a_correction_by_hand() -> None:
    correction = Correction(2)
    with torch.no_grad():
        correction.alpha.fill_(0.5)
        correction.beta.fill_(-1.0)
    network = Network(correction, IdentityHead(3))
    logits, label = torch.tensor([[2.0, 1.0, 3.0]]), torch.tensor([2])
    out = network(logits)

    objective = Objective(CrossEntropy("seen"), extras=(Extra("shift", Shift(0.1)),))
    terms = objective(Step(logits, label, out, network.weights(), (slice(0, 2), slice(2, 3))))

    # (2, 1, .5 · 3 − 1); −log softmax(.5) = 1.964369, and .1 · (−1)²/2 = .05
    assert out.logits.tolist() == [[2.0, 1.0, 0.5]]
    assert terms["task"].item() == pytest.approx(1.964369, abs=1e-6)
    assert sum(term.item() for term in terms.values()) == pytest.approx(2.014369, abs=1e-6)


def test_a_correction_is_kept_as_scale_and_shift_of_every_class() -> None:
    first = extended({}, 2, 1, 0.5, -1.0)
    second = extended(first, 3, 2, 0.25, -2.0)

    assert first["scale"].tolist() == [1.0, 1.0, 0.5]
    assert first["shift"].tolist() == [0.0, 0.0, -1.0]
    assert second["scale"].tolist() == [1.0, 1.0, 0.5, 0.25, 0.25]
    assert second["shift"].tolist() == [0.0, 0.0, -1.0, -2.0, -2.0]


@pytest.mark.parametrize("correct_student", [False, True])
def test_the_correction_lowers_the_loss_on_held_out_images(correct_student, lab) -> None:
    made = make_method("bic", bias_epochs=40, correct_student=correct_student)
    learned = lab.learn(made, lab.setting(task_aware=False))
    first, second = (learned.entry("bias", task) for task in (1, 2))

    log = [sum(epoch["train"].values()) for epoch in second.meta["log"]]
    alpha, beta = second.meta["alpha"], second.meta["beta"]
    before = first.tensors["bias/scale"].tolist() if correct_student else [1.0] * 4

    assert log[-1] < log[0]
    assert len(log) == 40
    assert (alpha, beta) != (1.0, 0.0)
    assert second.tensors["bias/scale"].tolist() == pytest.approx([*before, alpha, alpha])
    assert second.tensors["bias/shift"].tolist()[4:] == pytest.approx([beta, beta])
    assert not network_of(learned, "bias", 2)
    # The next task's old network is corrected, so its training depends on the correction.
    assert learned.stage("main", 2).inputs["bias"] == learned.stage("bias", 1).key
    assert learned.stage("evaluate", 2).inputs["bias"] == learned.stage("bias", 2).key


def test_a_corrected_student_is_another_one_from_the_third_task_on(lab) -> None:
    setting = lab.setting(task_aware=False)

    plain = lab.learn(make_method("bic", bias_epochs=5), setting)
    student = lab.learn(make_method("bic", bias_epochs=5, correct_student=True), setting)

    assert same(plain.network(1), student.network(1))
    assert not same(plain.network(2), student.network(2))


def test_a_correction_may_see_augmented_images(lab, monkeypatch) -> None:
    seen: list[tuple[tuple[int, ...], str]] = []

    def recorded(network, objective, train, *others) -> Any:
        seen.append((tuple(train.samples.x.shape[1:]), train.augment))
        return Fit(network, objective, train, *others)

    patch_part(monkeypatch, "finishes_fit", recorded)
    setting = lab.setting(lab.conv(), task_aware=False, augment="crop")
    tasks = lab.tasks()[:2]
    made = [make_method("bic", bias_epochs=6, bias_augment=augment) for augment in (False, True)]
    plain, augmented = (lab.learn(each, setting, tasks) for each in made)

    # Logits of four classes, or images.
    assert seen == [((4,), "none"), ((6, 6, 1), "crop")]
    assert same(plain.network(1), augmented.network(1))
    assert plain.stage("bias", 1).key != augmented.stage("bias", 1).key
    assert plain.entry("bias", 1).meta["alpha"] != augmented.entry("bias", 1).meta["alpha"]


def test_images_and_their_logits_give_the_same_correction(lab) -> None:
    setting = lab.setting(lab.conv(), task_aware=False)
    made = [
        make_method("bic", bias_epochs=6, correct_student=True, bias_augment=augment)
        for augment in (False, True)
    ]
    plain, augmented = (lab.learn(each, setting) for each in made)

    # Nothing is augmented here: the network answers anew in every epoch, and answers the same.
    for task in (1, 2):
        one, other = (each.entry("bias", task).meta for each in (plain, augmented))
        assert one["alpha"] == pytest.approx(other["alpha"], abs=1e-5)
        assert one["beta"] == pytest.approx(other["beta"], abs=1e-5)
        assert one["alpha"] != 1.0


@pytest.fixture
def trained_on(monkeypatch) -> dict[str, set[bytes]]:
    """The images that every training was given, by its role."""
    seen: dict[str, set[bytes]] = {}
    fit = TaskWork.fit

    def recorded(self, network, objective, train, val, training, role, watcher=None) -> Any:
        images = (image.numpy().tobytes() for part in train for image in part.x)
        seen.setdefault(role, set()).update(images)
        return fit(self, network, objective, train, val, training, role, watcher)

    monkeypatch.setattr(TaskWork, "fit", recorded)
    return seen


def test_held_out_images_are_trained_on_by_no_network(lab, trained_on) -> None:
    learned = lab.learn(make_method("a-bic", bias_epochs=2), lab.setting(task_aware=False))

    memory = learned.entry("memory", 2).tensors
    held = memory["memory/held"]
    images = {image.numpy().tobytes() for image in memory["memory/x"][held]}

    # 4 a class: one of them held out, ceil(.1 · 4), for each of 6 classes.
    assert memory["memory/y"][held].bincount().tolist() == [1] * 6
    assert memory["memory/y"][~held].bincount().tolist() == [3] * 6
    assert trained_on.keys() == {"main", "auxiliary"}
    assert all(not images & seen for seen in trained_on.values())


def test_alignment_by_hand() -> None:
    old, new = torch.tensor([[3.0, 4.0], [0.0, 5.0]]), torch.tensor([[6.0, 8.0], [0.0, 10.0]])
    features = torch.tensor([1.0, 1.0])

    gamma = alignment(old, new)

    # Mean lengths 5 and 10; logits 7, 5, 14, 10 become 7, 5, 7, 5.
    assert gamma.item() == 0.5
    assert (torch.cat([old, gamma * new]) @ features).tolist() == [7.0, 5.0, 7.0, 5.0]
    assert alignment(old, torch.zeros(2, 2)).isfinite()


def test_only_the_newest_rows_are_aligned_and_the_next_task_starts_from_them(lab) -> None:
    learned = lab.learn(make_method("wa"), lab.setting(task_aware=False))
    before, after = (network_of(learned, stage, 2) for stage in ("main", "align"))
    gamma = learned.entry("align", 2).meta["gamma"]

    changed = [name for name in before if not torch.equal(before[name], after[name])]
    rows = [after[f"network/head.weights.{block}"] for block in range(3)]

    assert changed == ["network/head.weights.2"]
    torch.testing.assert_close(after[changed[0]], gamma * before[changed[0]])
    old, new = torch.cat(rows[:2]).norm(dim=1).mean(), rows[2].norm(dim=1).mean()
    torch.testing.assert_close(old, new)
    assert all((row >= 0).all() for row in rows)
    assert learned.stage("grow", 2).inputs["network"] == learned.stage("align", 1).key


def test_alignment_needs_a_row_a_class(lab) -> None:
    made = Method("own", head="proxies", finish=(Align(),))

    with pytest.raises(MethodError, match="Alignment scales a class's row, and a ProxyHead"):
        lab.learn(made, lab.setting(task_aware=False))


def test_tuning_the_head_leaves_everything_else_alone(lab) -> None:
    made = make_method("podnet", proxies=2, balanced_epochs=2)
    learned = lab.learn(made, lab.setting(lab.mapped(), task_aware=False))
    before, after = (network_of(learned, stage, 2) for stage in ("main", "balanced_tuning"))

    changed = [name for name in before if not torch.equal(before[name], after[name])]

    # All proxies, old and new; neither η nor the backbone, its batch norm statistics included.
    assert changed == [f"network/head.weights.{block}" for block in range(3)]
    assert any("running_mean" in name for name in before)
    roles = {row["role"] for row in learned.entry("balanced_tuning", 2).meta["log"]}
    assert roles == {"balanced_tuning"}
    assert {*learned.entry("balanced_tuning", 2).meta["log"][0]["train"]} == {"task"}


def test_a_balanced_set_has_as_many_images_of_every_class(lab, monkeypatch) -> None:
    counts: list[list[int]] = []
    batches = TaskWork.batches

    def recorded(self, parts, **options) -> Any:
        if len(parts) > 1:
            counts.append(torch.cat([part.y for part in parts]).bincount().tolist())
        return batches(self, parts, **options)

    monkeypatch.setattr(TaskWork, "batches", recorded)
    made = make_method("eeil", balanced_epochs=1)
    lab.learn(made, lab.setting(task_aware=False, memory=Memory(total=12)))

    # 12 in all: 6, 3 and 2 of each class; task 2 finds 3 of old ones and tunes on 2 of each.
    assert counts == [[6, 6, 16, 16], [3] * 4, [3, 3, 3, 3, 16, 16], [2] * 6]


@pytest.mark.parametrize(
    ("keeps", "classes"), [("before", slice(0, 6)), ("old", slice(0, 4)), ("nothing", None)]
)
def test_what_tuning_is_held_to(keeps, classes, lab, monkeypatch) -> None:
    found: list[Any] = []
    fit = TaskWork.fit

    def recorded(self, network, objective, train, val, training, role, watcher=None) -> Any:
        if role == "balanced_tuning" and self.index == 2:
            found.append((objective, training))
        return fit(self, network, objective, train, val, training, role, watcher)

    monkeypatch.setattr(TaskWork, "fit", recorded)
    settings = {"balanced_epochs": 2, "balanced_lr": 0.5, "balanced_milestones": (1,)}
    made = make_method("eeil", lamb=3.0, balanced_keeps=keeps, **settings)
    learned = lab.learn(made, lab.setting(task_aware=False))
    objective, training = found[0]

    assert [pull.anchor.classes for pull in objective.terms] == ([classes] if classes else [])
    assert [pull.lamb for pull in objective.terms] == ([3.0] if classes else [])
    assert [epoch["lr"] for epoch in learned.entry("balanced_tuning", 2).meta["log"]] == [0.5, 0.05]
    assert training.schedule == "multistep"
    assert not same(network_of(learned, "main", 2), network_of(learned, "balanced_tuning", 2))


@pytest.mark.parametrize("searched", [False, True])
def test_the_rate_of_tuning_may_be_a_share_of_the_tasks(searched, lab) -> None:
    made = make_method(
        "eeil", balanced_epochs=2, balanced_factor=0.1, balanced_milestones=(1,), enlarge=False
    )
    training = Training(epochs=1, lr=0.05, batch_size=16, patience=1, lr_search=searched)
    tasks = lab.tasks()[:2]
    learned = lab.learn(made, lab.setting(training=training, task_aware=False), tasks)

    own = learned.entry("rate", 1).meta["lr"] if searched else 0.05
    rates = [epoch["lr"] for epoch in learned.entry("balanced_tuning", 1).meta["log"]]
    assert rates == pytest.approx([0.1 * own, 0.01 * own])
    assert learned.entry("main", 1).meta["log"][0]["lr"] == own


@pytest.mark.parametrize("part", [BiasCorrection(), BalancedTuning()])
def test_without_a_memory_there_is_nothing_to_read(part, lab) -> None:
    made = Method("own", finish=(part,))

    with pytest.raises(MethodError, match="A stage after training reads exemplars"):
        lab.learn(made, lab.setting(task_aware=False))
    assert "there is no memory" in made.problems("cil", None, 6)[0]
    assert made.problems("cil", Memory(per_class=3), 6) == []


def test_a_finishing_stage_changes_its_own_key_and_what_follows(lab) -> None:
    one = lab.learn(make_method("eeil", balanced_epochs=1), lab.setting(task_aware=False))
    other = lab.learn(make_method("eeil", balanced_epochs=2), lab.setting(task_aware=False))

    differ = [a.name for a, b in zip(one.stages, other.stages, strict=True) if a.key != b.key]

    assert differ[:3] == ["balanced_tuning", "memory", "evaluate"]
    assert replace(BalancedTuning(), epochs=2) == BalancedTuning(2)


@pytest.mark.parametrize("correct_student", [False, True])
def test_a_corrected_student_is_validated_by_its_corrected_logits(correct_student, lab) -> None:
    training = Training(epochs=2, lr=0.005, batch_size=16, schedule="constant")
    setting = lab.setting(training=training, task_aware=False)
    learned = lab.learn(
        make_method("bic", bias_epochs=200, bias_lr=1.0, correct_student=correct_student), setting
    )
    network = setting.architecture.build([2, 2, 2]).eval()
    network.load(strip_prefix("network", learned.entry("main", 2).tensors))
    bias = strip_prefix("bias", learned.entry("bias", 1).tensors)
    val = lab.tasks()[2].load().val
    x = as_input(val.x.dense(), lab.source.normalization, torch.device("cpu"))
    with torch.no_grad():
        plain = network(x).logits
    corrected = torch.cat([plain[:, :4] * bias["scale"] + bias["shift"], plain[:, 4:]], dim=1)

    found = [(each.argmax(dim=1) == val.y).float().mean().item() for each in (plain, corrected)]

    assert found[0] != found[1]
    expected = found[1] if correct_student else found[0]
    assert learned.entry("main", 2).meta["log"][-1]["accuracy"] == pytest.approx(expected)
