"""R-Walk: the path by hand, fresh and merged importance, and the penalty."""

import pytest
import torch
from torch import Tensor, nn

from ancl.extend import Anchor, Network, Output, Step
from tests.lab import Evidence, Ewc, Importance, LinearHead, PathWatcher, RWalk


def walked() -> Importance:
    """Two steps of gradient .5 and Δθ = −.05: the path is .05, the squared way .01."""
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    watcher = RWalk().watcher()
    assert isinstance(watcher, PathWatcher)
    for _ in range(2):
        weight.grad = torch.full_like(weight, 0.5)
        watcher.before({"w": weight})
        with torch.no_grad():
            weight.sub_(0.05)
        watcher.after({"w": weight})
    way = (weight.detach() - 1).square()
    return {"gradients": {"w": torch.tensor([0.25]).double()}, "path": watcher.state()} | {
        "way": {"w": way}
    }


def test_a_first_task_by_hand() -> None:
    importance = RWalk().merge(None, walked())

    # F = .5 · 0 + .5 · .25; s = .05 / (.125 · .01 + .1) = .493827; S = (0 + s)/2
    assert importance["gradients"]["w"].item() == pytest.approx(0.125)
    assert importance["scores"]["w"].item() == pytest.approx(0.246914, abs=1e-6)
    # no ½ in the penalty: 2 (F + S)
    assert RWalk().curvature(importance)["w"].item() == pytest.approx(2 * 0.371914, abs=1e-6)


def test_a_second_task_averages_both_parts() -> None:
    before = {"gradients": {"w": torch.tensor([0.4])}, "scores": {"w": torch.tensor([1.0])}}

    importance = RWalk(alpha=0.75).merge(before, walked())

    fisher = 0.75 * 0.4 + 0.25 * 0.25
    score = 0.05 / (fisher * 0.01 + 0.1)
    assert importance["gradients"]["w"].item() == pytest.approx(fisher)
    assert importance["scores"]["w"].item() == pytest.approx((1 + score) / 2)


def test_an_auxiliary_networks_importance_counts_in_full() -> None:
    # F = .25 as it is; s = .05 / (.25 · .01 + .1)
    curvature = RWalk().curvature(walked())["w"].item()

    assert curvature == pytest.approx(2 * (0.25 + 0.05 / 0.1025))


def test_a_path_that_raised_the_loss_counts_as_none() -> None:
    fresh = walked()
    fresh["path"] = {"w": -fresh["path"]["w"]}

    assert RWalk().curvature(fresh)["w"].item() == pytest.approx(0.5)
    assert RWalk().merge(None, fresh)["scores"]["w"].item() == 0


def test_damping_keeps_weights_at_rest_finite() -> None:
    still = {name: {"w": torch.zeros(1)} for name in ("gradients", "way")}
    importance = {**still, "path": {"w": torch.tensor([0.2])}}

    assert RWalk(damping=0.5).curvature(importance)["w"].item() == pytest.approx(2 * 0.4)


def test_fisher_information_is_ewcs_for_the_predicted_labels() -> None:
    torch.manual_seed(0)
    head = LinearHead(3)
    head.grow(2)
    network = Network(nn.Linear(4, 3), head)
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    start = {name: torch.zeros_like(weight) for name, weight in network.weights().items()}

    def batches(augmented: bool) -> object:
        return iter([(x, y)])

    watched = {name: torch.ones_like(weight) for name, weight in network.weights().items()}
    evidence = Evidence(network, network.weights(), start, batches, (slice(0, 2),), watched)

    found = RWalk().importance(evidence)
    expected = Ewc(labels="predicted").importance(evidence)["gradients"]

    for name, weight in network.weights().items():
        assert torch.equal(found["gradients"][name], expected[name])
        assert torch.equal(found["path"][name], watched[name])
        assert torch.equal(found["way"][name], weight.detach().square())
    assert not found["way"]["weight"].requires_grad


def test_the_penalty_has_no_half() -> None:
    weight: Tensor = torch.tensor([3.0], requires_grad=True)
    importance = {"gradients": {"w": torch.tensor([0.5])}, "scores": {"w": torch.tensor([0.25])}}
    anchor = Anchor(slice(0, 2), weights={"w": torch.ones(1)}, importance=importance)
    out = Output(torch.zeros(1, 2), torch.zeros(1, 1))
    step = Step(torch.zeros(1), torch.zeros(1), out, {"w": weight}, (slice(0, 2),))

    # (.5 + .25)(3 − 1)²
    assert RWalk().penalty(step, anchor).item() == pytest.approx(3.0)
