"""Memories that all classes share, against slow versions and the statistics they must have."""

import random
from dataclasses import replace
from itertools import accumulate, combinations
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Memory, SpecError, make_method
from tests.lab import Exemplars, Samples, arrival_keys, equal_room, greedy, share, strip_prefix

RUNS, ITEMS, ROOM = 10_000, 50, 10
LOW, HIGH = 23.98, 85.35  # .001 and .999 of χ² with 49 degrees of freedom


def numbered(count: int, classes: int = 1) -> Samples:
    """Images that are all different."""
    x = torch.arange(count, dtype=torch.float32).reshape(count, 1)
    return Samples(x, torch.arange(count) % classes)


def chi_square(counts: list[int]) -> float:
    """Of how often each item was kept; the sum of all is fixed."""
    share = ROOM / ITEMS
    spread = sum((count - RUNS * share) ** 2 for count in counts)
    return (ITEMS - 1) / ITEMS * spread / (RUNS * share * (1 - share))


def kept_often(keep: Any) -> list[int]:
    counts = [0] * ITEMS
    for run in range(RUNS):
        for item in keep(run):
            counts[item] += 1
    return counts


def sequential(draw: random.Random, off: int = 1) -> list[int]:
    """Algorithm R, an item at a time; ``off`` of 0 is the mistake of several public versions."""
    room: list[int] = []
    for n in range(ITEMS):
        if n < ROOM:
            room.append(n)
        elif (slot := draw.randrange(n + off)) < ROOM:
            room[slot] = n
    return room


def test_a_reservoir_keeps_every_image_with_one_probability() -> None:
    samples = numbered(ITEMS)

    def keys(run: int) -> list[int]:
        return arrival_keys(samples, run).topk(ROOM).indices.tolist()

    assert LOW < chi_square(kept_often(keys)) < HIGH
    # What the statistic says of the algorithm as it is written, and with its usual mistake.
    assert LOW < chi_square(kept_often(lambda run: sequential(random.Random(run)))) < HIGH
    assert chi_square(kept_often(lambda run: sequential(random.Random(run), off=0))) > 2 * HIGH


def test_all_pairs_of_four_are_equally_likely() -> None:
    samples, often = numbered(4), dict.fromkeys(combinations(range(4), 2), 0)
    for seed in range(3000):
        often[tuple(share("reservoir", samples, 0, 2, 0, (seed, 0)).tolist())] += 1

    assert all(400 < count < 600 for count in often.values())  # 500 each, ± 20


@pytest.mark.parametrize("selection", ["reservoir", "balanced"])
@pytest.mark.parametrize("size", [1, 7, 10])
def test_batches_and_order_do_not_change_what_is_kept(selection: str, size: int) -> None:
    whole = numbered(60, classes=3)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(size))
    held = whole.take(torch.arange(0))
    for number, part in enumerate(order.split(size)):
        both = Samples.concatenate([held, whole.take(part)])
        stays = share(selection, both, len(held), 12, 0, (5, number))
        held = both.take(stays)
        assert len(held) == min(12, (number + 1) * size, 60)

    once = whole.take(share(selection, whole, 0, 12, 0, (5, 0)))
    assert sorted(held.x.dense().flatten().tolist()) == once.x.dense().flatten().tolist()


def test_a_memory_that_is_not_full_has_all_images_in_order() -> None:
    for selection in ("reservoir", "balanced", "greedy"):
        assert share(selection, numbered(6, 2), 0, 9, 0, (0, 0)).tolist() == list(range(6))


def filled(available: list[int], count: int) -> list[int]:
    """One image at a time to the class with the fewest, the first of equal ones."""
    room = [0] * len(available)
    for _ in range(min(count, sum(available))):
        able = [c for c, most in enumerate(available) if room[c] < most]
        room[min(able, key=lambda c: room[c])] += 1
    return room


