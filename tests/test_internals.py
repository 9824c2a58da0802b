"""The walk through the code names files and names that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "ancl"
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("internals", "architecture")]
NAMED = re.compile(r"`((?:[\w-]+/)*\w+\.py)(?::([\w.]+))?`")


def defined(file: Path) -> set[str]:
    """Every name of a module, and of its classes as ``Class.name``."""
    names: set[str] = set()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        names |= named_by(node)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{name}" for inner in node.body for name in named_by(inner)}
    return names


def named_by(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_named_file_and_name_exists(page: Path) -> None:
    named = NAMED.findall(page.read_text(encoding="utf-8"))
    assert len(named) > 5
    for path, name in named:
        file = PACKAGE / path if (PACKAGE / path).exists() else ROOT / path
        assert file.is_file(), f"{page.name}: {path}"
        if name:
            assert name in defined(file), f"{page.name}: {path}:{name}"


def test_a_name_that_is_gone_would_be_seen() -> None:
    names = defined(PACKAGE / "stages" / "stage.py")

    assert {"Stage", "Stage.key", "KEY_VERSION"} <= names
    assert "Stage.locked" not in names
    assert NAMED.findall("`stages/stage.py:Stage.key` and `state.py`") == [
        ("stages/stage.py", "Stage.key"),
        ("state.py", ""),
    ]


def test_every_stage_of_the_package_is_on_the_page() -> None:
    steps = ast.parse((PACKAGE / "stages" / "steps.py").read_text(encoding="utf-8"))
    stages = [
        node.name
        for node in steps.body
        if isinstance(node, ast.ClassDef)
        and any(isinstance(base, ast.Name) and base.id == "Stage" for base in node.bases)
    ]
    page = PAGES[0].read_text(encoding="utf-8")

    assert [name for name in stages if f"steps.py:{name}`" not in page] == []
