"""Options are rows of one table, and commands take a group of them as one parameter."""

import inspect
from pathlib import Path
from typing import Any

import typer
from typer.main import get_command
from typer.testing import CliRunner

from tests.lab import ROWS, Results, Weights, app, with_flags


def test_a_group_is_spread_into_its_flags_and_gathered_again() -> None:
    got: dict[str, Any] = {}

    @with_flags
    def command(
        method: str | None = None, *, weights: Weights, log: str | None = None, out: Results
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


def parameters(command: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Every parameter of every command, by the path to it."""
    options = {(*path, option.name): option for option in command.params}
    for name, inner in getattr(command, "commands", {}).items():
        options |= parameters(inner, (*path, name))
    return options


def test_every_row_is_an_option_and_every_option_is_a_row() -> None:
    shown = {(option.metavar, option.help) for option in parameters(get_command(app)).values()}
    rows = {(row.metavar, row.help) for row in ROWS.values()}
    own = {(None, "Print the version.")}  # of the command itself, and two that Typer adds

    assert rows - shown == set()
    assert {help for _, help in shown - rows - own} == {
        "Install completion for the current shell.",
        "Show completion for the current shell, to copy it or customize the installation.",
    }