def test_room_is_as_equal_as_can_be() -> None:
    assert equal_room([99] * 3, 10) == [4, 3, 3]
    assert equal_room([99] * 4, 10) == [3, 3, 2, 2]
    draw = random.Random(0)
    for _ in range(200):
        available = [draw.randrange(9) for _ in range(draw.randrange(1, 6))]
        count = draw.randrange(20)
        assert equal_room(available, count) == filled(available, count), (available, count)


def test_a_balanced_reservoir_keeps_the_largest_keys_of_each_class() -> None:
    samples = numbered(40, classes=3)
    keys = arrival_keys(samples, 3)
    stays = share("balanced", samples, 0, 10, 0, (3, 0))
    for label, count in enumerate([4, 3, 3]):
        own = samples.of_class(label)
        best = own[keys[own].topk(count).indices].sort().values
        assert torch.equal(stays[samples.y[stays] == label], best)


# -- GDumb's sampler -------------------------------------------------------------------------


class SlowGreedy:
    """GDumb's rule as it is written: a list of items, one after the other."""

    def __init__(self, count: int, seed: int) -> None:
        self.count, self.draw = count, torch.Generator().manual_seed(seed)
        self.items: list[tuple[int, int]] = []
        self.seen: list[int] = []

    def sizes(self) -> dict[int, int]:
        return {c: sum(label == c for label, _ in self.items) for c in sorted(set(self.seen))}

    def offer(self, label: int, item: int) -> None:
        self.seen = sorted({*self.seen, label})
        if self.sizes()[label] >= self.count / len(self.seen):
            return
        if len(self.items) == self.count:
            sizes = self.sizes()
            largest = next(c for c in self.seen if sizes[c] == max(sizes.values()))
            own = [pair for pair in self.items if pair[0] == largest]
            self.items.remove(own[int(torch.randint(len(own), (), generator=self.draw))])
        self.items.append((label, item))


