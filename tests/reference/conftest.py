"""What reference tests share: inputs made by formulas, no randomness, and the comparison.

One fixture, ``reference``, takes all randomness and all rounding to float32 out of a run, and
writes down what its trainings do.
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ancl import Method, Training
from ancl.extend import Objective, PenaltyTerm, Step, WeightRegularizer, architecture
from tests.lab import (
    Epoch,
    Exemplars,
    Fit,
    Head,
    Samples,
    Setting,
    Split,
    Task,
    patch_part,
    strip_prefix,
)

HERE = Path(__file__).parent
S: dict[str, Any] = json.loads((HERE / "settings.json").read_text())

# -- formulas ------------------------------------------------------------------------------------


def stream(tag: int) -> Iterator[int]:
    """Integers 0 … 65535 of a linear congruential generator; its first eight are left out."""
    state = (1000003 * S["seed"] + 7919 * tag) % 2**32
    for position in range(2**31):
        state = (1664525 * state + 1013904223) % 2**32
        if position >= 8:
            yield state >> 16


def numbers(tag: int, shape: Sequence[int]) -> Tensor:
    drawn = list(islice(stream(tag), math.prod(shape)))
    return torch.tensor(drawn, dtype=torch.float64).reshape(tuple(shape))


def unit(tag: int, shape: Sequence[int]) -> Tensor:
    """Numbers between −1 and 1."""
    return (2 * numbers(tag, shape) + 1 - 65536) / 65536


def byte(tag: int, shape: Sequence[int]) -> Tensor:
    """Whole numbers 0 … 255."""
    return (numbers(tag, shape) / 256).floor()


def order(n: int) -> Tensor:
    """The order in which a training sees n images, in place of a random one."""
    step = max(1, 618 * n // 1000)
    while math.gcd(step, n) != 1:
        step += 1
    return (step * torch.arange(n) + 3) % n


def noisy(pattern: Tensor, noise: Tensor) -> Tensor:
    return (S["signal"] * (pattern - 128) + S["noise"] * (noise - 128)) / 256


def part(task: int, number: int, count: int) -> Samples:
    """Images of a task's classes, class by class; ``number`` is 0 train, 1 val, 2 test."""
    images, labels = [], []
    for label in range(task * S["classes"], (task + 1) * S["classes"]):
        pattern = byte(100 + label, (3, 4, 4)).repeat(1, 2, 2)
        for index in range(count):
            noise = byte(10000 + 1000 * label + 300 * number + index, (3, 8, 8))
            images.append(noisy(pattern, noise))
            labels.append(label)
    return Samples(torch.stack(images), torch.tensor(labels))


def vectors(task: int) -> Samples:
    """Inputs of 12 numbers, image by image, and for each the classes in order."""
    inputs, labels = [], []
    for index in range(S["train"]):
        for label in range(task * S["classes"], (task + 1) * S["classes"]):
            noise = byte(10000 + 1000 * label + index, (12,))
            inputs.append(noisy(byte(100 + label, (12,)), noise))
            labels.append(label)
    return Samples(torch.stack(inputs), torch.tensor(labels))


