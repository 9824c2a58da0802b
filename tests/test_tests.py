"""What every test keeps to: it asserts, and does not say where the library's parts live."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from pkgutil import resolve_name

import pytest

import ancl
from tests import lab

TESTS = Path(__file__).parent
PACKAGE = Path(ancl.__file__).parent
ABOUT_MODULES = {
    Path("lab.py"): "the facade itself",
    Path("test_tests.py"): "the examples below",
    Path("data/test_pickles.py"): "a name that a forged pickle asks for",
    Path("test_measure_house.py"): "packages of an example",
    Path("methods/test_differences.py"): "the mark of a generated table in a page",
}
WITH_PROCESSES = {
    Path("store/test_index.py"): "copies files with cp",
    Path("test_docs.py"): "runs what pages say, as they say it",
}
ASSERTING = ("raises", "warns")


@cache
def trees() -> dict[Path, ast.Module]:
    files = sorted(TESTS.rglob("*.py"))
    return {file.relative_to(TESTS): ast.parse(file.read_text(encoding="utf-8")) for file in files}


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def asserts(function: ast.FunctionDef, helpers: set[str]) -> bool:
    """Whether it asserts by itself, or calls one of the helpers."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if name in ASSERTING or name.startswith("assert_") or name in helpers:
                return True
    return False


def checks(parsed: dict[Path, ast.Module]) -> set[str]:
    """Helpers of tests that assert, and whose name says so."""
    return {
        function.name
        for tree in parsed.values()
        for function in functions(tree)
        if function.name.startswith("check") and asserts(function, set())
    }


def without_assertion(parsed: dict[Path, ast.Module]) -> list[str]:
    helpers = checks(parsed)
    return [
        f"{file}:{node.lineno} {node.name}"
        for file, tree in parsed.items()
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if not asserts(node, helpers)
    ]


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that is imported, in full, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


@cache
def modules() -> set[str]:
    """The modules of the package, in full."""
    files = PACKAGE.rglob("*.py")
    parts = (file.relative_to(PACKAGE.parent).with_suffix("").parts for file in files)
    return {".".join(each).removesuffix(".__init__") for each in parts} - {"ancl"}


def module_in(text: str) -> str:
    """A module of ours that a text names, or nothing."""
    for name in re.findall(r"\bancl(?:\.\w+)+", text):
        parts = name.split(".")
        for count in range(2, len(parts) + 1):
            if ".".join(parts[:count]) in modules():
                return str(name)
    return ""


def names_of_modules(parsed: dict[Path, ast.Module]) -> list[str]:
    """Where a test says in which module something lives, by an import or in a text."""
    found = []
    for file, tree in parsed.items():
        public = {f"ancl.{name}" for name in ancl.__all__}
        deep = {line for line, name in imports(tree) if module_in(name) and name not in public}
        deep |= {
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
            if module_in(node.value)
        }
        deep |= {
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and module_in(ast.unparse(node))
            if ast.unparse(node) not in public
        }
        found += [f"{file}:{line}" for line in sorted(deep)]
    return found


def imports_of_the_command(parsed: dict[Path, ast.Module]) -> list[str]:
    """Where a test imports the command, itself or through the facade."""
    command = {name for name, place in lab.PLACES.items() if place.startswith("ancl.cli")}
    return [
        f"{file}:{line}"
        for file, tree in parsed.items()
        for line, name in imports(tree)
        if f"{name}.".startswith("ancl.cli.")
        or (name.startswith("tests.lab.") and name.split(".")[2] in command)
    ]


def names_used(parsed: dict[Path, ast.Module]) -> tuple[set[str], set[str]]:
    """What tests take from the facade, by import or by name, and what they replace."""
    taken, replaced = set(), set()
    for tree in parsed.values():
        taken |= {name.split(".")[2] for _, name in imports(tree) if name.startswith("tests.lab.")}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = re.findall(r"from tests\.lab import ([\w, ]+)", node.value)
                taken |= {word for line in words for word in re.split(r", | as ", line)}
                replaced.add(node.value)
            elif isinstance(node, ast.Subscript) and ast.unparse(node.value) == "PLACES":
                taken.add(ast.literal_eval(node.slice))
    return taken, replaced


def test_every_test_asserts() -> None:
    assert without_assertion(trees()) == []
    assert sum(len(list(functions(tree))) for tree in trees().values()) > 1000


def test_only_tests_of_the_command_import_it() -> None:
    own = {file: tree for file, tree in trees().items() if file.parts[0] in ("cli", "system")}
    others = {file: tree for file, tree in trees().items() if file not in own}

    assert imports_of_the_command(own)
    assert imports_of_the_command(others) == []


