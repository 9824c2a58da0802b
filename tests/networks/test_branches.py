"""Two joined branches: what they are at the start, what α does, what learns, and what it costs."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl import SpecError
from ancl.extend import Network, architecture, frozen
from tests.lab import Architecture, Branches, Scaled, TwoBranches, seeded, train_mode


def net(depth: int = 8, width: int = 4, **options: object) -> Architecture:
    growth = TwoBranches(**options)
    return architecture(f"resnet{depth}", (3, 12, 12), width=width, growth=growth)


def disturb(module: nn.Module) -> None:
    """Random statistics, batch norms and factors, so that nothing is 0 or 1 by chance."""
    for name, value in module.state_dict().items():
        if name.endswith(("running_mean", "bias", "bn1.weight", "bn2.weight", "scale")):
            nn.init.normal_(value, mean=1.0, std=0.3)
        if name.endswith("running_var"):
            nn.init.uniform_(value, 0.5, 2.0)


def grown(apart: bool = True, **options: object) -> Network:
    """A network of two tasks; ``apart`` moves its branches away from each other."""
    with seeded(0, "branches"):
        network = net(**options).build((2, 3))
        if apart:
            disturb(network.backbone)
    return network


def images(count: int = 5) -> Tensor:
    with seeded(1, "images"):
        return torch.randn(count, 3, 12, 12)


def set_alpha(network: Network, *values: float) -> None:
    assert isinstance(network.backbone, Branches)
    assert network.backbone.alpha is not None
    network.backbone.alpha.copy_(torch.tensor(values))


@pytest.mark.parametrize(("alpha", "branch"), [(1.0, "stable"), (0.0, "plastic")])
def test_with_alpha_1_or_0_one_branch_decides_alone(alpha: float, branch: str) -> None:
    network = grown().eval()
    set_alpha(network, alpha, alpha, alpha)
    alone = getattr(network.backbone, branch)

    features, maps = alone.with_maps(images())
    joined = network(images(), True)

    assert torch.allclose(joined.features, features, atol=1e-6)
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(joined.maps, maps, strict=True))
    assert torch.allclose(network(images()).logits, network.head(features), atol=1e-5)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("training", [False, True])
def test_the_second_task_begins_with_the_network_of_the_first(alpha: float, training: bool) -> None:
    with seeded(0, "branches"):
        network = net(alpha=alpha).build((2,))
        disturb(network.backbone)
    before = copy.deepcopy(network).train(training)(images(), True)

    network.add_task(3)
    after = network.train(training)(images(), True)

    assert torch.equal(after.features, before.features)
    # A head of another size may sum in another order.
    assert torch.allclose(after.logits[:, :2], before.logits, atol=1e-6)
    assert all(torch.equal(a, b) for a, b in zip(after.maps, before.maps, strict=True))


def test_levels_are_joined_by_their_own_alpha_and_its_gradient_is_the_gap() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.value = nn.Parameter(torch.zeros(()))

        def levels(self):
            return (lambda x: (x * 0 + self.value, x),)

    joined = Branches(Constant(), "free", "free", 0.5)
    joined.add_task(1)
    joined.add_task(1)
    with torch.no_grad():
        joined.stable.value.fill_(3.0)
        joined.plastic.value.fill_(1.0)
    assert joined.alpha is not None
    joined.alpha.requires_grad_(True)

    out = joined(torch.zeros(1, 1))
    out.sum().backward()

    # 0.5 · 3 + 0.5 · 1 = 2, and d/dα (3α + 1 (1 − α)) = 3 − 1
    assert out.item() == 2.0
    assert joined.alpha.grad is not None
    assert joined.alpha.grad.tolist() == [2.0]


def test_every_level_reads_the_joined_map() -> None:
    network = grown().eval()
    set_alpha(network, 0.3, 0.6, 0.8)
    first, second = network.backbone.branches

    x = images()
    for alpha, *levels in zip((0.3, 0.6, 0.8), first.levels(), second.levels(), strict=True):
        a, b = (level(x)[0] for level in levels)
        x = alpha * a + (1 - alpha) * b

    assert torch.allclose(network(images()).features, x, atol=1e-5)


def test_factors_of_1_change_no_bit_and_have_the_gradient_of_their_kernel() -> None:
    with seeded(0, "conv"):
        conv, x = nn.Conv2d(3, 4, 3, padding=1, bias=False), torch.randn(2, 3, 5, 5)
    plain, scaled = conv(x), Scaled(copy.deepcopy(conv))

    out = scaled(x)
    (out * torch.arange(out.numel()).view_as(out)).sum().backward()
    kernel = conv.weight.detach().clone().requires_grad_(True)
    again = F.conv2d(x, kernel, padding=1)
    (again * torch.arange(out.numel()).view_as(out)).sum().backward()

    assert torch.equal(out, plain)
    assert kernel.grad is not None
    # dL/dμ_oi = Σ_xy W_oixy dL/d(Wμ)_oixy
    for o in range(4):
        for i in range(3):
            wanted = (conv.weight[o, i] * kernel.grad[o, i]).sum()
            assert scaled.scale.grad is not None
            assert scaled.scale.grad[o, i, 0, 0].item() == pytest.approx(wanted.item(), rel=1e-4)
    assert scaled.conv.weight.grad is None


@pytest.mark.parametrize(
    ("depth", "width", "channels", "factors", "branch"),
    [
        (32, 16, 3, 53_808, 466_256),
        (8, 16, 3, 10_800, 77_392),
        (8, 8, 3, 2_712, 19_624),
        (8, 16, 1, 10_768, 77_104),
        (8, 8, 1, 2_696, 19_480),
    ],
)
def test_the_second_branch_costs_a_network_and_a_factor_for_every_kernel(
    depth: int, width: int, channels: int, factors: int, branch: int
) -> None:
    made = architecture(f"resnet{depth}", (channels, 8, 8), width=width, growth=TwoBranches())
    one, two, three = (made.build((2,) * tasks) for tasks in (1, 2, 3))

    scales = [m.scale.numel() for m in two.modules() if isinstance(m, Scaled)]
    heads = [sum(p.numel() for p in each.head.parameters()) for each in (one, two, three)]

    assert sum(scales) == factors
    assert one.stored() - heads[0] == branch
    assert two.stored() - heads[1] == 2 * branch + factors + 3
    assert three.stored() - heads[2] == two.stored() - heads[1]


def test_what_learns_in_each_kind_of_branch() -> None:
    kinds = {}
    for kind in ("scaled", "frozen", "free"):
        network = grown(stable=kind)
        names = {n for n, p in network.backbone.named_parameters() if p.requires_grad}
        kinds[kind] = {name for name in names if name.startswith("stable.")}
        assert "alpha" not in names
        assert {name for name in names if name.startswith("plastic.")} == {
            f"plastic.{name}" for name, _ in network.backbone.plastic.named_parameters()
        }

    assert kinds["frozen"] == set()
    assert all(
        name.endswith("scale") or "bn" in name for name in kinds["scaled"] if "down" not in name
    )
    assert "stable.layer2.0.downsample.0.scale" in kinds["scaled"]
    assert "stable.layer2.0.downsample.1.weight" in kinds["scaled"]
    assert "stable.conv1.weight" in kinds["free"]


def test_a_frozen_branch_keeps_its_statistics_and_a_scaled_one_does_not() -> None:
    for kind, moves in (("frozen", False), ("scaled", True)):
        network = grown(stable=kind)
        before = network.tensors()
        train_mode(network)
        network(images())
        moved = [n for n, t in network.tensors().items() if not torch.equal(t, before[n])]

        assert any(name.startswith("backbone.stable.") for name in moved) is moves
        assert any(name.startswith("backbone.plastic.") for name in moved)


@pytest.mark.parametrize("kind", ["scaled", "frozen", "free"])
def test_a_frozen_copy_has_folded_factors_and_batch_norms(kind: str) -> None:
    network = grown(stable=kind).eval()
    set_alpha(network, 0.3, 0.6, 0.8)

    twin = frozen(network)

    assert not any(isinstance(m, Scaled | nn.BatchNorm2d) for m in twin.modules())
    assert torch.allclose(twin(images()).logits, network(images()).logits, atol=1e-4)
    assert not any(p.requires_grad for p in twin.parameters())
    assert any(isinstance(m, nn.BatchNorm2d) for m in network.modules())


def test_a_network_is_made_again_from_its_tensors() -> None:
    network = grown().eval()
    again = net().restore((2, 3), network.tensors()).eval()

    assert torch.equal(again(images()).logits, network(images()).logits)
    layers = network.last_layers()
    assert layers[0] == "stable.layer3.0.conv1"
    assert layers[-1] == "plastic.layer3.0.conv2"


def test_a_network_without_levels_is_refused() -> None:
    with pytest.raises(SpecError, match=r"Mlp has none. Use a resnet"):
        architecture("mlp", (1, 6, 6), growth=TwoBranches())
