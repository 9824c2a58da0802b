"""Whatever your code can depend on is in the key, or nothing of it is stored and it is said why."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

import ancl
from tests.lab import KNOWN_SOURCES, Graph, installed_version

Write = Callable[[str, Mapping[str, str]], Path]
ROOT = Path(__file__).parents[2]
SETTINGS = {
    **{"network.name": "mlp", "network.hidden": [4], "threads": 1, "device": "cpu"},
    **{"data.per_class": 4, "data.test_per_class": 2, "data.tasks": 2},
}
AUGMENT = "import torch\n{line}\ndef j(x, generator):\n    return x\n"


def planned(name: str, setting: str = "data.augment") -> tuple[list[str], list[str]]:
    """The keys of a run with this part, and why it is not stored."""
    [spec] = ancl.specs(["lwf"], "digits/5", settings={**SETTINGS, setting: name}, seeds=[0])
    [plan] = Graph([spec]).plans
    return list(plan), [text for text in plan.warnings if "not stored" in text]


DISTRIBUTION = {
    "lib/fromshop.py": "K = 1\n",
    "lib/shop_things-{v}.dist-info/METADATA": "Name: shop-things\nVersion: {v}\n",
    "lib/shop_things-{v}.dist-info/RECORD": "fromshop.py,,\n",
    "lib/shop_things-{v}.dist-info/top_level.txt": "fromshop\n",
}


def distribution(version: str) -> dict[str, str]:
    return {k.format(v=version): v.format(v=version) for k, v in DISTRIBUTION.items()}


HELPERS: dict[str, tuple[str, dict[str, str], dict[str, str]]] = {
    "beside": ("import near_a", {"near_a.py": "K = 1\n"}, {"near_a.py": "K = 2\n"}),
    "on the path": (
        "from far_b import K",
        {"lib/far_b.py": "K = 1\n"},
        {"lib/far_b.py": "K = 9\n"},
    ),
    "its own helper": (
        "import far_c",
        {"lib/far_c.py": "import deep_c\n", "lib/deep_c.py": "K = 1\n"},
        {"lib/deep_c.py": "K = 2\n"},
    ),
    "package on the path": (
        "from far_d.sub import part",
        {"lib/far_d/__init__.py": "", "lib/far_d/sub/__init__.py": "", "lib/far_d/sub/part.py": ""},
        {"lib/far_d/sub/part.py": "K = 1\n"},
    ),
    "inside a function": (
        "def value():\n    from far_e import K\n    return K",
        {"lib/far_e.py": "K = 1\n"},
        {"lib/far_e.py": "K = 2\n"},
    ),
    "installed": ("import fromshop", distribution("1.0"), distribution("2.0")),
}


@pytest.mark.parametrize("case", HELPERS)
def test_code_of_ones_own_is_hashed_wherever_it_is(
    case: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    line, files, later = HELPERS[case]
    folder = write("mine", {"aug.py": AUGMENT.format(line=line), **files})
    monkeypatch.syspath_prepend(folder / "lib")
    before = planned(f"{folder}/aug.py:j")
    if case == "installed":
        shutil.rmtree(folder / "lib/shop_things-1.0.dist-info")
        installed_version.cache_clear()  # as another process would read it
        KNOWN_SOURCES.clear()
    write("mine", {**later, "unrelated.py": "K = 3\n"})

    after = planned(f"{folder}/aug.py:j")

    assert before[1] == after[1] == []
    assert set(before[0]) != set(after[0])


READING = [
    *("eval('1')", "exec('K = 1')", "compile('1', 'x', 'eval')", "__import__('h2').K"),
    *("getattr(builtins, '__imp' + 'ort__')('h2')", "globals()['__builtins__']"),
    *("importlib.import_module('h2')", "runpy.run_path('x')", "sys.modules['h2']"),
    *("open('x').read()", "io.open('x')", "codecs.open('x')", "Path('x').read_text()"),
    *("Path('x').open()", "Path('x').exists()", "list(Path('x').iterdir())", "os.listdir()"),
    *("glob.glob('*')", "json.load(open('x'))", "pickle.load(open('x'))", "pickle.loads(b'')"),
    *("marshal.loads(b'')", "sqlite3.connect('x')", "linecache.getline('x', 1)", "input()"),
    *("np.load('x')", "np.loadtxt('x')", "np.fromfile('x')", "np.memmap('x')", "torch.load('x')"),
    *("torch.hub.load('x', 'y')", "torch.jit.load('x')", "Image.open('x')", "getattr(np, name)"),
    *("os.environ['K']", "os.getenv('K')", "os.environ.get('K')", "getattr(os, 'en' + 'viron')"),
    *("getattr(os, 'environ')", "sys.argv[1]", "os.path.getsize('x')", "subprocess.run(['x'])"),
    *("urllib.request.urlopen('x')", "socket.gethostname()", "platform.node()", "ctypes.CDLL('x')"),
]


def _needed(use: str) -> str:
    """The imports that an expression needs, and no others."""
    modules = "builtins importlib runpy sys io codecs os glob json pickle marshal sqlite3 linecache"
    modules += " subprocess urllib.request socket platform ctypes"
    named = [f"import {each}" for each in modules.split() if f"{each.split('.')[0]}." in use]
    named += [f"import {each}" for each in ("builtins", "os") if f"({each}," in use]
    named += ["import numpy as np"] if "np" in use else []
    named += ["from pathlib import Path"] if "Path(" in use else []
    return "; ".join(dict.fromkeys([*named, "from PIL import Image" if "Image" in use else "pass"]))


@pytest.mark.parametrize("use", READING)
def test_code_that_can_depend_on_more_is_not_stored_and_the_line_is_named(
    use: str, write: Write
) -> None:
    line = f"{_needed(use)}\ndef value(name):\n    return {use}"
    folder = write("mine", {"aug.py": AUGMENT.format(line=line)})

    _, [said] = planned(f"{folder}/aug.py:j")

    assert said.startswith("Results of this run are not stored: Not all that decides j is known: ")
    assert said.split("known: ")[1].startswith(("aug.py:2 uses ", "aug.py:4 uses "))
    assert "\n" not in said


ORDINARY = """
from __future__ import annotations
import argparse, copy, functools, itertools, json, logging, math, os.path, random, re, sys, time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
if TYPE_CHECKING:
    from numpy.typing import NDArray
