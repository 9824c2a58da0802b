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

ANSWERED = program("""
import json, sys
from pathlib import Path
import numpy as np, torch
from ancl.extend import architecture
from tests.lab import ImageFormat, Normalization, Samples, as_view

def anonymous():
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

torch.set_num_threads(1)
file, _, name = sys.argv[1].rpartition(":")
exec(Path(file).read_text())
images = as_view(np.load(sys.argv[2], mmap_mode="r"))
samples = Samples(images, torch.zeros(len(images), dtype=torch.long))
network = architecture(globals()[name]((3, 64, 64)), (3, 64, 64)).build([4])
form = ImageFormat(Normalization((0.5,) * 3, (0.2,) * 3), 128)
seen = {}
for kind in ("answering", "exactly"):
    answer = getattr(form, kind)(network, torch.device("cpu"))
    answer(samples)
    seen[kind] = [(answer(samples), anonymous())[1] for _ in range(6)]
print(json.dumps(seen))
""")
"""Prints the anonymous memory in kB after each of several evaluations of many images."""


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


linux = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="reads Linux's /proc")


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many images as are a small part of what a process may hold at a time, many times over."""
    return write_images(tmp_path_factory.mktemp("many") / "images", 12_000, 64)


@linux
def test_a_run_holds_no_more_than_a_few_batches(tmp_path: Path, network: str, many: Path) -> None:
    few = write_images(tmp_path / "few", 3_000, 64)  # more than is read at a time
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    names = [f"arrays:{few}", f"arrays:{few}", f"arrays:{many}"]  # the first one warms up
    # Blocks of this size go back to the system when they are freed: what is seen is what is held.
    given_back = {"MALLOC_MMAP_THRESHOLD_": str(2**18)}

    ended = subprocess.run(
        [sys.executable, "-c", MEASURED, network, str(tmp_path / "stores"), *names],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1", **given_back},
    )

    assert ended.returncode == 0, ended.stderr
    _, first, second = json.loads(ended.stdout)
    more = ((many / "x.npy").stat().st_size - (few / "x.npy").stat().st_size) / 1024
    assert more > 105_000
    # A copy of all images is all of it, of one task's half, of the test images a fifth. A hash, a
    # label and positions are kept of each image: about a hundredth.
    assert second - first < more / 20


@linux
def test_answers_leave_memory_in_one_piece(tmp_path: Path, network: str, many: Path) -> None:
    """Outputs of early batches, kept among the images of later ones, held twice this in pieces."""
    ended = subprocess.run(
        [sys.executable, "-c", ANSWERED, network, str(many / "x.npy")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )

    assert ended.returncode == 0, ended.stderr
    for name, seen in json.loads(ended.stdout).items():
        assert max(seen) - min(seen) < 70_000, name  # kB; a batch has 8,000


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
