"""A learner that is given known classes again, alone or with new ones."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ancl import Events, Learner, Memory, ScenarioError, SpecError, Training
from tests.lab import digits, patch_part

TRAINING = Training(epochs=3, batch_size=32, lr=0.02, lr_first=0.05)
FIRST, MIXED, KNOWN = (0, 1, 2, 3, 4), (0, 2, 4, 5, 6), (1, 5)


def part(*classes: int, skip: int = 0, count: int = 20) -> tuple[Tensor, list[str]]:
    """Some training images of digits, which are called d0, d1 …"""
    train = digits().train
    index = torch.cat([train.of_class(number)[skip : skip + count] for number in classes])
    return train.x[index], [f"d{number}" for number in train.y[index].tolist()]


def learner(method: str = "a-icarl", **settings: Any) -> Learner:
    given = {
        "training": TRAINING,
        "memory": Memory(per_class=4),
        "network_options": {"hidden": (16,)},
    }
    return Learner(method, "mlp", **{**given, "events": Events(), **settings})


def taught(method: str = "a-icarl", **settings: Any) -> Learner:
    made = learner(method, **settings)
    made.learn(*part(*FIRST))
    made.learn(*part(*MIXED, skip=20))
    made.learn(*part(*KNOWN, skip=40))
    return made


@pytest.fixture(scope="module")
def third() -> Learner:
    return taught()


def tensors(made: Learner) -> dict[str, Tensor]:
    return {f"{part}/{n}": t for part, e in made._entries().items() for n, t in e.tensors.items()}


def test_it_knows_what_came_when(third) -> None:
    assert third.tasks == [["d0", "d1", "d2", "d3", "d4"], ["d5", "d6"], []]
    assert third.returning == [[], ["d0", "d2", "d4"], ["d1", "d5"]]
    assert third.classes == [f"d{number}" for number in range(7)]
    assert len(third.scores(part(0)[0])[0]) == 7
    assert third.evaluate(*part(*range(7))) > 0.5
    memory = third._exemplars()
    assert memory is not None
    assert sorted(memory.samples.y.tolist()) == sorted([*range(7)] * 4)
    card = third.card()
    assert "| 2 | `d5`, `d6` (again: `d0`, `d2`, `d4`) | 90 | 10 |" in card
    assert "| 3 |  (again: `d1`, `d5`) | 36 | 4 |" in card
    assert "| after | task 1 | task 2 | on |" in card


def test_what_learn_returns_says_it() -> None:
    made = learner("lwf", memory=Memory())
    made.learn(*part(0, 1))

    mixed, known = made.learn(*part(1, 2, skip=20)), made.learn(*part(0, skip=20))

    assert (mixed["classes"], mixed["returning"]) == (["d2"], ["d1"])
    assert (known["task"], known["classes"], known["returning"]) == (2, [], ["d0"])


def test_saved_it_learns_on_with_the_same_bits(third, tmp_path) -> None:
    made = learner()
    made.learn(*part(*FIRST))
    made.learn(*part(*MIXED, skip=20))
    made.save(tmp_path / "saved")

    loaded = Learner.load(tmp_path / "saved", events=Events())
    loaded.learn(*part(*KNOWN, skip=40))
    loaded.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved")

    wanted = tensors(third)
    assert all(tensor.equal(wanted[name]) for name, tensor in tensors(again).items())
    assert tensors(again).keys() == wanted.keys()
    assert again.returning == third.returning
    assert again._measured == third._measured
    assert [len(row.accuracy) for row in again._measured if row] == [1, 2, 2]


class Stops(Events):
    """Is interrupted in the main training of the second task."""

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        if (stage.name, stage.task, epoch.epoch) == ("main", 1, 1):
            raise KeyboardInterrupt


@pytest.mark.parametrize("method", ["a-icarl", "bic"])
def test_stopped_and_resumed_it_has_the_same_bits(method, tmp_path, monkeypatch) -> None:
    patch_part(monkeypatch, "CHECKPOINT_SECONDS", 0.0)
    whole = taught(method)
    stopped = learner(method, events=Stops(), store=tmp_path / "store")
    stopped.learn(*part(*FIRST))
    with pytest.raises(KeyboardInterrupt):
        stopped.learn(*part(*MIXED, skip=20))
    assert len(stopped.tasks) == 1  # a task that is stopped leaves the learner as it was

    resumed = taught(method, store=tmp_path / "store")

    wanted = tensors(whole)
    assert all(tensor.equal(wanted[name]) for name, tensor in tensors(resumed).items())


def test_more_images_of_known_classes_change_what_it_knows_of_them() -> None:
    plain, more = (learner("finetune", memory=Memory(), seed=1) for _ in range(2))
    for made in (plain, more):
        made.learn(*part(0, 1, 2))

    more.learn(*part(0, 1, 2, skip=20, count=60))

    test = digits().test
    index = torch.cat([test.of_class(number) for number in range(3)])
    images, labels = test.x[index], [f"d{number}" for number in test.y[index].tolist()]
    assert more.evaluate(images, labels) > plain.evaluate(images, labels)
    assert more.report().images == 24  # held images: 2 of 20 a class, and 6 of 60


def test_held_images_that_come_to_be_learned_from_stay_held_and_are_not_learned() -> None:
    made = learner("lwf", memory=Memory(), val_fraction=0.2)
    made.learn(*part(0, 1))
    assert made._held is not None
    before = made._held.samples

    again = [f"d{number}" for number in before.y.tolist()]

    with pytest.raises(ScenarioError, match="All 8 images are held images of this learner"):
        made.learn(before.x, again)
    x, labels = part(0, 1, skip=20, count=5)
    made.learn(torch.cat([before.x.dense(), x]), again + labels)

    now = [image.numpy().tobytes() for image in made._held.samples.x.dense()]
    assert len(before) == 8
    # All that were held, in their order, and 1 in 5 of the others.
    assert now[:8] == [image.numpy().tobytes() for image in before.x.dense()]
    assert len(now) == 10
    assert made._tasks[-1].sizes[:2] == (8, 2)


def test_with_til_a_class_stays_in_the_task_that_brought_it() -> None:
    made = taught("lwf", scenario="til", memory=Memory())

    held = made._held
    assert held is not None
    assert {(int(y), int(t)) for y, t in zip(held.samples.y, held.task, strict=True)} == {
        *((number, 0) for number in range(5)),
        *((number, 1) for number in (5, 6)),
    }
    assert set(made.predict(part(1)[0], task=0)) <= {f"d{number}" for number in range(5)}
    with pytest.raises(ScenarioError, match="This task brought no classes of its own"):
        made.predict(part(1)[0], task=2)
    assert made.report().basis == "all tasks"
    with pytest.raises(ScenarioError, match="only the new class 'd7'"):
        made.learn(*part(0, 7, skip=60))


def test_methods_that_cannot_say_why_before_anything_is_trained() -> None:
    dmc, lucir = learner("dmc", memory=Memory()), learner("lucir")
    rows = learner("lucir", train_old_rows=True)
    for made in (dmc, lucir, rows):
        made.learn(*part(0, 1))

    with pytest.raises(SpecError, match="dmc cannot learn known classes again: its old and"):
        dmc.learn(*part(1, 2, skip=20))
    with pytest.raises(SpecError, match=r"leaves rows of known classes alone.*train_old_rows=true"):
        lucir.learn(*part(0, skip=20))
    rows.learn(*part(0, skip=20))

    assert (len(dmc.tasks), len(lucir.tasks), len(rows.tasks)) == (1, 1, 2)


def test_what_is_left_out_is_said() -> None:
    made = Learner("wa", "mlp", training=TRAINING, network_options={"hidden": (16,)})
    made.learn(*part(0, 1))

    said = "wa: task 2 brings no new classes; left out: the factor on λ, the stage 'align'."
    with pytest.warns(UserWarning, match=said):
        made.learn(*part(0, 1, skip=20))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.learn(*part(1, 2, skip=20))
    with pytest.warns(UserWarning, match="wa: task 4 brings no new classes"):
        made.learn(*part(2, skip=40))


def test_images_of_classes_by_hand_are_the_same_as_a_dataset(tmp_path: Path) -> None:
    """Numbers may be labels too, and keep their positions."""
    made = learner("lwf", memory=Memory())
    x = digits().train.x
    made.learn(x[:40], np.repeat([7, 3], 20))

    made.learn(x[40:60], np.repeat([7, 5], 10))

    assert (made.classes, made.tasks, made.returning) == ([3, 7, 5], [[3, 7], [5]], [[], [7]])
