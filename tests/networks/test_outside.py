"""Networks from a user's file: options, identity, mistakes, and what they may say themselves."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import SpecError
from ancl.extend import architecture, frozen
from tests.lab import NETWORKS, network_options, seeded

Write = Callable[[str, Mapping[str, str]], Path]

NET = """
from __future__ import annotations
from typing import TYPE_CHECKING
import math
import torch
from torch import nn
from layers import block
if TYPE_CHECKING:
    from collections.abc import Sequence

def net(shape, width: int = 4, *, norm=nn.Identity, sizes: tuple[int, ...] = (5, 3)):
    return nn.Sequential(nn.Flatten(), block(math.prod(shape), width), norm())

class Net(nn.Sequential):
    def __init__(self, shape: Sequence[int], *, width: int):
        super().__init__(nn.Flatten(), block(math.prod(shape), width))

double = lambda shape: nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), 3)).double()
made = net((4,))
"""
LAYERS = "from torch import nn\ndef block(a, b): return nn.Sequential(nn.Linear(a, b), nn.ReLU())\n"


@pytest.fixture
def folder(write: Write) -> Path:
    return write("mine", {"net.py": NET, "layers.py": LAYERS})


def identity(name: str, **options: Any) -> str:
    return json.dumps(architecture(name, (2, 3), **options).identity(), sort_keys=True)


def test_a_function_of_a_file_makes_the_backbone(folder: Path) -> None:
    made = architecture(f"{folder}/net.py:net", (2, 3), width=6)
    with seeded(0, "weights"):
        first = made.build([2, 1])
    with seeded(0, "weights"):
        second = made.build([2, 1])

    assert (made.feature_size, dict(made.options)) == (6, {"width": 6, "sizes": (5, 3)})
    assert first(torch.zeros(4, 2, 3)).logits.shape == (4, 3)
    again = second.tensors()
    assert all(torch.equal(value, again[key]) for key, value in first.tensors().items())


def test_a_class_and_other_dtypes_are_taken_too(folder: Path) -> None:
    assert architecture(f"{folder}/net.py:Net", (2, 3), width=5).feature_size == 5
    double = architecture(f"{folder}/net.py:double", (2, 3)).build([2])
    assert double.backbone[1].weight.dtype == torch.float32


def test_options_are_what_a_file_of_settings_can_hold(folder: Path) -> None:
    options = network_options(f"{folder}/net.py:net")

    assert {name: each.default for name, each in options.items()} == {"width": 4, "sizes": (5, 3)}
    assert network_options(f"{folder}/net.py:Net")["width"].annotation in (int, "int")
    assert list(network_options("resnet8")) == ["width", "last_relu"]
    assert list(network_options("mlp")) == ["hidden"]


def test_identity_follows_the_source_and_the_options_not_the_place(
    folder: Path, write: Write
) -> None:
    name = f"{folder}/net.py:net"
    before = identity(name)
    moved = write("other", {"net.py": NET, "layers.py": LAYERS, "beside.py": "x = 1\n"})

    assert identity(f"{moved}/net.py:net") == before
    assert identity(name, width=4) == before
    assert identity(name, width=5) != before
    assert str(folder) not in before
    assert json.loads(before)["name"] == "net"
    assert json.loads(before)["stored"] is True
    write("mine", {"layers.py": LAYERS + "# changed\n"})
    assert identity(name) != before


def test_weights_that_are_read_from_elsewhere_are_part_of_the_identity(write: Write) -> None:
    text = (
        "import torch\nfrom pathlib import Path\n"
        "def net(shape):\n    layer = torch.nn.Linear(*shape, 2)\n"
        "    value = float(Path(__file__).with_name('w').read_text())\n"
        "    torch.nn.init.constant_(layer.weight, value)\n    return layer\n"
    )
    folder = write("mine", {"net.py": text, "w": "1"})
    first = architecture(f"{folder}/net.py:net", (3,)).identity()
    write("mine", {"w": "2", "net.py": text})
    from tests.lab import PROBES

    PROBES.clear()  # as another process would read it
    assert architecture(f"{folder}/net.py:net", (3,)).identity() != first


def test_code_that_cannot_be_hashed_is_not_stored(write: Write) -> None:
    text = "import torch\nexec('size = 3')\ndef net(shape): return torch.nn.Linear(*shape, size)\n"
    folder = write("mine", {"net.py": text})

    found = architecture(f"{folder}/net.py:net", (4,)).identity()

    assert found["stored"] is False
    assert "net.py:2 uses exec" in str(found["why"])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("def net(): ...", {}, "does not take the shape of a sample. Name a function or class"),
        ("def net(*, width=3): ...", {}, "does not take the shape of a sample"),
        ("def net(shape): return 3", {}, r"net.py:net returned a int\. Name a function"),
        ("def net(shape): return nn.Linear", {}, "returned a type"),
        ("def net(shape): 1 / 0", {}, r"stopped with ZeroDivisionError: .* the shape \(3, 8, 8\)"),
        ("def net(shape): return nn.Conv2d(3, 4, 3)", {}, r"\(2, 4, 6, 6\) came out.*Pool and fl"),
        ("def net(shape): return nn.Conv2d(1, 4, 3)", {}, r"first layer reads \(3, 8, 8\)"),
        ("def net(shape): return nn.LazyLinear(3)", {}, "lazy layers without a size"),
        ("def net(shape, *, width): ...", {}, "needs a value for its option 'width'"),
        ("def net(shape, width=1): ...", {"wdith": 2}, r"'wdith'\. Did you mean 'width'"),
        ("def net(shape): ...", {"width": 2}, r"has no option 'width'\. .* accepts: none\."),
        ("def net(shape, head=1): ...", {}, "has an option 'head', a name that is taken"),
        ("net = nn.Linear(3, 4).weight", {}, r"is of type Parameter\. Name a function or class"),
        ("other = 1", {}, r"There is no function 'net'"),
    ],
)
def test_what_is_no_network_is_refused(
    write: Write, text: str, options: dict[str, Any], message: str
) -> None:
    folder = write("mine", {"net.py": f"from torch import nn\n{text}\n"})

    with pytest.raises(SpecError, match=message):
        architecture(f"{folder}/net.py:net", (3, 8, 8), **options)


def test_an_unknown_name_is_told_how_to_name_ones_own() -> None:
    with pytest.raises(SpecError, match=r"no network 'resnet33'\. .* path/file\.py:NAME"):
        network_options("resnet33")


GROWING = """
from torch import nn
import torch

