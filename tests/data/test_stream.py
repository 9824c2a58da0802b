import pickle
from typing import Any

import numpy as np
import pytest
import torch

from ancl import ScenarioError
from tests.lab import (
    Samples,
    Source,
    Split,
    Stream,
    digits,
    generator,
    make_source,
    make_stream,
    task_from,
)


@pytest.fixture(scope="module")
def source() -> Source:
    random = np.random.RandomState(0)
    x = random.randint(0, 256, (180, 3, 3, 1)).astype(np.uint8)
    return make_source("random", x, [f"class {i % 6}" for i in range(180)], test_fraction=1 / 3)


def equal(a: Split, b: Split) -> bool:
    parts = [(getattr(a, part), getattr(b, part)) for part in ("train", "val", "test")]
    return all(torch.equal(p.x.dense(), q.x.dense()) and torch.equal(p.y, q.y) for p, q in parts)


def images(samples: Samples) -> list[bytes]:
    return [bytes(image.numpy()) for image in samples.x]


def keys(stream: Stream) -> list[str]:
    return [task.key for task in stream.tasks]


def test_labels_are_positions_in_the_order(source: Source) -> None:
    stream = make_stream(source, classes="2,4", order=[5, 3, 0, 1, 2, 4])
    first, second = stream.tasks
    assert (first.classes, second.classes) == (slice(0, 2), slice(2, 6))
    assert first.names == ("class 5", "class 3")
    split = first.load()
    assert split.train.y.tolist() == [0] * 18 + [1] * 18
    assert torch.equal(split.test.x[split.test.y == 0], source.test.x[source.test.y == 5])
    assert second.load().test.y.tolist() == [2] * 10 + [3] * 10 + [4] * 10 + [5] * 10


def test_sizes_are_those_of_the_images(source: Source) -> None:
    for options in ({}, {"val_fraction": 0.0}, {"per_class": 5}, {"val_fraction": 0.33}):
        for task in make_stream(source, tasks=3, **options).tasks:
            split = task.load()
            assert task.sizes == (len(split.train), len(split.val), len(split.test))
            assert list(task.counts) == split.train.y.bincount()[task.classes].tolist()
    # 20 training images a class: round(0.33 * 20) = 7 to validate on.
    assert task.sizes == (26, 14, 20)


def test_train_and_val_part_the_images_of_a_class(source: Source) -> None:
    split = make_stream(source, tasks=3).tasks[1].load()
    for position in (2, 3):
        train = split.train.take((split.train.y == position).nonzero().flatten())
        val = split.val.take((split.val.y == position).nonzero().flatten())
        every = images(source.train.take((source.train.y == position).nonzero().flatten()))
        assert sorted(images(train) + images(val)) == sorted(every)
        assert [every.index(image) for image in images(train)] == sorted(
            every.index(image) for image in images(train)
        )


def test_the_split_of_a_class_does_not_depend_on_its_task(source: Source) -> None:
    alone = make_stream(source, tasks=3).tasks[2].load()
    moved = make_stream(source, tasks=1, order=[4, 5, 0]).tasks[0].load()
    assert images(alone.val)[:2] == images(moved.val)[:2]
    assert images(alone.train) == images(moved.train)[:36]


def test_val_fraction_zero_leaves_none_and_a_small_one_leaves_one(source: Source) -> None:
    none = make_stream(source, tasks=3, val_fraction=0).tasks[0].load()
    assert none.val.x.shape == (0, 3, 3, 1)
    assert len(none.train) == 40
    few = make_stream(source, tasks=3, val_fraction=0.001).tasks[0].load()
    assert few.val.y.tolist() == [0, 1]


def test_per_class_keeps_a_part_of_the_training_images_alone(source: Source) -> None:
    whole = make_stream(source, tasks=3).tasks[0].load()
    some = make_stream(source, tasks=3, per_class=4).tasks[0].load()
    assert some.train.y.tolist() == [0] * 4 + [1] * 4
    assert images(some.val) == images(whole.val)
    places = [images(whole.train).index(image) for image in images(some.train)]
    assert places == sorted(places)
    assert make_stream(source, tasks=3, per_class=99).tasks[0].sizes[0] == 36


