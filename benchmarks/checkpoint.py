"""What a checkpoint costs beside an epoch of ResNet-32 on 4,500 images (batch 128).

    python benchmarks/checkpoint.py [--repeats 20] [--threads 2]

The epoch's time is that of its 36 steps, extrapolated from timed ones; the checkpoint is the copy
of the whole state (weights, best weights, momentum) and its write with checksum and fsync.
"""

import argparse
import tempfile
import time
from pathlib import Path

import torch
from timing import median

from ancl.data import Batches, Normalization, Samples
from ancl.losses import CrossEntropy, View
from ancl.networks import architecture
from ancl.store.store import StageResult, Store
from ancl.training.config import Training
from ancl.training.loop import Fit
from ancl.training.objective import Objective

STEPS, BATCH = 4, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    count = STEPS * BATCH
    x = torch.randint(0, 256, (count, 32, 32, 3), dtype=torch.uint8)
    samples = Samples(x, torch.randint(0, 10, (count,)))
    fit = Fit(
        architecture("resnet32", (3, 32, 32)).build([10]),
        Objective(CrossEntropy()),
        Batches(samples, BATCH, Normalization((0.5,) * 3, (0.25,) * 3)),
        None,
        View((slice(0, 10),), task_aware=True),
        Training(epochs=10**6, lr=1e-3, schedule="constant"),
        (0, 0, "main"),
    )
    next(fit)
    steps, writes = [], []
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        for _ in range(given.repeats):
            began = time.perf_counter()
            fit._train_epoch()
            steps.append((time.perf_counter() - began) / STEPS)
            began = time.perf_counter()
            tensors, meta = fit.state()
            store.save_checkpoint("0" * 64, StageResult(tensors, {"state": meta, "log": []}))
            writes.append(time.perf_counter() - began)
    epoch, write = 4500 / BATCH * median(steps), median(writes)
    print(f"{given.threads} threads, {given.repeats} repeats, medians")
    print(f"epoch of 4,500 images: {epoch:.2f} s; checkpoint: {1000 * write:.1f} ms")
    print(f"checkpoint / epoch: {write / epoch:.2%} (limit 2 %)")


if __name__ == "__main__":
    main()
