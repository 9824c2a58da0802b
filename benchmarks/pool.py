"""Throughput of a pool of two workers with one thread each against one process with two threads.

Both compute the same sweep of short ResNet-32 trainings on random images. Two processes with one
thread are robust against what else the machine does; more threads than cores are never tried.

usage: python benchmarks/pool.py [PAIRS]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ancl.compute import Executor
from ancl.compute.graph import Graph
from ancl.compute.pool import Pool
from ancl.compute.serial import Serial
from ancl.recipe.recipe import Layer, RunSpec, resolve
from ancl.stages.events import Events
from ancl.stages.stage import Stage
from ancl.store.store import Store
from ancl.training.loop import Epoch

PAIRS, SEEDS, IMAGES, CLASSES = 5, 4, 128, 4
EPOCHS = {32: 3, 16: 12}
"""By the side of the images: about as much work for small ones."""


class Epochs(Events):
    """How many epochs ended between the first end of one and the last.

    Before the first interpreters start, after the last they stop: neither is throughput.
    """

    def __init__(self) -> None:
        self.times: list[float] = []

    def epoch_ends(self, stage: Stage, epoch: Epoch) -> None:
        """Note the time."""
        self.times.append(time.perf_counter())


def images(side: int, directory: Path) -> Path:
    file = directory / f"random{side}.npz"
    draw, labels = np.random.RandomState(0), np.repeat(np.arange(CLASSES), IMAGES)
    x = draw.randint(0, 256, (len(labels), side, side, 3)).astype(np.uint8)
    np.savez(file, x_train=x, y_train=labels, x_test=x[::IMAGES], y_test=labels[::IMAGES])
    return file


def specs(file: Path, threads: int, batch: int, epochs: int) -> list[RunSpec]:
    settings = {
        "data.source": f"arrays:{file}",
        "data.tasks": 1,
        "data.val_fraction": 0.0,
        "network.name": "resnet32",
        "training.epochs": epochs,
        "training.schedule": "constant",
        "training.batch_size": batch,
        "threads": threads,
    }
    layers = [Layer("benchmarks/pool.py", {**settings, "seed": seed}) for seed in range(SEEDS)]
    return [resolve("finetune", "digits/5", [layer]).spec for layer in layers]


def throughput(executor: Executor, of: list[RunSpec]) -> float:
    """Images a second from the end of the first epoch to the end of the last."""
    epochs = Epochs()
    with tempfile.TemporaryDirectory() as directory:
        failed = executor.run(Graph(of), Store(Path(directory)), epochs)
    assert not failed, failed
    return (len(epochs.times) - 1) * IMAGES * CLASSES / (epochs.times[-1] - epochs.times[0])


def compare(side: int, batch: int, pairs: int, directory: Path) -> None:
    file = images(side, directory)
    ratios = []
    for _ in range(pairs):
        alone = throughput(Serial(), specs(file, 2, batch, EPOCHS[side]))
        pool = throughput(Pool(2), specs(file, 1, batch, EPOCHS[side]))
        ratios.append(pool / alone)
        print(f"  1x2 {alone:.0f} images/s, 2x1 {pool:.0f}: ratio {pool / alone:.2f}")
    print(
        f"ResNet-32, {side}x{side}, batches of {batch}: median ratio "
        f"{statistics.median(ratios):.2f} ({pairs} pairs)"
    )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    with tempfile.TemporaryDirectory() as place:
        compare(32, 128, count, Path(place))
        compare(16, 64, count, Path(place))