def test_a_seed_decides_train_and_val_and_not_the_test(source: Source) -> None:
    zero, again, one = (make_stream(source, tasks=3, seed=seed).tasks[0] for seed in (0, 0, 1))
    assert equal(zero.load(), again.load())
    assert zero.key == again.key
    assert not torch.equal(zero.load().val.x.dense(), one.load().val.x.dense())
    assert zero.key != one.key
    assert torch.equal(zero.load().test.x.dense(), one.load().test.x.dense())
    assert zero.test_key == one.test_key


def test_the_key_holds_all_that_decides_the_images(source: Source) -> None:
    base = keys(make_stream(source, tasks=3))
    assert len(set(base)) == 3
    assert base == keys(make_stream(source, tasks=3, scenario="cil"))
    # The same first two classes, whatever comes after.
    assert base[0] == keys(make_stream(source, classes="2,4"))[0]
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"val_fraction": 0.2},
        {"per_class": 3},
        {"order": [1, 0, 2, 3, 4, 5]},
    ]
    for options in others:
        assert keys(make_stream(source, tasks=3, **options))[0] != base[0]
    # The same two classes at another place have other labels.
    assert keys(make_stream(source, tasks=2, order=[2, 3, 0, 1]))[1] != base[0]


def test_the_key_has_no_seed_where_nothing_is_drawn(source: Source) -> None:
    zero, one = (make_stream(source, tasks=3, seed=seed, val_fraction=0) for seed in (0, 1))
    assert keys(zero) == keys(one)
    assert equal(zero.tasks[0].load(), one.tasks[0].load())


def test_the_test_key_holds_source_classes_and_place(source: Source) -> None:
    def test_key(where: Source, **options: Any) -> str:
        return make_stream(where, tasks=3, **options).tasks[0].test_key

    x = source.train.x.dense()
    x[0, 0, 0, 0] ^= 1
    changed = make_source("changed", x, source.train.y, source.test.x, source.test.y)
    base = test_key(source)
    assert base == test_key(source, val_fraction=0.3, per_class=2, seed=4)
    assert base != test_key(source, order="seed:1")
    assert base != test_key(changed)


def test_a_stream_travels_to_another_process(source: Source) -> None:
    stream = make_stream(source, tasks=3)
    travelled = pickle.loads(pickle.dumps(stream))
    assert equal(travelled.tasks[1].load(), stream.tasks[1].load())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tasks": 3, "scenario": "xil"}, "no scenario 'xil'.*Possible: til, cil, dil"),
        ({"tasks": 3, "scenario": "dil"}, "given no domains. Possible: rotation, permutation, cor"),
        ({"tasks": 3, "domains": "rotation"}, "for the scenario dil, and this is til"),
        ({"first": 2, "tasks": 3, "scenario": "dil"}, "every task has all classes: leave out"),
        ({"classes": "2,2,2", "scenario": "dil"}, "every task has all classes: leave out"),
        (
            {"tasks": 3, "scenario": "dil", "domains": "rotation", "order": [1]},
            "has 1 class.*at least 2 classes.$",
        ),
        ({"classes": "2,3,1"}, "Task 3 has 1 class.*or use the scenario cil"),
        ({"classes": "1,5", "scenario": "cil"}, "The first task has 1 class"),
        ({"tasks": 3, "val_fraction": 1.0}, "val_fraction is 1.0"),
        ({"tasks": 3, "val_fraction": -0.1}, "val_fraction is -0.1"),
        ({"tasks": 3, "val_fraction": 0.99}, "'class 0' has 20 training images, and 20"),
        ({"tasks": 3, "per_class": 0}, "per_class is 0"),
        ({"tasks": 4}, "6 classes cannot be split into 4 equal tasks. Use 2 or 3."),
    ],
)
def test_streams_that_do_not_fit_are_refused(
    source: Source, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ScenarioError, match=message):
        make_stream(source, **options)


def test_one_class_alone_is_a_later_task_of_cil(source: Source) -> None:
    stream = make_stream(source, classes="3,2,1", scenario="cil")
    assert stream.tasks[2].load().test.y.tolist() == [5] * 10


def dil(source: Source, **options: Any) -> Stream:
    given: dict[str, Any] = {"scenario": "dil", "domains": "rotation", "tasks": 3, **options}
    return make_stream(source, **given)


