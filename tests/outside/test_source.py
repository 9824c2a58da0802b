"""The source of code: its own modules are in it, all of them, and nothing else."""

import inspect
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
import typer

from ancl import SpecError
from tests.lab import UnstorableError, describe, load, source_hash, sources_of

Write = Callable[[str, Mapping[str, str]], Path]

ENTRY = """
import json
import helper
from folder.inner import thing
def value():
    from late import x
    return x
"""
FILES = {
    "net.py": ENTRY,
    "helper.py": "import deeper as d\n",
    "deeper.py": "import net\n",
    "late.py": "x = 1\n",
    "folder/inner.py": "from . import *\nfrom .beside import thing\n",
    "folder/beside.py": "thing = 1\n",
    "unrelated.py": "import helper\n",
    "json.py": "never imported: the standard library comes first\n",
}
OWN = ["deeper.py", "folder/beside.py", "folder/inner.py", "helper.py", "late.py", "net.py"]


def sources(folder: Path, file: str = "net.py"):
    return sources_of("anything", folder / file)


def test_own_modules_are_found_in_every_kind_of_import(write: Write) -> None:
    found = sources(write("mine", FILES))

    assert list(found.files) == OWN
    assert found.gaps == ()


@pytest.mark.parametrize("file", FILES)
def test_the_hash_follows_the_own_modules_and_no_other_file(write: Write, file: str) -> None:
    before = sources(write("mine", FILES)).digest

    after = sources(write("mine", {file: FILES[file] + "# changed\n"})).digest

    assert (after != before) == (file in OWN)


def test_the_hash_follows_names_but_not_places(write: Write) -> None:
    before = sources(write("mine", {"net.py": "import a\n", "a.py": "", "b.py": ""})).digest

    moved = sources(write("other", {"renamed.py": "import a\n", "a.py": ""}), "renamed.py").digest
    named = sources(write("third", {"net.py": "import b\n", "b.py": ""})).digest

    assert moved == before
    assert named != before


def test_relative_imports_reach_up_to_the_top_of_the_package(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(
        "project",
        {
            "top/__init__.py": "",
            "top/shared.py": "",
            "top/sub/__init__.py": "from ..other import y\n",
            "top/sub/net.py": "from ..shared import *\nfrom .. import late as l\ndef f(): ...\n",
            "top/other.py": "y = 1\n",
            "top/late.py": "",
            "top/unused.py": "",
            "beside.py": "",
        },
    )
    monkeypatch.syspath_prepend(folder)

    found = load("top.sub.net:f", "a function", SpecError).sources

    assert list(found.files) == [
        "top/__init__.py",
        "top/late.py",
        "top/other.py",
        "top/shared.py",
        "top/sub/__init__.py",
        "top/sub/net.py",
    ]


def test_a_star_import_of_a_package_may_reach_all_its_modules(write: Write) -> None:
    files = {"net.py": "from parts import *\n", "parts/__init__.py": "", "parts/a.py": ""}

    assert list(sources(write("mine", files)).files) == [
        "net.py",
        "parts/__init__.py",
        "parts/a.py",
    ]


@pytest.mark.parametrize(
    ("line", "gap"),
    [
        ("import importlib; importlib.import_module('helper')", "uses importlib"),
        ("from importlib import import_module as get", "uses importlib"),
        ("__import__('helper')", "uses __import__"),
        ("exec('x = 1')", "uses exec"),
        ("import sys; sys.path.append('..')", "uses sys.path"),
        ("from torch.utils.cpp_extension import load", "uses torch.utils.cpp_extension"),
        ("import fast", "imports fast, a compiled extension"),
        ("import old", "imports old, which has no source file"),
        ("def f(:", "is not Python that can be read"),
    ],
)
def test_what_cannot_be_hashed_is_named(write: Write, line: str, gap: str) -> None:
    compiled = f"fast{EXTENSION_SUFFIXES[0]}"
    folder = write("mine", {"net.py": f"{line}\n", compiled: "", "old.pyc": "", "helper.py": ""})

    [found] = sources(folder).gaps

    assert found == f"net.py{'' if gap.startswith('imports') else ':1'} {gap}"


def test_a_gap_of_a_helper_is_one_of_the_code(write: Write) -> None:
    folder = write("mine", {"net.py": "import helper\n", "helper.py": "exec('x = 1')\n"})

    assert sources(folder).gaps == ("helper.py:1 uses exec",)


def test_eval_mode_is_no_dynamic_code(write: Write) -> None:
    text = "def f(model, app):\n    model.eval()\n    app.exec()\n    return model.path\n"

    assert sources(write("mine", {"net.py": text})).gaps == ()


def test_a_file_of_a_package_that_imports_its_package_says_how_to_name_it(write: Write) -> None:
    folder = write("top", {"__init__.py": "", "net.py": "from top.a import x\n", "a.py": ""})

    assert "of the package it is in: name it package.module" in sources(folder).gaps[0]


def test_an_installed_package_is_known_by_what_was_installed() -> None:
    found = sources_of("typer.main", Path(inspect.getfile(typer.Typer)))

    assert list(found.files) == ["typer/main.py"]
    assert (len(found.installed), found.gaps) == (64, ())


def test_parts_carry_the_hash_of_their_own_modules(write: Write) -> None:
    text = (
        "from dataclasses import dataclass\nimport scale\n"
        "@dataclass(frozen=True)\nclass Part:\n    factor: float = scale.FACTOR\n"
    )
    folder = write("mine", {"part.py": text, "scale.py": "FACTOR = 1.0\n"})
    name = f"{folder}/part.py:Part"
    before = describe(load(name, "a class", SpecError).value(2.0))
    write("mine", {"scale.py": "FACTOR = 3.0\n"})
    edited = describe(load(name, "a class", SpecError).value(2.0))

    assert before["is"][0] == edited["is"][0] == "Part"
    assert before["is"][1] != edited["is"][1]


def test_the_hash_is_that_of_what_runs_not_of_a_later_edit(write: Write) -> None:
    folder = write(
        "mine", {"part.py": "import late_helper\nclass Part: ...\n", "late_helper.py": ""}
    )
    part = load(f"{folder}/part.py:Part", "a class", SpecError).value
    before = source_hash(part)

    write("mine", {"part.py": "class Part:\n    x = 1\n", "late_helper.py": "y = 1\n"})

    assert source_hash(part) == before
    assert "late_helper" in sys.modules


def test_code_with_gaps_is_not_stored_and_says_why(write: Write) -> None:
    folder = write("mine", {"part.py": "exec('x = 1')\nclass Part: ...\n"})
    part = load(f"{folder}/part.py:Part", "a class", SpecError).value

    with pytest.raises(UnstorableError, match=r"Not all that decides Part is known: .*uses exec"):
        source_hash(part)