class Growing(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.first = nn.Linear(*shape, 3)
        self.added = nn.ModuleList()

    def add_task(self, classes):
        self.added.append(nn.Linear(3, 3))

    def forward(self, x):
        x = self.first(x)
        return x + sum(layer(x) for layer in self.added)

    def folded(self):
        folded = nn.Linear(4, 3)
        folded.load_state_dict(self.first.state_dict())
        return folded

    def last_layers(self):
        return ["first"]
"""


def test_a_backbone_may_grow_fold_and_name_its_layers(write: Write) -> None:
    folder = write("mine", {"growing.py": GROWING})

    network = architecture(f"{folder}/growing.py:Growing", (4,)).build([2, 1])
    network.add_task(3)

    assert len(network.backbone.added) == 3
    assert network.head.sizes == (2, 1, 3)
    assert network.last_layers() == ["first"]
    assert torch.equal(frozen(network).backbone.weight, network.backbone.first.weight)


def test_our_networks_name_their_last_layers() -> None:
    def last(name: str, **options: Any) -> list[str]:
        return architecture(name, (1, 8, 8), **options).build().last_layers()

    assert last("resnet14", width=2) == [
        f"layer3.{block}.{conv}" for block in (0, 1) for conv in ("conv1", "conv2")
    ]
    assert last("mlp", hidden=(4, 3)) == ["layers.1", "layers.3"]
    assert architecture(torch.nn.Flatten(), (4,)).build().last_layers() == []
    assert [name for name in NETWORKS if not network_options(name)] == ["features"]
