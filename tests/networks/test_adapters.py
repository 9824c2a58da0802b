"""Low-rank adapters: exact when merged, averaged and shared; B alone learns and is stored."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, spectral_norm, weight_norm

from ancl import SpecError, run, spec
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
        nn.Conv2d(2, 4, 3),
        nn.Conv2d(4, 4, 1, groups=2),
        nn.Conv2d(4, 4, 1, padding=1),
        nn.Conv2d(4, 4, 1),
        nn.Linear(12, 10),
        attention,
    )
    adapt(module, 10)

    assert [type(part).__name__ for part in module] == [
        *("Conv2d", "Conv2d", "Conv2d", "Adapted", "Adapted", "MultiheadAttention")
    ]
    assert module[3].b.shape == (4, 4, 1, 1)  # no rank is larger than its layer
    assert module[4].b.shape == (10, 10)
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


class Standardized(nn.Conv2d):
    """As weight-standardised networks have it."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean(dim=(1, 2, 3), keepdim=True)
        return F.conv2d(x, weight / self.weight.std(), self.bias)


class Padded(nn.Conv2d):
    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(input.sqrt(), weight, bias)


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Drawn(nn.Linear):
    """Drawn in another way, and computed as any other."""

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.orthogonal_(self.weight)


def patched() -> nn.Module:
    layer = nn.Linear(6, 6)
    layer.forward = lambda x: F.linear(x, layer.weight.square())  # type: ignore[method-assign]
    return layer


def watched(before: bool) -> nn.Module:
    layer = nn.Linear(6, 6)
    if before:
        layer.register_forward_pre_hook(lambda _, inputs: (inputs[0] + 1,))
    else:
        layer.register_forward_hook(lambda _, inputs, out: out * inputs[0])
    return layer


OTHERS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "standardised": (lambda: Standardized(6, 6, 1), "Standardized has a forward that is not"),
    "inner": (lambda: Padded(6, 6, 1), "forward that is not that of Conv2d"),
    "scaled": (lambda: Scaled(6, 6), "Scaled has a forward that is not that of Linear"),
    "patched": (patched, "forward that is not that of Linear"),
    "normed": (lambda: parametrizations.weight_norm(nn.Linear(6, 6)), "its weight is computed"),
    "normed by a hook": (lambda: weight_norm(nn.Linear(6, 6)), "its weight is computed"),
    "spectral": (lambda: spectral_norm(nn.Linear(6, 6)), "its weight is computed"),
    "changed input": (lambda: watched(True), "it has forward hooks"),
    "changed output": (lambda: watched(False), "it has forward hooks"),
    "attention": (lambda: nn.MultiheadAttention(6, 2), "out_proj: MultiheadAttention reads its"),
}


def learned(module: nn.Module) -> Any:
    """The same module, whose adapters have learned something."""
    with seeded(2, "adapter"):
        for name, weight in module.named_parameters():
            if name.endswith(".b"):
                nn.init.normal_(weight)
    return module


@pytest.mark.filterwarnings("ignore:.*weight_norm.*deprecated")
@pytest.mark.parametrize("kind", OTHERS)
def test_a_layer_that_computes_something_else_is_left_as_it_is(kind: str) -> None:
    make, why = OTHERS[kind]
    with pytest.raises(SpecError, match=rf"Sequential has no .* that can be adapted \(1.*{why}"):
        adapt(nn.Sequential(nn.ReLU(), make()), 2)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.plain, self.other = Drawn(6, 6), make()

        def forward(self, x: Tensor) -> Tensor:
            x = self.plain(x)
            if isinstance(self.other, nn.MultiheadAttention):
                return self.other(x, x, x)[0]
            if isinstance(self.other, nn.Conv2d):
                return self.other(x.abs()[..., None, None])
            return self.other(x)

    made, x = learned(adapt(Both().double(), 2)).eval(), torch.randn(3, 6, dtype=torch.double)
    kinds = {name: type(part).__name__ for name, part in made.named_children()}
    assert kinds == {"plain": "Adapted", "other": type(make()).__name__}
    with torch.no_grad():  # after a pass with gradients, torch cannot copy its older weight_norm
        assert torch.allclose(made(x), merge_adapters(made)(x), rtol=0, atol=1e-12)


