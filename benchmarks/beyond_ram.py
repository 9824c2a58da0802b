"""Images beyond memory: a run from files, its peak memory, and its speed beside a DataLoader.

    python benchmarks/beyond_ram.py [--images 6000] [--workers 2] [--rounds 5] [--timed 6000]

It generates JPEGs of 256x256 pixels, once, and runs two tasks of them with a network that costs
nothing (mean pool, one layer), in a process of its own: peak anonymous memory of that process and
all that it starts. Then epochs of some of the files, in turn by the library and by a plain loop
over torch's DataLoader with the same random parts, flips, network and number of workers: images per
second, and the ratio of each pair. At last a few of them from memory, from a map and from files:
the same weights to the bit.
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

import ancl
from ancl.data import Batches, ImageView, from_arrays, make_stream
from ancl.data.encoded import use_workers
from ancl.data.formats.imagenet_folder import NORMALIZATION, SIZE, imagenet_folder
from ancl.data.samples import Samples
from ancl.data.source import Source, make_source
from ancl.seeding import generator

CLASSES, PIXELS, BATCH = 10, 256, 64


class Pooled(nn.Module):
    """Means of 8x8 fields, and one layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.AvgPool2d(28), nn.Flatten(), nn.Linear(3 * 64, 32), nn.ReLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features (B, 32)."""
        return self.layers(x)


def generate(place: Path, images: int) -> None:
    """JPEGs in the form of ImageNet; what is there already stays."""
    for part, count in (("train", images), ("val", max(CLASSES * 5, images // 50))):
        for number in range(count):
            label = number % CLASSES
            folder = place / "imagenet" / part / f"class{label}"
            file = folder / f"{number:07d}.jpg"
            if not file.exists():
                folder.mkdir(parents=True, exist_ok=True)
                draw = np.random.default_rng(number if part == "train" else 10**9 + number)
                coarse = draw.integers(0, 256, (32, 32, 3)).astype(np.uint8)
                coarse[..., label % 3] //= 1 + label // 3
                picture = Image.fromarray(coarse).resize((PIXELS, PIXELS), Image.Resampling.BICUBIC)
                picture.save(file, quality=90)


# -- a run, and its memory -------------------------------------------------------------------


def run_two_tasks(place: Path, workers: int) -> dict[str, Any]:
    """Two tasks in this process: seconds until all is hashed, and a hash of the weights."""
    began = time.perf_counter()
    use_workers(workers)
    source = imagenet_folder(place)
    read = time.perf_counter() - began
    return {"hashing": round(read, 1), "digest": digest(learn(source, "resized"))}


def learn(source: Source, augment: str) -> dict[str, Tensor]:
    """The weights after two tasks of one epoch each, and of a validation."""
    from ancl.extend import architecture
    from ancl.methods.registry import make_method
    from ancl.stages.events import Events
    from ancl.stages.plan import Setting, plan
    from ancl.stages.runner import MemoryStore, Runner

    torch.manual_seed(0)
    training = ancl.Training(
        epochs=1, lr=0.01, lr_first=0.01, batch_size=BATCH, schedule="constant"
    )
    tasks = make_stream(source, tasks=2, val_fraction=0.1).tasks
    network = architecture(Pooled(), (3, SIZE, SIZE))
    setting = Setting(network, training, training, source.normalization, augment, ancl.Memory(5))
    stages = plan(make_method("finetune"), tasks, setting)
    runner = Runner(stages, tasks, setting.device, MemoryStore(), Events())
    results = {(stage.name, stage.task): runner.obtain(stage.key) for stage in stages}
    return dict(results["main", 1].tensors)


def digest(weights: dict[str, Tensor]) -> str:
    """A hash of weights."""
    from hashlib import sha256

    return sha256(b"".join(t.numpy().tobytes() for _, t in sorted(weights.items()))).hexdigest()[
        :16
    ]


def peak_memory(command: list[str]) -> tuple[str, int, int]:
    """The output of a command, and the most that it and its children had in memory.

    Returns:
        Output, peak of anonymous bytes, peak of shared bytes.
    """
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    peaks, done = [0, 0], threading.Event()

    def watch() -> None:
        while not done.wait(0.1):
            sums = [sum(values) for values in zip(*map(_memory, _tree(process.pid)), strict=True)]
            peaks[:] = [max(pair) for pair in zip(peaks, sums or [0, 0], strict=True)]

    watcher = threading.Thread(target=watch)
    watcher.start()
    output = process.communicate()[0]
    done.set()
    watcher.join()
    return output, peaks[0], peaks[1]


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return
    for child in children:
        yield from _tree(int(child))


def _memory(pid: int) -> tuple[int, int]:
    """Anonymous and shared bytes of a process."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in lines if "kB" in line}
    return sizes.get("RssAnon", 0), sizes.get("RssShmem", 0)


