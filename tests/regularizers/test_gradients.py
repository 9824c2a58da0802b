"""Means of measured gradients against loops over batches and single images."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from ancl.extend import Network, Output, architecture
from tests.lab import Evidence, Ewc, LinearHead, Mas, mean_gradients

TASKS = (slice(0, 2), slice(2, 5))


class Scale(nn.Module):
    """One weight: z = w x."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([weight], dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x


class Bare(nn.Module):
    """A backbone whose features are the logits."""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Output:
        return Output(self.backbone(x), x)


def scalar_evidence(xs: list[float], weight: float, size: int) -> Evidence:
    network = Bare(Scale(weight))
    x = torch.tensor(xs, dtype=torch.float64).unsqueeze(1)

    def batches(augmented: bool):
        for part in torch.split(x, size):
            yield part, torch.zeros(len(part), dtype=torch.long)

    weights = dict(network.backbone.named_parameters())
    return Evidence(network, weights, {}, batches, (slice(0, 1),))


@pytest.mark.parametrize(
    ("gradients", "batch", "sample"), [((1.0, -1.0), 0.0, 1.0), ((1.0, 3.0), 4.0, 5.0)]
)
def test_squares_of_means_and_means_of_squares(gradients, batch, sample) -> None:
    """With the loss w x the gradient of an image is its x."""
    evidence = scalar_evidence(list(gradients), 2.0, size=2)
    found = {
        estimator: mean_gradients(
            evidence,
            lambda output, y: output.logits.mean(),
            torch.square,
            estimator=estimator,
            augment=False,
            batch_statistics=False,
        )["weight"].item()
        for estimator in ("batch", "sample")
    }

    assert found == {"batch": batch, "sample": sample}


@pytest.mark.parametrize("estimator", ["batch", "sample"])
def test_mas_of_two_images_by_hand(estimator) -> None:
    evidence = scalar_evidence([1.0, 2.0], 2.0, size=2)

    # ‖z‖ = 2 x, so the gradients are 1 and 2: 1.5 on average
    importance = Mas(estimator=estimator).importance(evidence)["gradients"]
    squared = Mas(estimator=estimator, norm="squared").importance(evidence)["gradients"]

    assert importance["weight"].item() == pytest.approx(1.5)
    # d(w x)²/dw = 2 w x² = 4 and 16: 10 on average
    assert squared["weight"].item() == pytest.approx(10.0)


def test_batches_weigh_by_their_size() -> None:
    evidence = scalar_evidence([1.0, 3.0, 6.0], 2.0, size=2)
    loss = mean_gradients(
        evidence,
        lambda output, y: output.logits.mean(),
        torch.square,
        estimator="batch",
        augment=False,
        batch_statistics=False,
    )

    assert loss["weight"].item() == pytest.approx((2 * 2.0**2 + 1 * 6.0**2) / 3)


