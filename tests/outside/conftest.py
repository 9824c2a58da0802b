"""Files of code in folders of their own; what they import is forgotten after a test."""

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

Write = Callable[[str, Mapping[str, str]], Path]


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Write]:
    """Writes files below a folder of a name, and gives that folder."""
    path, modules = list(sys.path), set(sys.modules)

    def files(folder: str, texts: Mapping[str, str]) -> Path:
        for name, text in texts.items():
            file = tmp_path / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        importlib.invalidate_caches()
        return tmp_path / folder

    yield files
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]