def test_every_task_of_dil_has_all_classes_each_seen_in_its_domain(source: Source) -> None:
    stream = dil(source, domains="rotation:0,90", tasks=None, order=[5, 3, 0])
    assert [task.classes for task in stream.tasks] == [slice(0, 3)] * 2
    assert [task.names for task in stream.tasks] == [("class 5", "class 3", "class 0")] * 2
    plain, turned = (task.load() for task in stream.tasks)
    assert torch.equal(plain.test.x[plain.test.y == 1], source.test.x[source.test.y == 3])
    for part in ("train", "val", "test"):
        one, other = getattr(plain, part), getattr(turned, part)
        assert torch.equal(other.x.dense(), one.x.dense().rot90(1, (1, 2)))
        assert torch.equal(other.y, one.y)


def test_the_domain_is_part_of_both_keys(source: Source) -> None:
    stream = dil(source)
    assert len({task.key for task in stream.tasks}) == 3
    assert len({task.test_key for task in stream.tasks}) == 3
    assert keys(stream) == keys(dil(source))
    # 0, 60 and 120 degrees; the same angle has the same key, however it was asked for.
    assert keys(stream)[1] == keys(dil(source, domains="rotation:60", tasks=1))[0]
    assert keys(stream)[0] != keys(make_stream(source, tasks=1))[0]


def test_a_dil_stream_travels_and_its_sizes_are_those_of_its_images(source: Source) -> None:
    stream = dil(source, domains="corruption", tasks=6, per_class=5)
    for task in pickle.loads(pickle.dumps(stream)).tasks:
        split = task.load()
        assert task.sizes == (len(split.train), len(split.val), len(split.test)) == (30, 12, 60)


def by_hand(n: int = 20, start: int = 4) -> Samples:
    x = torch.rand(n, 3, generator=generator(start))
    return Samples(x, start + torch.arange(n) % 2)


HAND: dict[str, Any] = {"index": 2, "classes": slice(4, 6), "names": ("a", "b"), "seed": 0}


def test_images_by_hand_make_a_task_whatever_their_order() -> None:
    samples = by_hand()
    mixed = samples.take(torch.randperm(20, generator=generator(9)))
    one = task_from(samples, val_fraction=0.2, test=by_hand(6), **HAND)
    other = task_from(mixed, val_fraction=0.2, test=by_hand(6), **HAND)
    assert one.sizes == (16, 4, 6)
    assert (one.index, one.classes, one.names) == (2, slice(4, 6), ("a", "b"))
    assert one.load().train.y.tolist() == [4] * 8 + [5] * 8
    assert equal(one.load(), other.load())
    assert (one.key, one.test_key) == (other.key, other.test_key)


def test_images_by_hand_may_come_without_a_test() -> None:
    alone = task_from(by_hand(), val_fraction=0, test=None, **HAND)
    tested = task_from(by_hand(), val_fraction=0, test=by_hand(6), **HAND)
    assert alone.sizes == (20, 0, 0)
    assert alone.load().test.x.shape == (0, 3)
    assert alone.key == tested.key
    assert alone.test_key != tested.test_key


def test_images_by_hand_outside_the_task_are_refused() -> None:
    with pytest.raises(ScenarioError, match=r"training label of task 3 is 3, .* 4 to 5"):
        task_from(by_hand(start=3), val_fraction=0, test=None, **HAND)
    with pytest.raises(ScenarioError, match="test label of task 3 is 6"):
        task_from(by_hand(), val_fraction=0, test=by_hand(start=5), **HAND)
    lonely = by_hand().take(torch.arange(0, 20, 2))
    with pytest.raises(ScenarioError, match="Class 'b' has 0 training images"):
        task_from(lonely, val_fraction=0, test=None, **HAND)


def test_a_limit_on_test_images_changes_the_test_key_alone() -> None:
    source = digits()
    whole = make_stream(source, tasks=5).tasks[1]
    part = make_stream(source, tasks=5, test_per_class=7).tasks[1]

    assert part.key == whole.key
    assert part.test_key != whole.test_key
    assert part.load().test.y.bincount().tolist() == [0, 0, 7, 7]
    assert part.sizes[2] == 14


def test_a_single_image_of_a_class_is_trained_on() -> None:
    x = np.arange(12 * 4, dtype=np.float32).reshape(12, 4)
    labels = [0] * 10 + [1, 2]
    samples = Samples(torch.from_numpy(x), torch.tensor(labels))
    place = {"index": 0, "classes": slice(0, 3), "names": (0, 1, 2)}
    task = task_from(samples, **place, seed=0, val_fraction=0.1, test=None)
    split = task.load()

    assert task.counts == (9, 1, 1)
    assert split.train.y.tolist() == [0] * 9 + [1, 2]
    assert split.val.y.tolist() == [0]
