"""Data from a user's function."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import ScenarioError
from tests.lab import known_source, load_source, program

Write = Callable[[str, Mapping[str, str]], Path]

MINE = program("""
import dataclasses
from pathlib import Path
import numpy as np
from tests.lab import from_arrays
import shades

CALLS = []

def arrays():
    CALLS.append(1)
    x = np.arange(12 * 4, dtype=np.uint8).reshape(12, 2, 2)
    y = [shades.NAMES[i % 3] for i in range(12)]
    return x, y, x[:6] + 1, y[:6]

def source():
    return from_arrays(*arrays()[:2], name="mine")

def edited():
    found = source()
    brighter = dataclasses.replace(found.train, x=found.train.x.dense() + 7)
    return dataclasses.replace(found, train=brighter)

def rooted(root: Path, factor: int = 1):
    x, y, *_ = arrays()
    return x + int((root / "offset").read_text()), y

def needs(path): ...
def three(): return 1, 2, 3
def number(): return 3
def fails(): raise OSError("no disk")
""")


@pytest.fixture
def file(write: Write) -> str:
    shades = "NAMES = ['dark', 'light', 'medium']\n"
    return f"{write('mine', {'mine.py': MINE, 'shades.py': shades})}/mine.py"


def test_arrays_of_a_function_are_a_source(file: str) -> None:
    known = known_source(f"{file}:arrays")
    source = known.load()

    assert (known.classes, known.explanation) == (3, "your own code")
    assert source.classes == ("dark", "light", "medium")
    assert source.name == "arrays"
    assert (len(source.train), len(source.test)) == (12, 6)
    assert source.train.input_shape == (1, 2, 2)


def test_it_is_read_once_for_its_classes_and_its_images(file: str) -> None:
    known = known_source(f"{file}:arrays")
    calls = len(known.load().classes) and load_calls(file)
    load_source(f"{file}:arrays")

    assert calls == load_calls(file) == 1


def load_calls(file: str) -> int:
    from tests.lab import load

    return len(load(f"{file}:arrays", "a function", ScenarioError).value.__globals__["CALLS"])


def test_a_source_is_taken_with_a_fingerprint_of_its_own(file: str) -> None:
    whole, edited = load_source(f"{file}:source"), load_source(f"{file}:edited")

    assert whole.name == edited.name == "mine"
    assert whole.fingerprint != edited.fingerprint
    assert torch.equal(whole.test.x.dense(), edited.test.x.dense())


def test_a_function_may_ask_where_data_lies(file: str, tmp_path: Path) -> None:
    found = []
    for offset in (1, 2):
        root = tmp_path / str(offset)
        root.mkdir()
        (root / "offset").write_text(str(offset))
        known = known_source(f"{file}:rooted")
        assert known.classes is None
        found.append(known.load(root).train.x.dense().min().item())

    assert found[1] == found[0] + 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("needs", r"mine.py:needs takes path\. Name a function without arguments, or with the arg"),
        ("three", r"returned a tuple of 3\. Name a function"),
        ("number", r"returned a int\. Name a function"),
        ("fails", r"mine.py:fails stopped with OSError: no disk"),
        ("array", r"There is no function 'array'\. Did you mean 'arrays'"),
        ("CALLS", r"is of type list\. Name a function"),
    ],
)
def test_what_is_no_data_is_refused(file: str, name: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        known_source(f"{file}:{name}")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.py:x", "There is no file nowhere.py"),
        ("no_such_module:x", "There is no module 'no_such_module'"),
        ("cifar", r"no data source 'cifar'\..*folder:PATH.*path/file\.py:NAME"),
    ],
)
def test_names_that_lead_nowhere_are_told(name: str, message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        known_source(name)


def test_a_folder_without_its_prefix_is_told_what_to_write(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match=f"Write folder:{tmp_path}, or folder:{tmp_path}@32"):
        known_source(str(tmp_path))


def test_other_data_of_ones_own_is_no_code(tmp_path: Path) -> None:
    from tests.lab import names_code

    given: Any = {"folder:a.py:b": False, "arrays:x.npz": False, "digits": False, "m.py:f": True}
    assert {name: names_code(name) for name in given} == given
