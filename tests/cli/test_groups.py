"""Flags declared once in groups, and commands that take a group as one parameter."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from ancl.cli.groups import Machines, PresetSettings, Results, Seeding, Settings, Weights, grouped
from ancl.cli.request import FLAGS, Request
from typer.testing import CliRunner

from ancl.cli import options


def test_a_group_is_spread_into_its_flags_and_gathered_again() -> None:
    got: dict[str, Any] = {}

    @grouped
    def command(
        method: options.Method = None, *, weights: Weights, log: options.Log = None, out: Results
    ) -> None:
        """A command."""
        got.update(method=method, weights=weights, log=log, out=out)

    names = ["method", "lamb", "lamb_a", "log", "runs", "store", "dry_run", "as_json", "quiet"]
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


def test_groups_become_a_request() -> None:
    settings = PresetSettings(memory_per_class="5", setting=["seed=1"], quick=True)
    machines = replace(Machines(executor="pool", threads="4"), threads="2")
    request = Request.of("lwf", None, Weights(lamb="0"), Seeding(seeds="0-1"), settings, machines)

    # What was not given is no flag, and an executor is none of a run's settings.
    flags = {"--lamb": "0", "--memory-per-class": "5", "--threads": "2"}
    assert request == Request(
        "lwf", None, flags, ["seed=1"], seeds="0-1", preset="paper", quick=True
    )


def test_every_flag_of_a_setting_is_in_a_group() -> None:
    weights, machines = Weights(lamb="x", lamb_a="x"), Machines(device="x", threads="x")
    given: dict[str, Any] = dict.fromkeys(inspect.signature(Settings).parameters, "x")
    given |= {"setting": None, "config": None, "data_root": None}

    request = Request.of(None, None, weights, Settings(**given), machines)

    assert request.flags == dict.fromkeys(FLAGS, "x")


def test_stages_lie_beside_the_results_unless_said() -> None:
    data = Path("images")

    assert Results(runs=Path("a")).places(data) == (Path("a"), Path("a/.store"), data)
    assert Results(store=Path("b")).places(None) == (Path("runs"), Path("b"), None)
