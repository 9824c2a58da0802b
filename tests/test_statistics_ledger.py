"""The ledger: a set of images, whose statistics do not depend on how it came about."""

import hashlib
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ancl import ScenarioError, StoreError
from tests.lab import Grid, Ledger, Lift, Statistics, Sums

SIZE, CLASSES, IMAGES = 6, 4, 60
GRID = Grid(10)


def entered(seed: int = 0, task: int = 0, images: int = IMAGES) -> Any:
    """Images with random features; every tenth or so is held."""
    draw = torch.Generator().manual_seed(seed)
    digests = [hashlib.sha256(f"{seed} {number}".encode()).digest() for number in range(images)]
    words = np.frombuffer(b"".join(digests), dtype=">u8").reshape(-1, 4).astype(np.uint64)
    y = torch.randint(CLASSES, (images,), generator=draw)
    rows = GRID.put(torch.randn(images, SIZE, generator=draw)).rows
    held = torch.rand(images, generator=draw) < 0.2
    return Ledger.of(
        torch.from_numpy(words.view(np.int64)), torch.full((images,), task), y, held, rows
    )


def some(ledger: Any, *positions: int) -> Any:
    return ledger.take(torch.tensor(positions))


def same(a: Any, b: Any) -> bool:
    first, second = a.tensors(), b.tensors()
    return first.keys() == second.keys() and all(
        torch.equal(_bits(first[name]), _bits(second[name])) for name in first
    )


def _bits(tensor: Tensor) -> Tensor:
    return tensor.view(torch.long) if tensor.dtype == torch.double else tensor


def empty(keep: str = "ledger", lift: Any = None) -> Any:
    return Statistics.none(GRID, SIZE, keep, lift).padded(CLASSES)


def test_rows_are_in_the_order_of_their_hashes_and_an_image_counts_once() -> None:
    ledger = entered()

    assert ledger.hex() == sorted(ledger.hex())
    assert same(ledger + ledger, ledger)
    assert same(some(ledger, 5, 1, 9) + some(ledger, 9, 2), some(ledger, 1, 2, 5, 9))


def test_an_image_keeps_what_it_was_entered_with() -> None:
    first, later = entered(task=0), entered(task=3)
    later.rows[:] = 0

    assert same(first + later, first)


def test_one_image_in_two_classes_is_two_rows() -> None:
    ledger = some(entered(), 0)
    other = ledger.renumbered([(number + 1) % CLASSES for number in range(CLASSES)], [0])

    assert len(ledger + other) == 2


@pytest.mark.parametrize("keep", ["ledger", "sums"])
@pytest.mark.parametrize("width", [None, 20])
def test_order_and_batches_change_no_bit(keep: str, width: int | None) -> None:
    lift = Lift.seeded(GRID, SIZE, 5, width) if width else None
    ledger, start = entered(), empty(keep, lift)
    at_once = start.add(ledger)
    one_by_one = start
    for number in torch.randperm(IMAGES, generator=torch.Generator().manual_seed(1)).tolist():
        one_by_one = one_by_one.add(some(ledger, number))

    assert same(one_by_one, at_once)
    assert len(at_once.ledger) == (IMAGES if keep == "ledger" else int(ledger.held.sum()))


@pytest.mark.parametrize("keep", ["ledger", "sums"])
def test_the_sums_are_those_of_images_that_are_not_held(keep: str) -> None:
    ledger = entered()
    learned = ledger.take(~ledger.held)
    slow = torch.zeros(SIZE, SIZE, dtype=torch.double)
    for row in learned.rows.double():
        slow += torch.outer(row, row)

    found = empty(keep).add(ledger).sums
    assert torch.equal(found.gram, slow)
    assert torch.equal(found.images, torch.bincount(learned.y, minlength=CLASSES))


def test_added_and_removed_is_never_seen() -> None:
    first, second = entered(0), entered(1, task=1)
    before = empty().add(first)
    both = before.add(second)

    assert same(both.remove(second), before)
    assert same(both.remove(both.ledger.take(both.ledger.where(tasks=[1]))), before)
    assert same(before.remove(first), empty())
    with pytest.raises(ScenarioError, match="60 of 60 images are not in the ledger"):
        before.remove(second)


def test_images_are_found_by_hash_class_and_task() -> None:
    ledger = entered(0) + entered(1, task=1)
    text = ledger.hex()[7]

    assert ledger.where(hashes=[text]).nonzero().tolist() == [[7]]
    assert ledger.where(classes=[2], tasks=[1]).sum() == (entered(1).y == 2).sum()
    assert not ledger.where(hashes=["00"]).any()


