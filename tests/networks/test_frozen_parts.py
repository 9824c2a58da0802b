"""Parts of a network that do not learn keep their statistics, and have keys of their own."""

from typing import Any

import pytest
import torch
from torch import nn

from ancl import make_method
from ancl.extend import Network, architecture
from tests.lab import HEADS, train_mode


def net(frozen: str = "stem") -> nn.Sequential:
    """A stem and a body, each with batch norm and dropout."""
    torch.manual_seed(0)
    made = nn.Sequential()
    made.stem = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    made.body = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    made.end = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    for name in frozen.split():
        made.get_submodule(name).requires_grad_(False)
    return made


@pytest.mark.parametrize(
    ("frozen", "still"),
    [
        ("", set()),
        ("stem", {"stem", "stem.0", "stem.1", "stem.2"}),
        ("stem.1", {"stem.1"}),
        ("stem.0 body.1", {"stem.0", "body.1"}),
    ],
)
def test_what_does_not_learn_is_in_eval_mode(frozen: str, still: set[str]) -> None:
    network = Network(net(frozen), HEADS["linear"](4))
    train_mode(network)
    found = {name for name, part in network.backbone.named_modules() if not part.training}
    assert found == still


def test_a_backbone_that_does_not_learn_is_in_eval_mode_as_a_whole() -> None:
    network = Network(net("stem body"), HEADS["linear"](4))
    train_mode(network)
    assert not any(part.training for part in network.backbone.modules())
    assert network.head.training


@pytest.mark.parametrize("method", ["lwf", "a-lwf", "afec-lwf"])
def test_statistics_of_a_frozen_part_are_those_it_came_with(method: str, lab: Any) -> None:
    given = lab.setting(architecture(net(), (1, 6, 6)), task_aware=True)
    learned = lab.learn(make_method(method), given)
    prototype, base = net().state_dict(), learned.entry("base", 0).tensors

    assert {name.removeprefix("base/backbone.") for name in base} == {
        name for name in prototype if name.startswith("stem")
    }
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        after = learned.final[f"network/backbone.body.1.{name}"]
        assert f"network/backbone.stem.1.{name}" not in learned.final
        assert torch.equal(base[f"base/backbone.stem.1.{name}"], prototype[f"stem.1.{name}"])
        assert not torch.equal(after, prototype[f"body.1.{name}"])


def test_frozen_and_learning_weights_have_other_keys(tmp_path: Any) -> None:
    frozen, learning = architecture(net(), (1, 6, 6)), architecture(net(""), (1, 6, 6))
    assert "frozen" not in learning.identity()
    assert frozen.identity()["frozen"][0] == "stem.0.weight"  # type: ignore[index]
    assert {**frozen.identity(), "frozen": 0} == {**learning.identity(), "frozen": 0}

    code = tmp_path / "code.py"
    code.write_text(
        "from torch import nn\n"
        "FROZEN = {}\n"
        "def make(shape):\n"
        "    made = nn.Sequential(nn.Flatten(), nn.Linear(36, 4))\n"
        "    made[1].weight.requires_grad_(not FROZEN)\n"
        "    return made\n"
    )
    learns = architecture(f"{code}:make", (1, 6, 6))
    code.write_text(code.read_text().replace("FROZEN = {}", "FROZEN = {1}"))
    assert architecture(f"{code}:make", (1, 6, 6)).probe.weights != learns.probe.weights
