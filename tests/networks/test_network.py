"""Network: outputs, state in and out, frozen copies."""

import copy

import pytest
import torch
from torch import Tensor, nn

from ancl import MethodError, StoreError
from ancl.extend import Network, architecture, frozen
from tests.lab import LinearHead, Mlp, seeded


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)


def conv_network(*sizes: int, seed: int = 0) -> Network:
    with seeded(seed, "network"):
        return architecture("resnet8", (3, 8, 8), width=2).build(sizes or (2, 3))


def train_a_step(network: Network, x: Tensor) -> None:
    network.train()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    network(x).logits.square().sum().backward()
    optimizer.step()


def strides(network: Network) -> list[tuple[int, ...]]:
    return [parameter.stride() for parameter in network.parameters()]


def test_maps_only_if_asked_for() -> None:
    network, x = conv_network().eval(), torch.randn(4, 3, 8, 8)

    plain, mapped = network(x), network(x, maps=True)

    assert plain.logits.shape == (4, 5)
    assert torch.equal(plain.logits, network.head(network.backbone(x)))
    assert torch.equal(plain.features, mapped.features)
    assert torch.equal(plain.logits, mapped.logits)
    assert plain.maps == ()
    assert [each.shape[1] for each in mapped.maps] == [2, 4, 8]


def test_maps_of_a_backbone_without_any_are_refused() -> None:
    network = Network(Mlp((4,), hidden=(3,)), LinearHead(3))
    with pytest.raises(MethodError, match=r"Mlp does not give\. Use a resnet"):
        network(torch.zeros(1, 4), maps=True)


def test_weights_are_the_backbones_parameters_themselves() -> None:
    network = conv_network()

    weights = network.weights()

    assert weights["conv1.weight"] is network.backbone.conv1.weight
    assert sorted(weights) == sorted(name for name, _ in network.backbone.named_parameters())
    assert all(isinstance(weight, nn.Parameter) for weight in weights.values())


def test_tensors_are_a_contiguous_copy_of_everything() -> None:
    network, x = conv_network(), torch.randn(4, 3, 8, 8)
    tensors = network.tensors()
    before = {name: value.clone() for name, value in tensors.items()}

    train_a_step(network, x)

    assert list(tensors) == list(network.state_dict())
    assert all(value.is_contiguous() and not value.requires_grad for value in tensors.values())
    assert all(torch.equal(value, before[name]) for name, value in tensors.items())


def test_loading_restores_every_value_and_keeps_the_strides() -> None:
    source, target, x = conv_network(), conv_network(seed=1), torch.randn(4, 3, 8, 8)
    train_a_step(source, x)
    layout, weight = strides(target), target.backbone.layer2[0].conv2.weight

    target.load(source.tensors())

    assert torch.equal(target.eval()(x).logits, source.eval()(x).logits)
    assert strides(target) == layout
    assert target.backbone.layer2[0].conv2.weight is weight
    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()


def test_loading_what_does_not_fit_names_it_and_changes_nothing() -> None:
    network = conv_network(2, 3)
    before = network.tensors()
    given = {name: value + 1 for name, value in conv_network(2, 4, 1).tensors().items()}
    del given["backbone.conv1.weight"]

    with pytest.raises(StoreError) as caught:
        network.load(given)

    message = str(caught.value)
    assert "missing: backbone.conv1.weight;" in message
    assert "unexpected: head.weights.2, head.biases.2;" in message
    assert "head.weights.1 (4, 8) instead of (3, 8)" in message
    assert all(torch.equal(value, before[name]) for name, value in network.tensors().items())


def test_a_frozen_copy_answers_alike_and_stays_when_the_original_trains() -> None:
    network, x = conv_network(), torch.randn(8, 3, 8, 8)
    train_a_step(network, x)
    expected = network.eval()(x, maps=True)

    anchor = frozen(network)
    answer, before = anchor(x, maps=True), anchor.tensors()
    train_a_step(network, x)

    assert torch.allclose(answer.logits, expected.logits, rtol=1e-4, atol=1e-5)
    assert torch.allclose(answer.maps[1], expected.maps[1], rtol=1e-4, atol=1e-5)
    assert not torch.allclose(network.eval()(x).logits, expected.logits, rtol=1e-2, atol=1e-3)
    assert all(torch.equal(value, before[name]) for name, value in anchor.tensors().items())
    assert all(each.grad is None and not each.requires_grad for each in anchor.parameters())
    assert not answer.logits.requires_grad
    assert not anchor.training
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_a_frozen_copy_of_a_users_module_keeps_its_batch_norm_statistics() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    network, x = architecture(module, (3, 4, 4)).build([2]), torch.randn(8, 3, 4, 4)
    anchor = frozen(network)
    expected = anchor(x).logits

    train_a_step(network, x)

    assert torch.equal(anchor(x).logits, expected)
    assert anchor.backbone[1].num_batches_tracked == 0
    assert network.backbone[1].num_batches_tracked == 1


def test_everything_works_in_double_precision() -> None:
    network, x = conv_network().double(), torch.randn(2, 3, 8, 8, dtype=torch.float64)
    network.head.grow(1)

    expected = network.eval()(x).logits

    assert (expected.dtype, expected.shape) == (torch.float64, (2, 6))
    assert torch.allclose(frozen(network)(x).logits, expected, atol=1e-12)
    assert network.tensors()["head.weights.2"].dtype == torch.float64


def test_a_strided_1x1_convolution_of_few_channels_never_sees_channels_last() -> None:
    seen: list[bool] = []

    class Watched(nn.Conv2d):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.is_contiguous() and self.weight.is_contiguous())
            return super().forward(x)

    module = nn.Sequential(nn.Conv2d(3, 4, 3), Watched(4, 8, 1, stride=2), nn.Flatten())
    network = architecture(module, (3, 8, 8)).build([2])
    x = torch.randn(4, 3, 8, 8).contiguous(memory_format=torch.channels_last)

    network(x).logits.sum().backward()

    assert seen == [True, True]  # the dry run and this one
    plain = copy.deepcopy(network).double()
    plain.zero_grad()
    plain(x.double()).logits.sum().backward()
    actual, expected = network.backbone[1].weight.grad, plain.backbone[1].weight.grad
    assert torch.allclose(actual.double(), expected, atol=1e-4)
