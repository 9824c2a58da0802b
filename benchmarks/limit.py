"""Which part of the machine's matrix-product peak a training step of ResNet-32 reaches.

    python benchmarks/limit.py [--pairs 60] [--threads 2]

The peak is the best rate of large float32 products, measured in turn with the steps. A step counts
three times the multiply-adds of a forward pass (69.12 million an image of 32x32), as usual.
"""

import argparse

import torch
from step import Case, library
from timing import interleaved, median

MULTIPLY_ADDS, BATCH, SIDE = 69.12e6, 128, 2048


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    a, b = torch.randn(SIDE, SIDE), torch.randn(SIDE, SIDE)
    runs = {"step": library(Case("finetune", "resnet32", BATCH)), "product": lambda: a @ b}
    times = interleaved(runs, given.pairs)
    peak = 2 * SIDE**3 / min(times["product"])
    typical = 2 * SIDE**3 / median(times["product"])
    reached = 3 * 2 * MULTIPLY_ADDS * BATCH / median(times["step"])
    print(f"{given.threads} threads, {given.pairs} rounds; finetune, ResNet-32, batch {BATCH}")
    print(f"step: {BATCH / median(times['step']):.0f} images/s, {reached / 1e9:.0f} GFLOP/s")
    print(f"products of {SIDE}x{SIDE}: median {typical / 1e9:.0f}, best {peak / 1e9:.0f} GFLOP/s")
    print(
        f"step / median product: {reached / typical:.0%}; step / best product: {reached / peak:.0%}"
    )


if __name__ == "__main__":
    main()
