"""Streams without boundaries, label noise and imbalance: every image once, shares by counting."""

from collections import Counter
from typing import Any

import pytest
import torch

import ancl
from ancl import ScenarioError, SpecError
from tests.lab import Arrival, Stream, from_arrays, make_stream

CLASSES, IMAGES = 10, 40


def source() -> Any:
    x = torch.arange(CLASSES * IMAGES, dtype=torch.float32).reshape(-1, 1)
    y = torch.arange(CLASSES * IMAGES) // IMAGES
    return from_arrays(x.numpy(), y.numpy(), x.numpy()[::8], y.numpy()[::8])


SOURCE = source()


def stream(arrival: Arrival | None = None, **settings: Any) -> Stream:
    scenario = "cir" if arrival else "cil"
    given = {"scenario": scenario, "tasks": 5, "val_fraction": 0.0, **settings}
    return make_stream(SOURCE, arrival=arrival, **given)


def numbers(made: Stream) -> list[list[int]]:
    """The numbers of the images of each task."""
    return [[int(n) for n in task.load().train.x.dense().flatten()] for task in made.tasks]


@pytest.mark.parametrize(
    "arrival",
    [
        Arrival(part=30),
        Arrival(part=399),
        Arrival(blurry=0.3),
        Arrival(gradual=0.5),
        Arrival(blurry=0.2, gradual=0.1, part=64),
    ],
)
def test_every_image_comes_once(arrival: Arrival) -> None:
    made = stream(arrival, seed=3)
    every = [n for part in numbers(made) for n in part]

    assert sorted(every) == list(range(CLASSES * IMAGES))
    # Classes are numbered as they come, and a label is the place of its class in that order.
    for task in made.tasks:
        split = task.load()
        ids = [int(n) // IMAGES for n in split.train.x.dense().flatten()]
        assert [made.order[label] for label in split.train.y.tolist()] == ids
        assert sorted(set(split.train.y.tolist())) == list(task.present)
        assert split.train.y.bincount(minlength=CLASSES)[list(task.present)].tolist() == list(
            task.counts
        )
        assert set(split.test.y.tolist()) == set(range(task.classes.start, task.classes.stop))
    starts = [task.classes.start for task in made.tasks]
    assert starts == sorted(starts)
    assert made.tasks[-1].classes.stop == CLASSES


def test_parts_have_their_size() -> None:
    sizes = [len(part) for part in numbers(stream(Arrival(part=64)))]
    assert sizes == [64] * 6 + [16]
    # A single image at the end comes with the part before it.
    assert [len(part) for part in numbers(stream(Arrival(part=133)))] == [133, 133, 134]


def test_a_stream_in_parts_keeps_the_order_of_tasks() -> None:
    parts = numbers(stream(Arrival(part=80)))
    for task, part in enumerate(parts):
        assert {n // IMAGES // 2 for n in part} == {task}


def test_a_share_of_each_class_comes_in_other_tasks() -> None:
    made = stream(Arrival(blurry=0.3), seed=1)
    away = Counter[int]()
    tasks = Counter[int]()
    for task, part in enumerate(numbers(made)):
        for n in part:
            away[n // IMAGES] += n // IMAGES // 2 != task
            tasks[task] += 1
    assert away == dict.fromkeys(range(CLASSES), round(0.3 * IMAGES))
    assert all(40 <= count <= 120 for count in tasks.values())


def test_gradual_boundaries_widen_with_their_deviation() -> None:
    def away(width: float) -> int:
        parts = numbers(stream(Arrival(gradual=width)))
        assert [len(part) for part in parts] == [80] * 5
        return sum(n // IMAGES // 2 != task for task, part in enumerate(parts) for n in part)

    counts = [away(width) for width in (0.01, 0.2, 1.0)]
    assert counts == sorted(counts)
    assert counts[0] < 20 < counts[1] < counts[2]


def test_streams_are_of_their_seed_and_keys_of_their_images() -> None:
    one, again, other = (stream(Arrival(part=64, blurry=0.2), seed=s) for s in (0, 0, 1))

    assert [t.key for t in one.tasks] == [t.key for t in again.tasks]
    assert numbers(one) == numbers(again)
    assert not {t.key for t in one.tasks} & {t.key for t in other.tasks}
    # The same images under another setting: the first part of a longer stream.
    few = stream(Arrival(part=64, blurry=0.2), seed=0)
    assert few.tasks[0].key == one.tasks[0].key


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("til", "there is no task that could be told at test time"),
        ("cil", "classes come again in it. Use --scenario cir"),
        ("dil", "not new domains"),
    ],
)
def test_other_scenarios_are_refused_with_the_reason(scenario: str, message: str) -> None:
    settings = {"data.scenario": scenario, "data.blurry": 0.1}
    with pytest.raises(SpecError, match=message):
        ancl.specs(["er"], "digits/5", settings=settings)


def test_settings_that_contradict_are_refused_together() -> None:
    settings = {"data.scenario": "cir", "data.every": 5, "data.returning": 0.5}
    with pytest.raises(SpecError) as caught:
        ancl.specs(["er"], "digits/5", settings=settings)
    assert "data.returning says which classes come again" in str(caught.value)
    assert "would not learn it in one pass: training.epochs=30" in str(caught.value)


def test_the_rate_of_a_stream_that_comes_once_is_not_searched() -> None:
    training = {"epochs": 1, "schedule": "constant", "lr": "search"}
    data = {"scenario": "cir", "every": 5}
    with pytest.raises(SpecError, match=r"lr_search=True.*a number for training\.lr"):
        ancl.spec("er", "digits/5", data=data, training=training)


def test_a_first_part_of_one_class_is_refused() -> None:
    with pytest.raises(ScenarioError, match="first task has 1 class"):
        stream(Arrival(part=2), classes=(1,) * 10, tasks=None)


# -- noise and imbalance ---------------------------------------------------------------------


def test_labels_are_wrong_for_a_share_of_each_class_within_the_task() -> None:
    made = stream(noise=0.2)
    for task in made.tasks:
        split = task.load()
        right = torch.tensor([int(n) // IMAGES for n in split.train.x.dense().flatten()])
        wrong = right[right != split.train.y]
        assert wrong.bincount(minlength=CLASSES)[list(task.present)].tolist() == [8, 8]
        assert set(split.train.y.tolist()) == set(task.present)
        assert split.train.y.bincount(minlength=CLASSES)[list(task.present)].tolist() == list(
            task.counts
        )
        ids = [int(n) // IMAGES for n in split.test.x.dense().flatten()]
        assert split.test.y.tolist() == ids


def test_images_to_validate_on_have_the_right_labels() -> None:
    split = stream(noise=0.5, val_fraction=0.2).tasks[0].load()
    ids = [int(n) // IMAGES for n in split.val.x.dense().flatten()]
    assert split.val.y.tolist() == ids
    assert len(split.val) == 16


def test_one_label_of_a_class_is_right_at_least() -> None:
    split = stream(noise=0.99, per_class=3).tasks[0].load()
    assert sorted(set(split.train.y.tolist())) == [0, 1]


def test_classes_fall_by_equal_factors() -> None:
    made = stream(imbalance=10.0)
    counts = sorted((n for task in made.tasks for n in task.counts), reverse=True)

    assert counts == [round(40 * 10 ** (-rank / 9)) for rank in range(10)]
    assert [len(task.load().train) for task in made.tasks] == [sum(t.counts) for t in made.tasks]
    assert counts != [n for task in made.tasks for n in task.counts]  # the seed ranks them
    other = stream(imbalance=10.0, seed=1)
    assert [t.counts for t in other.tasks] != [t.counts for t in made.tasks]


def test_imbalance_goes_with_a_limit_and_with_arrival() -> None:
    counts = [n for task in stream(imbalance=4.0, per_class=20).tasks for n in task.counts]
    assert (max(counts), min(counts)) == (20, 5)
    parts = numbers(stream(Arrival(part=50, blurry=0.2), imbalance=4.0, noise=0.1))
    every = [n for part in parts for n in part]
    assert len(every) == len(set(every)) == sum(round(40 * 4 ** (-rank / 9)) for rank in range(10))


def test_a_setting_at_its_default_is_in_no_key() -> None:
    plain, same = stream(seed=5), stream(seed=5, imbalance=1.0, noise=0.0)
    assert [t.key for t in plain.tasks] == [t.key for t in same.tasks]
    for changed in (stream(seed=5, imbalance=2.0), stream(seed=5, noise=0.1)):
        assert not {t.key for t in plain.tasks} & {t.key for t in changed.tasks}
        assert [t.test_key for t in plain.tasks] == [t.test_key for t in changed.tasks]