def encoder() -> Any:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 2).double()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("padded", [False, True])
def test_an_encoder_that_reads_weights_itself_has_adapters_in_both_modes(
    mode: str, padded: bool
) -> None:
    with seeded(0, "net"):
        plain = encoder()
    made = learned(adapt(copy.deepcopy(plain), 4))
    merged = merge_adapters(made)
    x = torch.randn(3, 5, 8, dtype=torch.double)
    mask = torch.arange(5) >= torch.tensor([[5], [3], [4]]) if padded else None
    keep = torch.ones(3, 5, dtype=torch.bool) if mask is None else ~mask

    for module in (plain, made, merged):
        module.train(mode == "train")

    def answer(module: nn.Module) -> Tensor:
        return module(x, src_key_padding_mask=mask)[keep]

    for gradients in (True, False):  # without them torch takes its fast path in eval mode
        with torch.set_grad_enabled(gradients):
            assert torch.allclose(answer(made), answer(merged), rtol=0, atol=1e-9)
            assert not torch.allclose(answer(made), answer(plain), rtol=0, atol=0.1)
    answer(made).square().sum().backward()
    adapters = {n: w for n, w in made.named_parameters() if w.requires_grad}
    assert adapters.keys() == {f"layers.{i}.linear{j}.b" for i in (0, 1) for j in (1, 2)}
    for weight in adapters.values():
        assert weight.grad is not None
        assert float(weight.grad.abs().max()) > 0


def test_a_weight_that_is_read_is_the_merged_one() -> None:
    for layer, _ in KINDS.values():
        made = adapted(layer)
        merged = made.merged()
        assert torch.allclose(made.weight, merged.weight, rtol=0, atol=1e-12)
        assert made.bias is layer.bias


def test_a_shared_layer_has_one_adapter_at_all_its_names() -> None:
    with seeded(0, "net"):
        shared, block = nn.Linear(6, 6), nn.Sequential(nn.Linear(6, 6), nn.Tanh())
        inner = nn.Sequential(shared, nn.Tanh())
        made = nn.Sequential(shared, nn.Tanh(), shared, inner, block, block).double()
        adapt(made, 2)
        x = torch.randn(3, 6, dtype=torch.double)

    assert made[0] is made[2] is inner[0]
    assert [name for name, _ in learned(made).named_parameters() if name.endswith(".b")] == [
        *("0.b", "4.0.b")
    ]
    merged: Any = merge_adapters(made)
    assert merged[0] is merged[2] is merged[3][0]
    assert isinstance(merged[0], nn.Linear)
    assert torch.allclose(made(x), merged(x), rtol=0, atol=1e-12)
    network = architecture(made, (6,)).build([2])
    again = architecture(made, (6,)).restore([2], network.tensors(), None)
    assert torch.equal(again(x.float()).features, network(x.float()).features)


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (adapt(nn.Sequential(nn.Linear(6, 5)), 4), "adapters already.*merge_adapters first"),
        (nn.Sequential(adapt(nn.Sequential(nn.Linear(6, 5)), 4), nn.Linear(5, 5)), "already"),
        (nn.Linear(6, 5), r"Linear is a layer.*Give nn\.Sequential\(layer\)"),
        (nn.Sequential(nn.Conv2d(1, 2, 3)), "no linear layer and no convolution of 1x1 pixels"),
    ],
)
def test_what_cannot_be_adapted_is_refused_and_stays(module: nn.Module, why: str) -> None:
    before = {name: weight.requires_grad for name, weight in module.named_parameters()}
    with pytest.raises(SpecError, match=why):
        adapt(module, 8)
    assert {name: weight.requires_grad for name, weight in module.named_parameters()} == before


@pytest.mark.parametrize("rank", [0, -1, 6, 2.5, "4", True, None])
def test_a_rank_that_no_layer_admits_is_refused_with_the_largest(rank: Any) -> None:
    module = nn.Sequential(nn.Linear(8, 3), nn.Linear(7, 5))
    with pytest.raises(SpecError, match=rf"rank is {rank!r}, but .* number from 1 to 5"):
        adapt(module, rank)
    assert all(weight.requires_grad for weight in module.parameters())
    assert [part.b.shape for part in adapt(module, 5).children()] == [(3, 3), (5, 5)]
