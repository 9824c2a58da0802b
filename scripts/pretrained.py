"""What a pretrained network gives a learner: the runs and tables of docs/evidence/pretrained.md.

Run:  python scripts/pretrained.py --data-root DIR   # in a fixed order; the same command resumes
      python scripts/pretrained.py --dry-run         # what is to do
      python scripts/pretrained.py --tables          # tables from the results alone

Every finished row is a small file in docs/evidence/pretrained/results, computed by a process of
its own with one thread, so that its seconds and its memory are its own. The rows of scikit-learn
need that package, and nothing else does.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from pretrained_tables import write_tables

import ancl
from ancl.data import ImageView, Normalization, Samples, bounded_size, data_root, labelled_part
from ancl.data.pictures import read_pictures
from ancl.extend import architecture
from ancl.methods.parts import ImageFormat
from ancl.networks import frozen
from ancl.picture import SIZED
from ancl.stages.events import Events
from ancl.stages.stage import Stage

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "evidence" / "pretrained"
PAGES = (FOLDER.with_suffix(".md"), FOLDER.parent / "which-method.md", ROOT / "README.md")
SEEDS = (0, 1, 2)
MONTHS = (8, 4, 4)
"""New classes of each month; in the second, two of the first come again with their other half."""
AGAIN = 2
PIXELS = 224
CIFAR_PIXELS = 160
COMPUTED = ("auto", "ncm", "slda", "ridge", "logistic", "knn", "ranpac")
LITE0 = {"network": "efficientnet_lite0", "network_options": {"frozen": True}, "size": PIXELS}
SCRATCH = {"network": "resnet8", "size": 32, "training": {"epochs": 20}}
PHOTOS: dict[str, tuple[str, Mapping[str, Any]]] = {
    "photos": ("auto", LITE0),
    "scratch": ("icarl", SCRATCH),
    "icarl": ("icarl", LITE0),
    "bic": ("bic", LITE0),
    "random": ("auto", {**LITE0, "network_options": {"weights": "random"}}),
}
"""Rows that learn photos: a method, and what its learner is made of."""
VECTORS = (*COMPUTED, "pixels", "sklearn")
"""Rows that learn vectors: the features of all photos, which are computed once; or their pixels."""
CIFAR_SIZES = (100, 500)
FROM_SCRATCH = {"cifar-lwf": "lwf", "cifar-icarl": "icarl", "cifar-bic": "bic"}
"""Rows of CIFAR-100 that train a ResNet-32 at 32 pixels, with 100 images a class."""
SCRATCH_EPOCHS = 40
UNEQUAL = {"two large": (2, 40, 5), "half large": (8, 90, 10)}
"""Draws of unequal classes: how many are large, images of each large one, of each other one."""
UNEQUAL_ROWS = ("auto", "ncm", "slda", "ridge", "acil", "logistic", "unweighted")
UNWEIGHTED = ("logistic", {"balanced": False})
LARGE = ("ncm", "slda", "ridge", "auto")
LARGE_CLASSES, LARGE_NEW, LARGE_IMAGES, LARGE_FEATURES = 900, 100, 20, 1280


class Task(NamedTuple):
    """One row of one table, for one seed."""

    part: str
    row: str
    seed: int
    size: int = 0

    @property
    def file(self) -> str:
        """The name of its result."""
        size = f"-{self.size}" if self.size else ""
        return f"{self.part}{size}-{self.row}-{self.seed}.json"


def all_tasks() -> Iterator[Task]:
    """Every row in its order; a cut leaves out what is at the end."""
    yield Task("months", "photos", 0)
    yield from (Task("months", row, seed) for seed in SEEDS for row in VECTORS)
    yield from (Task("large", row, 0) for row in LARGE)
    yield from (Task("cifar", row, 0, size) for size in CIFAR_SIZES for row in COMPUTED)
    yield from (Task("months", row, seed) for seed in SEEDS for row in ("scratch", "icarl", "bic"))
    yield Task("speed", "features", 0)
    yield from (Task("months", row, seed) for seed in SEEDS for row in ("random", "photos"))
    yield from (Task("cifar", "sklearn", 0, size) for size in CIFAR_SIZES)
    for seed in SEEDS[1:]:
        rows = [row for row in COMPUTED if row != "ranpac"]
        yield from (Task("cifar", row, seed, size) for size in CIFAR_SIZES for row in rows)
    yield from (Task("unequal", row, seed) for seed in SEEDS for row in UNEQUAL_ROWS)
    yield from (Task("cifar", row, 0, CIFAR_SIZES[0]) for row in FROM_SCRATCH)


# -- what rows are measured by -----------------------------------------------------------------


class Clock(Events):
    """Seconds of the processor for every stage that was computed, by month and name.

    Not those of the clock on the wall, since other work shares the machine.
    """

    def __init__(self) -> None:
        self.months: list[dict[str, float]] = []
        self._began = 0.0

    def stage_begins(self, stage: Stage) -> None:
        """Note when."""
        self._began = time.process_time()

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """Add them up."""
        month, taken = self.months[-1], time.process_time() - self._began
        month[stage.name] = month.get(stage.name, 0.0) + (0.0 if found else taken)


def own_process() -> dict[str, Any]:
    """The largest memory of this process so far, and where it runs."""
    packages = ("ancl", "torch", "numpy", "pillow")
    return {
        "peak_bytes": peak_memory(),
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "packages": {name: metadata.version(name) for name in packages},
        "commit": commit(),
    }


def peak_memory() -> int:
    """In bytes (Linux); ``getrusage`` would give that of the process that started this one."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM:"))
    return 1024 * int(peak)


