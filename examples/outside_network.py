"""Your own network on your own folder of images, in a pool of two processes.

The same from a shell, for photos/cats/1.png, photos/dogs/1.png and so on:

ancl run a-lwf --data folder:photos@32 --tasks 2 --network examples/outside_network.py:net
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import nn

import ancl
from ancl.data import digits


def net(shape: Sequence[int], *, width: int = 8) -> nn.Module:
    """Two convolutions; each option is a setting, such as ``network.width``.

    Args:
        shape: The shape of one image, channels first.
        width: The number of channels.
    """
    return nn.Sequential(
        nn.Conv2d(shape[0], width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
    )


def write_images(folder: Path, each: int = 40) -> None:
    """Digits as image files, one sub-folder per class."""
    samples = digits().train
    for number, name in enumerate(("zero", "one", "two", "three")):
        (folder / name).mkdir(parents=True)
        for position in samples.of_class(number)[:each].tolist():
            pixels = samples.x[position].squeeze(2).numpy()
            Image.fromarray(pixels).save(folder / name / f"{position}.png")


def specs(photos: Path) -> list[ancl.RunSpec]:
    """Two methods on two tasks; without a benchmark, every other setting has its default."""
    settings = {
        "data.source": f"folder:{photos}",
        "data.tasks": 2,
        "network.name": f"{__file__}:net",
        "network.width": 12,
        "training.epochs": 15,
        "training.batch_size": 16,
        "training.lr": 0.05,
        "threads": 1,
    }
    return ancl.specs(["lwf", "a-lwf"], settings=settings)


def main() -> dict[str, float]:
    """Average accuracy of both methods, by name."""
    with tempfile.TemporaryDirectory() as directory:
        photos, runs = Path(directory) / "photos", Path(directory) / "runs"
        write_images(photos)
        results = ancl.run(specs(photos), runs=runs, workers=2)
    return {result.spec.method: result.metrics["aac"] for result in results}


if __name__ == "__main__":
    for method, accuracy in main().items():
        print(f"{method}: {accuracy:.1%}")
