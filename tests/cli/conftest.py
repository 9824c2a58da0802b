"""The command in this process, in a directory of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from tests.lab import app, patch_part


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Ancl = Callable[..., Ended]


@pytest.fixture
def ancl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ancl:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> Ended:
        result = CliRunner().invoke(app, list(arguments), catch_exceptions=True)
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ended(result.exit_code, result.stdout, result.stderr)

    return call


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One finished run with its store."""
    place = tmp_path_factory.mktemp("finished")
    words = "run lwf digits/5 --tasks 2 --epochs 1 --threads 1 --quiet --set data.per_class=10"
    given = [*words.split(), "--set", "network.name=mlp", "--runs", str(place / "runs")]
    assert CliRunner().invoke(app, given).exit_code == 0
    return place / "runs"


@pytest.fixture
def no_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports without figures, which take most of their time."""
    patch_part(monkeypatch, "report_can_draw", lambda: False)
