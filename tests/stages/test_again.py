"""What stages make of classes that come again."""

from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, make_method
from ancl.extend import Anchor, TaskWork, anchor_for
from tests.lab import (
    ClassHistory,
    Exemplars,
    Samples,
    Task,
    herd,
    patch_part,
    plan,
    strip_prefix,
    task_from,
)


def given(
    lab: Any, index: int, start: int, new: int, known: dict[int, int], *, skip: int = 0
) -> Task:
    """A task of ``new`` classes from ``start`` on, and some images of ``known`` ones."""
    source, parts = lab.source.train, []
    for number in range(start, start + new):
        parts.append(source.take(source.of_class(number)[:10]))
    for number, count in known.items():
        parts.append(source.take(source.of_class(number)[skip : skip + count]))
    return task_from(
        Samples.concatenate(parts),
        index=index,
        classes=slice(start, start + new),
        names=tuple(range(start, start + new)),
        seed=0,
        val_fraction=0.0,
        test=None,
        known=tuple(range(start)),
    )


@pytest.fixture
def mixed(lab) -> tuple[Task, ...]:
    """Three classes; two more with known 0 and 2; then known 1 and 4 alone."""
    return (
        given(lab, 0, 0, 3, {}),
        given(lab, 1, 3, 2, {0: 6, 2: 6}, skip=10),
        given(lab, 2, 5, 0, {1: 3, 4: 3}, skip=10),
    )


def test_a_history_knows_which_blocks_learn(mixed) -> None:
    first, second, third = (ClassHistory.of(mixed[:count]) for count in (1, 2, 3))

    assert [h.blocks for h in (first, second, third)] == [(3,), (3, 2), (3, 2)]
    assert [h.adds_classes for h in (first, second, third)] == [True, True, False]
    assert [h.counts for h in (second, third)] == [(3, 2), (5, 0)]
    assert [h.old_classes for h in (second, third)] == [slice(0, 3), slice(0, 5)]
    assert (second.returning, third.returning) == ((0, 2), (1, 4))
    assert (second.earlier_blocks, second.absent_blocks) == (1, ())
    assert (third.earlier_blocks, third.absent_blocks) == (2, ())
    assert ClassHistory(third.tasks, (3, 4)).absent_blocks == (0,)
    assert third.groups == 5  # no domain: known classes came again


def exemplars(learned: Any, task: int) -> Exemplars:
    return Exemplars.of(strip_prefix("memory", learned.entry("memory", task).tensors))


def images(samples: Samples, number: int) -> set[bytes]:
    return {x.numpy().tobytes() for x in samples.x[samples.y == number]}


def test_exemplars_are_chosen_again_from_kept_and_new_images(lab, mixed) -> None:
    setting = lab.setting(memory=Memory(per_class=4), task_aware=False)
    learned = lab.learn(make_method("wa"), setting, mixed)
    before, after, last = (exemplars(learned, index) for index in range(3))

    tensors = strip_prefix("network", learned.entry("align", 1).tensors)
    network = lab.fitted(make_method("wa"), setting).architecture.restore((3, 2), tensors)
    answer = setting.images.answering(network, setting.device)
    for number in (0, 2):
        new = mixed[1].load().train
        own = [part.take(part.of_class(number)) for part in (new, before.samples)]
        pool = Samples.concatenate(own)
        wanted = pool.take(herd(answer(pool).features, 4))
        assert len(pool) == 10
        assert images(after.samples, number) == images(wanted, number)
        assert images(after.samples, number) & images(new, number)
    assert images(after.samples, 1) == images(before.samples, 1)  # it stayed away
    assert sorted(after.samples.y.tolist()) == sorted([0, 1, 2, 3, 4] * 4)
    assert sorted(last.samples.y.tolist()) == sorted([0, 1, 2, 3, 4] * 4)
    assert images(last.samples, 1) <= images(after.samples, 1) | images(mixed[2].load().train, 1)
    assert images(last.samples, 3) == images(after.samples, 3)


def test_held_out_images_are_never_trained_on(lab, mixed) -> None:
    setting = lab.setting(memory=Memory(per_class=4), task_aware=False)
    learned = lab.learn(make_method("bic", bias_epochs=2, hold_out=0.5), setting, mixed)

    for index in range(3):
        memory = exemplars(learned, index)
        held, kept = memory.part(held=True), memory.part(held=False)
        seen = range(3 if index == 0 else 5)
        assert sorted(held.y.tolist()) == sorted([*seen] * 2)
        assert sorted(kept.y.tolist()) == sorted([*seen] * 2)
        assert not any(images(held, number) & images(kept, number) for number in seen)


