"""Pretrained weights are trained gently unless someone says otherwise, and it is said."""

import re
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import save_file

from ancl import Events, Learner, Training, spec
from ancl.extend import architecture
from tests.lab import Layer, digits, resolve, seeded

GENTLE = {"lr": 0.01, "lr_first": None, "backbone_factor": 0.1}


class Heard(Events):
    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


@pytest.fixture(name="network")
def _network(timm: Any, tmp_path: Path) -> dict[str, Any]:
    with seeded(5, "weights"):
        tensors = timm.TinyNet(1, 10).state_dict()
    save_file(tensors, tmp_path / "tiny.safetensors")
    return {"network.name": "timm:tinynet", "network.weights": str(tmp_path / "tiny.safetensors")}


def trained(values: dict[str, Any], section: str = "training") -> dict[str, Any]:
    return {name: values[section][name] for name in GENTLE}


def test_rate_norms_and_augmentation_follow_from_the_weights(network: dict[str, Any]) -> None:
    values = spec("a-lwf", "digits/5", settings=network).values()

    assert trained(values) == GENTLE == trained(values, "auxiliary")
    assert values["network"]["norms"] == "fixed"
    assert values["data"]["augment"] == "flip"
    found = resolve("lwf", "digits/5", [Layer("--set", network)])
    assert found.sources["training.lr"] == "pretrained weights"


def test_affine_and_adapters_have_more_of_the_rate(network: dict[str, Any]) -> None:
    for trains, factor in (("affine", 0.3), ("adapter", 0.3), ("conv_head", 0.1)):
        settings = {**network, "network.trains": trains}
        values = spec("lwf", "digits/5", settings=settings).values()
        assert values["training"]["backbone_factor"] == factor, trains


@pytest.fixture(name="transformer")
def _transformer(timm: Any, tmp_path: Path) -> dict[str, Any]:
    with seeded(5, "weights"):
        tensors = timm.TinyVit(1, 10, (8, 8), 4).state_dict()
    save_file(tensors, tmp_path / "vit.safetensors")
    weights = str(tmp_path / "vit.safetensors")
    return {"network.name": "timm:tinyvit_patch4", "network.weights": weights}


def test_the_embedding_of_a_transformer_stands_still(transformer: dict[str, Any]) -> None:
    found = resolve("a-lwf", "digits/5", [Layer("--set", transformer)])
    assert found.spec.network["trains"] == "body"
    assert found.sources["network.trains"] == "pretrained weights"
    assert trained(found.spec.values()) == {**GENTLE, "backbone_factor": 0.01}
    random = {"network.name": "timm:tinyvit_patch4"}
    for settings, trains in (
        (random, "all"),
        ({**transformer, "network.trains": "all"}, "all"),
        ({**transformer, "network.trains": "blocks"}, "blocks"),
    ):
        assert spec("lwf", "digits/5", settings=settings).values()["network"]["trains"] == trains

    options = {"weights": transformer["network.weights"], "trains": "body"}
    made = architecture(transformer["network.name"], (1, 8, 8), **options).backbone()
    learning = {name for name, weight in made.named_parameters() if weight.requires_grad}
    assert {name.partition("blocks")[1:] for name in learning} == {
        ("blocks", ".weight"),
        ("blocks", ".bias"),
    }


def test_an_embedding_that_learns_is_warned_of(
    transformer: dict[str, Any], network: dict[str, Any]
) -> None:
    warning = "network.trains=all lets the patch embedding of timm:tinyvit_patch4 learn"
    name = transformer["network.name"]
    assert warning in told(transformer, name=name, trains="all")
    said = told(transformer, name=name)
    assert warning not in said
    assert "Of its backbone these learn: body." in said
    assert "patch embedding" not in told(network, trains="all")


def test_what_is_said_stays(network: dict[str, Any]) -> None:
    own = {**network, "training.lr": 0.2, "network.norms": "moving", "auxiliary.lr": 0.3}
    values = spec("a-lwf", "digits/5", settings=own).values()
    assert (values["training"]["lr"], values["auxiliary"]["lr"]) == (0.2, 0.3)
    assert values["network"]["norms"] == "moving"
    # A whole Training says what is not its default.
    whole = spec("lwf", "digits/5", settings=network, training=Training(epochs=3)).values()
    assert trained(whole) == GENTLE
    assert whole["training"]["epochs"] == 3


def test_random_weights_frozen_networks_and_earlier_recipes_are_as_before(
    network: dict[str, Any],
) -> None:
    default = {name: getattr(Training, name) for name in GENTLE}
    random = {"network.name": "timm:tinynet"}
    # A recipe that was written before has every setting of a training, and no later one.
    plain = spec("lwf", None, settings={"data.source": "digits", "data.tasks": 5}).plain()
    earlier = {"network.frozen": False, "seed": 0} | {
        f"{section}.{name}": value
        for section in ("data", "training")
        for name, value in plain[section].items()
    }
    for settings in (
        random,
        {**network, "network.frozen": True},
        {**network, "network.trains": "head"},
        {**network, **earlier},
    ):
        values = spec("lwf", None, settings={**settings, "data.source": "digits", "data.tasks": 5})
        assert trained(values.values()) == default, settings
        assert values.network["norms"] == "moving"
        assert values.data.augment == "none"


def test_to_say_that_a_network_is_not_frozen_is_no_recipe(network: dict[str, Any]) -> None:
    values = spec("lwf", "digits/5", settings={**network, "network.frozen": False}).values()
    assert trained(values) == GENTLE
    assert values["network"]["norms"] == "fixed"

    assert "head's learning rate is 0.01;" in told(network, frozen=False)


def test_without_held_images_it_says_that_nothing_is_measured(network: dict[str, Any]) -> None:
    said = told(network, held=0.0)
    assert "no image is held (data.val_fraction=0), so it is not measured whether training" in said
    assert "has cost more" not in said


def told(
    network: dict[str, Any],
    lr: float | None = None,
    name: str = "timm:tinynet",
    held: float = 0.5,
    **more: Any,
) -> str:
    """What is said while a learner with these pretrained weights learns three digits."""
    heard = Heard()
    learner = Learner(
        "finetune",
        name,
        network_options={"weights": network["network.weights"], **more},
        training={
            "epochs": 1,
            "schedule": "constant",
            **({} if lr is None else {"lr": lr, "backbone_factor": 1.0}),
        },
        events=heard,
        val_fraction=held,
    )
    images = digits().train.take(digits().train.y.lt(3).nonzero().flatten()[::3])
    learner.learn(images.x, images.y.tolist())
    return "\n".join(heard.messages)


def test_it_is_said_and_so_is_what_training_cost(network: dict[str, Any]) -> None:
    said = told(network, lr=30.0)

    assert (
        "pretrained weights. Of its backbone these learn: all. The head's learning rate is 30"
        in said
    )
    assert "training has cost more than it gained" in said


def test_a_head_that_has_learned_too_little_is_not_taken_for_lost_features(
    network: dict[str, Any],
) -> None:
    said = told(network, lr=1e-6)

    assert "training has cost more" not in said
    shares = re.search(r"it answers (\S+) % right, .* features (\S+) % \((\S+) % before", said)
    assert shares
    head, after, before = map(float, shares.groups())
    assert head < before - 2
    assert after == before  # nothing has moved