def commit() -> str:
    """The commit of the code; with a + where it was changed since."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty=+", "--abbrev=12"]
    found = subprocess.run([*command, "--exclude=*"], capture_output=True, text=True)
    return found.stdout.strip()


def saved(learner: ancl.Learner) -> dict[str, int]:
    """Bytes of a saved learner, and how many images are in it as pixels."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place) / "learner"
        learner.save(directory)
        size = sum(file.stat().st_size for file in directory.rglob("*") if file.is_file())
    tensors = [t for entry in learner._entries().values() for t in entry.tensors.values()]
    images = sum(len(t) for t in tensors if t.dtype == torch.uint8 and t.ndim == 4)
    images += len(learner._held.samples) if learner._held else 0
    return {"disk_bytes": size, "images_kept": images}


# -- three months of photos ---------------------------------------------------------------------


class Month(NamedTuple):
    """The photos of a month."""

    files: list[Path]
    labels: list[str]

    @staticmethod
    def of(parts: Mapping[str, list[Path]]) -> "Month":
        """The files of every class."""
        pairs = [(file, name) for name, files in parts.items() for file in files]
        return Month([file for file, _ in pairs], [name for _, name in pairs])


def draw_months(root: Path, seed: int) -> tuple[list[Month], Month]:
    """Three months, and the test images of all their classes: which ones, the seed decides.

    Training images are those of Tiny ImageNet's part on hand, test images its validation images.
    """
    place = root / "tiny-imagenet-200"
    random = np.random.default_rng(seed)
    names = sorted((place / "wnids.txt").read_text().split())
    chosen = [names[index] for index in random.permutation(len(names))[: sum(MONTHS)]]
    photos: dict[str, list[Path]] = {}
    for name in chosen:
        files = sorted((place / "train" / name).rglob("*.JPEG"))
        photos[name] = [files[index] for index in random.permutation(len(files))]
    halves = {name: len(photos[name]) // 2 for name in chosen[:AGAIN]}
    months, start = [], 0
    for number, count in enumerate(MONTHS):
        parts = {name: photos[name][: halves.get(name)] for name in chosen[start : start + count]}
        if number == 1:
            parts |= {name: photos[name][half:] for name, half in halves.items()}
        months.append(Month.of(parts))
        start += count
    lines = (place / "val" / "val_annotations.txt").read_text().splitlines()
    tests: dict[str, list[Path]] = {name: [] for name in chosen}
    for file, name, *_ in (line.split("\t") for line in lines):
        if name in tests:
            tests[name].append(place / "val" / "images" / file)
    return months, Month.of(tests)


def months_row(task: Task, root: Path, cache: Path) -> dict[str, Any]:
    """Learn the months one after another, and answer the test images of all classes."""
    months, test = draw_months(root, task.seed)
    if task.row in PHOTOS:
        method, made = PHOTOS[task.row]
        given = [month.files for month in (*months, test)]
    else:
        method, made = "auto" if task.row == "pixels" else task.row, {"network": "features"}
        make = pixels_of_files if task.row == "pixels" else features_of_files
        given = _stored(cache / f"{make.__name__}-{task.seed}.npz", make, (*months, test))
    if task.row == "sklearn":
        labels = [label for month in months for label in month.labels]
        return sklearn_row(np.concatenate(given[:-1]), labels, given[-1], test.labels)
    clock = Clock()
    learner = ancl.Learner(method, seed=task.seed, events=clock, **made)
    seconds = []
    for data, month in zip(given, months, strict=False):
        clock.months.append({})
        began = time.process_time()
        learner.learn(data, month.labels)
        seconds.append(time.process_time() - began)
    began = time.process_time()
    answers = learner.predict(given[-1])
    answer_seconds = time.process_time() - began
    return {
        "accuracy": float(np.mean([a == b for a, b in zip(answers, test.labels, strict=True)])),
        "test_images": len(test.labels),
        "train_images": [len(month.labels) for month in months],
        "seconds": seconds,
        "stages": clock.months,
        "answer_seconds": answer_seconds,
        "chosen": learner.choice.json() if learner.choice else None,
        **saved(learner),
    }


def unequal_row(task: Task, root: Path, cache: Path) -> dict[str, Any]:
    """One month with few large classes: the accuracy of all draws, the mean over classes.

    Classes are as in the months of the same seed; the first of them are the large ones.
    """
    months, test = draw_months(root, task.seed)
    vectors = _stored(
        cache / f"features_of_files-{task.seed}.npz", features_of_files, (*months, test)
    )
    x = np.concatenate(vectors[:-1])
    labels = np.array([label for month in months for label in month.labels])
    names = list(dict.fromkeys(labels))
    truth = np.array(test.labels)
    method, settings = UNWEIGHTED if task.row == "unweighted" else (task.row, {})
    shares: dict[str, float] = {}
    for draw, (large, most, fewest) in UNEQUAL.items():
        sizes = [most if at < large else fewest for at in range(len(names))]
        parts = [
            np.flatnonzero(labels == name)[:size] for name, size in zip(names, sizes, strict=True)
        ]
        index = np.concatenate(parts)
        learner = ancl.Learner(method, "features", seed=task.seed, **settings)
        learner.learn(x[index], labels[index].tolist())
        right = np.array(learner.predict(vectors[-1])) == truth
        shares[draw] = float(np.mean([right[truth == name].mean() for name in names]))
    return {"shares": shares, "test_images": len(test.labels)}


def _stored(
    file: Path, make: Callable[[list[Path]], NDArray[np.float32]], months: Sequence[Month]
) -> list[NDArray[np.float32]]:
    """Vectors of the photos of every month, made once."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, *(make(month.files) for month in months))
    with np.load(file) as arrays:
        return [arrays[name] for name in arrays.files]


def pixels_of_files(files: list[Path]) -> NDArray[np.float32]:
    """Bytes of photos at 32x32 pixels, as shares."""
    images = read_pictures(files, (3, 32, 32), rule=SIZED)
    return images.reshape(len(images), -1).astype(np.float32) / 255


def features_of_files(files: list[Path]) -> NDArray[np.float32]:
    """What the network makes of photos: for scikit-learn, from the same pixels."""
    return extracted(ImageView.of(torch.from_numpy(read_pictures(files, size=PIXELS, rule=SIZED))))


def extracted(x: ImageView) -> NDArray[np.float32]:
    """Features, as a stage computes them."""
    shape = (3, *x.shape[1:3])
    network = frozen(architecture("efficientnet_lite0", shape, frozen=True).build([2]))
    moments = Normalization((0.5,) * 3, (0.5,) * 3)
    answer = ImageFormat(moments, bounded_size(128, shape)).answering(network, torch.device("cpu"))
    return answer(Samples(x, torch.zeros(len(x), dtype=torch.long))).features.numpy()


def sklearn_row(x: Any, y: Any, test_x: Any, test_y: Any) -> dict[str, Any]:
    """Logistic regression with its defaults on all features at once: nothing is held out."""
    from sklearn.linear_model import LogisticRegression

    began = time.process_time()
    model = LogisticRegression(max_iter=2000).fit(x, y)
    seconds = time.process_time() - began
    accuracy = float((model.predict(test_x) == np.array(test_y)).mean())
    return {"accuracy": accuracy, "seconds": [seconds], "test_images": len(test_x)}


# -- CIFAR-100 ----------------------------------------------------------------------------------


def cifar_row(task: Task, root: Path, cache: Path) -> dict[str, Any]:
    """Ten tasks of ten classes, from features that all rows share, or from scratch."""
    if task.row in FROM_SCRATCH:
        return cifar_from_scratch(task, root)
    place = cifar_features(root, cache)
    settings = {
        "data.scenario": "cil",
        "data.classes": "10x10",
        "data.order": "icarl",
        "data.per_class": task.size,
        "network.name": "features",
    }
    if task.row == "sklearn":
        return _sklearn_cifar(task, place)
    return _cifar_run(
        ancl.spec(task.row, data=f"arrays:{place}", seed=task.seed, settings=settings)
    )


def cifar_from_scratch(task: Task, root: Path) -> dict[str, Any]:
    """The same tasks, learned by a ResNet-32 from the images themselves."""
    settings = {
        "data.scenario": "cil",
        "data.per_class": task.size,
        "training.epochs": SCRATCH_EPOCHS,
        "training.schedule": "cosine",
    }
    method = FROM_SCRATCH[task.row]
    return _cifar_run(ancl.spec(method, "cifar100/10", seed=task.seed, settings=settings), root)


def _cifar_run(spec: ancl.RunSpec, root: Path | None = None) -> dict[str, Any]:
    began = time.process_time()
    result = ancl.run(spec, store=None, data_root=root)
    last = result.matrices["tag"][-1]
    return {
        "accuracy": float(result.metrics["final_accuracy"]),
        "average": float(result.metrics["aiac"]),
        "last_row": [float(share) for share in last],
        "seconds": [time.process_time() - began],
        "test_images": 10_000,
    }


def _sklearn_cifar(task: Task, place: Path) -> dict[str, Any]:
    parts = [np.load(place / f"{name}.npy") for name in ("x_train", "y_train", "x_test", "y_test")]
    x, y, test_x, test_y = parts
    random = np.random.default_rng(task.seed)
    index = [random.permutation(np.flatnonzero(y == c))[: task.size] for c in range(100)]
    chosen = np.concatenate(index)
    return sklearn_row(x[chosen], y[chosen], test_x, test_y)


def cifar_features(root: Path, cache: Path) -> Path:
    """All images of CIFAR-100 through the network, once."""
    place = cache / "cifar100"
    for part in ("test", "train"):
        if (place / f"x_{part}.npy").exists():
            continue
        place.mkdir(parents=True, exist_ok=True)
        x, labels = labelled_part("cifar100", part, root, size=CIFAR_PIXELS)
        names = sorted(set(labels))
        np.save(place / f"y_{part}.npy", np.array([names.index(label) for label in labels]))
        np.save(place / f"x_{part}.npy", extracted(x))
    return place


# -- a thousand classes -------------------------------------------------------------------------


def large_row(task: Task, root: Path, cache: Path) -> dict[str, Any]:
    """A learner of 900 classes learns 100 more, from made-up vectors."""
    random = np.random.default_rng(task.seed)
    means = random.normal(size=(LARGE_CLASSES + LARGE_NEW, LARGE_FEATURES)).astype(np.float32)

    def vectors(classes: range) -> tuple[NDArray[np.float32], list[int]]:
        labels = np.repeat(np.array(classes), LARGE_IMAGES)
        noise = random.normal(size=(len(labels), LARGE_FEATURES)).astype(np.float32)
        return means[labels] + 4 * noise, labels.tolist()

    clock = Clock()
    learner = ancl.Learner(task.row, "features", events=clock)
    seconds = []
    for classes in (range(LARGE_CLASSES), range(LARGE_CLASSES, LARGE_CLASSES + LARGE_NEW)):
        clock.months.append({})
        x, labels = vectors(classes)
        began = time.process_time()
        learner.learn(x, labels)
        seconds.append(time.process_time() - began)
    x, labels = vectors(range(LARGE_CLASSES + LARGE_NEW))
    answers = learner.predict(x)
    return {
        "accuracy": float(np.mean([a == b for a, b in zip(answers, labels, strict=True)])),
        "seconds": seconds,
        "stages": clock.months,
        **saved(learner),
    }


def speed_row(task: Task, root: Path, cache: Path) -> dict[str, Any]:
    """Images per second beside a plain loop."""
    command = [sys.executable, str(ROOT / "benchmarks" / "features.py"), "--json"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(output)
    return found


# -- the queue ----------------------------------------------------------------------------------

PARTS = {
    "months": months_row,
    "unequal": unequal_row,
    "cifar": cifar_row,
    "large": large_row,
    "speed": speed_row,
}


def compute(task: Task, root: Path, cache: Path) -> None:
    """One row, in this process; its file is written when it is finished."""
    torch.set_num_threads(1)
    found = PARTS[task.part](task, root, cache)
    result = {**task._asdict(), **found, **({} if task.part == "speed" else own_process())}
    if task.part == "speed":
        result |= {name: value for name, value in own_process().items() if name != "peak_bytes"}
    file = FOLDER / "results" / task.file
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(file)


def main() -> None:
    """Read the flags, and do what they ask."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data-root", help="where cifar-100-python and tiny-imagenet-200 are")
    parser.add_argument("--cache", type=Path, default=ROOT / "runs" / "pretrained")
    parser.add_argument("--only", help="rows whose file begins so, such as months")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--tables", action="store_true")
    parser.add_argument("--row", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    root = data_root(given.data_root)
    if given.row:
        part, row, seed, size = given.row
        compute(Task(part, row, int(seed), int(size)), root, given.cache)
        return
    if given.tables:
        write_tables(FOLDER, PAGES)
        return
    for task in all_tasks():
        if (FOLDER / "results" / task.file).exists() or not task.file.startswith(given.only or ""):
            continue
        print(task.file, flush=True)
        if not given.dry_run:
            flags = ["--data-root", str(root), "--cache", str(given.cache)]
            command = [sys.executable, __file__, *flags, "--row", *map(str, task)]
            subprocess.run(command, check=False)


if __name__ == "__main__":
    main()
