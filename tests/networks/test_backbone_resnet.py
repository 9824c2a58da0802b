"""ResNet: size, initial values, features and maps against a slow reference, folding."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl import SpecError
from tests.lab import ResNet, seeded


def disturbed(dtype: torch.dtype = torch.float32, last_relu: bool = True) -> ResNet:
    """A small network whose batch norms have random statistics, in eval mode."""
    with seeded(0, "resnet"):
        network = ResNet(14, width=4, last_relu=last_relu).to(dtype)
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.3)
                nn.init.uniform_(module.running_var, 0.3, 2.0)
                nn.init.uniform_(module.weight, -1.5, 1.5)
                nn.init.normal_(module.bias, std=0.3)
    return network.eval()


def images(dtype: torch.dtype = torch.float32) -> Tensor:
    with seeded(1, "images"):
        return torch.randn(3, 3, 16, 16, dtype=dtype)


def reference(state: dict[str, Tensor], x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Features and maps of a depth-14 network, written out from its tensors."""

    def norm(name: str, x: Tensor) -> Tensor:
        shape = (1, -1, 1, 1)
        mean, var = (state[f"{name}.running_{kind}"].view(shape) for kind in ("mean", "var"))
        weight, bias = (state[f"{name}.{kind}"].view(shape) for kind in ("weight", "bias"))
        return weight * (x - mean) / (var + 1e-5).sqrt() + bias

    x, maps = F.conv2d(x, state["conv1.weight"], padding=1), []
    x = norm("bn1", x).clamp(min=0)
    for layer in (1, 2, 3):
        for block in (0, 1):
            at, stride = f"layer{layer}.{block}", 2 if layer > 1 and block == 0 else 1
            out = F.conv2d(x, state[f"{at}.conv1.weight"], stride=stride, padding=1)
            out = F.conv2d(
                norm(f"{at}.bn1", out).clamp(min=0), state[f"{at}.conv2.weight"], padding=1
            )
            if f"{at}.downsample.0.weight" in state:
                x = F.conv2d(x, state[f"{at}.downsample.0.weight"], stride=stride)
                x = norm(f"{at}.downsample.1", x)
            raw = norm(f"{at}.bn2", out) + x
            x = raw.clamp(min=0)
        maps.append(raw)
    return x.mean(dim=(2, 3)), maps


def test_resnet32_has_the_size_of_the_paper() -> None:
    network = ResNet()
    modules = list(network.modules())

    assert sum(parameter.numel() for parameter in network.parameters()) == 466_256
    assert len(list(network.parameters())) == 99
    assert sum(buffer.numel() for buffer in network.buffers()) == 2_497
    assert sum(isinstance(module, nn.Conv2d) for module in modules) == 33
    assert sum(isinstance(module, nn.BatchNorm2d) for module in modules) == 33
    assert [len(network.layer1), len(network.layer2), len(network.layer3)] == [5, 5, 5]
    assert network.feature_size == 64
    shortcuts = [name for name in network.state_dict() if "downsample.0" in name]
    assert shortcuts == ["layer2.0.downsample.0.weight", "layer3.0.downsample.0.weight"]


def test_initial_values_are_kaiming_normal_over_the_outputs() -> None:
    with seeded(0, "init"):
        network = ResNet(8)
    weight = network.layer3[0].conv2.weight

    # variance 2 / (9 * 64)
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)
    assert weight.abs().max() > 3 * weight.std()  # normal, not uniform
    assert network.layer2[0].bn2.weight.unique().tolist() == [1.0]
    assert network.layer2[0].bn2.bias.unique().tolist() == [0.0]


@pytest.mark.parametrize("last_relu", [True, False])
def test_features_and_maps_are_those_of_a_slow_reference(last_relu: bool) -> None:
    network, x = disturbed(torch.float64, last_relu), images(torch.float64)
    expected, expected_maps = reference(network.state_dict(), x)
    if not last_relu:
        expected = expected_maps[-1].mean(dim=(2, 3))

    features, maps = network.with_maps(x)

    assert torch.allclose(features, expected, atol=1e-10)
    assert torch.equal(network(x), features)
    assert [tuple(each.shape) for each in maps] == [(3, 4, 16, 16), (3, 8, 8, 8), (3, 16, 4, 4)]
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(maps, expected_maps, strict=True))
    assert all((each < 0).any() for each in maps)
    assert (features >= 0).all() == last_relu


def test_gradients_with_and_without_maps_are_the_same() -> None:
    network = disturbed(torch.float64).train()
    network(images(torch.float64)).square().sum().backward()
    plain = [parameter.grad.clone() for parameter in network.parameters()]
    network.zero_grad()

    network.with_maps(images(torch.float64))[0].square().sum().backward()

    for parameter, expected in zip(network.parameters(), plain, strict=True):
        assert torch.allclose(parameter.grad, expected, atol=1e-10)


@pytest.mark.parametrize("width", [2, 8])
def test_gradients_on_channels_last_are_those_in_double_precision(width: int) -> None:
    with seeded(0, "layout"):
        network = ResNet(8, width=width).to(memory_format=torch.channels_last)
    precise = copy.deepcopy(network).double()
    x = images().contiguous(memory_format=torch.channels_last)

    network(x).square().sum().backward()
    precise(x.double()).square().sum().backward()

    for actual, expected in zip(network.parameters(), precise.parameters(), strict=True):
        difference = (actual.grad.double() - expected.grad).norm()
        assert difference <= 1e-4 * (1 + expected.grad.norm())


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_folding_keeps_features_and_maps(
    dtype: torch.dtype, tolerance: float, layout: torch.memory_format
) -> None:
    network, x = disturbed(dtype).to(memory_format=layout), images(dtype)
    before = {name: value.clone() for name, value in network.state_dict().items()}

    folded = network.folded()
    features, maps = folded.with_maps(x)
    expected, expected_maps = network.with_maps(x)

    assert torch.allclose(folded(x), expected, rtol=1e-4, atol=tolerance)
    assert torch.allclose(features, expected, rtol=1e-4, atol=tolerance)
    for actual, wanted in zip(maps, expected_maps, strict=True):
        assert torch.allclose(actual, wanted, rtol=1e-4, atol=tolerance)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in folded.modules())
    assert folded.layer1[0].conv1.weight.is_contiguous(memory_format=layout)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())


def test_folding_twice_changes_nothing_and_draws_no_random_numbers() -> None:
    network, x = disturbed(), images()
    state = torch.get_rng_state()

    assert torch.equal(network.folded().folded()(x), network.folded()(x))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("size", [1, 5, 28, 64])
def test_images_of_any_size_give_features(size: int) -> None:
    assert ResNet(8, width=2, in_channels=1)(torch.zeros(2, 1, size, size)).shape == (2, 8)


def test_unusable_settings_are_refused() -> None:
    with pytest.raises(SpecError, match=r"depth 18 .* 8, 14, 20, 32, 44, 56"):
        ResNet(18)
    with pytest.raises(SpecError, match="width = 0"):
        ResNet(8, width=0)
    with pytest.raises(SpecError, match="last_relu = 'no'"):
        ResNet(8, last_relu="no")


def test_the_layers_to_compare_are_the_3x3_convolutions_of_the_last_stage() -> None:
    network = ResNet(14, width=4)

    found = [network.get_submodule(name) for name in network.last_layers()]

    last = [m for m in network.layer3.modules() if isinstance(m, nn.Conv2d)]
    assert found == [conv for conv in last if conv.kernel_size == (3, 3)]
    assert len(found) == 4