def made_task(index: int, split: Split) -> Task:
    classes = slice(index * S["classes"], (index + 1) * S["classes"])
    sizes = (len(split.train), len(split.val), len(split.test))
    names = tuple(range(classes.start, classes.stop))
    counts = (len(split.train) // len(names),) * len(names)
    key = f"{tuple(split.train.x.shape)} {index}"
    return Task(*(index, classes, names, key, f"{key} test", sizes, counts, lambda: split, names))


@cache
def image_tasks() -> tuple[Task, ...]:
    counts = (S["train"], S["val"], S["test"])
    splits = [
        Split(*(part(task, number, count) for number, count in enumerate(counts)))
        for task in range(S["tasks"])
    ]
    return tuple(made_task(index, split) for index, split in enumerate(splits))


@cache
def vector_tasks() -> tuple[Task, ...]:
    empty = Samples(torch.empty(0, 12).double(), torch.empty(0, dtype=torch.long))
    return tuple(made_task(task, Split(vectors(task), empty, empty)) for task in range(2))


class Convolutions(nn.Module):
    """Two convolutions with batch norm, and the mean over positions."""

    def __init__(self, last_relu: bool = True) -> None:
        super().__init__()
        first, last = S["channels"]
        self.conv1 = nn.Conv2d(3, first, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(first)
        self.conv2 = nn.Conv2d(first, last, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(last)
        self.last_relu = last_relu
        scales = (0.35, 0.1, 0.1, 0.25, 0.1, 0.1)
        with torch.no_grad():
            for tag, (scale, weight) in enumerate(zip(scales, self.parameters(), strict=True), 1):
                weight.copy_(scale * unit(tag, weight.shape))
            self.bn1.weight.add_(1)
            self.bn2.weight.add_(1)

    def with_maps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        first = self.bn1(self.conv1(x))
        last = self.bn2(self.conv2(first.relu()))
        return (last.relu() if self.last_relu else last).mean(dim=(2, 3)), (first, last)

    def forward(self, x: Tensor) -> Tensor:
        return self.with_maps(x)[0]


class Layers(nn.Module):
    """Two linear layers, each with a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(12, 10), nn.Linear(10, 8)
        with torch.no_grad():
            for tag, weight in enumerate(self.parameters(), 60):
                weight.copy_((0.5 if weight.dim() > 1 else 0.1) * unit(tag, weight.shape))

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).relu()).relu()


# -- comparison ----------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Two trees of numbers: how many were compared, how far they are apart, what was left out.

    A loss is compared relative to max(|value|, 1e-3); entries of a tensor to the root of their
    mean square, sums to √(sumsq · size). Whole numbers, flags and names are equal or not.
    """

    count: int = 0
    largest: float = 0.0
    left_out: set[str] = field(default_factory=set)

    def trees(self, want: Any, got: Any, path: str = "") -> "Comparison":
        if isinstance(want, Tensor):
            self._tensor(want, got, path)
        elif isinstance(want, dict) and "sumsq" in want:
            self._fingerprint(want, got, path)
        elif isinstance(want, dict):
            assert got.keys() <= want.keys(), f"{path}: {got.keys() - want.keys()}"
            for name, each in want.items():
                inside = f"{path}.{name}".lstrip(".")
                if name in got:
                    self.trees(each, got[name], inside)
                else:
                    self.left_out.add(inside)
        elif isinstance(want, list):
            assert len(want) == len(got), f"{path}: {len(got)} instead of {len(want)}"
            for one, other in zip(want, got, strict=True):
                self.trees(one, other, path)
        elif isinstance(want, float):
            self._number(want, got, max(abs(want), 1e-3), path)
        else:
            assert want == got, f"{path} is {got!r} instead of {want!r}"
            self.count += not isinstance(want, str)
        return self

    def _fingerprint(self, want: dict[str, Any], got: Tensor, path: str) -> None:
        values = got.detach().reshape(-1)
        assert list(got.shape) == want["shape"], f"{path} has the shape {tuple(got.shape)}"
        scale = root_mean_square(want["sumsq"], len(values))
        self._number(want["sum"], values.sum().item(), scale * len(values), f"sum of {path}")
        self._number(
            want["sumsq"],
            values.square().sum().item(),
            scale**2 * len(values),
            f"squares of {path}",
        )
        for ends, found in (("first", values[:3]), ("last", values[-3:])):
            for one, other in zip(want[ends], found.tolist(), strict=True):
                self._number(one, other, scale, f"{ends} of {path}")

    def _tensor(self, want: Tensor, got: Tensor, path: str) -> None:
        assert want.shape == got.shape, f"{path} has the shape {tuple(got.shape)}"
        scale = root_mean_square(want.square().sum().item(), want.numel())
        for one, other in zip(want.flatten().tolist(), got.flatten().tolist(), strict=True):
            self._number(one, other, scale, path)

    def _number(self, want: float, got: float, scale: float, path: str) -> None:
        gap = abs(want - got) / scale
        assert gap < 1e-9, f"{path} is {got!r} instead of {want!r}"
        self.count, self.largest = self.count + 1, max(self.largest, gap)

    def said(self, name: str) -> None:
        """One line of the table that ``pytest -s`` shows."""
        print(f"\n{name:22}{self.count:6} numbers, largest relative difference {self.largest:.1e}")


def root_mean_square(sumsq: float, size: int) -> float:
    """The scale of a tensor; what is zero but for rounding is compared as it is."""
    found = math.sqrt(sumsq / size)
    return found if found > 1e-12 else 1.0


# -- the fixture ---------------------------------------------------------------------------------


class Reference:
    """Inputs, settings, and what the trainings of a run did.

    Attributes:
        epochs: Every epoch in the form of the recorded files, by task and role.
        networks: The network after each of them.
        anchored: The auxiliary network's importance in every epoch of a main network held to it.
        shuffled: Whether images come in ``order`` or as they lie.
    """

    def __init__(self) -> None:
        self.epochs: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
        self.networks: dict[tuple[int, str], list[dict[str, Tensor]]] = defaultdict(list)
        self.anchored: list[dict[str, Tensor]] = []
        self.shuffled = True
        self.steps: list[tuple[int, dict[str, float]]] = []
        self.settings, self.unit, self.order, self.stream = S, unit, order, stream
        self.layers, self.convolutions, self.named = Layers, Convolutions, named

    @property
    def tasks(self) -> tuple[Task, ...]:
        return image_tasks()

    @property
    def vector_tasks(self) -> tuple[Task, ...]:
        return vector_tasks()

    def load(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((HERE / f"{name}.json").read_text())
        return found

    def compare(self, want: Any, got: Any) -> Comparison:
        return Comparison().trees(want, got)

    def training(self, **values: Any) -> Training:
        given = {
            "epochs": S["epochs"],
            "batch_size": S["batch"],
            "momentum": S["momentum"],
            "weight_decay": S["weight_decay"],
            "patience": S["patience"],
            "factor": S["factor"],
            "lr_min": S["lr_min"],
        }
        return Training(**{**given, **values})

    def setting(
        self, method: Method, training: Training, network: nn.Module | None = None, **values: Any
    ) -> Setting:
        """A setting for images, or for vectors where their network is given."""
        shape = (12,) if network else (3, 8, 8)
        net = architecture(network or Convolutions(method.last_relu), shape)
        return Setting(net, training, normalization=None, **{"auxiliary": training, **values})

    def exemplars(self, learned: Any, index: int) -> list[list[int]]:
        """[class, image] of what the memory took of a task to train on, as it lies there."""
        memory = Exemplars.of(strip_prefix("memory", learned.entry("memory", index).tensors))
        train, own = self.tasks[index].load().train, (memory.task == index) & ~memory.held
        found = []
        for image, label in zip(memory.samples.x[own], memory.samples.y[own].tolist(), strict=True):
            of_class = train.x[train.of_class(label)]
            (place,) = (of_class == image).flatten(1).all(dim=1).nonzero().squeeze(1).tolist()
            found.append([label, place])
        return found

    def record(self, fit: Fit, epoch: Epoch) -> None:
        """Write an epoch down as the recorded files do; terms on weights by their steps."""
        names = self.steps[0][1]
        seen = sum(size for size, _ in self.steps)
        means = {n: sum(size * terms[n] for size, terms in self.steps) / seen for n in names}
        wells = {p.name: p for p in fit.objective.terms if is_well(p)}
        logged = {name: v for name, v in epoch.train.items() if name not in wells}
        found = {
            "epoch": epoch.epoch,
            "lr": epoch.lr,
            "batch_loss": [sum(terms.values()) for _, terms in self.steps],
            "train_loss": sum(means.values()),
            "train": means | logged,
            "val_loss": sum(epoch.val.values()),
            "val": epoch.val,
            **dict.fromkeys(accuracy_names(fit), epoch.accuracy),
            "best": epoch.best,
            "lr_next": fit.lr,
        }
        if fit.finished and fit.lr < fit.training.lr_min:
            found["stopped"] = True
        if "auxiliary" in wells:
            self.anchored.append(wells["auxiliary"].anchor.importance["gradients"])
        place = (fit.path[1], fit.path[2])
        self.epochs[place].append(found)
        self.networks[place].append(named(fit.network.tensors()))


def accuracy_names(fit: Fit) -> tuple[str, ...]:
    """What the accuracy of an epoch is: with one task it is the same whether told or not."""
    if len(fit.view.tasks) == 1:
        return ("val_taw", "val_tag")
    return ("val_taw" if fit.view.task_aware else "val_tag",)


def is_well(pull: PenaltyTerm) -> bool:
    """Whether a term is on weights: its gradient is added by the loop, not by autograd."""
    return isinstance(pull.regularizer, WeightRegularizer)


def named(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights and buffers by the names of the recorded files."""
    found = {}
    for name, value in tensors.items():
        kind, _, rest = name.partition(".")
        if kind == "backbone" and not rest.endswith("num_batches_tracked"):
            found[rest] = value
        elif kind == "head" and rest == "scale":
            found["scale"] = value.reshape(1)
        elif kind == "head":
            block = rest.split(".")[1]
            found[f"head{block}.{'weight' if rest.startswith('weights') else 'bias'}"] = value
    return found


def _as_they_are(x: Tensor, normalization: object, device: torch.device) -> Tensor:
    """Inputs in float64, laid out as the library lays them out."""
    layout = torch.channels_last if x.ndim == 4 else torch.contiguous_format
    return x.contiguous(memory_format=layout)


def _first_of_each(train: Samples, count: int, path: object) -> tuple[Samples, Samples]:
    """Hold out the first images of every class."""
    held = torch.zeros(len(train), dtype=torch.bool)
    for label in set(train.y.tolist()):
        held[train.of_class(label)[:count]] = True
    return train.take((~held).nonzero().squeeze(1)), train.take(held.nonzero().squeeze(1))


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reference]:
    """Float64, images and heads by formulas, and a fixed order in place of every random draw."""
    found = Reference()
    monkeypatch.setattr(
        torch,
        "randperm",
        lambda n, generator=None: order(n) if found.shuffled else torch.arange(n),
    )
    patch_part(monkeypatch, "batches_as_input", _as_they_are)
    patch_part(monkeypatch, "stages_hold_out", _first_of_each)
    grow, answers, advance = Head.grow, Objective.answers, Fit.__next__

    def grow_by_formula(self: Head, classes: int, *, draw: bool = True) -> None:
        grow(self, classes, draw=draw)
        task = len(self.sizes) - 1
        with torch.no_grad():
            for parameter, scale, tag in zip(self.block(task), (0.4, 0.1), (20, 40), strict=False):
                parameter.copy_(scale * unit(tag + task, parameter.shape))

    def recorded_answers(self: Objective, step: Step) -> dict[str, Tensor]:
        terms = answers(self, step)
        if torch.is_grad_enabled():  # a step of training
            held = {
                pull.name: pull.lamb * pull.regularizer.penalty(step, pull.anchor)
                for pull in self.terms
                if is_well(pull)
            }
            found.steps.append((len(step.y), {n: t.item() for n, t in (terms | held).items()}))
        return terms

    def recorded_epoch(self: Fit) -> Epoch:
        found.steps.clear()
        epoch = advance(self)
        found.record(self, epoch)
        return epoch

    monkeypatch.setattr(Head, "grow", grow_by_formula)
    monkeypatch.setattr(Objective, "answers", recorded_answers)
    monkeypatch.setattr(Fit, "__next__", recorded_epoch)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield found
    torch.set_default_dtype(before)