# -- speed -----------------------------------------------------------------------------------


class Step:
    """A step of the network that costs nothing, the same for both."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.network = nn.Sequential(Pooled(), nn.Linear(32, CLASSES))
        self.optimizer = torch.optim.SGD(self.network.parameters(), 0.01)

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """Train on a batch."""
        self.optimizer.zero_grad()
        F.cross_entropy(self.network(x), y).backward()
        self.optimizer.step()


def library_epoch(samples: Samples, step: Step) -> Callable[[int], None]:
    """An epoch of the library's batches."""
    batches = Batches(samples, BATCH, NORMALIZATION, "resized")

    def epoch(number: int) -> None:
        for batch in batches.shuffled(generator(0, number)):
            step(batch.x, batch.y)

    return epoch


class Files(Dataset[tuple[Tensor, int]]):
    """The same files, each decoded, cut and flipped by itself, as DataLoaders are used."""

    def __init__(self, place: Path, count: int) -> None:
        folders = sorted((place / "imagenet" / "train").iterdir())
        files = [(str(f), n) for n, folder in enumerate(folders) for f in sorted(folder.iterdir())]
        self.files = [files[number] for number in spread(len(files), count).tolist()]
        self.mean, self.std = (
            torch.tensor(v).view(3, 1, 1) for v in (NORMALIZATION.mean, NORMALIZATION.std)
        )

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.files[index]
        with Image.open(path) as opened:
            picture = opened.convert("RGB")
        left, top, width, height = random_part(*picture.size)
        picture = picture.crop((left, top, left + width, top + height))
        picture = picture.resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        x = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float().div_(255)
        return x.sub_(self.mean).div_(self.std), label


def random_part(width: int, height: int) -> tuple[int, int, int, int]:
    """Left, top, width and height, as torchvision's RandomResizedCrop draws them."""
    for _ in range(10):
        area = width * height * random.uniform(0.08, 1.0)
        aspect = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            return random.randint(0, width - w), random.randint(0, height - h), w, h
    return 0, 0, width, height


def spread(images: int, count: int) -> Tensor:
    """Some positions of all, evenly spread."""
    return torch.linspace(0, images - 1, min(images, count)).long()


def loader_epoch(files: Files, workers: int, step: Step) -> Callable[[int], None]:
    """An epoch of torch's DataLoader, whose processes stay from epoch to epoch."""
    loader = DataLoader(
        files, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )

    def epoch(number: int) -> None:
        for x, y in loader:
            step(x, y)

    return epoch


def compare(place: Path, workers: int, rounds: int, timed: int) -> None:
    """Epochs of some images in turn, each timed; the first of both does not count."""
    use_workers(workers)
    every = imagenet_folder(place).train
    samples = every.take(spread(len(every), timed))
    ours = library_epoch(samples, Step())
    theirs = loader_epoch(Files(place, timed), workers, Step())
    speeds: dict[str, list[float]] = {"library": [], "loader": []}
    for number in range(rounds + 1):
        for name, epoch in (("library", ours), ("loader", theirs)):
            began = time.perf_counter()
            epoch(number)
            if number:
                speeds[name].append(len(samples) / (time.perf_counter() - began))
    ratios = sorted(a / b for a, b in zip(speeds["library"], speeds["loader"], strict=True))
    for name, values in speeds.items():
        print(f"{name}: {median(values):,.0f} images/s ({len(values)} epochs of {len(samples):,})")
    print(f"library / loader: {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")


