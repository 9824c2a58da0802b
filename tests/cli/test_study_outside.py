"""A study never shows old numbers: what decided a run from outside is compared when it is read."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lab import digits

FILE = """
search_seeds: [0]
table_seeds: [1]
reference_seeds: [1]
benchmarks:
  digits/5:
    settings:
      {{training.epochs: 1, data.per_class: 6, data.test_per_class: 2, data.tasks: 2, {setting}}}
    references: {{mine: {{{reference}}}}}
"""
AUGMENT = "import torch\n{line}\ndef j(x, generator):\n    return x\n"
METHOD = Path(__file__).parents[2] / "examples/outside_method.py"
NETWORK = (
    "import math\nfrom torch import nn\nfrom layers import WIDTH\ndef net(shape):\n"
    "    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), WIDTH), nn.ReLU())\n"
)


def arrays(each: int) -> None:
    samples = digits().train
    some = [i for n in range(4) for i in samples.of_class(n)[:each].tolist()]
    np.savez("own.npz", x=samples.x[some].numpy(), y=samples.y[some].numpy())


def write(text: str, name: str) -> None:
    Path(name).write_text(text)


CASES: dict[str, tuple[str, str, Any, Any]] = {
    "data.augment (aug.py:j)": (
        "network.name: mlp, data.augment: aug.py:j",
        "method: finetune",
        lambda: write(AUGMENT.format(line="K = 1"), "aug.py"),
        lambda: write(AUGMENT.format(line="K = 2"), "aug.py"),
    ),
    "method (own.py:drift)": (
        "network.name: mlp",
        "method: own.py:drift",
        lambda: shutil.copy(METHOD, "own.py"),
        lambda: write(METHOD.read_text().replace(".square()", ".abs()"), "own.py"),
    ),
    "network (net.py:net)": (
        "network.name: net.py:net",
        "method: finetune",
        lambda: (write(NETWORK, "net.py"), write("WIDTH = 5\n", "layers.py")),
        lambda: write("WIDTH = 6\n", "layers.py"),
    ),
    "data.source (arrays:own.npz)": (
        "network.name: mlp, data.source: arrays:own.npz",
        "method: finetune",
        lambda: arrays(12),
        lambda: arrays(13),
    ),
}


def kept() -> dict[str, str]:
    [file] = Path("results").iterdir()
    found: dict[str, str] = json.loads(file.read_text())["outside"]
    return found


@pytest.mark.parametrize("part", CASES)
@pytest.mark.usefixtures("no_figures")
def test_a_changed_part_is_named_and_its_runs_are_computed_again(ancl: Any, part: str) -> None:
    setting, reference, begin, change = CASES[part]
    write(FILE.format(setting=setting, reference=reference), "a.yaml")
    begin()
    ran = ancl("study", "a.yaml", "--quiet", "--json")
    before = kept()
    same = ancl("study", "a.yaml", "--tables", "--json")
    change()
    read = ancl("study", "a.yaml", "--tables", "--json")
    again = ancl("study", "a.yaml", "--quiet", "--json")
    now = ancl("study", "a.yaml", "--tables", "--json")

    assert [each.json["left"] for each in (ran, same, read, again, now)] == [0, 0, 1, 0, 0]
    said = f"{part} has changed. Its runs in results are not taken"
    assert [said in each.err for each in (ran, same, read, again, now)] == [0, 0, 1, 1, 0]
    setting = part.partition(" ")[0]
    assert list(before) == list(kept()) == [setting]
    assert before[setting] != kept()[setting]


@pytest.mark.usefixtures("no_figures")
def test_results_of_code_that_reads_more_are_taken_by_no_later_command(ancl: Any) -> None:
    write(
        FILE.format(
            setting="network.name: mlp, data.augment: aug.py:j", reference="method: finetune"
        ),
        "a.yaml",
    )
    write(AUGMENT.format(line="import os\nK = os.environ.get('K')"), "aug.py")
    ran = ancl("study", "a.yaml", "--quiet", "--json")
    [file] = Path("results").iterdir()
    mark = json.loads(file.read_text())["outside"]["data.augment"]
    file.write_text(file.read_text().replace(mark, mark[:-1]))  # as another process wrote it

    read = ancl("study", "a.yaml", "--tables", "--json")

    assert (ran.json["left"], read.json["left"]) == (0, 1)
    assert "not stored: Not all that decides j is known: aug.py:3 uses os.environ." in ran.err
    assert "data.augment (aug.py:j) may depend on more than its code." in read.err
