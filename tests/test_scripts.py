"""The scripts of the project do what a release needs."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_absolute_links_leave_no_relative_one() -> None:
    absolute = runpy.run_path(str(ROOT / "scripts" / "absolute_links.py"))["absolute"]
    page = "[a](docs/a.md#b) ![c](docs/images/c.png) [d](https://e.org/f) [g](#h)"

    made = absolute(page, "https://host/o/n", "v1")

    assert made == (
        "[a](https://host/o/n/blob/v1/docs/a.md#b) ![c](https://host/o/n/raw/v1/docs/images/c.png)"
        " [d](https://e.org/f) [g](#h)"
    )
    readme = absolute((ROOT / "README.md").read_text(), "https://host/o/n", "v1")
    assert all("://" in link or link[0] == "#" for link in re.findall(r"\]\(([^)\s]+)\)", readme))


def test_the_version_is_the_same_everywhere() -> None:
    found = {
        re.search(pattern, (ROOT / file).read_text(), re.MULTILINE)[1]  # type: ignore[index]
        for file, pattern in (
            ("pyproject.toml", r'^version = "(.*)"$'),
            ("src/ancl/__init__.py", r'^__version__ = "(.*)"$'),
            ("CITATION.cff", r"^version: (.*)$"),
        )
    }

    assert len(found) == 1
