"""One extractor a task: what grows, what is frozen, what is counted."""

import copy

import pytest
import torch
from torch import Tensor, nn

from ancl import MethodError, SpecError, StoreError
from ancl.extend import Network, architecture, frozen
from tests.lab import (
    SIDE,
    USED,
    Architecture,
    CosineHead,
    Extractors,
    LinearHead,
    ProxyHead,
    UnbiasedHead,
    masked_convolutions,
    train_mode,
)


def growing(name: str = "resnet8", head: str = "unbiased", **growth: object) -> Architecture:
    options = {"width": 4} if name.startswith("resnet") else {}
    return architecture(name, (1, 8, 8), head=head, growth=Extractors(**growth), **options)


def built(net: Architecture, *sizes: int) -> Network:
    torch.manual_seed(0)
    network = net.build(sizes[:1])
    for classes in sizes[1:]:
        train_mode(network)
        network(torch.randn(8, 1, 8, 8))
        network.add_task(classes)
    return network


def test_a_new_extractor_is_a_copy_of_the_newest() -> None:
    network = built(growing(), 2, 2, 3)
    x = torch.randn(5, 1, 8, 8)

    features = network.eval()(x).features

    # Before the first step of a task: u = [..., f, f], running statistics included.
    assert features.shape == (5, 3 * 16)
    assert torch.equal(features[:, 16:32], features[:, 32:])
    assert not torch.equal(features[:, :16], features[:, 16:32])


def test_old_extractors_keep_weights_statistics_and_features() -> None:
    network = built(growing(), 2, 3)
    x, images = torch.randn(5, 1, 8, 8), torch.randn(16, 1, 8, 8)
    before = {n: t for n, t in network.tensors().items() if ".extractors.0." in n}
    features = network.eval()(x).features
    optimizer = torch.optim.SGD(network.parameters(), 0.1, momentum=0.9, weight_decay=0.1)

    for _ in range(3):
        train_mode(network)
        output = network(images)
        optimizer.zero_grad()
        (output.logits.square().mean() + output.side[SIDE].square().mean()).backward()
        optimizer.step()

    after = network.tensors()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert torch.equal(network.eval()(x).features[:, :16], features[:, :16])
    assert not torch.equal(network.eval()(x).features[:, 16:], features[:, 16:])


def test_the_side_head_reads_the_newest_extractor_alone() -> None:
    network = built(growing(), 2, 3).eval()
    output = network(torch.randn(5, 1, 8, 8))

    assert output.side[SIDE].shape == (5, 3 + 1)
    wanted = output.features[:, 16:] @ network.backbone.side.weight.T
    assert torch.allclose(output.side[SIDE], wanted)
    assert network.backbone.side.bias is None
    assert built(growing(), 2).eval()(torch.randn(5, 1, 8, 8)).side == {}
    assert built(growing(bias=True), 2, 3).backbone.side.bias is not None


@pytest.mark.parametrize(
    ("network", "shape", "options", "classes", "wanted"),
    [
        # 10 · 466,256 + 64 · 10 · 100
        ("resnet32", (3, 32, 32), {}, [10] * 10, 4_726_560),
        # 5 · 19,480 + 32 · 5 · 10
        ("resnet8", (1, 8, 8), {"width": 8}, [2] * 5, 99_000),
    ],
)
def test_stored_parameters(network, shape, options, classes, wanted) -> None:
    net = architecture(network, shape, head="unbiased", growth=Extractors(), **options)
    made, one = net.build(classes), architecture(network, shape, **options).build().stored()
    head, size = sum(classes) * made.head.feature_size, made.head.feature_size // len(classes)

    assert made.stored() == wanted == len(classes) * one + head
    # One extractor, the side head without bias, the whole classifier.
    learning = sum(p.numel() for p in made.parameters() if p.requires_grad)
    assert learning == one + size * (classes[-1] + 1) + head


def test_a_stored_network_is_made_again_and_checked() -> None:
    net = growing()
    network = built(net, 2, 3)
    x = torch.randn(4, 1, 8, 8)

    again = net.restore((2, 3), network.tensors())

    assert torch.equal(again.eval()(x).logits, network.eval()(x).logits)
    assert [p.requires_grad for p in again.parameters()] == [
        p.requires_grad for p in network.parameters()
    ]
    with pytest.raises(StoreError, match=r"unexpected: backbone\.extractors\.1\."):
        net.restore((2,), network.tensors())
    with pytest.raises(StoreError, match="of another shape"):
        net.restore((2, 4), network.tensors())


