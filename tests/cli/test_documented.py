"""Every command line of a page can be given as it is written."""

import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from tests.lab import app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def lines(page: Path) -> list[str]:
    """Every line of a code block that calls the command, without its comment."""
    joined = page.read_text(encoding="utf-8").replace("\\\n", " ")
    found = re.findall(r"^(?: {4})?(ancl [a-z].*)$", joined, re.MULTILINE)
    return [re.sub(r" {2,}[^-\s].*|\s+#.*", "", line) for line in found]


def mistake(line: str) -> str:
    """What the command says of a line that it does not understand; else nothing."""
    command, words = get_command(app), shlex.split(line)[1:]
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands"):
        return f"{line}: No such command"
    try:
        command.make_context("ancl", words)
    except Exception as error:  # of click, which typer may have inside
        return f"{line}: {error}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_command_lines_are_understood(page: Path) -> None:
    assert [found for line in lines(page) if (found := mistake(line))] == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ancl run lwf digits/5 --epoch 1", "No such option: --epoch"),
        ("ancl run lwf digits/5 --seed", "requires an argument"),
        ("ancl demo again", "unexpected extra argument"),
        ("ancl predict", "Missing parameter: learner"),
        ("ancl runn lwf", "No such command"),
    ],
)
def test_a_wrong_line_would_be_found(line: str, said: str) -> None:
    assert said in mistake(line)


def test_there_are_lines_to_check() -> None:
    assert sum(len(lines(page)) for page in PAGES) > 60
