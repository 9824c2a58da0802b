"""Steps in the null space of earlier inputs."""

from itertools import pairwise

import pytest
import torch
from torch import nn

from ancl import MethodError, Training, make_method
from ancl.extend import Network, architecture
from tests.lab import (
    LayerInputs,
    LinearHead,
    Projection,
    ProjectSteps,
    ResNet,
    input_rows,
    null_space,
    projected_layers,
    strip_prefix,
)


def test_the_null_space_by_hand() -> None:
    x = torch.tensor([[1.0, 0, 0], [0, 2, 0]], dtype=torch.float64)
    projector = null_space(x.T @ x, 10.0, None)

    # Eigenvalues 4, 1, 0: the third axis alone is free.
    assert torch.allclose(projector, torch.diag(torch.tensor([0, 0, 1.0], dtype=torch.float64)))
    update = torch.randn(5, 3, dtype=torch.float64)
    assert torch.equal(update @ projector @ x.T, torch.zeros(5, 2, dtype=torch.float64))


@pytest.mark.parametrize(("threshold", "kept"), [(1.0, 1), (10.0, 1), (30.0, 2), (230.0, 3)])
def test_the_threshold_is_times_the_smallest_eigenvalue(threshold, kept) -> None:
    turned = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    covariance = turned @ torch.diag(torch.tensor([9.0, 1, 0.04]).double()) @ turned.T

    projector = null_space(covariance, threshold, None)

    # V₂V₂ᵀ has the norm √k; divided by it, its trace is √k.
    assert projector.norm().item() == pytest.approx(1.0)
    assert projector.trace().item() == pytest.approx(kept**0.5)
    assert torch.linalg.matrix_rank(projector).item() == kept


@pytest.mark.parametrize(("energy", "kept"), [(0.001, 0), (0.03, 1), (0.2, 2)])
def test_energy_keeps_directions_with_a_small_share_of_the_trace(energy, kept) -> None:
    covariance = torch.diag(torch.tensor([9.0, 1, 0.04]).double())  # shares .896, .0996, .0040

    projector = null_space(covariance, 10.0, energy)

    assert int((projector.diagonal() > 0).sum()) == kept


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(2, 3, 3, padding=1, bias=False),
        nn.Conv2d(2, 3, 3, stride=2, padding=1, bias=False),
        Projection(2, 3, 2),
    ],
)
def test_rows_are_what_the_weights_multiply(layer) -> None:
    x = torch.randn(4, 2, 6, 6)
    rows = input_rows(layer, x)

    wanted = layer(x.mean(dim=0, keepdim=True))
    found = (rows @ layer.weight.flatten(1).T).T.reshape(wanted.shape)
    assert torch.allclose(found, wanted, atol=1e-6)


def test_rows_of_a_linear_layer_are_mean_inputs() -> None:
    x = torch.randn(4, 5)

    assert torch.allclose(input_rows(nn.Linear(5, 2), x), x.mean(dim=0, keepdim=True))


def test_inputs_are_read_once_and_the_hooks_are_taken_off() -> None:
    torch.manual_seed(0)
    net = ResNet(8, 4, in_channels=1).eval()
    with LayerInputs(net) as inputs:
        net(torch.randn(3, 1, 8, 8))
        found = dict(inputs.take())
        assert dict(inputs.take()) == {}

    assert found.keys() == projected_layers(net).keys()
    assert found["layer2.0.conv1"].shape == (16, 4 * 9)
    assert all(not layer._forward_pre_hooks for layer in net.modules())


def test_projected_steps_leave_responses_unchanged_whatever_the_optimizer_does() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(4, 3, bias=False)
    network = Network(layer, LinearHead(3))
    earlier = torch.randn(2, 4)
    projector = null_space(earlier.T @ earlier, 10.0, None)
    before = layer(earlier).detach()
    weight = layer.weight.detach().clone()
    constraint = ProjectSteps({"": projector}, network)
    optimizer = torch.optim.AdamW([layer.weight], 0.1, weight_decay=0.5)

    for _ in range(5):
        optimizer.zero_grad()
        layer(torch.randn(8, 4)).square().sum().backward()
        constraint.gradients([layer.weight], 0, 8, torch.Generator())
        optimizer.step()
        constraint.weights(network)

    assert torch.allclose(layer(earlier), before, atol=1e-6)
    assert not torch.allclose(layer.weight, weight)


def test_a_grouped_convolution_is_refused() -> None:
    with pytest.raises(MethodError, match="grouped convolution 0"):
        projected_layers(nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)))


def test_the_stable_network_moves_in_the_null_space_alone(lab) -> None:
    training = Training(epochs=3, lr=0.05, lr_first=0.1, batch_size=16, schedule="constant")
    net = architecture("resnet8", (1, 6, 6), width=4)
    made = make_method("connector", stability="projected", energy=0.3)
    learned = lab.learn(made, lab.setting(net, training))
    start, stable = (
        strip_prefix("network", learned.entry(s, 2).tensors) for s in ("grow", "project")
    )
    covariances = strip_prefix("covariance", learned.entry("covariance", 1).tensors)

    moved = 0
    for name, covariance in covariances.items():
        key = f"backbone.{name}.weight"
        step = (stable[key] - start[key]).flatten(1).double()
        projector = null_space(covariance, 10.0, 0.3)
        basis = torch.linalg.svd(projector).U[:, : torch.linalg.matrix_rank(projector)]
        assert torch.allclose(step @ basis @ basis.T, step, atol=1e-5)
        moved += int(step.abs().max() > 0)

    assert moved > 0
    assert covariances["conv1"].shape == (9, 9)
    assert [name for name, task in learned.names if task == 2] == [
        *("grow", "main", "project", "connect", "covariance", "evaluate")
    ]
    assert ("covariance", 0) in learned.names
    # Both its networks saw the task, so the newest rows are averaged too.
    ends = [strip_prefix("network", learned.entry(s, 2).tensors) for s in ("project", "main")]
    merged = strip_prefix("network", learned.entry("connect", 2).tensors)
    rows = [each["head.weights.2"] for each in (*ends, merged)]
    assert torch.equal(rows[2], torch.lerp(rows[0], rows[1], torch.tensor(1 / 3)))


def test_covariances_add_up_over_tasks(lab) -> None:
    made = make_method("connector", stability="projected")
    learned = lab.learn(made)
    sums = [
        strip_prefix("covariance", learned.entry("covariance", task).tensors)["layers.1"]
        for task in range(3)
    ]

    for before, after in pairwise(sums):
        assert torch.linalg.eigvalsh(after - before).min() > -1e-9
        assert after.trace() > before.trace()
