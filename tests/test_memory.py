"""The memory: herding against its definition, other rules, quotas and truncation."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from ancl import Memory
from ancl.extend import Output
from tests.lab import Exemplars, Samples, Selection, herd, oversampled, rank, sampled, select


def at_angles(*degrees: float) -> Tensor:
    angles = [math.radians(angle) for angle in degrees]
    return torch.tensor([[math.cos(a), math.sin(a)] for a in angles])


def slow_herd(features: Tensor, count: int) -> list[int]:
    """The definition: each pick keeps the mean of all picks nearest to the class mean."""
    unit = F.normalize(features, dim=1)
    mean, picked = unit.mean(0), []
    for k in range(1, count + 1):
        left = [i for i in range(len(unit)) if i not in picked]
        picked.append(
            min(left, key=lambda i: (mean - (unit[[*picked, i]].sum(0)) / k).norm().item())
        )
    return picked


def test_herding_by_hand() -> None:
    # An image is picked once; were it not left out afterwards, the order would be 1, 2, 3, 0.
    features = at_angles(0, 20, 80, 100)

    assert features.mean(0).tolist() == pytest.approx([0.484923, 0.577909], abs=1e-6)
    assert herd(features, 4).tolist() == [1, 2, 0, 3]
    assert herd(features, 2).tolist() == [1, 2]
    assert herd(features, 9).tolist() == [1, 2, 0, 3]


@pytest.mark.parametrize("seed", range(10))
def test_herding_follows_its_definition(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    features = torch.randn(30, 6, generator=draw, dtype=torch.float64)

    assert herd(features, 12).tolist() == slow_herd(features, 12)


def test_herding_reads_directions_alone() -> None:
    features = at_angles(0, 20, 80, 100)
    lengths = torch.tensor([[7.0], [0.1], [3.0], [1.0]])

    assert herd(features * lengths, 3).tolist() == [1, 2, 0]


def ranked(selection: Selection, logits: list[list[float]], count: int, seed: int = 0) -> list[int]:
    output = Output(torch.tensor(logits), torch.ones(len(logits), 2))
    draw = torch.Generator().manual_seed(seed)
    labels = torch.ones(len(logits), dtype=torch.long)
    return rank(selection, output, labels, count, draw).tolist()


def test_entropy_keeps_the_least_certain_and_distance_the_lowest_own_logit() -> None:
    logits = [[0.0, 9.0], [0.0, 1.0], [5.0, 5.0], [3.0, 0.5]]

    # |z_1 − z_0|: 9, 1, 0, 2.5; own logits 9, 1, 5, .5
    assert ranked("entropy", logits, 3) == [2, 1, 3]
    assert ranked("distance", logits, 3) == [3, 1, 2]


def test_random_exemplars_follow_their_generator() -> None:
    logits = [[0.0, 0.0]] * 20

    assert ranked("random", logits, 8, seed=1) == ranked("random", logits, 8, seed=1)
    assert ranked("random", logits, 8, seed=1) != ranked("random", logits, 8, seed=2)
    assert len(set(ranked("random", logits, 8))) == 8


def test_quotas_grow_or_shrink() -> None:
    assert Memory(per_class=20).quota(60) == 20
    # never more than the total: 34 a class would be 2040
    assert Memory(total=2000).quota(60) == 33


def test_memories_that_cannot_be_are_explained() -> None:
    assert Memory(per_class=20).problems(10, "cil") == []
    assert "Give one of them" in Memory(per_class=2, total=9).problems(3, "cil")[0]
    assert "of each of 100 classes. Raise" in Memory(total=50).problems(100, "cil")[0]
    domains = Memory(total=50).problems(100, "dil")[0]
    assert "of each of 100 classes in their domains. Raise memory.total to at least 100" in domains


def images(labels: list[int]) -> Samples:
    count = len(labels)
    return Samples(torch.arange(float(count)).reshape(count, 1), torch.tensor(labels))


def chosen(labels: list[int], count: int, task: int = 0) -> Exemplars:
    """The ``count`` with the lowest own logit, which is minus the image's number."""

    def answer(samples: Samples) -> Output:
        return Output(-samples.x.dense().repeat(1, 5), samples.x.dense())

    memory = Memory(per_class=count, selection="distance")
    draw = torch.Generator()
    return select(memory, images(labels), answer, task=task, count=count, randomness=draw)