def conv_network() -> Network:
    torch.manual_seed(3)
    layers = [nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 6, 3)]
    layers += [nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    net = architecture(nn.Sequential(*layers), (2, 6, 6)).build([2, 3])
    for module in net.backbone:
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return net


def conv_evidence(net: Network, count: int = 37, size: int = 16) -> Evidence:
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(count, 2, 6, 6, generator=draw).contiguous(memory_format=torch.channels_last)
    y = torch.randint(2, 5, (count,), generator=draw)

    def batches(augmented: bool):
        # Augmented images are told by their sign here.
        yield from zip((x if augmented else -x).split(size), y.split(size), strict=True)

    return Evidence(net, net.weights(), {}, batches, TASKS)


@pytest.mark.parametrize("omega", [Ewc(estimator="sample"), Mas(estimator="sample")])
def test_the_exact_estimator_equals_a_loop_over_single_images(omega) -> None:
    net = conv_network()
    found = omega.importance(conv_evidence(net))["gradients"]

    # A loop over batches of one, with running statistics, has each image's own gradient.
    net.eval()
    total = {name: torch.zeros_like(w) for name, w in net.weights().items()}
    loss = omega.loss(conv_evidence(net))
    for x, y in conv_evidence(net, size=1).batches(True):
        gradients = torch.autograd.grad(loss(net(x), y), list(net.weights().values()))
        for name, gradient in zip(total, gradients, strict=True):
            total[name] += omega.measure(gradient)
    for name, expected in total.items():
        torch.testing.assert_close(found[name], expected / 37, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("omega", [Ewc(), Ewc(batch_norm="eval", augment=False), Mas()])
def test_the_batch_estimator_equals_a_loop_over_batches(omega) -> None:
    net, twin = conv_network(), conv_network()
    found = omega.importance(conv_evidence(net))["gradients"]

    twin.train(omega.batch_norm == "train")
    total = {name: torch.zeros_like(w) for name, w in twin.weights().items()}
    loss = omega.loss(conv_evidence(twin))
    for x, y in conv_evidence(twin).batches(omega.augment):
        twin.zero_grad()
        loss(twin(x), y).backward()
        for name, weight in twin.weights().items():
            total[name] += len(y) * omega.measure(weight.grad)
    for name, expected in total.items():
        torch.testing.assert_close(found[name], expected / 37)


def test_estimation_leaves_the_network_as_it_was() -> None:
    net = conv_network().train()
    before = net.tensors()

    Ewc(batch_norm="train").importance(conv_evidence(net))

    assert all(torch.equal(before[n], t) for n, t in net.tensors().items())
    assert net.training
    assert all(parameter.grad is None for parameter in net.parameters())


@pytest.mark.parametrize("estimator", ["batch", "sample"])
def test_weights_without_a_part_in_the_answer_have_no_importance(estimator) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    torch.manual_seed(0)
    head = LinearHead(2)
    head.grow(2)
    net = Network(Half(), head)
    batch = (torch.randn(4, 3), torch.tensor([0, 1, 0, 1]))
    evidence = Evidence(net, net.weights(), {}, lambda augmented: iter([batch]), (slice(0, 2),))

    found = Ewc(estimator=estimator).importance(evidence)["gradients"]

    assert bool((found["unused.weight"] == 0).all())
    assert bool((found["used.weight"] > 0).any())


@pytest.mark.parametrize("omega", [Ewc(), Mas()])
def test_importance_is_averaged_over_tasks_from_zero(omega) -> None:
    one, two = {"gradients": {"w": torch.tensor(8.0)}}, {"gradients": {"w": torch.tensor(4.0)}}

    first = omega.merge(None, one)
    second = omega.merge(first, two)

    assert first["gradients"]["w"].item() == 4.0  # ½ · 8
    assert second["gradients"]["w"].item() == 4.0  # ½ · 4 + ½ · 4
    assert omega.curvature(second) == second["gradients"]


@pytest.mark.parametrize(
    ("xs", "size", "kept", "dropped"),
    [
        # Batches (1, 3), (2, 4), (6): squared means 4, 9, 36, weighted by 2, 2, 1
        ([1.0, 3.0, 2.0, 4.0, 6.0], 2, 62 / 5, 26 / 4),
        # Less than one batch is used whole: (1, 3) has the squared mean 4
        ([1.0, 3.0], 4, 4.0, 4.0),
    ],
)
def test_a_last_batch_that_is_not_full_may_be_left_out(xs, size, kept, dropped) -> None:
    def found(drop_last: bool) -> float:
        return mean_gradients(
            scalar_evidence(xs, 2.0, size),
            lambda output, y: output.logits.mean(),
            torch.square,
            estimator="batch",
            augment=False,
            batch_statistics=False,
            drop_last=drop_last,
        )["weight"].item()

    assert (found(False), found(True)) == (pytest.approx(kept), pytest.approx(dropped))


def test_a_last_image_that_was_joined_to_a_batch_is_left_out_too() -> None:
    x = torch.tensor([[1.0], [3.0], [2.0], [4.0], [9.0]], dtype=torch.float64)
    evidence = scalar_evidence([0.0], 2.0, 1)

    def batches(augmented: bool):
        for part in (x[:2], x[2:]):
            yield part, torch.zeros(len(part), dtype=torch.long)

    joined = replace(evidence, batches=batches)

    # ‖z‖ = 2 x: means of |gradient| 2 and 3 over the batches (1, 3) and (2, 4)
    found = Mas(drop_last=True).importance(joined)["gradients"]["weight"].item()
    assert found == pytest.approx(2.5)