def test_a_frozen_copy_is_folded_and_has_no_side_head() -> None:
    network = built(growing(), 2, 3).eval()
    x = torch.randn(4, 1, 8, 8)

    twin = frozen(network)

    assert torch.allclose(twin(x).logits, network(x).logits, atol=1e-5)
    assert twin(x).side == {}
    assert not any(isinstance(part, nn.BatchNorm2d) for part in twin.modules())


def test_masks_come_with_the_second_extractor_and_are_counted_out() -> None:
    network = built(growing(mask_scale=10.0), 2, 3, 2)
    whole, x = network.stored(), torch.randn(4, 1, 8, 8)
    first, second, third = network.backbone.extractors
    with torch.no_grad():
        second.layer3[0].conv2.e[:5] = -1.0

    # Five inner channels: 9 · 8 weights to, 9 · 16 from, γ and β of each.
    assert network.stored() == whole - 5 * (9 * 8 + 9 * 16 + 2)
    assert [len(masked_convolutions(each)) for each in (first, second, third)] == [0, 3, 3]
    assert not any(p.requires_grad for p in second.parameters())
    assert third.layer1[0].conv2.e.requires_grad
    assert network.eval()(x).side[USED].tolist() == [1.0]
    assert torch.allclose(frozen(network)(x).logits, network(x).logits, atol=1e-5)

    network.backbone.at(0, 4, 5)
    assert third.layer1[0].conv2.scale == 10.0
    assert second.layer1[0].conv2.scale == 1.0


def test_a_new_extractor_begins_with_all_channels() -> None:
    network = built(growing(mask_scale=10.0), 2, 3)
    with torch.no_grad():
        network.backbone.extractors[-1].layer1[0].conv2.e.fill_(-1.0)
    weight = network.backbone.extractors[-1].layer1[0].conv2.weight

    network.add_task(2)

    conv = network.backbone.extractors[-1].layer1[0].conv2
    assert conv.e.tolist() == [1.0] * 4
    assert torch.equal(conv.weight, weight)


def test_what_cannot_grow_is_refused_before_training() -> None:
    with pytest.raises(SpecError, match="Mlp has none"):
        growing("mlp", mask_scale=10.0)
    with pytest.raises(MethodError, match="CosineHead cannot read more features"):
        growing(head="cosine")
    still = nn.Sequential(nn.Flatten(), nn.Linear(64, 4)).requires_grad_(False)
    with pytest.raises(SpecError, match="adds parts to the network that learn, and module"):
        architecture(still, (1, 8, 8), growth=Extractors())


def test_growth_is_part_of_a_networks_identity_only_where_there_is_one() -> None:
    plain = architecture("resnet8", (1, 8, 8), width=4)

    assert "growth" not in plain.identity()
    assert growing().identity()["growth"] == {
        "is": "Extractors",
        "reuse": False,
        "bias": False,
        "mask_scale": None,
    }


# -- heads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [LinearHead, UnbiasedHead])
def test_a_wider_head_gives_the_same_logits_whatever_the_new_features_are(kind) -> None:
    torch.manual_seed(0)
    head = kind(3)
    head.grow(2)
    old = torch.randn(4, 3)
    before = head(old)

    head.widen(2)
    head.grow(3)

    after = head(torch.cat([old, torch.randn(4, 2)], dim=1))
    assert after.shape == (4, 5)
    assert torch.allclose(after[:, :2], before)
    assert (head.feature_size, head.sizes) == (5, (2, 3))
    assert head.weights[1].abs().min() > 0


@pytest.mark.parametrize("kind", [LinearHead, UnbiasedHead, CosineHead, ProxyHead])
def test_a_reset_draws_every_block_anew(kind) -> None:
    torch.manual_seed(0)
    head = kind(3)
    head.grow(2)
    head.grow(3)
    before = [copy.deepcopy(list(head.block(index))) for index in range(2)]
    torch.manual_seed(5)
    fresh = kind(3)
    fresh.grow(2)
    fresh.grow(3)
    torch.manual_seed(5)

    head.reset()

    assert head.sizes == (2, 3)
    for index in range(2):
        for own, new, old in zip(head.block(index), fresh.block(index), before[index], strict=True):
            assert torch.equal(own, new)
            assert not torch.equal(own, old)


@pytest.mark.parametrize("reuse", [True, False])
def test_the_classifier_is_kept_or_drawn_anew(reuse) -> None:
    torch.manual_seed(0)
    network = growing(reuse=reuse).build((2,))
    before: Tensor = network.head.weights[0].detach().clone()

    network.add_task(2)

    kept = torch.equal(network.head.weights[0][:, :16], before)
    assert kept is reuse
    assert bool((network.head.weights[0][:, 16:] == 0).all()) is reuse
