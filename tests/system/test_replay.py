"""What a memory records and a method's own state are the same in a pool as in one process."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Events, Store, specs
from tests.lab import Graph, Pool, Serial, compute_with, patching, program

EXAMPLES = Path(__file__).parents[2] / "examples"
DARK = f"{EXAMPLES / 'dark_replay.py'}:dark_replay"
SLDA = f"{EXAMPLES / 'streaming_lda.py'}:slda"
SHARED: dict[str, Any] = {"data.scenario": "cil", "data.per_class": 12, "threads": 1}
DYING = """
import json, os, sys
from ancl import Events, Store, specs
from tests.lab import ExecutorChoice, Graph, Serial, compute

class Dying(Events):
    left = 0

    def count(self):
        self.left -= 1
        if not self.left:
            os._exit(9)

    def epoch_ends(self, stage, epoch):
        self.count()

    def stage_ends(self, stage, *, found, seconds):
        self.count()

methods, settings, store, Dying.left = json.loads(sys.argv[1])
graph = Graph(specs(methods, "digits/5", settings=settings))
compute(graph, Store(store), ExecutorChoice(Serial()), Dying())
"""
"""Computes until a number of epochs and stages have ended, and is gone."""
REPLAY = {"memory.per_class": 3, "memory.batch": 8, "training.epochs": 2}


def assert_equal_stores(one: Store, other: Store, keys: Sequence[str]) -> dict[str, int]:
    """Every stage has the same bits in both; how many of them hold each tensor."""
    holders: dict[str, int] = {}
    for key in keys:
        ours, theirs = one.load(key), other.load(key)
        assert ours is not None
        assert theirs is not None
        assert ours.tensors.keys() == theirs.tensors.keys()
        for name, tensor in ours.tensors.items():
            torch.testing.assert_close(tensor, theirs.tensors[name], rtol=0, atol=0, equal_nan=True)
            holders[name] = holders.get(name, 0) + 1
    return holders


CASES = pytest.mark.parametrize(
    ("methods", "settings", "tensor", "count"),
    [
        # The first task's memory is one for all three.
        ([DARK, f"a-{DARK}", f"afec-{DARK}"], REPLAY, "memory/extra/logits", 13),
        ([SLDA], {"network.name": "mlp"}, "statistics/products", 5),
    ],
    ids=["dark_replay", "streaming_lda"],
)


@CASES
def test_two_workers_give_the_bits_of_one_process(
    methods: list[str], settings: Mapping[str, Any], tensor: str, count: int, tmp_path: Path
) -> None:
    graph = Graph(specs(methods, "digits/5", settings={**SHARED, **settings}))
    pooled, alone = Store(tmp_path / "pool"), Store(tmp_path / "serial")

    assert compute_with(Pool(2), graph, pooled, Events()) == {}
    assert compute_with(Serial(), graph, alone, Events()) == {}

    assert assert_equal_stores(pooled, alone, list(graph.nodes))[tensor] == count


@CASES
def test_a_process_that_was_killed_goes_on_to_the_same_bits(
    methods: list[str], settings: Mapping[str, Any], tensor: str, count: int, tmp_path: Path
) -> None:
    given = {**SHARED, **settings}
    graph = Graph(specs(methods, "digits/5", settings=given))
    resumed, alone = Store(tmp_path / "resumed"), Store(tmp_path / "serial")
    code = patching("CHECKPOINT_SECONDS", "0.0") + program(DYING)
    for ends in (8, 5):
        words = json.dumps([methods, given, str(tmp_path / "resumed"), ends])
        assert subprocess.run([sys.executable, "-c", code, words]).returncode == 9

    assert compute_with(Serial(), graph, resumed, Events()) == {}
    assert compute_with(Serial(), graph, alone, Events()) == {}

    assert assert_equal_stores(resumed, alone, list(graph.nodes))[tensor] == count
