"""Adapters on a frozen transformer: through the command, killed, in a pool and in a learner."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Events, Learner, Store, Training, specs
from tests.lab import Graph, Pool, Serial, compute_with, digits, patching, program

LORA = f"{Path(__file__).parents[2] / 'examples/lora.py'}:lora"
SETTINGS = {
    "network.name": LORA,
    "data.tasks": 2,
    "data.per_class": 12,
    "training.epochs": 3,
    "training.lr": 0.1,
    "threads": 1,
}
ADAPTERS = 3584
"""Numbers in B: 8 linear layers of two blocks, 896 output features in all, rank 4."""
BASE = 70_976


def same(ours: Store, theirs: Store, keys: Any) -> None:
    for key in keys:
        one, other = ours.load(key), theirs.load(key)
        assert one is not None
        assert other is not None
        assert one.tensors.keys() == other.tensors.keys()
        for name, tensor in one.tensors.items():
            assert torch.equal(tensor, other.tensors[name])


def test_two_workers_give_the_bits_of_one_process_and_store_the_base_once(tmp_path: Path) -> None:
    graph = Graph(specs(["a-lwf", "a-lfl", "a-ewc"], "digits/5", seeds=(0, 1), settings=SETTINGS))
    pooled, alone = Store(tmp_path / "pool"), Store(tmp_path / "serial")

    assert compute_with(Pool(2), graph, pooled, Events()) == {}
    assert compute_with(Serial(), graph, alone, Events()) == {}

    same(pooled, alone, graph.nodes)
    sizes: dict[str, list[int]] = {}
    for info in pooled.entries():
        sizes.setdefault(info.stage, []).append(info.bytes)
    # One for three methods and two seeds: numbers of 4 bytes, and the names.
    (size,) = sizes["base"]
    assert 4 * BASE < size < 4 * BASE + 8_000
    assert len(sizes["main"]) == 2 * (1 + 3)
    head = 2 * 2 * 65
    for stage in ("grow", "main", "auxiliary"):
        assert all(4 * ADAPTERS < each < 4 * (ADAPTERS + head) + 8_000 for each in sizes[stage])
    for key in graph.nodes:
        entry = pooled.load(key)
        assert entry is not None
        if entry.meta["stage"] in ("grow", "main", "auxiliary"):
            assert all(n.endswith(".b") or n.startswith("network/head.") for n in entry.tensors)


def test_a_killed_command_ends_in_the_same_bits(tmp_path: Path) -> None:
    words = ["run", "a-ewc", "digits/5", "--network", LORA, "--tasks", "2", "--epochs", "3"]
    words += ["--threads", "1", "--set", "data.per_class=12", "--set", "training.lr=0.1"]
    every_epoch = patching("CHECKPOINT_SECONDS", "0.0") + "from tests.lab import start; start()"
    ancl = [sys.executable, "-c", program(every_epoch), *words]
    whole, killed = Store(tmp_path / "whole"), Store(tmp_path / "killed")

    def start(store: Store) -> subprocess.Popen[bytes]:
        places = ["--store", str(store.root), "--runs", str(tmp_path / f"{store.root.name} runs")]
        return subprocess.Popen([*ancl, *places], cwd=tmp_path, stdout=subprocess.DEVNULL)

    assert start(whole).wait(120) == 0
    process = start(killed)
    while process.poll() is None and not any((killed.root / "checkpoints").glob("*/entry.json")):
        time.sleep(0.002)
    process.kill()
    process.wait(60)
    done = len(list(killed.entries()))
    assert start(killed).wait(120) == 0

    keys = [info.key for info in whole.entries()]
    assert done < len(keys)
    same(killed, whole, keys)


# -- in a learner --------------------------------------------------------------------------------

SCRIPT = program("""
import sys
import torch
from safetensors.torch import save_file
import ancl
from tests.lab import digits
torch.set_num_threads(1)
samples = digits().train
index = torch.cat([samples.of_class(each)[:20] for each in range(6)])
learner = ancl.Learner.load(sys.argv[1], network=sys.argv[2])
learner.learn(samples.x[index[80:]], samples.y[index[80:]].tolist())
save_file({"scores": learner.scores(samples.x[index])}, sys.argv[3])
""")


def part(*classes: int) -> tuple[Tensor, list[int]]:
    samples = digits().train
    index = torch.cat([samples.of_class(each)[:20] for each in classes])
    return samples.x[index], samples.y[index].tolist()


@pytest.mark.parametrize("method", ["a-lwf", "a-ewc"])
def test_a_learner_saves_the_base_once_and_learns_on(method: str, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    training = Training(epochs=3, batch_size=16, lr=0.1)
    learner = Learner(method, LORA, scenario="til", training=training)
    learner.learn(*part(0, 1))
    learner.learn(*part(2, 3))
    learner.save(tmp_path / "saved")
    size = learner.size()

    head = 4 * 4 * 65
    assert size.parts["base"] == 4 * BASE
    assert size.parts["network"] == 4 * ADAPTERS + head
    written = sum(file.stat().st_size for file in (tmp_path / "saved/parts").iterdir())
    assert written < size.disk + 30_000 < 4 * BASE + 3 * 4 * ADAPTERS + size.parts["held"] + 60_000
    card = (tmp_path / "saved/README.md").read_text()
    assert f"{BASE + ADAPTERS + head // 4:,}" in card

    learner.learn(*part(4, 5))
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "saved"), LORA, str(tmp_path / "out")]
    subprocess.run(command, check=True, timeout=120)
    ours = learner.scores(part(0, 1, 2, 3, 4, 5)[0])
    assert torch.equal(load_file(tmp_path / "out")["scores"], ours)
