"""Low-rank adapters: exact when merged, averaged and shared; B alone learns and is stored."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import run, spec
from ancl.extend import adapt, architecture, frozen, merge_adapters
from tests.lab import Adapted, EfficientNetLite0, base_names, seeded
from tests.networks.test_base import memory, parts

LORA = f"{Path(__file__).parents[2] / 'examples/lora.py'}:lora"
KINDS = {
    "linear": (nn.Linear(7, 5), (3, 7)),
    "convolution": (nn.Conv2d(7, 5, 1), (3, 7, 4, 4)),
    "strided": (nn.Conv2d(7, 5, 1, stride=2, bias=False), (3, 7, 5, 5)),
}


def adapted(layer: nn.Module, rank: int = 3) -> Any:
    """In double precision, with a B that has learned something."""
    with seeded(1, "adapter"):
        made = Adapted(layer.double(), rank)
        nn.init.normal_(made.b)
    return made


@pytest.mark.parametrize("kind", KINDS)
def test_merged_equals_unmerged_and_nothing_changes_at_first(kind: str) -> None:
    layer, shape = KINDS[kind]
    made, x = adapted(layer), torch.randn(shape, dtype=torch.double)

    assert torch.allclose(made(x), made.merged()(x), rtol=0, atol=1e-12)
    rows = made.a.flatten(1)
    assert torch.allclose(rows @ rows.T, torch.eye(3).double(), rtol=0, atol=1e-12)
    assert [name for name, weight in made.named_parameters() if weight.requires_grad] == ["b"]
    torch.nn.init.zeros_(made.b)
    assert torch.equal(made(x), layer(x))


def test_the_mean_of_factors_is_not_the_mean_of_weights_unless_a_is_one() -> None:
    layer = nn.Linear(3, 2, bias=False).double()
    nn.init.zeros_(layer.weight)
    b1, a1 = [[1.0, 2], [0, 1]], [[1.0, 0, 1], [0, 1, 1]]
    b2, a2 = [[0.0, 1], [2, 1]], [[2.0, 1, 0], [1, 0, 1]]

    def weight(b: Any, a: Any) -> Tensor:
        made = Adapted(layer, 2)
        made.b.data, made.a.data = (torch.as_tensor(each).double() for each in (b, a))
        return made.merged().weight

    def middle(one: Any, two: Any) -> Tensor:
        return (torch.tensor(one) + torch.tensor(two)) / 2

    difference = (weight(b1, a1) + weight(b2, a2)) / 2 - weight(middle(b1, b2), middle(a1, a2))
    assert difference.tolist() == [[-0.5, 0, 0.25], [0.5, 0.5, -0.5]]
    same = (weight(b1, a1) + weight(b2, a1)) / 2 - weight(middle(b1, b2), a1)
    assert same.abs().max() == 0


def test_a_distance_of_b_is_one_of_weights() -> None:
    one = adapted(nn.Linear(7, 5))
    before = one.merged().weight.clone()
    change = torch.randn_like(one.b)
    one.b.data += change

    assert float((one.merged().weight - before).norm()) == pytest.approx(float(change.norm()))


def test_every_layer_that_is_called_is_adapted_and_no_other() -> None:
    attention = nn.MultiheadAttention(4, 2)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.Conv2d(4, 4, 1, groups=2), nn.Conv2d(4, 4, 1), attention
    )
    adapt(module, 10)

    assert [type(part).__name__ for part in module] == [
        *("Conv2d", "Conv2d", "Adapted", "MultiheadAttention")
    ]
    assert module[2].b.shape == (4, 4, 1, 1)  # no rank is larger than its layer
    assert not any(weight.requires_grad for weight in attention.parameters())
    assert merge_adapters(attention) is attention


def test_three_networks_of_a_transformer_cost_one_base_and_three_adapters() -> None:
    made = architecture(LORA, (1, 8, 8), width=128, depth=3)
    with seeded(0, "grow"):
        base = made.make_base()
        trained = made.build([2], base).tensors()
    networks = [made.restore([2], trained, base) for _ in range(3)]
    networks[2] = frozen(networks[2])  # an anchor shares the base, too

    everything = [tensor for network in networks for tensor in parts(network).values()]
    own = memory(trained.values())
    assert memory(everything) == pytest.approx(memory(base.values()) + 3 * own, rel=0.01)
    assert own < 0.2 * memory(base.values())
    weights = networks[0].weights()
    assert all(name.endswith(".b") for name in weights)


def test_stages_store_b_and_the_head_alone(tmp_path: Path) -> None:
    settings = {
        "network.name": LORA,
        "data.classes": "2,2",
        "data.order": [0, 1, 2, 3],
        "data.per_class": 8,
        "training.epochs": 1,
    }
    result = run(spec("a-lfl", "digits/5", settings={**settings, "threads": 1}), runs=tmp_path)

    stored = result.network(1, "auxiliary").tensors()
    assert {name.rpartition(".")[2] for name in stored if name.startswith("backbone")} == {"b"}


def test_a_convolutional_network_has_adapters_and_merges_into_a_plain_one() -> None:
    with seeded(0, "net"):
        plain = EfficientNetLite0().double().eval()
        made = adapt(EfficientNetLite0().double(), 2).eval()
        for name, weight in made.named_parameters():
            if name.endswith(".b"):
                nn.init.normal_(weight, std=0.05)
    x = torch.randn(2, 3, 32, 32, dtype=torch.double)
    merged = merge_adapters(made)

    assert merged.state_dict().keys() == plain.state_dict().keys()
    assert torch.allclose(made(x), merged(x), rtol=0, atol=1e-9)
    own = set(made.state_dict()) - base_names(made)
    assert own
    assert all(name.endswith(".b") for name in own)