def test_only_the_facade_says_where_something_lives() -> None:
    others = {file: tree for file, tree in trees().items() if file not in ABOUT_MODULES}

    assert names_of_modules(others) == []
    assert set(trees()) >= set(ABOUT_MODULES)


def test_the_facade_finds_all_it_names_and_nothing_public() -> None:
    public = {id(getattr(ancl, name)) for name in ancl.__all__}
    parts = {name: getattr(lab, name) for name in lab.PLACES}

    assert [name for name, part in parts.items() if id(part) in public] == []
    assert set(lab.PLACES) & set(vars(lab)) == set()  # the facade's own names come first


def test_what_is_replaced_exists_and_is_put_back() -> None:
    places = [place.rpartition(".") for places in lab.PATCHES.values() for place in places]

    def parts() -> list[object]:
        return [getattr(resolve_name(module), part) for module, _, part in places]

    before = parts()
    with pytest.MonkeyPatch.context() as patch:
        for name in lab.PATCHES:
            lab.patch_part(patch, name, None)
        assert set(parts()) == {None}
    assert all(part is old for part, old in zip(parts(), before, strict=True))


def test_all_of_the_facade_is_used() -> None:
    others = {file: tree for file, tree in trees().items() if file != Path("lab.py")}
    taken, replaced = names_used(others)

    assert set(lab.PLACES) - taken == set()
    assert set(lab.PATCHES) - replaced == set()


def test_a_program_imports_from_where_things_are() -> None:
    text = "import os; from tests.lab import Lwf, RayShift as Shift\nfrom ancl import run\n"
    lwf, shift = (lab.PLACES[name].split(":") for name in ("Lwf", "RayShift"))

    assert lab.program(text) == (
        f"import os; from {lwf[0]} import {lwf[1]}; from {shift[0]} import {shift[1]} as Shift\n"
        "from ancl import run\n"
    )


def test_a_program_replaces_what_a_test_does() -> None:
    names: dict[str, object] = {}
    with pytest.MonkeyPatch.context() as patch:
        lab.patch_part(patch, "CHECKPOINT_SECONDS", 1.0)  # so that it is put back
        exec(lab.patching("CHECKPOINT_SECONDS", "7.5"), names)
        module, _, part = lab.PATCHES["CHECKPOINT_SECONDS"][0].rpartition(".")
        assert getattr(resolve_name(module), part) == 7.5

    assert getattr(resolve_name(module), part) != 7.5


def test_what_the_facade_lacks_is_said() -> None:
    with pytest.raises(AttributeError, match="no 'nothing'; add it to PLACES"):
        _ = lab.nothing


def test_processes_are_started_in_their_own_folder_only() -> None:
    starting = {
        file
        for file, tree in trees().items()
        for _, name in imports(tree)
        if name.split(".")[0] in ("subprocess", "multiprocessing")
    }

    assert {file for file in starting if file.parts[0] != "system"} == set(WITH_PROCESSES)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("assert f()", False),
        ("with pytest.raises(E): f()", False),
        ("torch.testing.assert_close(a, b)", False),
        ("for x in y: check_it(x)", False),
        ("check_nothing()", True),
        ("f()", True),
    ],
)
def test_a_test_that_only_runs_would_be_found(body: str, found: bool) -> None:
    text = "def check_it(x):\n    assert x\ndef check_nothing():\n    f()\ndef test_a():\n    "
    parsed = {Path("test_a.py"): ast.parse(text + body)}

    assert without_assertion(parsed) == (["test_a.py:5 test_a"] if found else [])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import ancl.cli", True),
        ("from ancl import cli", True),
        ("from ancl.cli.main import app", True),
        ("def f():\n    import ancl.cli.text as text", True),
        ("from tests.lab import main as ours", True),
        ("import ancl.client", False),
        ("from ancl import errors", False),
        ("from tests.lab import resolve", False),
    ],
)
def test_an_import_of_the_command_would_be_found(text: str, found: bool) -> None:
    assert bool(imports_of_the_command({Path("a.py"): ast.parse(text)})) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("from ancl.errors import SpecError", True),
        ("from ancl import memory", True),
        ("def f():\n    import ancl.data.batches as batches", True),
        ("m.setattr('ancl.stages.runner.CHECKPOINT_SECONDS', 0)", True),
        ("code = 'from ancl.cli.main import main; main()'", True),
        ("import ancl\nancl.store.store.Store", True),
        ("import ancl\nancl.run()", False),
        ("from ancl import Learner, errors", False),
        ("from tests.lab import main", False),
        ("facts = {'ancl.labels': 1}", False),
    ],
)
def test_a_module_that_a_test_names_would_be_found(text: str, found: bool) -> None:
    assert bool(names_of_modules({Path("a.py"): ast.parse(text)})) == found
