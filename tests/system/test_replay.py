"""Replay batches and records are the same in a pool as in one process."""

from pathlib import Path

import torch

from ancl import Events, Store, specs
from tests.lab import Graph, Pool, Serial

FILE = f"{Path(__file__).parents[2] / 'examples/dark_replay.py'}:dark_replay"
SETTINGS = {
    "data.scenario": "cil",
    "data.per_class": 12,
    "memory.per_class": 3,
    "memory.batch": 8,
    "training.epochs": 2,
    "threads": 1,
}


def test_two_workers_give_the_bits_of_one_process(tmp_path: Path) -> None:
    graph = Graph(specs([FILE, f"afec-{FILE}"], "digits/5", settings=SETTINGS))
    pooled, alone = Store(tmp_path / "pool"), Store(tmp_path / "serial")

    assert Pool(2).run(graph, pooled, Events()) == {}
    assert Serial().run(graph, alone, Events()) == {}

    recorded = 0
    for key in graph.nodes:
        ours, theirs = pooled.load(key), alone.load(key)
        assert ours is not None
        assert theirs is not None
        assert ours.tensors.keys() == theirs.tensors.keys()
        for name, tensor in ours.tensors.items():
            torch.testing.assert_close(tensor, theirs.tensors[name], rtol=0, atol=0, equal_nan=True)
        recorded += "memory/extra/logits" in ours.tensors
    assert recorded == 9  # the first task's memory is one for both
