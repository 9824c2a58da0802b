"""Flags declared once in groups, and commands that take a group as one parameter."""

import inspect
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from tests.lab import LogFlag, MethodArgument, Results, Weights, grouped


def test_a_group_is_spread_into_its_flags_and_gathered_again() -> None:
    got: dict[str, Any] = {}

    @grouped
    def command(
        method: MethodArgument = None, *, weights: Weights, log: LogFlag = None, out: Results
    ) -> None:
        """A command."""
        got.update(method=method, weights=weights, log=log, out=out)

    results = ["runs", "store", "overwrite", "dry_run", "as_json", "quiet"]
    names = ["method", "lamb", "lamb_a", "log", *results]
    assert list(inspect.signature(command).parameters) == names

    app = typer.Typer()
    app.command()(command)
    ended = CliRunner().invoke(app, ["lwf", "--lamb-a", "2", "--json"])
    assert ended.exit_code == 0
    assert got == {
        "method": "lwf",
        "weights": Weights(lamb_a="2"),
        "log": None,
        "out": Results(as_json=True),
    }


def test_stages_lie_beside_the_results_unless_said() -> None:
    data = Path("images")

    assert Results(runs=Path("a")).places(data) == (Path("a"), Path("a/.store"), data, False)
    named = Results(store=Path("b"), overwrite=True)
    assert named.places(None) == (Path("runs"), Path("b"), None, True)