def test_a_class_is_forgotten_as_if_it_had_never_come() -> None:
    whole = empty().add(entered())
    others = entered().take(entered().y != 1)
    without = whole.remove(whole.ledger.take(whole.ledger.where(classes=[1])))
    never = Statistics.none(GRID, SIZE).padded(3).add(others.renumbered([0, -1, 1, 2], [0]))

    assert same(without.arranged([0, 2, 3], [0]), never)
    with pytest.raises(ScenarioError, match="classes or tasks that are to be left out"):
        whole.arranged([0, 2, 3], [0])


def test_sums_alone_need_the_images_to_forget_them() -> None:
    first, second = entered(0), entered(1)
    both = empty("sums").add(first).add(second)

    assert same(both.remove(second), empty("sums").add(first))
    with pytest.raises(ScenarioError, match="not in the ledger"):
        empty("sums").add(first).remove(second)  # some of the others are held, and not there


@pytest.mark.parametrize("keep", ["ledger", "sums"])
def test_two_sites_are_one_that_saw_all(keep: str) -> None:
    numbers = [2, 5, 0, 4]  # the other site's classes have other numbers here
    second = entered(1)
    here, there = empty(keep).add(entered(0)), empty(keep).add(second)
    whole = empty(keep).padded(6).add(entered(0)).add(second.renumbered(numbers, [1]))

    assert same(here.merge(there, numbers, [1]), whole)


def test_statistics_on_two_grids_are_not_merged() -> None:
    other = Statistics.none(Grid(3), SIZE)
    with pytest.raises(ScenarioError, match="the grid 10 with keep=ledger and on 3"):
        empty().merge(other, [], [])


def test_a_class_of_held_images_alone_is_learned_from_them() -> None:
    ledger = entered()
    ledger = ledger.take(ledger.held | (ledger.y != 2))
    known = empty().add(ledger)

    assert bool((known.held.y != 2).all())
    assert bool((known.learned.y == 2).any())
    expected = Sums.of(known.learned.rows, known.learned.y, CLASSES)
    assert torch.equal(known.learned_sums.gram, expected.gram)
    later = known.add(entered())  # now it has others: they are held again
    assert bool((later.held.y == 2).any())
    assert torch.equal(later.learned_sums.gram, later.sums.gram)


@pytest.mark.parametrize("keep", ["ledger", "sums"])
@pytest.mark.parametrize("width", [None, 20])
def test_what_is_stored_is_read_again(keep: str, width: int | None) -> None:
    lift = Lift.seeded(GRID, SIZE, 5, width) if width else None
    known = empty(keep, lift).add(entered())
    again = Statistics.read(known.tensors())

    assert same(again, known)
    assert (again.keep, again.grid) == (keep, GRID)
    assert same(again.add(entered(1)), known.add(entered(1)))


DAMAGE = {
    "ledger/hashes": lambda t: t.flip(0),
    "ledger/y": lambda t: t + 10,
    "ledger/tasks": lambda t: t - 1,
    "ledger/held": lambda t: ~t,
    "ledger/rows": lambda t: t.float(),
    "sums/images": lambda t: t + 1,
    "sums/gram": lambda t: t[:2, :2],
    "grid": lambda t: t + 1000,
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_statistics_are_refused(name: str) -> None:
    tensors = empty().add(entered()).tensors()
    with pytest.raises(StoreError, match="damaged: learn these images again"):
        Statistics.read({**tensors, name: DAMAGE[name](tensors[name])})
    with pytest.raises(StoreError, match="damaged"):
        Statistics.read({key: value for key, value in tensors.items() if key != name})


def test_a_grid_for_a_known_bound_has_no_bits_to_spare() -> None:
    grid = Grid.holding(6.0)

    assert grid.exponent == Grid.of(6.0).exponent + 2
    assert grid.put(torch.tensor([[6.0, -6.0]])).clipped == 0
    assert Grid(grid.exponent + 1).put(torch.tensor([[6.0]])).clipped == 1


def test_the_grid_of_a_lift_holds_what_is_lifted() -> None:
    features = torch.randn(200, 300, generator=torch.Generator().manual_seed(0))
    grid = Grid.of(float(features.abs().max()))
    lift = Lift.seeded(grid, 300, 1, 500)
    rows = grid.put(features).rows
    exact = lift.exact(rows)

    assert lift.lifted_grid.put(exact).clipped == 0
    error = (lift.lifted_grid.back(lift.rows(rows)) - exact).abs().max() / exact.std()
    assert float(error) < 0.003
