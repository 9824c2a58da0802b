"""What tests share: one thread, AVX2, a small synthetic stream, and a way to learn it.

Small tensors are slower with more threads, and bits depend on the count.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Bits depend on the instructions a processor has. AVX2 is what the golden files were recorded
# with, and newer processors have it too; torch reads these when it is imported.
if "avx2" in Path("/proc/cpuinfo").read_text().split():
    os.environ.update(ATEN_CPU_CAPABILITY="avx2", ONEDNN_MAX_CPU_ISA="AVX2")

import torch
from PIL import Image
from torch import Tensor, nn

from ancl import Comparison, Events, Memory, Method, RunResult, Training
from ancl.extend import architecture
from tests.lab import (
    Architecture,
    Finished,
    Layer,
    MemoryStore,
    Outcome,
    Runner,
    Setting,
    Source,
    Stage,
    StageResult,
    StageStorage,
    Task,
    digits,
    from_arrays,
    make_stream,
    plan,
    plan_notes,
    resolve,
    summary,
)

torch.set_num_threads(1)

SHORT = Training(epochs=2, lr=0.05, lr_first=0.1, batch_size=16, patience=1)


@pytest.fixture(autouse=True)
def own_modules_are_forgotten(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A module that a test wrote must not answer for another test's module of that name."""
    before, written = set(sys.modules), str(tmp_path_factory.getbasetemp().parent)
    path = list(sys.path)
    yield
    sys.path[:] = path  # the folder of a module, where Python would find its neighbours
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(written):
            del sys.modules[name]


