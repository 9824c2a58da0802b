"""Images per second of a pretrained network: ours, and a plain loop of PyTorch.

Both take stored photos, uint8, to features of EfficientNet-Lite0: as a stage of a run does, in
batches bounded by pixels; and as one would write it, in batches of 32. Runs are interleaved, so
that what else the machine does meets both alike; seconds are those of the processor. The second
pair resizes 64x64 arrays as they are read, beside Pillow in the loop. One thread. The last line
is the largest memory of a process that computes features at 224 pixels with ours alone.

usage: python benchmarks/features.py [PAIRS] [--json]
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import numpy as np
import torch
from PIL import Image
from timing import interleaved, median, peak_memory, ratio
from torch import Tensor, nn

from ancl.data import ImageView, Normalization, Samples, bounded_size
from ancl.data.resizing import resized
from ancl.extend import architecture
from ancl.methods.parts import ImageFormat
from ancl.networks import frozen

IMAGES, SIZE, SMALL, PLAIN, PAIRS = 32, 224, 64, 32, 5
MOMENTS = Normalization((0.5,) * 3, (0.5,) * 3)
CPU = torch.device("cpu")
SHAPE = (3, SIZE, SIZE)


def ours(network: nn.Module, x: ImageView) -> Tensor:
    """As the stage of features does it."""
    answer = ImageFormat(MOMENTS, bounded_size(128, SHAPE)).answering(network, CPU)
    return answer(Samples(x, torch.zeros(len(x), dtype=torch.long))).features


@torch.no_grad()
def plain(network: nn.Module, x: Tensor, size: int | None = None) -> Tensor:
    """As one would write it."""
    found = []
    for part in x.split(PLAIN):
        if size is not None:
            pictures = [Image.fromarray(image).resize((size, size), 3) for image in part.numpy()]
            part = torch.from_numpy(np.stack([np.asarray(each) for each in pictures]))
        pixels = part.permute(0, 3, 1, 2).float() / 255
        found.append(network((pixels - 0.5) / 0.5).features)
    return torch.cat(found)


def images(count: int, size: int) -> Tensor:
    """Any pixels: the time of a network does not depend on them."""
    return torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8)


def peak() -> int:
    """The largest memory of this process while ours computes features of 200 images."""
    network = frozen(architecture("efficientnet_lite0", SHAPE, frozen=True).build([2]))
    ours(network, resized(ImageView.of(images(200, SMALL)), SIZE))
    return peak_memory()


def main() -> None:
    """Measure, and print."""
    torch.set_num_threads(1)
    if "--peak" in sys.argv:
        print(peak())
        return
    pairs = next((int(each) for each in sys.argv[1:] if each.isdigit()), PAIRS)
    network = frozen(architecture("efficientnet_lite0", SHAPE, frozen=True).build([2]))
    stored, small = images(IMAGES, SIZE), images(IMAGES, SMALL)
    assert torch.allclose(ours(network, ImageView.of(stored)), plain(network, stored), atol=1e-4)
    runs = {
        "ours": lambda: ours(network, ImageView.of(stored)),
        "plain": lambda: plain(network, stored),
        "ours, resized": lambda: ours(network, resized(ImageView.of(small), SIZE)),
        "plain, resized": lambda: plain(network, small, SIZE),
    }
    times = interleaved(runs, pairs, time.process_time)
    found: dict[str, object] = {name: IMAGES / median(taken) for name, taken in times.items()}
    # Images per second: theirs over ours in seconds.
    found["ratio"] = ratio(times["plain"], times["ours"])._asdict()
    found["ratio, resized"] = ratio(times["plain, resized"], times["ours, resized"])._asdict()
    command = [sys.executable, __file__, "--peak"]
    found["peak_bytes"] = int(subprocess.run(command, check=True, capture_output=True).stdout)
    print(json.dumps(found) if "--json" in sys.argv else _text(found))


def _text(found: dict[str, object]) -> str:
    lines = [f"{name:>16}: {value}" for name, value in found.items()]
    return "\n".join([f"{IMAGES} images of {SIZE}x{SIZE}, images per second", *lines])


if __name__ == "__main__":
    main()
