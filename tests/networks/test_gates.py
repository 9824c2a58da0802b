"""Gated paths: sampling, exact 0 and 1, the plain network inside, and nothing ever forgotten."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ancl import SpecError
from ancl.extend import Network, architecture, frozen
from tests.lab import (
    Gate,
    Gated,
    Gates,
    KeptRows,
    ResNet,
    relaxed,
    seeded,
    straight_through,
    train_mode,
)


def net(tasks: int = 2, *, classifier: bool = True, width: int = 4) -> Network:
    made = architecture(
        "resnet8", (3, 8, 8), width=width, head="paths", growth=Gates(6, classifier=classifier)
    )
    with seeded(0, "gates"):
        return made.build((2,) * tasks)


def gated(network: Network) -> Gated:
    assert isinstance(network.backbone, Gated)
    return network.backbone


def images(count: int = 7, seed: int = 1) -> Tensor:
    with seeded(seed, "images"):
        return torch.randn(count, 3, 8, 8)


def open_all(network: Network) -> None:
    for module in network.modules():
        if isinstance(module, Gate):
            nn.init.zeros_(module.last.weight)
            nn.init.constant_(module.last.bias, 50.0)


def disturb(module: nn.Module) -> None:
    for each in module.modules():
        if isinstance(each, nn.BatchNorm2d | nn.BatchNorm1d):
            assert each.running_mean is not None
            assert each.running_var is not None
            nn.init.normal_(each.running_mean, std=0.3)
            nn.init.uniform_(each.running_var, 0.5, 2.0)
            nn.init.uniform_(each.weight, 0.5, 1.5)
            nn.init.normal_(each.bias, std=0.3)


@pytest.mark.parametrize("training", [False, True])
def test_with_all_gates_open_a_path_is_the_plain_network(training: bool) -> None:
    with seeded(0, "plain"):
        plain = ResNet(8, width=4)
        disturb(plain)
    inside = Gated(copy.deepcopy(plain), 6, classifier=False)
    inside.add_task(2)
    norms = [m for m in plain.modules() if isinstance(m, nn.BatchNorm2d)]
    path = inside.paths[0]
    # In the plain network a block's shortcut has its batch norm after the block's own two.
    own = [path.norms[0]]
    for block in range(3):
        own += [path.norms[2 * block + 1], path.norms[2 * block + 2]]
        own += [m for m in [path.shortcuts[block]] if isinstance(m, nn.BatchNorm2d)]
    for mine, theirs in zip(own, norms, strict=True):
        mine.load_state_dict(theirs.state_dict())
    open_all(inside)

    features, side = inside.train(training).with_side(images())

    assert torch.allclose(features, plain.train(training)(images()), atol=1e-6)
    assert torch.equal(side["gates"], torch.ones(7, 7))


def test_gates_are_exactly_0_or_1_with_the_gradient_of_the_soft_value() -> None:
    with seeded(2, "gates"):
        logits, noise = torch.randn(50, 8, requires_grad=True), torch.rand(50, 8)
        weights = torch.randn(50, 8)
    hard = straight_through(relaxed(logits, noise))
    (hard * weights).sum().backward()
    found = logits.grad

    again = logits.detach().clone().requires_grad_(True)
    # σ((l + log u − log(1 − u)) / τ) with τ = 2/3, written out
    soft = 1 / (1 + torch.exp(-(again + torch.log(noise / (1 - noise))) * 1.5))
    (soft * weights).sum().backward()

    assert set(hard.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(hard.detach(), (soft > 0.5).float())
    assert found is not None
    assert again.grad is not None
    assert torch.allclose(found, again.grad, atol=1e-6)

    gate = Gate(3, 8, 6)
    for training in (True, False):
        assert set(gate.train(training)(images(200)).unique().tolist()) <= {0.0, 1.0}


def test_a_gate_opens_with_the_probability_of_its_logit() -> None:
    with seeded(3, "draws"):
        noise = torch.rand(100_000, dtype=torch.double)
    share = (relaxed(torch.tensor(0.5, dtype=torch.double), noise) > 0.5).double().mean()

    # σ(0.5) = 0.622459; the pair form would give σ(1) = 0.731059, one Gumbel 0.807704.
    assert share.item() == pytest.approx(0.622459, abs=0.005)
    half = (relaxed(torch.tensor(0.0, dtype=torch.double), noise) > 0.5).double().mean()
    assert half.item() == pytest.approx(0.5, abs=0.005)  # one Gumbel: 0.632121


def test_in_eval_mode_a_gate_opens_above_0_and_only_what_its_task_uses() -> None:
    gate = Gate(3, 8, 6).eval()
    disturb(gate)
    x = images(40)
    pooled = x.mean(dim=(2, 3))
    logits = gate.last(gate.norm(gate.first(pooled)).clamp(min=0))

    assert torch.equal(gate(x), (logits > 0).float())
    gate.relevant[::2] = False
    assert torch.equal(gate(x)[:, 1::2], (logits > 0).float()[:, 1::2])
    assert gate(x)[:, ::2].sum() == 0


@pytest.mark.parametrize(
    ("depth", "width", "gate", "norm", "affine"),
    [(32, 16, 37_008, 992, 2_464), (8, 16, 7_056, 224, 672), (8, 8, 3_608, 224, 336)],
)
def test_a_task_costs_its_gates_and_batch_norms(
    depth: int, width: int, gate: int, norm: int, affine: int
) -> None:
    made = architecture(f"resnet{depth}", (3, 8, 8), width=width, growth=Gates(classifier=False))
    network = made.build((2,))
    path = gated(network).paths[0]

    def count(kind: type[nn.Module]) -> int:
        found = (m for m in path.modules() if isinstance(m, kind))
        return sum(p.numel() for m in found for p in m.parameters())

    assert count(nn.Linear) == gate
    assert count(nn.BatchNorm1d) == norm
    assert count(nn.BatchNorm2d) == affine


def step(network: Network, seed: int, **options: float) -> None:
    """A few steps of the newest task with momentum and weight decay."""
    train_mode(network)
    learning = [p for p in network.parameters() if p.requires_grad]
    sgd = torch.optim.SGD(learning, 0.1, momentum=0.9, weight_decay=0.1)
    for number in range(4):
        sgd.zero_grad()
        out = network(images(16, seed + number))
        classes = torch.arange(16) % 2
        loss = F.cross_entropy(out.logits[:, -2:], classes) + out.side["gates"].mean()
        if "tasks" in out.side:
            loss = loss + out.side["tasks"].square().mean()
        loss.backward()
        sgd.step()


@pytest.mark.parametrize("classifier", [True, False])
def test_nothing_of_earlier_tasks_is_forgotten_to_the_bit(classifier: bool) -> None:
    network = net(1, classifier=classifier)
    x, answers = images(30, seed=9), list[Tensor]()
    for task in range(3):
        if task:
            with seeded(task, "grow"):
                network.add_task(2)
            for parameter in network.head.block(task - 1):
                parameter.requires_grad_(False)
        with seeded(task, "half"):  # some channels shut, so that kernels are free
            for gate in (m for m in gated(network).paths[-1].modules() if isinstance(m, Gate)):
                nn.init.normal_(gate.last.bias)
        step(network, 100 * task)
        network.eval()
        with torch.no_grad():
            # Kernels that never open for these few images are drawn anew, and reused later.
            used = [gates.any(dim=0) for gates in gated(network).fired(images(4, seed=50 + task))]
        with seeded(task, "protect"):
            gated(network).protect(used)
        assert sum(gated(network).free().values()) > 0, "nothing is left that could be forgotten"
        now = network(x).logits.detach()
        for before, block in enumerate(answers):
            assert torch.equal(now[:, 2 * before : 2 * before + 2], block)
        answers.append(now[:, -2:])
        # In another batch only rounding differs: gates use no statistics of the batch.
        assert torch.allclose(network(x[3:9]).logits, now[3:9], atol=1e-5)


def test_kept_kernels_stay_and_free_ones_are_drawn_anew() -> None:
    network = net(1)
    layer = gated(network).layers[2]
    assert isinstance(layer, KeptRows)
    step(network, 0)
    trained = layer.kernels().detach().clone()
    used = [torch.zeros(len(g), dtype=torch.bool) for g in kernels(network)]
    used[2][:2] = True
    with seeded(0, "protect"):
        gated(network).protect(used)
    drawn = layer.kernels().detach().clone()

    network.add_task(2)
    step(network, 10)
    after = layer.kernels().detach()

    assert torch.equal(drawn[:2], trained[:2])
    assert not any(torch.equal(drawn[row], trained[row]) for row in (2, 3))
    assert torch.equal(after[:2], trained[:2])
    assert not any(torch.equal(after[row], drawn[row]) for row in (2, 3))

    with seeded(1, "protect"):
        used[2][:] = torch.tensor([False, True, True, False])
        gated(network).protect(used)
    assert layer.rows.tolist() == [True, True, True, False]
    assert torch.equal(layer.kernels()[:2], trained[:2])
    assert torch.equal(layer.kernels()[2], after[2])
    assert torch.equal(layer.conv.weight, layer.kernels())


def kernels(network: Network) -> list[Tensor]:
    return [m.rows for m in gated(network).layers if isinstance(m, KeptRows)]


def test_the_second_mask_of_a_block_keeps_its_shortcut_too() -> None:
    network = net(1)
    inside = gated(network)
    used = [torch.zeros(len(g), dtype=torch.bool) for g in kernels(network)]
    used[4][1] = True  # the second convolution of the second block
    inside.protect(used)

    shortcuts = [
        m.rows.nonzero().flatten().tolist() for m in inside.shortcuts if isinstance(m, KeptRows)
    ]
    assert shortcuts == [[1], []]
    assert inside.free() == {
        "conv1": 4,
        "layer1.0.conv1": 4,
        "layer1.0.conv2": 4,
        "layer2.0.conv1": 8,
        "layer2.0.conv2": 7,
        "layer3.0.conv1": 16,
        "layer3.0.conv2": 16,
    }


def test_earlier_paths_neither_learn_nor_look_at_a_batch() -> None:
    inside = gated(net(tasks=3)).train()
    *earlier, newest = inside.paths

    assert len(earlier) == 2
    for path in earlier:
        assert not any(weight.requires_grad for weight in path.parameters())
        assert not any(part.training for part in path.modules())
    assert all(weight.requires_grad for weight in newest.parameters())
    assert all(part.training for part in newest.modules())


def test_only_the_newest_path_learns_and_counts_its_batches() -> None:
    network = net(3)
    before = network.tensors()
    step(network, 0)
    moved = {n for n, t in network.tensors().items() if not torch.equal(t, before[n])}

    assert not any(name.startswith(("backbone.paths.0.", "backbone.paths.1.")) for name in moved)
    assert any(name.startswith("backbone.paths.2.gates.0.norm.running") for name in moved)
    assert any(name.startswith("backbone.tasks.") for name in moved)


def test_earlier_paths_run_in_training_only_for_a_task_classifier() -> None:
    told, untold = net(2, classifier=False), net(2, classifier=True)
    x = images()

    assert told.train()(x).features[:, :16].abs().sum() == 0
    assert told.eval()(x).features[:, :16].abs().sum() > 0
    assert untold.train()(x).features[:, :16].abs().sum() > 0
    assert "tasks" not in told(x).side
    assert untold(x).side["tasks"].shape == (7, 2)
    assert untold(x).side["class_tasks"][0].tolist() == [0, 0, 1, 1]


def test_each_block_of_the_head_reads_its_own_path() -> None:
    network = net(2).eval()
    out = network(images())
    rows, biases = network.head.weights, network.head.biases

    for block in range(2):
        own = out.features[:, 16 * block : 16 * block + 16]
        wanted = own @ rows[block].T + biases[block]
        assert torch.allclose(out.logits[:, 2 * block : 2 * block + 2], wanted, atol=1e-6)


def test_a_wider_task_classifier_keeps_what_it_had() -> None:
    network = net(1)
    before = {n: t for n, t in network.tensors().items() if n.startswith("backbone.tasks.")}
    network.add_task(2)
    after = network.tensors()

    assert after["backbone.tasks.first.weight"].shape == (64, 32)
    assert after["backbone.tasks.last.weight"].shape == (2, 64)
    first, last = (f"backbone.tasks.{name}" for name in ("first", "last"))
    assert torch.equal(after[f"{first}.weight"][:, :16], before[f"{first}.weight"])
    assert torch.equal(after[f"{first}.bias"], before[f"{first}.bias"])
    assert torch.equal(after[f"{last}.weight"][:1], before[f"{last}.weight"])
    assert torch.equal(after[f"{last}.bias"][:1], before[f"{last}.bias"])


def test_a_frozen_copy_and_one_made_again_answer_the_same() -> None:
    network = net(2)
    step(network, 0)
    gated(network.eval()).protect([g.any(dim=0) for g in gated(network).fired(images())])
    made = architecture("resnet8", (3, 8, 8), width=4, head="paths", growth=Gates(6))

    again = made.restore((2, 2), network.tensors()).eval()
    twin = frozen(network)

    assert torch.equal(again(images()).logits, network(images()).logits)
    # Its kernels may lie otherwise in memory.
    assert torch.allclose(twin(images()).logits, network(images()).logits, atol=1e-6)
    assert torch.allclose(twin(images()).side["tasks"], network(images()).side["tasks"], atol=1e-6)
    assert not any(isinstance(m, KeptRows) for m in twin.modules())


def test_only_our_residual_networks_can_be_gated() -> None:
    with pytest.raises(SpecError, match=r"Mlp is not one of them. Use a resnet"):
        architecture("mlp", (1, 6, 6), growth=Gates())