@pytest.fixture(scope="session", autouse=True)
def cache_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Caches of pixels of all tests, and not the user's; the processes they start have it too."""
    place = tmp_path_factory.mktemp("cache")
    os.environ["ANCL_CACHE"] = str(place)
    return place


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record-golden", action="store_true", help="write tests/golden/*.json from this run"
    )


@dataclass(frozen=True, eq=False)
class Learned:
    """A plan and what its stages left behind."""

    stages: tuple[Stage, ...]
    entries: dict[str, StageResult]
    said: list[str] = field(default_factory=list)

    def stage(self, name: str, task: int) -> Stage:
        return next(s for s in self.stages if (s.name, s.task) == (name, task))

    def entry(self, name: str, task: int) -> StageResult:
        return self.entries[self.stage(name, task).key]

    def network(self, task: int, stage: str = "") -> dict[str, Tensor]:
        """What a training left of the network and its watcher, or what a method's stage made."""
        kept = ("network/", "watched/", "fetril/")
        made = ("main", "connect", "memory_training", "translate features")
        stage = stage or next(name for name in made if (name, task) in self.names)
        tensors = self.entry(stage, task).tensors
        return {name: t for name, t in tensors.items() if name.startswith(kept)}

    @property
    def final(self) -> dict[str, Tensor]:
        return self.network(self.stages[-1].task)

    @property
    def names(self) -> list[tuple[str, int]]:
        return [(stage.name, stage.task) for stage in self.stages]


class Mapped(nn.Module):
    """A small convolutional network that gives the maps of its two stages."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4))
        self.last = nn.Sequential(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8))

    def with_maps(self, x: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        first = self.first(x)
        last = self.last(first.relu())
        return last.relu().mean(dim=(2, 3)), (first, last)

    def forward(self, x: Tensor) -> Tensor:
        return self.with_maps(x)[0]


class Lab:
    """Learns the synthetic stream."""

    def __init__(self) -> None:
        self.source = synthetic()

    def tasks(self, **options: Any) -> tuple[Task, ...]:
        given: dict[str, Any] = {"tasks": 3, "val_fraction": 0.2, **options}
        return make_stream(self.source, **given).tasks

    def conv(self) -> Architecture:
        """A small convolutional network whose weights lie channels last in memory."""
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)]
        layers += [nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        return architecture(nn.Sequential(*layers), (1, 6, 6))

    def resnet(self) -> Architecture:
        """A small residual network, for methods that join or gate its levels."""
        return architecture("resnet8", (1, 6, 6), width=2)

    def mapped(self) -> Architecture:
        """A small network for methods that read maps."""
        torch.manual_seed(0)
        return architecture(Mapped(), (1, 6, 6))

    def setting(
        self, net: Architecture | None = None, training: Training = SHORT, **options: Any
    ) -> Setting:
        net = net or architecture("mlp", (1, 6, 6), hidden=(16,))
        auxiliary = replace(training, weight_decay=5e-4)
        given: dict[str, Any] = {"auxiliary": auxiliary, **options}
        return Setting(net, training, normalization=self.source.normalization, **given)

    def fitted(self, method: Method, setting: Setting) -> Setting:
        """The setting with the method's own head, and a small memory where it wants one."""
        net = replace(
            setting.architecture,
            head=method.head,
            head_options=dict(method.head_options),
            growth=method.growth and method.growth.told(setting.task_aware),
        )
        wants = method.memory or (not setting.task_aware and "cil" in method.needs_memory)
        batch = 4 if method.replays else None
        memory = setting.memory or (Memory(per_class=4, batch=batch) if wants else None)
        return replace(setting, architecture=net, memory=memory)

    def learn(
        self,
        method: Method,
        setting: Setting | None = None,
        tasks: Sequence[Task] | None = None,
        store: StageStorage | None = None,
        reporter: Events | None = None,
    ) -> Learned:
        setting, tasks = self.fitted(method, setting or self.setting()), tasks or self.tasks()
        said = plan_notes(method, tasks, setting)
        stages = plan(method, tasks, setting)
        reporter = reporter or Events()
        reporter.say = said.append  # type: ignore[method-assign]
        runner = Runner(stages, tasks, setting.device, store or MemoryStore(), reporter)
        return Learned(stages, {stage.key: runner.obtain(stage.key) for stage in stages}, said)


def synthetic(classes: int = 6, train: int = 20, test: int = 6) -> Source:
    """Noisy copies of one random pattern a class, 6 x 6 grey pixels."""
    draw = torch.Generator().manual_seed(7)
    patterns = torch.randint(0, 200, (classes, 1, 6, 6, 1), generator=draw)
    noise = torch.randint(0, 56, (classes, train + test, 6, 6, 1), generator=draw)
    images = (patterns + noise).to(torch.uint8)
    labels = torch.arange(classes).repeat_interleave(train)
    test_labels = torch.arange(classes).repeat_interleave(test)
    return from_arrays(
        images[:, :train].reshape(-1, 6, 6, 1).numpy(),
        labels.numpy(),
        images[:, train:].reshape(-1, 6, 6, 1).numpy(),
        test_labels.numpy(),
    )


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab()


@pytest.fixture
def golden_directory() -> Path:
    return Path(__file__).parent / "golden"


def measured(
    method: str,
    benchmark: str,
    accuracy: float,
    images: tuple[tuple[int, int, int], ...],
    settings: Mapping[str, Any],
) -> RunResult:
    """A result that nobody computed: the same accuracy on every task, whatever came after it."""
    spec = resolve(method, benchmark, [Layer("--set", settings)]).spec
    matrix = np.full((len(images), len(images)), accuracy)
    matrix[np.triu_indices(len(images), 1)] = np.nan
    metrics = summary(matrix, [test for _, _, test in images])
    return RunResult(spec, {"taw": matrix, "tag": matrix}, images, metrics, (), (), {})


@pytest.fixture
def paper_runs() -> Callable[..., list[RunResult]]:
    """Runs on the paper's first benchmark with these accuracies, one per seed."""

    def make(
        accuracies: Sequence[float], method: str = "a-lwf", **settings: Any
    ) -> list[RunResult]:
        given = {key.replace("__", "."): value for key, value in settings.items()}
        images = ((4500, 500, 1000),) * 10
        return [
            measured(method, "cifar100/10", accuracy, images, {**given, "seed": seed})
            for seed, accuracy in enumerate(accuracies)
        ]

    return make


@pytest.fixture
def compared() -> Callable[..., Comparison]:
    """``lwf`` with an accuracy of 0.25 beside ``a-lwf`` with 0.75, each with its settings."""

    def make(lwf: Mapping[str, Any], a_lwf: Mapping[str, Any]) -> Comparison:
        given = (("lwf", 0.25, lwf), ("a-lwf", 0.75, a_lwf))
        results = [
            measured(method, "digits/5", accuracy, ((9, 1, 5),), {"threads": 1, **settings})
            for method, accuracy, settings in given
        ]
        runs = [Finished(Path("runs") / result.spec.method, result) for result in results]
        return Comparison(
            {each.spec.method: [each.spec] for each in results}, Outcome(runs, []), None, 1.0
        )

    return make


Write = Callable[[str, Mapping[str, str]], Path]
"""Writes texts to files below a folder of that name, and gives the folder."""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Files of code in folders of their own; what they import is forgotten after the test."""
    monkeypatch.syspath_prepend(tmp_path / "nothing")  # so that the path is put back at the end
    modules = set(sys.modules)

    def files(folder: str, texts: Mapping[str, str]) -> Path:
        for name, text in texts.items():
            file = tmp_path / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        importlib.invalidate_caches()
        return tmp_path / folder

    yield files
    for name in set(sys.modules) - modules:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


WriteDigits = Callable[..., str]
"""Writes digits as image files: ``write_digits(folder, {"three": 3}, part="train", each=20)``."""


@pytest.fixture(scope="session")
def write_digits() -> WriteDigits:
    """A folder for every name with images of that digit; gives the folder as a source."""

    def files(
        folder: Path,
        digit_of: Mapping[str, int],
        part: str = "train",
        each: int = 20,
        skip: int = 0,
    ) -> str:
        samples = getattr(digits(), part)
        for name, digit in digit_of.items():
            (folder / name).mkdir(parents=True)
            for count, position in enumerate(samples.of_class(digit)[skip : skip + each].tolist()):
                pixels = samples.x[position].squeeze(2).numpy()
                Image.fromarray(pixels).save(folder / name / f"{count:03}.png")
        return f"folder:{folder}"

    return files
