"""Images in a memory-mapped file: never copied whole, and the same bits as images in memory."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ancl import Events, Learner, Store, specs
from tests.lab import ExecutorChoice, Graph, Pool, Serial, compute, compute_with, program

POOLED = """
from torch import nn

class Pooled(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layer = nn.Linear(3, 8)

    def forward(self, x):
        return self.layer(x.mean(dim=(2, 3)))
"""
"""A network that costs nothing, so that only images need memory and time."""
SETTINGS: dict[str, Any] = {
    "data.scenario": "cil",
    "data.tasks": 2,
    "training.epochs": 1,
    "threads": 1,
}
MEASURED = program("""
import json, sys, threading
from pathlib import Path
from ancl import Events, Store, specs
from tests.lab import ExecutorChoice, Graph, Serial, compute

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

network, store, *names = sys.argv[1:]
largest = []
for name in names:
    settings = json.loads(Path("settings.json").read_text()) | {"network.name": network}
    graph = Graph(specs(["finetune"], data=name, settings=settings))
    ended, seen = threading.Event(), [anonymous()]

    def watch():
        while not ended.wait(0.005):
            seen.append(anonymous())

    watcher = threading.Thread(target=watch)
    watcher.start()
    place = Store(Path(store, str(len(largest))))
    compute(graph, place, ExecutorChoice(Serial()), Events())
    assert all(place.load(key) for key in graph.nodes)
    ended.set()
    watcher.join()
    largest.append(max(seen))
    del graph
print(json.dumps(largest))
""")
"""Prints the most anonymous memory in kB while each of several sources is learned."""


def write_images(folder: Path, images: int, size: int) -> Path:
    """Bytes of four classes, in a folder of ``.npy`` files."""
    folder.mkdir()
    labels = np.arange(images) % 4
    random = np.random.default_rng(0)
    noise = random.integers(0, 64, (images, size, size, 3), dtype=np.uint8)
    np.save(folder / "x.npy", noise + (40 * labels).astype(np.uint8)[:, None, None, None])
    np.save(folder / "y.npy", labels)
    return folder


@pytest.fixture
def network(tmp_path: Path) -> str:
    (tmp_path / "pooled.py").write_text(POOLED)
    return f"{tmp_path / 'pooled.py'}:Pooled"


def graph_of(name: str, network: str, method: str = "a-lwf") -> Any:
    settings = SETTINGS | {"network.name": network}
    return Graph(specs([method], data=name, settings=settings))


def tensors(store: Store, graph: Any) -> dict[str, dict[str, torch.Tensor]]:
    entries = {key: store.load(key) for key in graph.nodes}
    return {key: dict(entry.tensors) for key, entry in entries.items() if entry}


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads Linux's /proc")
def test_a_run_needs_no_more_memory_than_a_few_batches(tmp_path: Path, network: str) -> None:
    few = write_images(tmp_path / "few", 3_000, 64)  # more than is read at a time
    many = write_images(tmp_path / "many", 12_000, 64)
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    names = [f"arrays:{few}", f"arrays:{many}"]

    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, network, str(tmp_path / "stores"), *names],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    assert ended.returncode == 0, ended.stderr
    first, second = json.loads(ended.stdout)
    more = ((many / "x.npy").stat().st_size - (few / "x.npy").stat().st_size) / 1024
    assert more > 105_000
    # A copy of all images, or of one task's, would be all or half of it.
    assert second - first < more / 2.5


def test_the_bits_of_memory_of_a_pool_and_of_an_interrupted_run(
    tmp_path: Path, network: str
) -> None:
    folder = write_images(tmp_path / "images", 160, 8)
    np.savez(tmp_path / "images.npz", x=np.load(folder / "x.npy"), y=np.load(folder / "y.npy"))
    mapped = graph_of(f"arrays:{folder}", network)
    in_memory = graph_of(f"arrays:{tmp_path / 'images.npz'}", network)
    stores = {name: Store(tmp_path / name) for name in ("mapped", "memory", "pool", "resumed")}

    class Stopped(Events):
        ends = 0

        def stage_ends(self, stage: Any, *, found: bool, seconds: float) -> None:
            self.ends += 1
            if self.ends == 4:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compute(mapped, stores["resumed"], ExecutorChoice(Serial()), Stopped())
    for name, graph in (("mapped", mapped), ("memory", in_memory), ("resumed", mapped)):
        assert compute_with(Serial(), graph, stores[name], Events()) == {}
    assert compute_with(Pool(2), mapped, stores["pool"], Events()) == {}

    expected = tensors(stores["memory"], in_memory)
    assert set(mapped.nodes) == set(in_memory.nodes)
    assert len(expected) == len(mapped.nodes)
    for name in ("mapped", "pool", "resumed"):
        entries = tensors(stores[name], mapped)
        assert entries.keys() == expected.keys()
        for key, parts in expected.items():
            assert all(torch.equal(part, entries[key][n]) for n, part in parts.items())


def test_a_learner_learns_from_a_map(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", 80, 8)
    x, y = np.load(folder / "x.npy", mmap_mode="r"), np.load(folder / "y.npy")
    scores = []
    for images in (x, np.array(x)):
        learner = Learner("icarl", "mlp", training={"epochs": 2}, memory=3)
        for classes in ((0, 1), (2, 3)):
            chosen = np.isin(y, classes)
            learner.learn(images[chosen], y[chosen].tolist())
        scores.append(learner.scores(np.array(x[:20])))

    assert torch.equal(*scores)
