"""What a backbone has without saying so, whatever its class."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import ancl
from ancl import MethodError
from tests.lab import Backbone, Mlp, as_backbone, grows


class Plain(nn.Module):
    """A user's module, with attributes that happen to have a backbone's names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2), nn.ReLU())
        self.at, self.feature_size = 7, 99

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.last(self.first(x))
        return features


class Derived(Backbone):
    """The same as a backbone."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2), nn.ReLU())

    forward = Plain.forward


class Growing(Plain):
    """A user's module that grows by two features a task."""

    def __init__(self) -> None:
        super().__init__()
        self.feature_size = 0

    def add_task(self, classes: int) -> None:
        self.feature_size += 2

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([super().forward(x)] * (self.feature_size // 2), dim=1)

    def stored(self) -> int:
        return 5

    def last_layers(self) -> list[str]:
        return ["first"]


@pytest.mark.parametrize("make", [Plain, Derived])
def test_any_module_has_the_defaults(make: Callable[[], nn.Module]) -> None:
    module = make()
    backbone, x = as_backbone(module), torch.ones(2, 4)

    features, side = backbone.with_side(x)
    backbone.at(0, 0, 1)
    backbone.add_task(2)

    assert torch.equal(features, module(x))
    assert side == {}
    assert not grows(module)
    assert backbone.fresh_head is False
    assert backbone.stored() == 4 * 3 + 3 + 3 * 2 + 2
    assert backbone.last_layers() == ["last.0"]
    assert list(backbone.levels()) == []
    twin = backbone.folded()
    assert type(twin) is make
    assert twin is not module
    assert torch.equal(twin(x), features)
    with pytest.raises(MethodError, match=rf"{make.__name__} does not give"):
        backbone.with_maps(x)


def test_what_a_module_has_takes_the_place_of_the_default() -> None:
    backbone = as_backbone(Growing())

    backbone.add_task(2)
    backbone.add_task(2)

    assert grows(Growing())
    assert (backbone.feature_size, backbone.stored()) == (4, 5)
    assert backbone.last_layers() == ["first"]
    assert as_backbone(mlp := Mlp((4,), (3,))) is mlp


@pytest.mark.parametrize(("make", "columns"), [(Plain, 2), (Derived, 2), (Growing, 4)])
def test_a_head_follows_the_features_of_backbones_that_grow_alone(
    make: Callable[[], nn.Module], columns: int
) -> None:
    network = ancl.extend.architecture(make(), (4,)).build([2, 3])

    assert network(torch.ones(2, 4)).logits.shape == (2, 5)
    assert [block.shape[1] for block in network.head.row_blocks()] == [columns, columns]


@pytest.mark.parametrize("make", [Plain, Derived])
def test_names_of_tensors_are_the_modules_own(make: Callable[[], nn.Module]) -> None:
    network = ancl.extend.architecture(make(), (4,)).build([2])

    names = [name for name in network.tensors() if name.startswith("backbone.")]
    assert names == [f"backbone.{name}" for name in make().state_dict()]