def test_the_best_of_every_class_are_kept_in_order() -> None:
    exemplars = chosen([3, 1, 3, 1, 1, 3], 2, task=4)

    assert exemplars.samples.y.tolist() == [1, 1, 3, 3]
    assert exemplars.samples.x.dense().squeeze(1).tolist() == [4, 3, 5, 2]
    assert exemplars.task.tolist() == [4] * 4
    assert exemplars.held.tolist() == [False] * 4


@pytest.mark.parametrize("selection", ["herding", "random", "entropy", "distance"])
def test_a_class_with_fewer_images_than_its_share_is_kept_whole(selection: Selection) -> None:
    def answer(samples: Samples) -> Output:
        x = samples.x.dense()
        return Output(x.repeat(1, 3), torch.cat([x, x + 1], dim=1))

    given = images([0, 0, 0, 0, 1, 1, 2])
    memory, draw = Memory(per_class=3, selection=selection), torch.Generator()
    kept = select(memory, given, answer, task=0, count=3, randomness=draw)

    assert kept.samples.y.tolist() == [0, 0, 0, 1, 1, 2]
    assert sorted(kept.samples.x[kept.samples.y == 1].flatten().tolist()) == [4.0, 5.0]
    assert kept.samples.x[kept.samples.y == 2].flatten().tolist() == [6.0]


def test_truncation_cuts_off_the_worst_of_each_class_and_task() -> None:
    exemplars = Exemplars.joined([chosen([0, 0, 0, 1, 1, 1], 3), chosen([1, 1, 1], 3, task=1)])
    held = Exemplars.joined(
        [exemplars, Exemplars(images([0, 0]), torch.zeros(2).long(), torch.ones(2).bool())]
    )

    kept = held.truncated(2, 1)

    labels = list(zip(kept.samples.y.tolist(), kept.task.tolist(), kept.held.tolist(), strict=True))
    assert labels == [(0, 0, False)] * 2 + [(1, 0, False)] * 2 + [(1, 1, False)] * 2 + [
        (0, 0, True)
    ]
    assert kept.samples.x.dense().squeeze(1).tolist() == [2, 1, 5, 4, 2, 1, 0]
    assert kept.part(held=True).x.dense().tolist() == [[0.0]]
    assert len(kept.part(held=False)) == 6


def test_exemplars_survive_being_stored() -> None:
    exemplars = chosen([0, 0, 1, 1], 1)

    again = Exemplars.of(exemplars.tensors())

    for name, tensor in exemplars.tensors().items():
        assert torch.equal(tensor, again.tensors()[name])


def numbered(*labels: int) -> Samples:
    return Samples(torch.arange(float(len(labels))).unsqueeze(1), torch.tensor(labels))


def test_a_class_with_too_few_images_gives_some_again() -> None:
    samples = numbered(0, 0, 0, 4, 2, 2)
    draw = torch.Generator().manual_seed(0)

    even = oversampled(samples, 3, draw)

    assert even.y.bincount().tolist() == [3, 0, 3, 0, 3]
    assert even.x[:6].equal(samples.x.dense())
    assert all(samples.y[int(x)] == y for x, y in zip(even.x, even.y, strict=True))
    assert len(oversampled(samples, 0, draw)) == 6


def test_images_are_drawn_class_by_class() -> None:
    samples = numbered(0, 0, 0, 0, 3, 3)

    found = {
        tuple(sampled(samples, 2, torch.Generator().manual_seed(seed)).x.dense().flatten().tolist())
        for seed in range(20)
    }

    assert len(found) > 5
    assert all(len(set(each)) == 4 and set(each[2:]) == {4.0, 5.0} for each in found)


def test_exemplars_of_some_classes_and_of_all_others() -> None:
    task, held = torch.zeros(4, dtype=torch.long), torch.tensor([False, True, False, False])
    memory = Exemplars(numbered(0, 1, 1, 2), task, held)

    inside = memory.of_classes((1, 2), inside=True).samples
    assert inside.x.dense().flatten().tolist() == [1.0, 2.0, 3.0]
    assert memory.of_classes((1, 2), inside=False).samples.y.tolist() == [0]
    assert memory.of_classes((), inside=False).held.equal(held)
