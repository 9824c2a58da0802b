"""What of a network learns, by one setting; and batch norms that keep their statistics."""

from typing import Any

import pytest
import torch
from torch import nn

from ancl import SpecError, Training, run, spec
from ancl.extend import Network, architecture
from tests.lab import (
    EfficientNetLite0,
    base_names,
    describe,
    digest,
    limit,
    make_optimizer,
    train_mode,
)

NAME, SHAPE = "efficientnet_lite0", (3, 32, 32)


def learning(trains: str) -> set[str]:
    made = architecture(NAME, SHAPE, weights="random", trains=trains).backbone()
    return {name for name, weight in made.named_parameters() if weight.requires_grad}


def test_each_word_lets_its_part_learn() -> None:
    plain = dict(EfficientNetLite0().named_parameters())
    norms = {name for name, weight in plain.items() if weight.dim() == 1}

    assert learning("all") == set(plain)
    assert learning("head") == set()
    assert learning("affine") == norms
    assert learning("last") == {n for n in plain if n.startswith(("stages.6.", "head."))}
    assert learning("stages.5,stages.6") == {
        n for n in plain if n.startswith(("stages.5.", "stages.6."))
    }
    assert all(name.endswith(".b") for name in learning("adapter"))


class Bare(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())


@pytest.mark.parametrize("trains", ["affine", "last", "adapter", "body", "layer4", ""])
def test_what_is_not_there_is_refused_with_the_list_of_parts(trains: str) -> None:
    with pytest.raises(
        SpecError, match=r"network\.trains is .*\. Give one of .*names of its parts: 0\."
    ):
        limit(Bare(), trains=trains)


def test_the_nearest_part_is_asked_for_in_whole_sentences() -> None:
    with pytest.raises(SpecError, match=r"has no part '1x'\. Did you mean '1'\? Give one of all, "):
        limit(nn.Sequential(*Bare(), nn.Linear(2, 2)), trains="1x")
    with pytest.raises(SpecError, match=r"has no part 'layer4'\. Give one of all, "):
        limit(Bare(), trains="layer4")


def test_a_rank_that_no_layer_admits_is_refused_before_anything_is_made() -> None:
    with pytest.raises(
        SpecError, match=r"rank is 100000, but .*EfficientNetLite0 .* from 1 to 320"
    ):
        architecture(NAME, SHAPE, weights="random", trains="adapter", rank=100_000)


def test_a_method_that_computes_its_classifier_says_that_it_trains_no_backbone() -> None:
    settings = {
        "network.name": NAME,
        "network.weights": "random",
        "network.trains": "adapter",
    }
    why = r"Methods that compute their classifier never train it.* leave network\.trains out"
    with pytest.raises(SpecError, match=why):
        run(spec("slda", "digits/5", settings=settings))


def test_two_settings_that_contradict_are_refused() -> None:
    with pytest.raises(SpecError, match=r"frozen is true, and network\.trains=last"):
        architecture(NAME, SHAPE, weights="random", frozen=True, trains="last")
    with pytest.raises(SpecError, match=r"rank is 3, and there are no adapters"):
        architecture(NAME, SHAPE, weights="random", rank=3)


def test_defaults_are_in_no_key_and_other_values_are() -> None:
    def key(**options: Any) -> str:
        return digest(describe(architecture(NAME, SHAPE, weights="random", **options)))

    plain = architecture(NAME, SHAPE, weights="random").key_description()["options"]
    assert plain == {"frozen": False}
    assert key() == key(trains="all", norms="moving")
    assert len({key(), key(trains="affine"), key(norms="fixed"), key(trains="adapter")}) == 4
    settings = {"network.name": NAME, "network.weights": "random"}
    assert "trains" not in spec("lwf", "digits/5", settings=settings).plain()["network"]
    moved = spec("lwf", "digits/5", settings={**settings, "network.trains": "affine"})
    assert moved.plain()["network"]["trains"] == "affine"


def test_fixed_norms_keep_their_statistics_while_their_weights_learn() -> None:
    fixed = architecture(NAME, SHAPE, weights="random", trains="affine", norms="fixed").build([2])
    moving = architecture(NAME, SHAPE, weights="random", trains="affine").build([2])

    def changed(network: Network) -> int:
        train_mode(network)
        before = {name: value.clone() for name, value in network.named_buffers()}
        network(torch.randn(4, *SHAPE))
        return sum(not torch.equal(before[n], value) for n, value in network.named_buffers())

    assert changed(fixed) == 0
    assert changed(moving) > 0
    buffers = {name for name, _ in fixed.backbone.named_buffers()}
    assert buffers <= base_names(fixed.backbone)


def test_head_and_backbone_have_rates_of_their_own() -> None:
    network = architecture("mlp", (4,), hidden=[3]).build([2])
    parameters = dict(network.named_parameters())
    before = {name: weight.detach().clone() for name, weight in parameters.items()}
    training = Training(lr=0.5, momentum=0.0, weight_decay=0.0, backbone_factor=0.1)
    optimizer = make_optimizer(parameters, training)
    for group in optimizer.param_groups:  # as the loop does it
        group["lr"] = training.lr * group["factor"]
    for weight in parameters.values():
        weight.grad = torch.ones_like(weight)
    optimizer.step()

    for name, weight in parameters.items():
        step = 0.05 if name.startswith("backbone.") else 0.5
        assert torch.allclose(before[name] - weight, torch.full_like(weight, step), atol=1e-6), name
    one = make_optimizer(parameters, Training(lr=0.5))
    assert len(one.param_groups) == 1
