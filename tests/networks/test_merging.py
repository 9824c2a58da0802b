"""Two networks made one: weights between them, and batch norms that fit."""

import pytest
import torch
from torch import Tensor, nn

from ancl.extend import Network, architecture
from tests.lab import (
    LinearHead,
    between,
    estimate_statistics,
    importance_shares,
    merge,
    pooled_statistics,
    write_statistics,
)


def network(seed: int) -> Network:
    torch.manual_seed(seed)
    made = architecture("resnet8", (1, 8, 8), width=4).build((2, 3))
    made.train()
    made(torch.randn(16, 1, 8, 8))
    return made


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1 / 3, 0.9, 1.0])
def test_ends_and_equal_networks_are_exact(share) -> None:
    old, auxiliary, again = network(0), network(1), network(0)
    expected = {0.0: network(0), 1.0: network(1)}

    merge(old, auxiliary, share)
    merge(again, network(0), share)

    assert same(again.tensors(), network(0).tensors())
    if share in expected:
        assert same(old.tensors(), expected[share].tensors())
    else:
        assert not same(old.tensors(), network(0).tensors())


def test_the_two_common_formulas_are_not_exact_in_all_three_cases() -> None:
    """Why ``torch.lerp``: both ways to write it fail in one case."""
    torch.manual_seed(0)
    a, b = torch.randn(1000), torch.randn(1000)

    assert not torch.equal((1 - 0.3) * a + 0.3 * a, a)
    assert not torch.equal(a + 1.0 * (b - a), b)
    assert torch.equal(between(a, a, 0.3), a)
    assert torch.equal(between(a, b, 1.0), b)


def test_the_rule_by_task_is_the_mean_of_all_points() -> None:
    point, found = torch.tensor(1.0), []
    for task, auxiliary in enumerate((4.0, 7.0, 10.0), start=1):
        point = between(point, torch.tensor(auxiliary), 1 / (task + 1))
        found.append(point.item())

    # (1 + 4)/2, (2·2.5 + 7)/3, (3·4 + 10)/4
    assert found == pytest.approx([2.5, 4.0, 5.5])
    assert between(torch.tensor(1.0), torch.tensor(3.0), 1 / 2).item() == 2.0
    assert between(torch.tensor(1.0), torch.tensor(4.0), 1 / 3).item() == pytest.approx(2.0)


def test_steps_that_begin_at_the_merged_point_shrink_with_the_tasks() -> None:
    steps, point = [0.7, -1.3, 2.1, 0.4], torch.tensor(0.5)
    for task, step in enumerate(steps, start=1):
        point = between(point, point + step, 1 / (task + 1))

    # θ = θ_0 + Σ Δ_k/(k + 1)
    expected = 0.5 + sum(step / (task + 1) for task, step in enumerate(steps, start=1))
    assert point.item() == pytest.approx(expected, abs=1e-6)


def test_the_rule_is_the_optimum_of_equal_curvatures() -> None:
    h, old, new, task = 2.0, 1.5, -0.5, 4
    found = between(torch.tensor(old), torch.tensor(new), 1 / (task + 1)).item()

    # ½ t h (θ − o)² + ½ h (θ − x)² has no slope there.
    assert task * h * (found - old) + h * (found - new) == pytest.approx(0, abs=1e-6)


def test_counts_are_copied_and_not_averaged() -> None:
    old, auxiliary = network(0), network(1)
    auxiliary(torch.randn(16, 1, 8, 8))

    merge(old, auxiliary, 0.4)

    counts = [v for n, v in old.state_dict().items() if n.endswith("num_batches_tracked")]
    assert {int(count) for count in counts} == {1}
    assert all(count.dtype == torch.long for count in counts)
    assert int(between(torch.tensor(1), torch.tensor(2), 0.5)) == 2


def test_shares_by_importance_are_those_of_both_pulls() -> None:
    old, other = torch.tensor([1.0, 0.0, 3.0, 0.0]), torch.tensor([1.0, 2.0, 0.0, 0.0])

    shares = importance_shares({"w": old}, {"w": other}, 2.0, 1.0)

    # 1/(2 + 1), all, none, and the old network's where nothing is known
    assert shares["w"].tolist() == pytest.approx([1 / 3, 1.0, 0.0, 0.0])


def test_shares_of_single_weights_go_before_the_common_one() -> None:
    old, auxiliary = network(0), network(1)
    name = "conv1.weight"
    wanted = torch.zeros_like(old.weights()[name])
    wanted[0] = 1.0
    before, after = old.tensors(), auxiliary.tensors()

    merge(old, auxiliary, 0.5, {name: wanted})

    found = old.tensors()[f"backbone.{name}"]
    assert torch.equal(found[0], after[f"backbone.{name}"][0])
    assert torch.equal(found[1:], before[f"backbone.{name}"][1:])


# -- batch norms -------------------------------------------------------------------------------


class Scaled(nn.Module):
    """w x, normalised."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))
        self.norm = nn.BatchNorm1d(1)
        assert self.norm.running_var is not None
        self.norm.running_var.fill_(weight**2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(self.weight * x)
        return found


def scaled(weight: float) -> Network:
    return Network(Scaled(weight), LinearHead(1))


def test_averaged_statistics_are_not_those_of_averaged_weights() -> None:
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40_000, 1, generator=draw)
    x = (x - x.mean()) / x.std(unbiased=False)
    merged = scaled(1.0)
    merge(merged, scaled(3.0), 0.5)
    norm = merged.backbone.norm

    # x ~ N(0, 1), w = 1 and 3: variances 1 and 9, whose mean is 5; but w = 2 has 4.
    assert (merged.backbone.weight.item(), norm.running_var.item()) == (2.0, 5.0)
    estimate_statistics(merged, x.split(10_000))
    assert norm.running_var.item() == pytest.approx(4.0, abs=0.01)
    assert (norm.momentum, norm.training) == (0.1, False)


def test_pooled_statistics_are_those_of_mixed_inputs() -> None:
    one, other = scaled(1.0), scaled(3.0)
    one.backbone.norm.running_mean.fill_(2.0)
    other.backbone.norm.running_mean.fill_(-1.0)

    found = pooled_statistics(one, other, 0.25)
    write_statistics(one, found)

    # mean .75·2 − .25·1 = 1.25; E[z²] = .75 (1 + 4) + .25 (9 + 1) = 6.25; 6.25 − 1.5625
    assert one.backbone.norm.running_mean.item() == pytest.approx(1.25)
    assert one.backbone.norm.running_var.item() == pytest.approx(4.6875)


def test_a_network_without_batch_norm_has_nothing_to_estimate() -> None:
    made = architecture("mlp", (1, 2, 2), hidden=(3,)).build((2,))
    before = made.tensors()

    estimate_statistics(made, [torch.ones(4, 1, 2, 2)])

    assert same(made.tensors(), before)
