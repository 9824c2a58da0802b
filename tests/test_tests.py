"""What every test keeps to: it asserts something, and only tests of the command import it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
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


def imports_of_the_command(parsed: dict[Path, ast.Module]) -> list[str]:
    found = []
    for file, tree in parsed.items():
        for node in ast.walk(tree):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            if any(f"{name}.".startswith("ancl.cli.") for name in names):
                found.append(f"{file}:{node.lineno}")
    return found


def test_every_test_asserts() -> None:
    assert without_assertion(trees()) == []
    assert sum(len(list(functions(tree))) for tree in trees().values()) > 1000


def test_only_tests_of_the_command_import_it() -> None:
    own = {file: tree for file, tree in trees().items() if file.parts[0] == "cli"}
    others = {file: tree for file, tree in trees().items() if file not in own}

    assert imports_of_the_command(own)
    assert imports_of_the_command(others) == []


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
        ("import ancl.client", False),
        ("from ancl import errors", False),
    ],
)
def test_an_import_of_the_command_would_be_found(text: str, found: bool) -> None:
    assert bool(imports_of_the_command({Path("a.py"): ast.parse(text)})) == found
