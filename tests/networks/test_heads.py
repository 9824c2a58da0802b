"""Heads: growth, initial values, one product for all blocks."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ancl import MethodError, ScenarioError
from tests.lab import (
    HEADS,
    CosineHead,
    DirectionHead,
    LinearHead,
    NoHead,
    PathHead,
    ProxyHead,
    UnbiasedHead,
    centres,
    seeded,
)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


def grown(*sizes: int, dtype: torch.dtype = torch.float32) -> LinearHead:
    head = LinearHead(4).to(dtype)
    with seeded(0, "head"):
        for classes in sizes:
            head.grow(classes)
    return head


def test_logits_are_the_blocks_side_by_side() -> None:
    head = LinearHead(2)
    head.grow(1)
    head.grow(2)
    values = [[[1.0, 2.0]], [[0.0, 1.0], [3.0, 0.0]]]
    biases = [[0.5], [0.0, -1.0]]
    with torch.no_grad():
        for index, (weight, bias) in enumerate(zip(values, biases, strict=True)):
            head.block(index)[0].copy_(torch.tensor(weight))
            head.block(index)[1].copy_(torch.tensor(bias))

    # 1*2 + 2*3 + 0.5, 0*2 + 1*3, 3*2 + 0*3 - 1
    assert head(torch.tensor([[2.0, 3.0]])).tolist() == [[8.5, 3.0, 5.0]]
    assert head.sizes == (1, 2)


def test_growing_keeps_earlier_logits_and_parameters() -> None:
    head, features = grown(3), torch.randn(5, 4)
    before, block = head(features), head.block(0)

    head.grow(2)

    assert torch.allclose(head(features)[:, :3], before, rtol=0, atol=1e-6)
    assert all(now is then for now, then in zip(head.block(0), block, strict=True))
    assert head(features).shape == (5, 5)


def test_a_block_is_initialised_as_a_linear_layer() -> None:
    with seeded(0, "head"):
        first, second = nn.Linear(4, 3), nn.Linear(4, 200)
    head = grown(3, 200)

    assert torch.equal(head.block(0)[0], first.weight)
    assert torch.equal(head.block(1)[0], second.weight)
    assert torch.equal(head.block(1)[1], second.bias)
    for values in head.block(1):  # U(-1/2, 1/2): its deviation is 1/sqrt(12)
        assert values.abs().max() <= 0.5
        assert values.std().item() == pytest.approx(1 / math.sqrt(12), rel=0.1)


def test_only_the_frozen_block_goes_without_gradient() -> None:
    head = grown(2, 2)
    for parameter in head.block(0):
        parameter.requires_grad_(False)

    head(torch.ones(1, 4)).sum().backward()

    assert [parameter.grad for parameter in head.block(0)] == [None, None]
    assert head.block(1)[0].grad.tolist() == [[1.0] * 4] * 2


def test_an_empty_head_grows_in_the_dtype_it_was_moved_to() -> None:
    head = grown(2, dtype=torch.float64)

    assert head.block(0)[0].dtype == torch.float64
    assert head(torch.ones(3, 4, dtype=torch.float64)).dtype == torch.float64
    assert sorted(head.state_dict()) == ["biases.0", "weights.0"]


def test_without_blocks_there_are_no_logits() -> None:
    assert LinearHead(4)(torch.ones(3, 4)).shape == (3, 0)


def test_a_task_without_classes_is_refused() -> None:
    head = LinearHead(4)
    with pytest.raises(ScenarioError, match="cannot grow by 0 classes"):
        head.grow(0)
    assert head.sizes == ()


def test_heads_are_found_by_name() -> None:
    names = {"linear": LinearHead, "unbiased": UnbiasedHead, "cosine": CosineHead}
    assert names | {"proxies": ProxyHead, "paths": PathHead, "none": NoHead} == HEADS


def test_no_head_has_no_parameters_and_a_column_for_each_class() -> None:
    head = NoHead(3)
    head.grow(2)
    head.grow(1)
    assert torch.equal(head(torch.ones(4, 3)), torch.zeros(4, 3))
    assert list(head.parameters()) == []


def test_without_biases_logits_are_rows_times_features() -> None:
    head = UnbiasedHead(2)
    assert head(torch.ones(3, 2)).shape == (3, 0)
    assert head.rows() is None
    head.grow(2)
    head.grow(1)
    with torch.no_grad():
        head.block(0)[0].copy_(torch.tensor([[3.0, 4.0], [0.0, 5.0]]))
        head.block(1)[0].copy_(torch.tensor([[6.0, 8.0]]))

    assert head(torch.ones(1, 2)).tolist() == [[7.0, 5.0, 14.0]]
    assert list(head.state_dict()) == ["weights.0", "weights.1"]
    assert head.rows().tolist() == [[3.0, 4.0], [0.0, 5.0], [6.0, 8.0]]


def test_rows_are_the_classes_weights_and_nothing_is_shared() -> None:
    head = grown(2, 3)

    assert torch.equal(head.rows(), torch.cat([head.block(0)[0], head.block(1)[0]]))
    assert head.shared() == []
    assert head.scale is None


def test_a_linear_head_cannot_be_imprinted() -> None:
    with pytest.raises(MethodError, match="'cosine' or 'proxies'"):
        grown(2, 2).imprint(1, torch.ones(2, 4), torch.tensor([2, 3]))


# -- directions -------------------------------------------------------------------------------


def of_rows(head: DirectionHead, *blocks: list[list[float]]) -> DirectionHead:
    """The head with blocks of the given rows."""
    for rows in blocks:
        head.grow(len(rows) // head.per_class)
        with torch.no_grad():
            head.block(-1)[0].copy_(torch.tensor(rows))
    return head


def test_cosines_times_the_scale() -> None:
    head = of_rows(CosineHead(2).double(), [[1.0, 0.0]], [[0.0, 2.0]])
    features, y = torch.tensor([[3.0, 4.0]]).double(), torch.tensor([0])

    assert head(features)[0].tolist() == pytest.approx([0.6, 0.8])
    assert F.cross_entropy(head(features), y).item() == pytest.approx(0.798139, abs=1e-6)
    with torch.no_grad():
        head.scale.fill_(10.0)
    assert head(features)[0].tolist() == pytest.approx([6.0, 8.0])
    assert F.cross_entropy(head(features), y).item() == pytest.approx(2.126928, abs=1e-6)
    assert head.rows().tolist() == [[1, 0], [0, 2]]


def test_cosine_rows_are_drawn_uniformly() -> None:
    head = CosineHead(16)
    head.grow(400)
    (rows,) = head.block(0)

    # U(−1/4, 1/4): its deviation is 1/(4 √3)
    assert rows.abs().max() <= 0.25
    assert rows.std().item() == pytest.approx(0.25 / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("kind", [CosineHead, ProxyHead])
def test_a_direction_head_grows_and_shares_its_scale(kind: type[DirectionHead]) -> None:
    head, features = kind(4).double(), torch.randn(3, 4).double()
    assert head(features).shape == (3, 0)
    head.grow(2)
    before = head(features)

    head.grow(3)

    torch.testing.assert_close(head(features)[:, :2], before)
    assert head(features).shape == (3, 5)
    assert head(5 * features).tolist() == [pytest.approx(row) for row in head(features).tolist()]
    assert [shared.item() for shared in head.shared()] == [1.0]
    assert head.block(1)[0].dtype == torch.float64
    assert sorted(head.state_dict()) == ["scale", "weights.0", "weights.1"]


def test_proxies_are_weighed_by_their_similarity() -> None:
    # cosines .5 and .1 to the feature (1, 0)
    rows = [[0.5, math.sqrt(0.75)], [0.2, 2 * math.sqrt(0.99)]]
    features = torch.tensor([[2.0, 0.0]]).double()
    head = of_rows(ProxyHead(2, proxies=2).double(), rows)

    # 2 cos − 2 = (−1, −1.8), weights (.689974, .310026)
    assert head(features).item() == pytest.approx(-1.248020, abs=1e-6)
    # weights (.598688, .401312) of the cosines themselves
    plain = of_rows(ProxyHead(2, proxies=2, similarity="cosine").double(), rows)
    assert plain(features).item() == pytest.approx(0.339475, abs=1e-6)
    with torch.no_grad():
        head.scale.fill_(3.0)
    assert head(features).item() == pytest.approx(-3 * 1.248020, abs=1e-5)
    # a large γ leaves the most similar proxy alone
    sharp = of_rows(ProxyHead(2, proxies=2, gamma=1e3).double(), rows)
    assert sharp(features).item() == pytest.approx(-1.0)


def test_proxies_are_drawn_with_the_deviation_of_a_linear_layer() -> None:
    head = ProxyHead(16)
    head.grow(100)

    assert head.block(0)[0].shape == (1000, 16)
    assert head.block(0)[0].std().item() == pytest.approx(0.25, rel=0.05)
    assert head.rows() is None


def test_imprinted_rows_point_to_the_mean_direction() -> None:
    # (3, 4) and (0, 5) at length 1: mean (.3, .9), direction (.316228, .948683); old length 2
    old = [[2.0, 0.0], [0.0, 1.0], [0.0, -3.0]]
    head = of_rows(CosineHead(2), old, [[1.0, 1.0], [1.0, 1.0]])
    features = torch.tensor([[3.0, 4.0], [-7.0, 0.0], [0.0, 5.0]])

    head.imprint(1, features, torch.tensor([3, 4, 3]))

    expected = [[0.632456, 1.897367], [-2.0, 0.0]]
    assert head.block(1)[0].tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    assert head.block(0)[0].tolist() == old
    assert head.block(1)[0].requires_grad


def test_imprinted_proxies_are_the_centres_of_clusters() -> None:
    head = of_rows(ProxyHead(2, proxies=2), [[0.0, 4.0], [2.0, 0.0]], [[9.0, 9.0]] * 4)
    right, up = [[1.0, 0.0], [1.0, 0.0], [0.96, 0.28]], [[0.0, 7.0]]
    features = torch.tensor([*right, *up, [-1.0, 0.0]])

    with seeded(0, "imprint"):
        head.imprint(1, features, torch.tensor([1, 1, 1, 1, 2]))

    first, second, third, fourth = head.block(1)[0].tolist()
    # means (2.96/3, .28/3) and (0, 1), times the old proxies' mean length 3
    assert sorted([first, second]) == [pytest.approx([0, 3.0]), pytest.approx([2.96, 0.28])]
    # one image alone gives one proxy; the other stays as it was drawn
    assert [third, fourth] == [[-3.0, 0.0], [9.0, 9.0]]


def test_centres_follow_the_seed_and_nothing_else() -> None:
    points = torch.randn(60, 5)
    found = []
    for _ in range(2):
        with seeded(3, "centres"):
            found.append(centres(points, 4))

    assert torch.equal(found[0], found[1])
    # every centre is the mean of the points that are nearest to it
    nearest = torch.cdist(points, found[0]).argmin(1)
    for index in range(4):
        torch.testing.assert_close(found[0][index], points[nearest == index].mean(0))


def test_equal_points_have_equal_centres() -> None:
    assert centres(torch.ones(3, 2), 3).tolist() == [[1.0, 1.0]] * 3


def test_a_class_without_images_cannot_be_imprinted() -> None:
    head = of_rows(CosineHead(2), [[2.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]])
    with pytest.raises(ScenarioError, match="Class 2 has no images"):
        head.imprint(1, torch.ones(1, 2), torch.tensor([1]))


def test_a_larger_scale_predicts_the_same_classes() -> None:
    head = CosineHead(4)
    head.grow(6)
    features = torch.randn(20, 4)
    before = head(features).argmax(1)
    with torch.no_grad():
        head.scale.fill_(17.0)

    assert torch.equal(head(features).argmax(1), before)
