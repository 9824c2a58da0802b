"""How much faster whole batches are augmented than image by image with Pillow.

Both sides take 128 stored images of 32x32 pixels, uint8, to what a network reads: normalized
floats, channels first. Runs of the two are interleaved, so that what else the machine does meets
both alike. The second line of each pair leaves the floats out on both sides.
One thread.

usage: python benchmarks/augment.py [PAIRS]
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from ancl.data import Normalization, as_input, augmentation
from ancl.seeding import generator

BATCH, SIDE, PAD, PAIRS = 128, 32, 4, 101
PADDED = SIDE + 2 * PAD
Pixels = NDArray[np.uint8]


MOMENTS = Normalization((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023))
MEAN, STD = (torch.tensor(part).view(3, 1, 1) for part in (MOMENTS.mean, MOMENTS.std))
CPU = torch.device("cpu")


def one_by_one(change: Callable[[Image.Image], Image.Image], batch: Pixels) -> Tensor:
    return torch.from_numpy(np.stack([np.asarray(change(Image.fromarray(x))) for x in batch]))


def one_by_one_to_floats(change: Callable[[Image.Image], Image.Image], batch: Pixels) -> Tensor:
    made = []
    for x in batch:
        image = torch.from_numpy(np.array(change(Image.fromarray(x))))
        made.append(image.permute(2, 0, 1).to(torch.float32).div_(255).sub_(MEAN).div_(STD))
    return torch.stack(made)


def pillow_crop(image: Image.Image) -> Image.Image:
    top, left = random.randint(0, 2 * PAD), random.randint(0, 2 * PAD)
    image = ImageOps.expand(image, border=PAD).crop((left, top, left + SIDE, top + SIDE))
    return maybe_mirrored(image)


def pillow_facil(image: Image.Image) -> Image.Image:
    top, left, height, width = box()
    image = ImageOps.expand(image, border=PAD).crop((left, top, left + width, top + height))
    return maybe_mirrored(image.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


def maybe_mirrored(image: Image.Image) -> Image.Image:
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def box() -> tuple[int, int, int, int]:
    for _ in range(10):
        area = PADDED**2 * random.uniform(0.08, 1)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        width, height = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if width <= PADDED and height <= PADDED:
            return (
                random.randint(0, PADDED - height),
                random.randint(0, PADDED - width),
                height,
                width,
            )
    return 0, 0, PADDED, PADDED


def seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(name: str, pillow: Callable[[Image.Image], Image.Image], pairs: int) -> None:
    images = torch.randint(0, 256, (BATCH, SIDE, SIDE, 3), dtype=torch.uint8)
    array, draws, change = images.numpy(), generator(0), augmentation(name)
    report(
        f"{name}, to floats",
        lambda: one_by_one_to_floats(pillow, array),
        lambda: as_input(change(images, draws), MOMENTS, CPU),
        pairs,
    )
    report(name, lambda: one_by_one(pillow, array), lambda: change(images, draws), pairs)


def report(name: str, theirs: Callable[[], Tensor], ours: Callable[[], Tensor], pairs: int) -> None:
    for _ in range(5):
        ours(), theirs()
    times = np.array([(seconds(theirs), seconds(ours)) for _ in range(pairs)])
    ratios = times[:, 0] / times[:, 1]
    resampled = np.random.RandomState(0).choice(ratios, (2_000, pairs))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    one, whole = np.median(times, axis=0) * 1e3
    print(
        f"{name}: image by image {one:.2f} ms, whole batch {whole:.2f} ms; "
        f"ratio {np.median(ratios):.1f} (95 % interval of the median {low:.1f} to {high:.1f}, "
        f"{pairs} pairs)"
    )


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else PAIRS
    torch.set_num_threads(1)
    compare("facil", pillow_facil, count)
    compare("crop", pillow_crop, count)
