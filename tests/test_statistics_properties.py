"""What holds for sums and their classifiers on any features: order, merging, turning, scaling."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.lab import (
    Grid,
    Lift,
    RidgePath,
    Sums,
    cosine_means,
    discriminant,
    knn_scores,
    logistic,
    moments_of_sums,
    nearest_mean,
    normal_equations,
    oas,
    ridge,
)

CLASSES, SIZE = 5, 12
GENERATOR = torch.Generator().manual_seed(7)
COUNTS = torch.tensor([40, 7, 25, 1, 30])
Y = torch.repeat_interleave(torch.arange(CLASSES), COUNTS)
CENTRES = 2 * torch.randn(CLASSES, SIZE, generator=GENERATOR)
WIDTHS = 0.2 + 2 * torch.rand(SIZE, generator=GENERATOR)
FEATURES = CENTRES[Y] + WIDTHS * torch.randn(len(Y), SIZE, generator=GENERATOR)
GRID = Grid.of(float(FEATURES.abs().max()))
ROWS = GRID.put(FEATURES).rows
QUERY = 3 * torch.randn(50, SIZE, generator=GENERATOR, dtype=torch.double)
SUMS = Sums.of(ROWS, Y, CLASSES)

Fit = Callable[[Any, Any], Any]
LINEAR: dict[str, Fit] = {
    "ncm": nearest_mean,
    "cosine": cosine_means,
    "slda": discriminant,
    "oas": lambda sums, grid: discriminant(sums, grid, "oas"),
    "ridge": lambda sums, grid: ridge(sums, grid, 10.0),
    "acil": lambda sums, grid: ridge(sums, grid, 10.0, balanced=False),
}
by_name = pytest.mark.parametrize("name", LINEAR)


def equal(a: Sums, b: Sums) -> bool:
    """Equal bits: 0 and -0 are not the same."""
    return all(
        torch.equal(x.view(torch.long), b.tensors()[name].view(torch.long))
        for name, x in a.tensors().items()
    )


def order(seed: int) -> Tensor:
    return torch.randperm(len(Y), generator=torch.Generator().manual_seed(seed))


def sums_of(index: Tensor) -> Sums:
    return Sums.of(ROWS[index], Y[index], CLASSES)


# Sums: equal bits


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_images_changes_no_bit(seed: int) -> None:
    assert equal(sums_of(order(seed)), SUMS)


@pytest.mark.parametrize("size", [1, 7, 64])
def test_the_size_of_batches_changes_no_bit(size: int) -> None:
    total = Sums.none(0, SIZE)
    for part in order(1).split(size):
        total = total + Sums.of(ROWS[part], Y[part], int(Y[part].max()) + 1)

    assert equal(total, SUMS)


def test_more_images_than_a_chunk_change_no_bit() -> None:
    rows, y = ROWS.repeat(30, 1), Y.repeat(30)
    assert len(y) > 3000

    assert equal(Sums.of(rows, y, CLASSES), _times(SUMS, 30))


def test_a_class_in_two_visits_is_the_class_at_once() -> None:
    first, again = torch.arange(len(Y))[::2], torch.arange(len(Y))[1::2]

    assert equal(sums_of(first) + sums_of(again), SUMS)
    assert equal(sums_of(again) + sums_of(first), SUMS)


def test_what_is_added_and_removed_leaves_no_bit() -> None:
    more = Sums.of(ROWS[:30] // 3, Y[:30], CLASSES)

    assert equal((SUMS + more) - more, SUMS)
    gone = order(2)[:40]
    left = order(2)[40:]
    assert equal(SUMS - sums_of(gone), sums_of(left))


def test_two_sites_with_other_orders_of_classes_merge_into_one() -> None:
    # The other site has some images of classes 4, 2 and 3, which are its 0, 1 and 2.
    images = torch.arange(len(Y))
    away = (Y >= 2) & (images % 2 == 0)
    number = torch.tensor([-1, -1, 1, 2, 0])
    other = Sums.of(ROWS[away], number[Y[away]], 3)

    merged = sums_of(images[~away]) + other.padded(CLASSES).take(torch.tensor([3, 4, 1, 2, 0]))

    assert equal(merged, SUMS)


@by_name
def test_equal_sums_answer_with_equal_bits(name: str) -> None:
    fit = LINEAR[name]
    halves = sums_of(order(3)[:50]) + sums_of(order(3)[50:])

    assert torch.equal(fit(halves, GRID).scores(QUERY), fit(SUMS, GRID).scores(QUERY))


def test_the_sums_are_those_of_a_loop() -> None:
    gram = [[0] * SIZE for _ in range(SIZE)]
    totals = [[0] * SIZE for _ in range(CLASSES)]
    for row, label in zip(ROWS.tolist(), Y.tolist(), strict=True):
        for i, a in enumerate(row):
            totals[label][i] += a
            for j, b in enumerate(row):
                gram[i][j] += a * b

    assert (SUMS.gram.long().tolist(), SUMS.totals.long().tolist()) == (gram, totals)


# Classifiers


@by_name
def test_the_order_of_classes_permutes_the_scores(name: str) -> None:
    turn = torch.tensor([3, 0, 4, 1, 2])

    scores = LINEAR[name](SUMS.take(turn), GRID).scores(QUERY)

    assert torch.allclose(scores, LINEAR[name](SUMS, GRID).scores(QUERY)[:, turn], atol=1e-9)


@by_name
def test_a_finer_grid_moves_no_score(name: str) -> None:
    """Features that stand on both grids: only the unit of the sums is another."""
    coarse, fine = Grid(4), Grid(6)
    features = coarse.back(coarse.put(FEATURES).rows)

    scores = [
        LINEAR[name](Sums.of(grid.put(features).rows, Y, CLASSES), grid).scores(QUERY)
        for grid in (coarse, fine)
    ]

    assert torch.allclose(*scores, rtol=1e-11)


def test_the_discriminant_is_that_of_a_slow_version() -> None:
    features = GRID.back(ROWS).double()
    means = torch.stack([features[c == Y].mean(dim=0) for c in range(CLASSES)])
    covariance = torch.zeros(SIZE, SIZE).double()
    for f, label in zip(features, Y.tolist(), strict=True):
        covariance += torch.outer(f - means[label], f - means[label]) / len(Y)
    target = covariance.trace() / SIZE * torch.eye(SIZE).double()
    inverse = torch.linalg.inv(0.9 * covariance + 0.1 * target)

    slow = [[float(f @ inverse @ m - m @ inverse @ m / 2) for m in means] for f in QUERY]

    fast = discriminant(SUMS, GRID).scores(QUERY)
    assert torch.allclose(fast, torch.tensor(slow).double(), rtol=1e-4)
    assert float((fast - torch.tensor(slow, dtype=torch.double)).abs().max()) < 1e-9


def test_plain_ridge_is_that_of_all_images() -> None:
    features = GRID.back(ROWS).double()
    wanted = torch.nn.functional.one_hot(Y).double()
    padded = torch.cat([features, math.sqrt(10.0) * torch.eye(SIZE).double()])
    targets = torch.cat([wanted, torch.zeros(SIZE, CLASSES).double()])

    weight = torch.linalg.lstsq(padded, targets).solution

    ours = ridge(SUMS, GRID, 10.0, balanced=False).weight.T
    assert torch.allclose(ours, weight, atol=1e-12)


def test_equal_classes_are_balanced_already() -> None:
    index = torch.cat([torch.arange(len(Y))[c == Y][:7] for c in (0, 1, 2, 4)])
    sums = sums_of(index)

    plain, balanced = (ridge(sums, GRID, 10.0, balanced=by) for by in (False, True))

    assert torch.allclose(plain.weight, balanced.weight, atol=1e-12)
    assert torch.equal(plain.bias, balanced.bias)


def test_balanced_ridge_puts_images_of_equal_number_in_place_of_each_class() -> None:
    """Weights N / (C n_c) on the means, and 1 on what surrounds them, image by image."""
    features = GRID.back(ROWS).double()
    gram = torch.zeros(SIZE, SIZE).double()
    targets = torch.zeros(SIZE, CLASSES).double()
    for label in range(CLASSES):
        own = features[label == Y]
        mean = own.mean(dim=0)
        for f in own:
            gram += torch.outer(f - mean, f - mean)
            share = len(Y) / (CLASSES * len(own))
            gram += share * torch.outer(mean, mean)
            targets[:, label] += share * mean

    ours = normal_equations(SUMS, GRID)

    assert torch.allclose(ours[0], gram, rtol=1e-10)
    assert torch.allclose(ours[1], targets, rtol=1e-10)


def _rotated() -> tuple[Tensor, Sums]:
    """Swaps and changes of sign: a rotation that stays on the grid."""
    turn = torch.randperm(SIZE, generator=torch.Generator().manual_seed(4))
    sign = torch.tensor([1, -1] * (SIZE // 2))
    matrix = torch.eye(SIZE).double()[turn] * sign
    return matrix, Sums.of((ROWS.double() @ matrix).to(torch.int16), Y, CLASSES)


@by_name
def test_a_rotation_of_the_features_moves_no_score(name: str) -> None:
    matrix, turned = _rotated()

    scores = LINEAR[name](turned, GRID).scores(QUERY @ matrix)

    assert torch.allclose(scores, LINEAR[name](SUMS, GRID).scores(QUERY), atol=1e-9)


@by_name
def test_any_rotation_moves_the_equations_alone(name: str) -> None:
    """A real rotation, of the sums themselves: they are then no whole numbers."""
    matrix = torch.linalg.qr(torch.randn(SIZE, SIZE, generator=GENERATOR).double()).Q
    turned = Sums(SUMS.images, SUMS.totals @ matrix, matrix.T @ SUMS.gram @ matrix)

    scores = LINEAR[name](turned, GRID).scores(QUERY @ matrix)

    assert torch.allclose(scores, LINEAR[name](SUMS, GRID).scores(QUERY), atol=1e-8)


def test_a_rotation_moves_the_lifted_classifier() -> None:
    matrix, _ = _rotated()
    lift = Lift.draw(GRID, SIZE, torch.Generator().manual_seed(1))
    turned = (ROWS.double() @ matrix).to(torch.int16)
    grid = Grid.of(lift.largest(ROWS))

    def scores(rows: Tensor, query: Tensor) -> Tensor:
        sums = Sums.of(rows, Y, CLASSES, lambda part: grid.put(lift.exact(part)).rows)
        return ridge(sums, grid, 10.0).scores(lift.answer(query))

    assert not torch.allclose(scores(ROWS, QUERY), scores(turned, QUERY @ matrix), atol=0.01)


@by_name
def test_features_eight_times_as_large(name: str) -> None:
    """The same whole numbers on a coarser grid: ridge needs 8² times the penalty."""
    larger = Grid(GRID.exponent - 3)
    fit = LINEAR[name]
    if name in ("ridge", "acil"):
        scores = ridge(SUMS, larger, 640.0, balanced=name == "ridge").scores(8 * QUERY)
    else:
        scores = fit(SUMS, larger).scores(8 * QUERY)

    wanted = fit(SUMS, GRID).scores(QUERY) * (64 if name == "ncm" else 1)
    assert torch.allclose(scores, wanted, atol=1e-9)


@by_name
def test_every_image_twice(name: str) -> None:
    twice = SUMS + SUMS
    fits: dict[str, Fit] = LINEAR | {
        "ridge": lambda sums, grid: ridge(sums, grid, 20.0),
        "acil": lambda sums, grid: ridge(sums, grid, 20.0, balanced=False),
        # The estimator counts images: more of them need less shrinkage.
        "oas": lambda sums, grid: discriminant(sums, grid, 0.3),
    }
    once = discriminant(SUMS, GRID, 0.3) if name == "oas" else LINEAR[name](SUMS, GRID)

    scores = fits[name](twice, GRID).scores(QUERY)

    assert torch.allclose(scores, once.scores(QUERY), atol=1e-10)


def test_oas_shrinks_less_with_more_images_of_the_same_covariance() -> None:
    covariance = moments_of_sums(SUMS, GRID).scatter / len(Y)
    once, twice = oas(covariance, len(Y)), oas(covariance, 2 * len(Y))

    # (N + 1) is all that changes
    assert twice == pytest.approx(once * (len(Y) + 1) / (2 * len(Y) + 1))
    wanted = discriminant(SUMS, GRID, twice).scores(QUERY)
    assert torch.allclose(LINEAR["oas"](SUMS + SUMS, GRID).scores(QUERY), wanted, rtol=1e-9)


@pytest.mark.parametrize("balanced", [True, False])
def test_an_endless_penalty_answers_with_the_product_with_the_targets(balanced: bool) -> None:
    targets = normal_equations(SUMS, GRID, balanced)[1]

    scores = ridge(SUMS, GRID, 1e12, balanced).scores(QUERY)

    assert torch.allclose(1e12 * scores, QUERY @ targets, rtol=1e-6)
    assert torch.equal(scores.argmax(dim=1), (QUERY @ targets).argmax(dim=1))


# Many penalties


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("images", [len(Y), 9])
def test_many_penalties_are_those_one_by_one(balanced: bool, images: int) -> None:
    """9 images of 12 features: dual and primal, with more and with fewer images than features."""
    index = order(5)[:images]
    sums, penalties = sums_of(index), [0.1, 1.0, 100.0, 1e6]
    features = GRID.back(ROWS[index])
    paths = [
        RidgePath.of_sums(sums, GRID, balanced),
        RidgePath.of_rows(features, Y[index], CLASSES, balanced),
    ]

    for path in paths:
        many = path.scores(QUERY, penalties)
        for penalty, scores in zip(penalties, many, strict=True):
            linear = ridge(sums, GRID, penalty, balanced)
            assert torch.allclose(scores, linear.scores(QUERY), atol=1e-11)
            assert torch.allclose(path.linear(penalty).weight, linear.weight, atol=1e-11)
    assert len(paths[1].values) <= images


def test_the_dual_of_lifted_features_is_the_primal() -> None:
    lift = Lift.draw(GRID, SIZE, torch.Generator().manual_seed(1), width=150)
    grid = Grid.of(lift.largest(ROWS))
    lifted = grid.put(lift.exact(ROWS)).rows
    sums = Sums.of(ROWS, Y, CLASSES, lambda part: grid.put(lift.exact(part)).rows)
    asked = lift.answer(QUERY)

    primal = ridge(sums, grid, 10.0, balanced=False).scores(asked)

    dual = RidgePath.of_rows(grid.back(lifted), Y, CLASSES, balanced=False)
    assert torch.allclose(dual.scores(asked, [10.0])[0], primal, atol=1e-9)
    assert lifted.shape == (len(Y), 150)


# The lift


def test_lifted_sums_are_exact_in_every_batch() -> None:
    lift = Lift.draw(GRID, SIZE, torch.Generator().manual_seed(1))
    grid = Grid.of(lift.largest(ROWS))

    def lifted(index: Tensor) -> Sums:
        return Sums.of(ROWS[index], Y[index], CLASSES, lambda p: grid.put(lift.exact(p)).rows)

    whole = lifted(torch.arange(len(Y)))
    total = Sums.none(CLASSES, 4 * SIZE)
    for part in order(6).split(5):
        total = total + lifted(part)
    assert equal(total, whole)
    assert equal(whole - lifted(order(6)[:20]), lifted(order(6)[20:]))


def test_what_is_asked_is_lifted_as_what_was_learned() -> None:
    lift = Lift.draw(GRID, SIZE, torch.Generator().manual_seed(1))

    exact = lift.exact(ROWS)

    assert torch.allclose(lift.answer(GRID.back(ROWS).double()), exact, atol=1e-10)
    assert torch.allclose(lift.answer(GRID.back(ROWS)).double(), exact, atol=1e-4)
    assert exact.min() == 0


# Kept features


@pytest.mark.parametrize("balanced", [True, False])
@pytest.mark.parametrize("images", [len(Y), 9])
def test_logistic_regression_is_a_minimum(balanced: bool, images: int) -> None:
    index = order(8)[:images]
    features, y = GRID.back(ROWS[index]).double(), Y[index]
    linear = logistic(features, y, CLASSES, 2.0, balanced)
    present = linear.bias.isfinite()
    number = torch.bincount(y, minlength=CLASSES)
    weights = images / (present.sum() * number.double()) if balanced else torch.ones(CLASSES)
    weight, bias = linear.weight[present].requires_grad_(), linear.bias[present].requires_grad_()
    full = torch.full((images, CLASSES), -math.inf).double()
    full[:, present] = features @ weight.T + bias

    each = torch.nn.functional.cross_entropy(full, y, reduction="none") * weights[y]
    (each.sum() + weight.square().sum()).backward()

    assert weight.grad is not None
    assert bias.grad is not None
    # In the features less their mean, in which the slope is measured.
    slope = weight.grad - torch.outer(bias.grad, features.mean(dim=0))
    assert float(slope.abs().max()) <= 1e-5 * images
    assert float(bias.grad.abs().max()) <= 1e-5 * images


def test_logistic_regression_is_the_same_every_time_and_in_every_order() -> None:
    features = GRID.back(ROWS)
    one, two = (logistic(features, Y, CLASSES, 1.0) for _ in range(2))
    mixed = logistic(features[order(9)], Y[order(9)], CLASSES, 1.0)

    assert torch.equal(one.weight, two.weight)
    assert torch.allclose(one.weight, mixed.weight, atol=1e-3)
    assert torch.equal(one.scores(QUERY).argmax(dim=1), mixed.scores(QUERY).argmax(dim=1))


def test_neighbours_are_those_of_a_loop() -> None:
    features = GRID.back(ROWS).double()
    slow = torch.full((len(QUERY), CLASSES), 0.0).double()
    for i, query in enumerate(QUERY):
        cosines = [float(query @ f / (query.norm() * f.norm())) for f in features]
        nearest = sorted(range(len(Y)), key=lambda j: -cosines[j])[:6]
        votes = [math.exp(cosines[j] / 0.1) for j in nearest]
        for j, vote in zip(nearest, votes, strict=True):
            slow[i, Y[j]] += vote / sum(votes)

    scores = knn_scores(QUERY, features, Y, CLASSES, k=6, temperature=0.1)

    assert torch.allclose(scores, (slow + 1 / 6).log(), atol=1e-9)


def _times(sums: Sums, number: int) -> Sums:
    return Sums(number * sums.images, number * sums.totals, number * sums.gram)
