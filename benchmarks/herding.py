"""How much faster herding is than a loop over samples: 20 of 500 images in 64 dimensions.

Both sides follow the same rule, the image that minimises ‖μ − (Σ picked + x)/k‖, and pick the
same images; ours takes one matrix-vector product a pick. Runs of the two are interleaved, so
that what else the machine does meets both alike. One thread.

usage: python benchmarks/herding.py [PAIRS]
"""

import sys

import torch
from timing import interleaved, median, ratio
from torch import Tensor
from torch.nn import functional as F

from ancl.memory import herd

IMAGES, SIZE, KEPT, PAIRS = 500, 64, 20, 61


def one_by_one(features: Tensor, count: int) -> list[int]:
    unit = F.normalize(features.double(), dim=1)
    mean, total = unit.mean(dim=0), torch.zeros(SIZE, dtype=torch.double)
    picked: list[int] = []
    for k in range(1, count + 1):
        best, nearest = -1, float("inf")
        for index in range(len(unit)):
            if index in picked:
                continue
            distance = float((mean - (total + unit[index]) / k).norm())
            if distance < nearest:
                best, nearest = index, distance
        picked.append(best)
        total += unit[best]
    return picked


def main() -> None:
    torch.set_num_threads(1)
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    features = torch.randn(IMAGES, SIZE, generator=torch.Generator().manual_seed(0))
    assert herd(features, KEPT).tolist() == one_by_one(features, KEPT)
    runs = {
        "ours": lambda: herd(features, KEPT),
        "loop": lambda: one_by_one(features, KEPT),
    }
    times = interleaved(runs, pairs)
    print(
        f"ours: {1000 * median(times['ours']):.2f} ms, loop: {1000 * median(times['loop']):.1f} ms"
    )
    print(f"times faster, median of {pairs} pairs: {ratio(times['loop'], times['ours'])}")


if __name__ == "__main__":
    main()