def test_without_new_classes_their_stages_are_left_out_and_that_is_said(lab, mixed) -> None:
    setting = lab.setting(memory=Memory(per_class=4), task_aware=False)

    learned = lab.learn(make_method("bic", bias_epochs=2, lamb="convex"), setting, mixed)
    student = make_method("bic", bias_epochs=2, correct_student=True)
    corrected = lab.learn(student, setting, mixed)
    lucir = lab.learn(make_method("lucir", train_old_rows=True), setting, mixed)

    assert [task for name, task in learned.names if name == "bias"] == [1]
    assert "bic: task 3 brings no new classes; left out: the factor on λ, the stage 'bias'." in (
        learned.said
    )
    # A correction that the old network alone had is in the network by now.
    assert "bias" not in learned.stage("evaluate", 2).inputs
    first = corrected.stage("bias", 1).key
    assert corrected.stage("evaluate", 2).inputs["bias"] == first
    assert [term.name for term in lucir.stage("main", 1).parts.extras] == ["margin"]
    assert lucir.stage("main", 2).parts.extras == ()
    assert lucir.stage("grow", 2).imprint is None
    assert learned.stage("main", 2).parts.old.lamb == 1.0
    assert learned.stage("main", 2).parts.task_weight == 1.0


@pytest.fixture
def anchors(monkeypatch) -> list[Anchor]:
    made: list[Anchor] = []

    def recorded(*arguments: Any) -> Anchor:
        made.append(anchor_for(*arguments))
        return made[-1]

    patch_part(monkeypatch, "stages_anchor_for", recorded)
    return made


def listed(classes: slice | Tensor) -> list[int]:
    return classes.tolist() if isinstance(classes, Tensor) else list(range(5))[classes]


def test_the_networks_speak_for_their_classes(lab, mixed, anchors) -> None:
    lab.learn(make_method("a-lwf"), lab.setting(task_aware=False), mixed)

    assert [listed(anchor.classes) for anchor in anchors] == [
        [0, 1, 2],  # the old network: all classes before
        [0, 2, 3, 4],  # the auxiliary network: those present
        [0, 1, 2, 3, 4],
        [1, 4],
    ]


def moved(learned: Any, task: int, stage: str) -> list[bool]:
    """Which rows of the head a training changed."""
    start, end = learned.entry("grow", task).tensors, learned.entry(stage, task).tensors
    rows = [name for name in start if "head" in name and start[name].ndim == 2]
    return [bool((a != b).any()) for n in rows for a, b in zip(start[n], end[n], strict=True)]


def test_rows_of_classes_that_come_again_learn(lab) -> None:
    tasks = (
        given(lab, 0, 0, 2, {}),
        given(lab, 1, 2, 2, {}),
        given(lab, 2, 4, 2, {2: 6}, skip=10),
    )
    til, cil = (lab.setting(task_aware=aware) for aware in (True, False))

    known = lab.learn(make_method("a-lwf"), til, tasks)
    unknown = lab.learn(make_method("a-lwf"), cil, tasks)

    # The task is told: the head of classes 0 and 1, of which nothing came, is left alone.
    assert moved(known, 2, "main") == [False, False, True, True, True, True]
    assert moved(known, 2, "auxiliary") == [False, False, True, True, True, True]
    # It is not told: the loss is over all classes, so all rows learn.
    assert moved(unknown, 2, "main") == [True] * 6
    # Without repetition old rows are left alone, as ever.
    assert moved(unknown, 1, "main") == [False, False, True, True]


def test_a_balanced_stage_draws_again_where_a_class_has_too_few(lab, mixed) -> None:
    """Class 1 comes with 3 images and has 4; it is tuned on as many as the others."""
    setting = lab.setting(memory=Memory(per_class=8), task_aware=False)
    tuned = make_method("eeil", balanced_epochs=1, enlarge=False)
    few = (mixed[0], mixed[1], given(lab, 2, 5, 0, {3: 2}, skip=10))
    seen: list[Tensor] = []
    original = TaskWork.fit

    def spied(self: Any, network: Any, objective: Any, train: Any, *rest: Any) -> Any:
        if rest[2] == "balanced_tuning":
            seen.append(Samples.concatenate(train).y.bincount())
        return original(self, network, objective, train, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskWork, "fit", spied)
        lab.learn(tuned, setting, few)

    assert [counts.tolist() for counts in seen] == [[8] * 5, [8] * 5]


def test_keys_tell_which_classes_came_again(lab, mixed) -> None:
    other = (*mixed[:2], given(lab, 2, 5, 0, {1: 3, 3: 3}, skip=10))
    setting = lab.setting(task_aware=False)

    one, two = (plan(make_method("a-lwf"), tasks, setting) for tasks in (mixed, other))

    assert [s.key for s in one if s.task < 2] == [s.key for s in two if s.task < 2]
    assert not {s.key for s in one if s.task == 2} & {s.key for s in two if s.task == 2}


def test_validation_columns_hold_the_classes_of_their_task_alone(lab) -> None:
    tasks = lab.tasks(scenario="cir", tasks=None, classes="2,2,2", returning=1.0)
    learned = lab.learn(make_method("lwf"), lab.setting(task_aware=False), tasks)

    meta = learned.entry("evaluate", 2).meta
    assert [len(meta[name]) for name in ("tag", "tag_val", "taw", "taw_val")] == [3] * 4
    own = tasks[2].load().val
    assert sorted(set(own.y.tolist())) == [0, 1, 2, 3, 4, 5]
    assert (own.y >= 4).sum() == 8
    assert (8 * meta["taw_val"][2]) % 1 == 0
    assert torch.tensor(meta["tag_val"]).max() <= 1