PATTERN, NAME = re.compile("a+"), os.path.join("a", "b")
class Net(nn.Module):
    def __init__(self, compile: bool = False, open: int = 3, kind: str = "ReLU") -> None:
        super().__init__()
        self.act, self.open = getattr(nn, kind)(), open
        self.inner = torch.compile(self.act) if compile else self.act
        self.load_state_dict(self.state_dict())
    def forward(self, input: Tensor) -> Tensor:
        self.eval()
        print(json.loads("1"), file=sys.stderr)
        return F.relu(input) * np.float32(1) * math.pi
    def exec(self) -> Any:
        return self.exec()
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    print(open(parser.parse_args().file).read(), eval("1"))
"""


def test_ordinary_code_is_stored(write: Write) -> None:
    text = f"{ORDINARY}def j(x, generator):\n    return x\n"
    folder = write("mine", {"aug.py": text})

    assert planned(f"{folder}/aug.py:j")[1] == []


@pytest.mark.parametrize("file", ["outside_method.py:drift", "outside_network.py:net"])
def test_the_examples_are_stored(file: str) -> None:
    name = str(ROOT / "examples" / file)
    method, network = (name, "mlp") if "method" in file else ("lwf", name)
    settings = {"data.per_class": 4, "data.tasks": 2, "network.name": network, "threads": 1}
    [spec] = ancl.specs([method], "digits/5", settings=settings, seeds=[0])

    assert [text for text in Graph([spec]).plans[0].warnings if "not stored" in text] == []


def test_stages_that_cannot_be_stored_are_counted_as_to_do(write: Write, tmp_path: Path) -> None:
    line = "import os\nK = os.environ.get('K')"
    name = f"{write('mine', {'aug.py': AUGMENT.format(line=line)})}/aug.py:j"
    settings = {**SETTINGS, "training.epochs": 3, "data.augment": name}
    graph = Graph([ancl.spec("lwf", "digits/5", settings=settings)])

    said = graph.summary(ancl.Store(tmp_path / "store"))

    assert said.endswith("6 stages: 0 shared, 0 stored, 6 to do (at most 6 epochs)")
