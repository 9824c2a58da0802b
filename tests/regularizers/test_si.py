"""SI: the path integral by hand, its importance, and going back."""

import pytest
import torch
from torch import Tensor, nn

from ancl.extend import Anchor, Output, Step
from tests.lab import Evidence, PathWatcher, Si


def walk(watcher: PathWatcher, weights: dict[str, Tensor], gradient: float, move: float) -> None:
    for weight in weights.values():
        weight.grad = torch.full_like(weight, gradient)
    watcher.before(weights)
    with torch.no_grad():
        for weight in weights.values():
            weight.add_(move)
    watcher.after(weights)


def test_the_path_integral_sums_what_each_step_lowered() -> None:
    weights = {"w": torch.zeros(1, requires_grad=True)}
    watcher = PathWatcher()

    walk(watcher, weights, gradient=0.5, move=-0.25)
    walk(watcher, weights, gradient=2.0, move=0.125)

    # −.5 · −.25 − 2 · .125 = .125 − .25
    assert watcher.state()["w"].item() == -0.125


def test_importance_is_the_integral_over_the_squared_way() -> None:
    weights = {"w": torch.tensor([1.0, 2.0])}
    evidence = Evidence(
        nn.Identity(),
        weights,
        {"w": torch.tensor([0.0, 2.0])},
        lambda augmented: iter(()),
        (),
        {"w": torch.tensor([0.55, -0.2])},
    )

    # .55 / (1² + .1) = .5; −.2 / (0 + .1) = −2, which counts as zero
    assert Si().importance(evidence)["path"]["w"].tolist() == pytest.approx([0.5, 0.0])
    unclipped = Si(clip=False).importance(evidence)["path"]["w"]
    assert unclipped.tolist() == pytest.approx([0.5, -2.0])
    assert Si(damping=0.2).importance(evidence)["path"]["w"][0].item() == pytest.approx(0.55 / 1.2)


def test_importance_adds_up_over_tasks() -> None:
    one, two = {"path": {"w": torch.tensor(1.0)}}, {"path": {"w": torch.tensor(2.0)}}

    assert Si().merge(None, one) == one
    assert Si().merge(one, two)["path"]["w"].item() == 3.0


def test_the_penalty_has_no_half() -> None:
    weight = torch.tensor([3.0], requires_grad=True)
    out = Output(torch.zeros(1, 2), torch.zeros(1, 1))
    step = Step(torch.zeros(1), torch.zeros(1), out, {"w": weight}, (slice(0, 2),))
    importance = {"path": {"w": torch.tensor([0.5])}}
    anchor = Anchor(slice(0, 2), weights={"w": torch.ones(1)}, importance=importance)

    penalty = Si().penalty(step, anchor)
    penalty.backward()

    # .5 (3 − 1)² = 2; gradient 2 · .5 (3 − 1)
    assert penalty.item() == 2.0
    assert weight.grad is not None
    assert weight.grad.tolist() == [2.0]


def test_a_restored_integral_forgets_later_steps_and_knows_weights_by_name() -> None:
    weights = {"b": torch.zeros(2, requires_grad=True), "a": torch.ones(2, requires_grad=True)}
    watcher = PathWatcher()
    walk(watcher, weights, gradient=1.0, move=-1.0)
    early = watcher.state()
    walk(watcher, weights, gradient=1.0, move=-5.0)

    # A stored state comes back in another order.
    watcher.restore({name: early[name] for name in sorted(early)})
    for weight in weights.values():
        weight.grad = torch.ones_like(weight)
    watcher.before(weights)
    with torch.no_grad():
        weights["b"].sub_(1.0)
    watcher.after(weights)

    assert watcher.state()["b"].tolist() == [2.0, 2.0]
    assert watcher.state()["a"].tolist() == [1.0, 1.0]


def test_only_training_that_is_watched_needs_a_watcher() -> None:
    first, second = Si().watcher(), Si().watcher()

    assert first is not second
    assert first.state() == {}