# -- the same bits ---------------------------------------------------------------------------


def same_bits(place: Path, workers: int, images: int) -> None:
    """Weights from files, from memory and from a map of the same images."""
    digests = {}
    for name, count in (("files", workers), ("files, no workers", 0)):
        use_workers(count)
        digests[name] = digest(learn(part(imagenet_folder(place), images), "flip"))
    source = part(imagenet_folder(place), images)
    arrays = [samples.x.dense().numpy() for samples in (source.train, source.test)]
    labels = [[source.classes[n] for n in s.y.tolist()] for s in (source.train, source.test)]
    given = {"classes": source.classes, "normalization": NORMALIZATION}
    digests["memory"] = digest(
        learn(from_arrays(arrays[0], labels[0], arrays[1], labels[1], **given), "flip")
    )
    with tempfile.TemporaryDirectory() as folder:
        maps = []
        for number, array in enumerate(arrays):
            np.save(f"{folder}/{number}.npy", array)
            maps.append(np.load(f"{folder}/{number}.npy", mmap_mode="r"))
        mapped = make_source("map", maps[0], labels[0], maps[1], labels[1], **given)
        digests["map"] = digest(learn(mapped, "flip"))
    print("weights:", ", ".join(f"{name} {value}" for name, value in digests.items()))
    assert len(set(digests.values())) == 1, "the storage has changed bits"


def part(source: Source, images: int) -> Source:
    """The first images of each class alone."""
    parts = []
    for samples in (source.train, source.test):
        each = max(2, images // CLASSES)
        index = torch.cat([samples.of_class(n)[:each] for n in range(CLASSES)])
        parts += [samples.x.take(index), [source.classes[n] for n in samples.y[index].tolist()]]
    x, y, test_x, test_y = parts
    assert isinstance(x, ImageView)
    return make_source(
        "part", x, y, test_x, test_y, classes=source.classes, normalization=NORMALIZATION
    )


def main() -> None:
    """Generate, run, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--images", type=int, default=6000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--timed", type=int, default=6000, help="images of an epoch that is timed")
    parser.add_argument("--part", type=int, default=400, help="images of the comparison of bits")
    parser.add_argument(
        "--place", type=Path, default=Path(tempfile.gettempdir()) / "ancl-beyond-ram"
    )
    parser.add_argument("--only-run", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    place = chosen.place / str(chosen.images)
    os.environ["ANCL_CACHE"] = str(place / "cache")
    if chosen.only_run:
        print(json.dumps(run_two_tasks(place, chosen.workers)))
        return
    generate(place, chosen.images)
    decoded = chosen.images * SIZE * SIZE * 3 / 1e9
    machine = f"{chosen.workers} workers, {os.cpu_count()} CPUs"
    print(f"{chosen.images:,} JPEGs, {decoded:.1f} GB decoded, {machine}")
    command = [sys.executable, *sys.argv, "--only-run"]
    for which in ("first run, which hashes all images", "second run"):
        began = time.perf_counter()
        output, anonymous, shared = peak_memory(command)
        seconds = time.perf_counter() - began
        memory = f"{anonymous / 1e6:,.0f} MB anonymous, {shared / 1e6:,.0f} MB shared"
        print(f"{which}: {seconds:.0f} s, {memory}; {output.strip()}")
    compare(place, chosen.workers, chosen.rounds, chosen.timed)
    same_bits(place, chosen.workers, chosen.part)


if __name__ == "__main__":
    main()
