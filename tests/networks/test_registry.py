"""Architecture: validation with a dry run, building again, identity."""

import copy
import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import SpecError
from ancl.extend import architecture, without_head
from tests.lab import NETWORKS, seeded


class Scaled(nn.Module):
    """A module of a user: its factor is neither a weight nor part of its repr."""

    def __init__(self, factor: float = 1.0, size: int = 3) -> None:
        super().__init__()
        self.layer, self.factor = nn.Linear(4, size), factor

    def forward(self, x: Tensor) -> Tensor:
        return self.factor * self.layer(x)


class Returns(nn.Module):
    """Yields whatever a test wants, whatever comes in."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: Tensor) -> Any:
        return self.value


def scaled(factor: float = 1.0, seed: int = 0) -> Scaled:
    with seeded(seed, "scaled"):
        return Scaled(factor)


def test_a_named_network_is_tried_once_for_each_shape_and_options(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, original = [], NETWORKS["mlp"]

    def mlp(shape: Any, *, hidden: Any = (31,)) -> nn.Module:
        if torch.get_default_device().type != "meta":  # where the size alone is asked for
            made.append((shape, hidden))
        return original(shape, hidden=hidden)

    monkeypatch.setitem(NETWORKS, "mlp", mlp)
    sizes = [architecture("mlp", (1, 3, 3), hidden=h).feature_size for h in ([31], [31], [17])]

    assert sizes == [31, 31, 17]
    # Its size may be looked at first, without memory for weights.
    assert list(dict.fromkeys(made)) == [((1, 3, 3), (31,)), ((1, 3, 3), (17,))]
    assert made.count(((1, 3, 3), (31,))) == made.count(((1, 3, 3), (17,)))


TINY: dict[str, dict[str, Any]] = {
    "mlp": {},
    "efficientnet_lite0": {"weights": "random"},
    "features": {},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_every_named_network_is_built_from_the_seed_alone(name: str) -> None:
    shape = (5,) if name == "features" else (1, 8, 8)
    made = architecture(name, shape, **TINY.get(name, {"width": 2}))
    with seeded(0, "weights"):
        first = made.build([2, 1])
    with seeded(0, "weights"):
        second = made.build([2, 1])
    with seeded(1, "weights"):
        third = made.build([2, 1])

    output = first.eval()(torch.zeros(2, *shape))
    assert output.logits.shape == (2, 3)
    assert output.features.shape == (2, made.feature_size)
    assert first.head.sizes == (2, 1)
    again = second.tensors()
    assert all(torch.equal(value, again[key]) for key, value in first.tensors().items())
    assert not torch.equal(first.head.block(0)[0], third.head.block(0)[0])


def test_checking_leaves_the_global_generator_alone() -> None:
    state = torch.get_rng_state()
    architecture("resnet8", (3, 8, 8), width=2)
    assert torch.equal(torch.get_rng_state(), state)


def test_convolutions_are_channels_last_even_beside_5d_weights() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    module.register_parameter("extra", nn.Parameter(torch.zeros(1, 2, 3, 4, 5)))

    weight = architecture(module, (3, 8, 8)).build().backbone[0].weight

    assert weight.is_contiguous(memory_format=torch.channels_last)
    assert not weight.is_contiguous()


@pytest.mark.parametrize(
    ("network", "shape", "options", "message"),
    [
        ("resnet33", (3, 8, 8), {}, r"no network 'resnet33'\. Did you mean 'resnet32'"),
        ("resnet8", (3, 8, 8), {"widht": 4}, r"'widht'\. Did you mean 'width'\? .* width, last_re"),
        ("mlp", (4,), {"width": 4}, r"mlp has no option 'width'\. mlp accepts: hidden\."),
        ("mlp", (4,), {"head": "linaer"}, r"no head 'linaer'\. Did you mean 'linear'"),
        ("mlp", (4, 0), {}, r"\(4, 0\) is not a shape"),
        ("mlp", (), {}, r"\(\) is not a shape"),
        ("resnet8", (64,), {}, r"resnet8 reads images .* shape \(64,\)\. Use mlp"),
        (Scaled, (4,), {}, "an instance, not its class"),
        (nn.Flatten(), (4,), {"width": 1}, "takes no options, but width was given"),
    ],
)
def test_what_does_not_exist_is_named(
    network: Any, shape: tuple[int, ...], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        architecture(network, shape, **options)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (nn.Conv2d(3, 4, 9), r"Conv2d does not fit samples of shape \(3, 8, 8\).*RuntimeError"),
        (nn.Conv2d(1, 4, 3), r"RuntimeError.*first layer reads \(3, 8, 8\)"),
        (nn.Conv2d(3, 4, 3), r"\(2, 4, 6, 6\) came out.*Pool and flatten.*AdaptiveAvgPool2d"),
        (Returns((1, 2)), "it returned a tuple. Return one tensor"),
        (Returns(torch.zeros(5)), r"shape \(5,\) came out .* must be \(2, features\)"),
        (Returns(torch.zeros(3, 5)), r"shape \(3, 5\) came out"),
        (Returns(torch.zeros(2, 0)), r"shape \(2, 0\) came out"),
        (Returns(torch.full((2, 3), torch.nan)), "not finite"),
        (nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "lazy layers without a size"),
        (Returns(torch.ones(2, requires_grad=True) * 2), "cannot be copied"),
    ],
)
def test_a_module_that_does_not_fit_is_refused_with_the_remedy(
    module: nn.Module, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        architecture(module, (3, 8, 8))


def test_state_that_is_no_tensor_is_refused() -> None:
    class Counting(nn.Flatten):
        def get_extra_state(self) -> int:
            return 3

        def set_extra_state(self, state: int) -> None: ...

    with pytest.raises(SpecError, match="Counting keeps state that is not a tensor"):
        architecture(Counting(), (4,))


def test_a_users_module_starts_from_its_own_weights_and_is_left_alone() -> None:
    module = scaled().double()
    original = copy.deepcopy(module.state_dict())
    made = architecture(module, (4,))

    first, second = made.build([2]), made.build([2])
    with torch.no_grad():
        first.backbone.layer.weight.zero_()
        module.layer.bias.zero_()

    assert (made.name, made.feature_size) == ("module", 3)
    assert torch.equal(second.backbone.layer.weight, original["layer.weight"].float())
    assert torch.equal(module.layer.weight, original["layer.weight"])
    assert torch.equal(made.build().backbone.layer.bias, original["layer.bias"].float())


def test_identity_of_a_named_network_holds_every_option() -> None:
    default = architecture("mlp", (2, 3)).identity()

    assert default == {
        "name": "mlp",
        "input_shape": [2, 3],
        "options": {"hidden": [256, 256]},
        "head": "linear",
        "stored": True,
    }
    assert architecture("mlp", (2, 3), hidden=[256, 256]).identity() == default
    assert architecture("mlp", (2, 3), hidden=(8,)).identity() != default


def test_identity_of_a_module_follows_all_that_decides_its_numbers() -> None:
    def identity(module: nn.Module) -> str:
        return json.dumps(architecture(module, (4,)).identity(), allow_nan=False)

    assert identity(scaled()) == identity(scaled())
    assert identity(scaled(seed=1)) != identity(scaled())
    assert identity(scaled(factor=2.0)) != identity(scaled())
    assert identity(nn.Sequential(scaled())) != identity(scaled())
    hidden = scaled()
    hidden.register_buffer("table", torch.ones(2), persistent=False)
    assert identity(hidden) != identity(scaled())


def test_identity_holds_the_source_of_foreign_classes_only() -> None:
    foreign = architecture(nn.Sequential(scaled(), nn.ReLU()), (4,)).identity()
    ours = architecture(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), (4,)).identity()

    assert [name.rpartition(".")[2] for name in foreign["sources"]] == ["Scaled"]
    assert all(len(digest) == 64 for digest in foreign["sources"].values())
    assert foreign["stored"] is True
    assert (ours["sources"], ours["stored"]) == ({}, True)


def test_a_class_without_a_source_file_is_not_stored() -> None:
    typed = type("Typed", (nn.Flatten,), {"__module__": "typed_in"})

    identity = architecture(typed(), (4,)).identity()

    assert identity["stored"] is False
    assert str(identity["why"]).startswith("Typed has no source file")


def test_what_cannot_be_seen_is_not_stored() -> None:
    opaque, hooked = scaled(), scaled()
    opaque.secret = object()
    hooked.layer.register_forward_hook(print)

    assert "Scaled.secret (object)" in str(architecture(opaque, (4,)).identity()["why"])
    assert architecture(hooked, (4,)).identity()["why"] == "layer has forward hooks"


def test_without_head_passes_the_features_on() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.Sequential(nn.ReLU(), nn.Linear(3, 2)))
    x = torch.randn(5, 4)

    trunk = without_head(module, "2.1")

    assert torch.equal(trunk(x), module[:2](x).relu())
    assert module(x).shape == (5, 2)
    assert architecture(trunk, (4,)).feature_size == 3


def test_without_head_names_the_layers_there_are() -> None:
    with pytest.raises(
        SpecError, match=r"Scaled has no layer 'fc'\. Its last linear layers: layer"
    ):
        without_head(scaled())
    with pytest.raises(SpecError, match="Its last linear layers: none"):
        without_head(nn.Sequential(nn.ReLU()))
