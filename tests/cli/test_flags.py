"""Flags declared once in groups, and commands that take a group as one parameter."""

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from ancl.cli import flags
from ancl.cli.flags import (
    FLAGS,
    Machines,
    PresetSettings,
    Results,
    Seeding,
    Settings,
    Weights,
    grouped,
    make_request,
)
from ancl.experiments.settings import Request
from ancl.experiments.spec import Layer


def test_a_group_is_spread_into_its_flags_and_gathered_again() -> None:
    got: dict[str, Any] = {}

    @grouped
    def command(
        method: flags.Method = None, *, weights: Weights, log: flags.Log = None, out: Results
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


def test_groups_become_a_request_of_values() -> None:
    settings = PresetSettings(memory_per_class="5", setting=["seed=1"], quick=True)
    machines = replace(Machines(executor="pool", threads="4"), threads="2")
    request = make_request("lwf", None, Weights(lamb="0"), Seeding(seeds="0-1"), settings, machines)

    # What was not given is no value, and an executor is none of a run's settings.
    values = {"seed": 1, "lamb": 0, "memory.per_class": 5, "threads": 2}
    labels = {"seed": "--set", "lamb": "--lamb", "memory.per_class": "--memory-per-class"}
    layer = Layer("command line", values, labels={**labels, "threads": "--threads"})
    assert request == Request(
        "lwf", None, (layer,), seeds=(0, 1), seeds_source="--seeds", preset="paper", quick=True
    )


def test_what_cannot_be_read_is_a_mistake_of_the_request() -> None:
    request = make_request(None, None, Seeding(seed="1", seeds="3-1"), Settings(setting=["foo"]))

    assert [mistake.split(":")[0] for mistake in request.mistakes] == [
        "--set",
        "--seed and --seeds were both given. Leave out one.",
        "--seeds",
    ]


def test_epochs_count_for_the_first_task_unless_it_has_its_own() -> None:
    first = "training.epochs_first"
    both = make_request(None, None, Settings(epochs="3")).layers[0]
    own = make_request(None, None, Settings(epochs="3", setting=[f"{first}=2"])).layers[0]

    assert both.values == {"training.epochs": 3, first: None}
    assert both.label(first) == "--epochs"
    assert own.values == {"training.epochs": 3, first: 2}


def test_a_rate_counts_for_the_first_task_unless_it_has_its_own() -> None:
    first = "training.lr_first"
    both = make_request(None, None, Settings(lr="0.02", batch_size="16")).layers[0]
    own = make_request(None, None, Settings(lr="search", setting=[f"{first}=0.3"])).layers[0]

    assert both.values == {"training.lr": 0.02, "training.batch_size": 16, first: None}
    assert both.label(first) == "--lr"
    assert own.values == {"training.lr": "search", first: 0.3}


def test_every_flag_of_a_setting_is_in_a_group() -> None:
    groups = (Weights, Seeding, Settings, Machines)
    names = [name for group in groups for name in inspect.signature(group).parameters]

    assert {flag[2:].replace("-", "_") for flag in FLAGS} <= set(names)


def test_stages_lie_beside_the_results_unless_said() -> None:
    data = Path("images")

    assert Results(runs=Path("a")).places(data) == (Path("a"), Path("a/.store"), data, False)
    named = Results(store=Path("b"), overwrite=True)
    assert named.places(None) == (Path("runs"), Path("b"), None, True)
