from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import SpecError
from ancl.extend import Network, architecture
from tests.lab import Batches, Samples, cka, gram, layer_grams, layer_names


def features(n: int, width: int, seed: int = 0) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(n, width, generator=draw, dtype=torch.float64)


def related(n: int, width: int) -> tuple[Tensor, Tensor]:
    """Two representations that share a part."""
    x = features(n, width)
    return x, 0.5 * x @ features(width, width, 1) + features(n, width, 2)


def slow_hsic(k: Tensor, m: Tensor, *, unbiased: bool) -> float:
    """The definitions, element by element."""
    n = len(k)
    if not unbiased:
        centre = torch.eye(n, dtype=torch.float64) - 1 / n
        return float(torch.trace(centre @ k @ centre @ centre @ m @ centre))
    k, m = k.clone().fill_diagonal_(0), m.clone().fill_diagonal_(0)
    one = torch.ones(n, dtype=torch.float64)
    value = torch.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return float((value - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3)))


@pytest.mark.parametrize("unbiased", [False, True])
def test_it_is_the_definition_on_uncentred_gram_matrices(unbiased: bool) -> None:
    x, y = related(30, 8)
    x = x + 3.0
    k, m = x @ x.T, y @ y.T

    expected = (
        slow_hsic(k, m, unbiased=unbiased)
        / (slow_hsic(k, k, unbiased=unbiased) * slow_hsic(m, m, unbiased=unbiased)) ** 0.5
    )

    assert 0.05 < expected < 0.95
    assert cka([gram(x)], [gram(y)], unbiased=unbiased) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("unbiased", [False, True])
def test_a_rotation_or_a_scale_changes_nothing(unbiased: bool) -> None:
    x = features(40, 12)
    rotation, _ = torch.linalg.qr(features(12, 12, 5))
    own = [gram(x)]

    assert cka(own, own, unbiased=unbiased) == pytest.approx(1.0, abs=1e-12)
    assert cka(own, [gram(7.0 * x @ rotation)], unbiased=unbiased) == pytest.approx(1.0, abs=1e-9)
    stretched = x * torch.linspace(0.1, 3, 12, dtype=torch.float64)
    assert cka(own, [gram(stretched)], unbiased=unbiased) < 0.95


def test_the_mean_over_minibatches_converges_to_the_whole() -> None:
    """The unbiased one does, whatever the batch; the biased one of a batch is far off."""
    x, y = related(1500, 6)
    whole = cka([gram(x)], [gram(y)], unbiased=True)

    errors = []
    for images in (200, 1500):
        blocks = [
            [gram(part) for part in each[:images].split(20)]  # type: ignore[no-untyped-call]
            for each in (x, y)
        ]
        errors.append(abs(cka(*blocks, unbiased=True) - whole))
    biased = cka([gram(x[:20])], [gram(y[:20])])

    assert errors[1] < 0.015
    assert errors[1] < abs(biased - whole) / 5


def test_too_few_images_for_the_unbiased_form_are_refused() -> None:
    few = [gram(features(3, 2))]

    with pytest.raises(SpecError, match="at least 4 images per batch, but one has 3"):
        cka(few, few, unbiased=True)


def batches(n: int = 24, size: int = 10) -> Batches:
    draw = torch.Generator().manual_seed(3)
    return Batches(
        Samples(torch.randn(n, 1, 8, 8, generator=draw), torch.zeros(n).long()), size, None
    )


def network(**options: Any) -> Network:
    torch.manual_seed(0)
    return architecture(options.pop("name", "resnet8"), (1, 8, 8), **options).build([2])


def test_grams_are_those_of_raw_convolutions_and_hooks_are_gone() -> None:
    net = network(width=4)
    block = net.backbone.layer3[0]  # type: ignore[union-attr,index]
    x = torch.cat([batch.x for batch in batches().in_order()])
    with torch.no_grad():
        net.eval()
        stem = net.backbone.layer2(net.backbone.layer1(net.backbone._stem(x)))  # type: ignore
        expected = gram(block.conv1(stem).flatten(1))

    found = layer_grams(net, batches())

    assert list(found) == ["layer3.0.conv1", "layer3.0.conv2"]
    assert torch.allclose(found["layer3.0.conv1"][0], expected, rtol=1e-4, atol=1e-5)
    assert not any(module._forward_hooks for module in net.modules())


def test_minibatches_are_the_diagonal_blocks() -> None:
    net = network(name="mlp", hidden=(5, 4))

    whole = layer_grams(net, batches(20, 10))
    parts = layer_grams(net, batches(20, 10), whole=False)

    assert list(whole) == ["layers.1", "layers.3"]
    assert [len(block) for block in parts["layers.1"]] == [10, 10]
    # Not the sub-matrix itself, each batch being centred on its own; the unbiased form agrees.
    block = whole["layers.1"][0][:10, :10]
    assert cka([block], [parts["layers.1"][0]], unbiased=True) == pytest.approx(1.0, abs=1e-9)


def test_a_network_of_ones_own_gives_its_last_part() -> None:
    body = nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(inplace=True))
    tail = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 3))
    named = nn.Sequential()
    named.add_module("body", body)
    named.add_module("tail", tail)
    named.add_module("end", nn.Identity())

    net = architecture(named, (1, 8, 8)).build([2])

    assert layer_names(net) == ["tail.0", "tail.2"]


def test_a_network_without_such_a_layer_is_refused() -> None:
    bare = Network(nn.Sequential(nn.Flatten(), nn.ReLU()), network().head)

    with pytest.raises(SpecError, match="no convolution or linear layer"):
        layer_names(bare)
