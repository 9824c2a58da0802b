"""Statistics that follow a network: exact for a linear map, and nothing where nothing moved."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import ScenarioError, StoreError
from tests.lab import (
    Drift,
    Grid,
    Ledger,
    Lift,
    Statistics,
    drift_of,
    drift_text,
    fit_map,
    transported,
)

X = torch.tensor(
    [[0, 0], [2, 0], [0, 2], [2, 2], [4, 0], [6, 2], [0, 5], [1, 7], [2, 6]], dtype=torch.double
)
Y = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2])
M = torch.tensor([[1, 0.5], [-0.25, 2]], dtype=torch.double)


def known(x: Tensor, y: Tensor, grid: Any, keep: str = "ledger", **options: Any) -> Any:
    """Statistics of images, every seventh of which is held."""
    n = len(x)
    hashes = torch.arange(4 * n).reshape(n, 4)
    held = torch.arange(n) % 7 == 6 if n > 9 else torch.zeros(n, dtype=torch.bool)
    images = Ledger.of(hashes, torch.zeros(n, dtype=torch.long), y, held, grid.put(x).rows)
    return Statistics.none(grid, x.shape[1], keep, **options).add(images)


def test_the_toy_has_the_numbers_of_its_page() -> None:
    matrix = fit_map(X[4:6], X[4:6] @ M, ridge=0.1 / 28)  # γ = 0.1: the diagonal is (52, 4)

    wanted = [[0.995690, 0.514294], [-0.231289, 1.933774]]
    assert torch.allclose(matrix, torch.tensor(wanted).double(), atol=5e-7)


@pytest.mark.parametrize("keep", ["ledger", "sums"])
def test_a_linear_map_is_followed_exactly(keep: str) -> None:
    grid = Grid(3)  # X and X M lie on it
    moved, clipped = transported(known(X, Y, grid, keep), M)
    wanted = known(X @ M, Y, grid, keep)

    assert clipped == 0
    assert torch.equal(moved.sums.gram, wanted.sums.gram)
    assert torch.equal(moved.sums.totals, wanted.sums.totals)
    assert torch.equal(moved.ledger.rows, wanted.ledger.rows)
    assert moved.moves == 1


def test_nothing_moves_where_nothing_moved() -> None:
    torch.manual_seed(0)
    features, y = torch.randn(40, 12), torch.arange(40) % 3
    matrix = fit_map(features, features)
    before = known(features, y, Grid.of(4.0))
    after, clipped = transported(before, matrix)

    assert torch.allclose(matrix, torch.eye(12).double(), rtol=0, atol=1e-12)
    assert torch.equal(after.sums.gram, before.sums.gram)
    assert torch.equal(after.ledger.rows, before.ledger.rows)
    drift = drift_of(features, features, matrix)
    assert (drift.moved, drift.residual, clipped) == (pytest.approx(0, abs=1e-12), 0, 0)


def test_the_map_of_new_images_moves_old_ones_near_to_where_they_are() -> None:
    torch.manual_seed(1)
    change = torch.eye(8).double() + 0.3 * torch.randn(8, 8).double()
    old, new = torch.randn(200, 8).double(), torch.randn(60, 8).double()
    y, grid = torch.arange(200) % 4, Grid.of(8.0)
    matrix = fit_map(new, new @ change, ridge=1e-6)
    wanted = known(old @ change, y, grid)
    for keep in ("ledger", "sums"):
        moved, _ = transported(known(old, y, grid, keep), matrix)
        # Roundings to the grid are independent: their sum grows as the root of their number.
        error = (moved.sums.gram - wanted.sums.gram).norm() / wanted.sums.gram.norm()
        assert error < 1e-3, keep
    drift = drift_of(new, new @ change, matrix)
    assert drift.residual < 1e-4
    assert drift.moved == pytest.approx(float((change - torch.eye(8)).norm()) / 8**0.5, rel=1e-3)


def test_what_no_longer_fits_the_grid_is_counted() -> None:
    moved, clipped = transported(known(X, Y, Grid(12)), 4 * M)

    assert clipped > 0
    assert int(moved.ledger.rows.max()) == 2**15 - 1


def test_sums_of_lifted_features_cannot_follow() -> None:
    grid = Grid(6)
    lift = Lift.seeded(grid, 2, 3, 4)
    with pytest.raises(ScenarioError, match="cannot follow a network that moves"):
        transported(known(X, Y, grid, "sums", lift=lift), M)
    moved, _ = transported(known(X, Y, grid, lift=lift), M)
    assert torch.equal(moved.sums.gram, known(X @ M, Y, grid, lift=lift).sums.gram)


def test_a_move_is_stored_and_lets_nobody_merge() -> None:
    before = known(X, Y, Grid(3))
    assert "moves" not in before.tensors()
    moved, _ = transported(before, M)
    again = Statistics.read(moved.tensors())

    assert again.moves == 1
    with pytest.raises(ScenarioError, match="have moved cannot be merged"):
        before.merge(again, [0, 1, 2], [1])
    with pytest.raises(StoreError, match="damaged"):
        Statistics.read({**moved.tensors(), "moves": torch.tensor(-1)})
    assert replace(moved, moves=0).merge(replace(moved, moves=0), [0, 1, 2], [0]).moves == 0


def test_drifts_of_several_tasks_are_said_in_a_line() -> None:
    drifts = {1: Drift(0.25, 0.1), 2: Drift(0.0, 0.0), 3: Drift(0.5, 0.3, clipped=7)}
    assert drift_text(drifts) == (
        "The backbone moved in tasks 2, 4: 0.25, 0.5 (the map from old to new features, from "
        "none), and 10 to 30 % of the movement is unexplained; statistics of earlier images "
        "followed. Numbers of their features that were cut to the grid: 7 (task 4)."
    )
    many = {task: Drift(task / 10, 0.2, transported=False) for task in range(1, 10)}
    assert drift_text(many) == (
        "The backbone moved in tasks 2 to 10: 0.1 to 0.9 (the map from old to new features, from "
        "none), and 20 % of the movement is unexplained; statistics of earlier images stayed as "
        "they were."
    )
    assert drift_text({1: Drift(0.0, 0.0)}) == "The backbone has not moved since the first task."
    assert str(Drift(0.0, 0.0)) == "The backbone has not moved in this task."
