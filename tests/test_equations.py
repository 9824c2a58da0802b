"""Keys of equations: each one cited exists on the page, each one of the page is cited."""

import re
from pathlib import Path

import ancl

PACKAGE = Path(ancl.__file__).parent
PAGE = Path(__file__).parents[1] / "docs" / "equations.md"


def cited() -> dict[str, set[str]]:
    """The files that cite each key."""
    found: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        for key in re.findall(r"Equation: \[([^\]]+)\]", file.read_text(encoding="utf-8")):
            found.setdefault(key, set()).add(file.relative_to(PACKAGE).as_posix())
    return found


def listed() -> dict[str, set[str]]:
    """The files the page names for each key."""
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line[:2] == "| "]
    cells = [re.split(r"(?<!\\)\|", row)[1:-1] for row in rows[1:]]
    assert all(len(row) == 4 and all(cell.strip() for cell in row) for row in cells)
    return {row[0].strip(): set(re.findall(r"`([^`]+)`", row[3])) for row in cells}


def test_cited_and_listed_keys_are_the_same_in_the_same_files() -> None:
    assert cited() == listed()


def test_a_regularizer_cites_its_equation() -> None:
    parts = [file for file in (PACKAGE / "regularizers").glob("*.py")]
    without = {"__init__.py", "base.py", "gradients.py"}

    silent = [f.name for f in parts if f.name not in without and "Equation: [" not in f.read_text()]

    assert len(parts) > len(without)
    assert silent == []