def test_the_greedy_sampler_follows_its_trace() -> None:
    labels = [0] * 6 + [1] * 4 + [2] * 4
    counts = []
    for end in range(6, len(labels) + 1):
        held = greedy(labels[:end], 0, 6, 0, torch.Generator().manual_seed(0))
        counts.append(tuple(sum(labels[i] == c for i in held) for c in range(3)))

    expected = [(6, 0, 0), (5, 1, 0), (4, 2, 0), (3, 3, 0), (3, 3, 0)]
    assert counts == [*expected, (2, 3, 1), (2, 2, 2), (2, 2, 2), (2, 2, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_the_greedy_sampler_is_the_rule_item_by_item(seed: int) -> None:
    draw = random.Random(seed)
    labels = [draw.randrange(1 + position // 15) for position in range(60)]
    slow = SlowGreedy(draw.randrange(3, 20), seed)
    for item, label in enumerate(labels):
        slow.offer(label, item)

    held = greedy(labels, 0, slow.count, 0, torch.Generator().manual_seed(seed))
    assert sorted(held) == sorted(item for _, item in slow.items)


# -- in a stream -----------------------------------------------------------------------------


def memory_of(learned: Any, task: int) -> Exemplars:
    return Exemplars.of(strip_prefix("memory", learned.entry("memory", task).tensors))


def rows(samples: Samples) -> list[bytes]:
    return sorted(bytes(row) for row in samples.x.digests())


def seen(tasks: Any, until: int) -> Samples:
    return Samples.concatenate([task.load().train for task in tasks[: until + 1]])


@pytest.mark.parametrize("selection", ["reservoir", "balanced"])
def test_a_stream_keeps_what_all_its_images_at_once_would(selection: str, lab) -> None:
    memory = Memory(total=9, selection=selection, batch=4)
    tasks = lab.tasks()
    learned = lab.learn(make_method("er"), lab.setting(task_aware=False, memory=memory), tasks)

    for task in range(3):
        every = seen(tasks, task)
        expected = every.take(share(selection, every, 0, 9, 0, (0, 0)))
        assert rows(memory_of(learned, task).samples) == rows(expected)
    came = memory_of(learned, 2)
    assert (came.samples.y // 2).tolist() == came.task.tolist()


def test_a_greedy_memory_is_balanced_after_every_task(lab) -> None:
    memory = Memory(total=8, selection="greedy", batch=4)
    learned = lab.learn(make_method("er"), lab.setting(task_aware=False, memory=memory))

    counts = [memory_of(learned, task).samples.y.bincount().tolist() for task in range(3)]
    assert counts[:2] == [[4, 4], [2] * 4]
    assert sum(counts[2]) == 8
    assert max(counts[2]) <= 2


def returning(lab: Any) -> Any:
    return lab.tasks(scenario="cir", returning=1.0)


def test_a_ring_has_the_newest_images_of_a_class(lab) -> None:
    memory, tasks = Memory(per_class=3, selection="ring", batch=4), returning(lab)
    learned = lab.learn(make_method("er"), lab.setting(task_aware=False, memory=memory), tasks)

    last = memory_of(learned, 2).samples
    images = tasks[2].load().train
    assert last.y.bincount().tolist() == [3] * 6
    for label in range(6):
        new = {bytes(row) for row in images.take(images.of_class(label)).x.digests()}
        own = {bytes(row) for row in last.take(last.of_class(label)).x.digests()}
        assert len(own & new) == min(3, len(new))


def test_no_image_is_kept_twice_where_classes_come_again(lab) -> None:
    tasks = lab.tasks(scenario="cir", returning=1.0, per_coming=9)
    memory = Memory(total=30, selection="reservoir", batch=4)
    learned = lab.learn(make_method("er"), lab.setting(task_aware=False, memory=memory), tasks)

    kept = rows(memory_of(learned, 2).samples)
    assert len(kept) == len(set(kept)) == 30


def test_bytes_are_images(lab) -> None:
    assert Memory(bytes=1000).in_images(64) == Memory(total=15)
    assert Memory(bytes=64, selection="ring").in_images(64) == Memory(total=1, selection="ring")
    assert Memory(per_class=3).in_images(64) == Memory(per_class=3)
    with pytest.raises(SpecError, match="is 63, and one image takes 64 bytes"):
        Memory(bytes=63).in_images(64)


def test_budgets_that_contradict_are_refused() -> None:
    def problem(**settings: Any) -> str:
        return Memory(**settings).problems(3, "cil")[0]

    assert problem(per_class=2, bytes=9) == (
        "memory.per_class and memory.bytes are both given. Give one of them."
    )
    assert "are all given" in problem(per_class=2, total=9, bytes=9)
    assert "reservoir shares one number" in problem(per_class=2, selection="reservoir")
    assert Memory(total=2, selection="reservoir").problems(50, "cil") == []


@pytest.mark.parametrize("name", ["icarl", "bic", "eeil", "aanets-lucir"])
def test_methods_that_read_every_class_refuse_a_shared_memory(name: str) -> None:
    memory = Memory(total=60, selection="reservoir")
    [problem] = make_method(name).problems("cil", memory, 10)
    assert "reads images of every class. Use memory.selection=random" in problem
    assert make_method("gdumb").problems("cil", memory, 10) == []
    assert make_method("er").problems("cil", replace(memory, batch=4), 10) == []


def test_keys_are_uniform_and_of_the_seed() -> None:
    samples = numbered(2000)
    one, two = arrival_keys(samples, 0), arrival_keys(samples, 1)

    assert float(one.min()) >= 0
    assert float(one.max()) < 1
    counts = one.histc(10, 0, 1).tolist()
    assert list(accumulate(counts))[-1] == 2000
    assert all(130 < count < 270 for count in counts)  # 200 each, ± 13
    both = torch.stack([one, two])
    assert abs(float(torch.corrcoef(both)[0, 1])) < 0.1
    assert isinstance(one, Tensor)
