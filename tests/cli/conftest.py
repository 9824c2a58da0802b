"""The command in this process, in a directory of its own."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from typer.testing import CliRunner

from ancl.cli.main import app


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
