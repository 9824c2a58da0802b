"""Flags read to the values of a request."""

import inspect
from dataclasses import replace

import pytest

from ancl import SpecError
from tests.lab import (
    ROWS,
    Layer,
    Machines,
    PresetSettings,
    Request,
    Seeding,
    Settings,
    Weights,
    read_count,
)
from tests.lab import make_request_of_flags as make_request


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
    groups = (Weights, Seeding, PresetSettings, Machines)
    names = [name for group in groups for name in inspect.signature(group).parameters]

    assert {name for name, row in ROWS.items() if row.key} <= set(names)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "", "9999999"])
def test_what_is_no_count(text: str) -> None:
    with pytest.raises(SpecError, match=f"--threads: '{text}' is not a number of threads. Write 1"):
        read_count("--threads", text)
    assert (read_count("--threads", None), read_count("--threads", "12")) == (None, 12)
