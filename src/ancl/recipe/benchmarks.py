"""The benchmarks and presets, each as settings by dotted key laid over the defaults."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from ancl.errors import SpecError, unknown
from ancl.recipe.paper import PAPER, PaperGrid, measured_options, plain, reported, sources


@dataclass(frozen=True)
class Benchmark:
    """A stream of tasks with the training that goes with it.

    Args:
        name: As on the command line.
        explanation: One line.
        settings: Values by dotted key; a ``Sourced`` one says where it comes from.
        options: Settings of single methods, by the name of the method.
        grids: What the paper tried for λ of a method, and for λ_a of its ANCL variant.
    """

    name: str
    explanation: str
    settings: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    grids: Mapping[str, PaperGrid] = field(default_factory=dict)

    def values(self, method: str) -> dict[str, Any]:
        """What the benchmark sets for a method."""
        return plain(self._all(method))

    def sources(self, method: str) -> dict[str, str]:
        """Where such a value comes from, where that is known."""
        return sources(self._all(method))

    def _all(self, method: str) -> dict[str, Any]:
        """The settings of a method; on two branches its host's are its own, too."""
        host = method.replace("aanets-", "")
        return {**self.settings, **self.options.get(host, {}), **self.options.get(method, {})}


_DIGITS_TRAINING = {
    "network.name": "mlp",
    "training.epochs": 30,
    "training.batch_size": 32,
    "training.lr": 0.02,
    "training.lr_first": 0.05,
    "training.lr_min": 1e-3,
}
_HARD_DIGITS = {
    "data.source": "hard-digits",
    "data.tasks": 5,
    "data.per_class": 50,
    "network.name": "resnet8",
    "network.width": 8,
    "training.epochs": 15,
    "training.batch_size": 16,
    "training.lr": 0.02,
    "training.lr_first": 0.05,
    "training.schedule": "cosine",
}
_FASHION_DIGITS = {
    "data.source": "fashion-digits",
    # Garments that look alike and digits that look alike, in turn; garments mixed at last.
    "data.order": (0, 6, 2, 4, 11, 17, 14, 19, 1, 3, 5, 7, 18, 13, 15, 10, 8, 9, 12, 16),
    "data.tasks": 5,
    "data.per_class": 50,
    "data.val_fraction": 0.0,
    "network.name": "resnet8",
    "network.width": 8,
    "training.epochs": 15,
    "training.batch_size": 16,
    "training.lr": 0.01,
    "training.lr_first": 0.05,
    "training.schedule": "cosine",
}
"""The demo's stream, fixed with fine-tuning, LwF and joint training on seeds 100 to 104, which the
demo does not show, before any run of ANCL on it. λ and λ_a are the paper's of (1)."""
_SMALL_CIFAR = {
    "threads": 1,
    "data.source": "cifar100-16",
    "data.order": (
        *(68, 56, 78, 8, 23, 84, 90, 65, 74, 76),
        *(40, 89, 3, 92, 55, 9, 26, 80, 43, 38),
        *(58, 70, 77, 1, 85, 19, 17, 50, 28, 53),
        *(13, 81, 45, 82, 6, 59, 83, 16, 15, 44),
        *(91, 41, 72, 60, 79, 52, 20, 10, 31, 54),
    ),
    "data.val_fraction": 0.1,
    "data.per_class": 100,
    "data.augment": "crop",
    "training.epochs": 15,
    "training.epochs_first": 30,
    "training.batch_size": 50,
    "training.lr": 0.05,
    "training.lr_first": 0.1,
    "training.momentum": 0.9,
    "training.weight_decay": 5e-4,
    "training.schedule": "cosine",
    "training.warmup": 0.1,
    "auxiliary.weight_decay": 5e-4,
}
"""The first 50 classes of iCaRL's order. 50 of a class's 500 images are validated on, and 100 of
the others trained on. One thread: another order of additions alone moves a run by a point."""
_IMAGENET = {
    "data.source": "imagenet-folder",
    "data.scenario": "cil",
    "data.val_fraction": 0.0,
    "data.augment": "resized",
    "memory.per_class": 20,
    "memory.selection": "herding",
    "training.epochs": 90,
    "training.batch_size": 128,
    "training.lr": 0.1,
    "training.lr_first": 0.1,
    "training.weight_decay": 1e-4,
    "training.schedule": "multistep",
    "training.milestones": (30, 60),
}
_HOSTS = ("icarl", "eeil", "bic", "wa", "lucir", "podnet")
_NEED_RESNET = {
    f"{variant}{name}": {"network.name": "resnet8"}
    for name in ("lwm", "podnet", "ccgn", *(f"aanets-{host}" for host in _HOSTS))
    for variant in ("", "a-", "afec-")
}
"""Methods that read maps, join levels or gate convolutions, which the perceptron has none of."""
_PROXIMAL = {
    f"{variant}{name}": {"training.penalty_step": "proximal"}
    for name in ("ewc", "mas")
    for variant in ("", "a-", "afec-")
}
"""Methods whose λ is beyond what plain steps of this rate can follow."""


def _measured(name: str, options: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Options of single methods, with λ and λ_a as they were found on this benchmark."""
    found = measured_options(name)
    return {key: {**options.get(key, {}), **found.get(key, {})} for key in (*options, *found)}


_ALL = (
    Benchmark(
        "digits/5",
        "10 handwritten digits in 5 tasks of 2, embedded",
        {"data.source": "digits", "data.tasks": 5, **_DIGITS_TRAINING},
        {
            "ewc": {"lamb": 100.0},
            "afec-ewc": {"lamb": 100.0},
            "a-ewc": {"lamb": 100.0, "lamb_a": 10.0},
            **_NEED_RESNET,
        },
    ),
    Benchmark(
        "hard-digits/5",
        "the same, shifted, noisy and with few training images",
        _HARD_DIGITS,
    ),
    Benchmark(
        "fashion-digits/5",
        "10 garments and 10 digits in 5 tasks of 4, embedded: the demo's stream",
        _FASHION_DIGITS,
        # The paper's for LwF on CIFAR-100 in 10 tasks, as the demo's protocol says.
        {"a-lwf": {"lamb_a": 1.0}},
    ),
    Benchmark(
        "cifar100-small/5",
        "50 classes of CIFAR-100 at 16x16, task-incremental: 5 tasks of 10; minutes per run",
        {
            **_SMALL_CIFAR,
            "data.scenario": "til",
            "data.tasks": 5,
            "network.name": "resnet14",
        },
        _measured("cifar100-small/5", _PROXIMAL),
    ),
    Benchmark(
        "cifar100-small/4",
        "the same classes, class-incremental: 20 classes, then 3 tasks of 10; minutes per run",
        {
            **_SMALL_CIFAR,
            "data.scenario": "cil",
            "data.tasks": 4,
            "data.first": 20,
            "network.name": "resnet8",
            "memory.per_class": 20,
            "memory.selection": "herding",
        },
        # Twelve versions of every image would be twelve times the epochs of the others.
        _measured("cifar100-small/4", {"eeil": {"enlarge": False}}),
    ),
    Benchmark(
        "imagenet-folder/10",
        "your own ImageNet, any classes of it, class-incremental: 10 tasks from scratch (B0)",
        {**_IMAGENET, "data.tasks": 10},
    ),
    Benchmark(
        "imagenet-folder/6",
        "the same: half of 100 classes, then 5 tasks of 10 (B50)",
        {**_IMAGENET, "data.tasks": 6, "data.first": 50},
    ),
    Benchmark(
        "imagenet-folder/11",
        "the same: half of 100 classes, then 10 tasks of 5 (B50)",
        {**_IMAGENET, "data.tasks": 11, "data.first": 50},
    ),
    *(Benchmark(*each) for each in PAPER),
)

BENCHMARKS: dict[str, Benchmark] = {each.name: each for each in _ALL}


def benchmark(name: str) -> Benchmark:
    """The benchmark of a name.

    Raises:
        SpecError: There is none of that name.
    """
    if name not in BENCHMARKS:
        raise SpecError(unknown("benchmark", name, BENCHMARKS))
    return BENCHMARKS[name]


class BenchmarkInfo(TypedDict):
    """A benchmark: its settings, where they come from, and numbers to expect as fractions.

    ``table`` of a number is the paper's; 0 where it was measured with this package.
    """

    name: str
    explanation: str
    settings: dict[str, Any]
    sources: dict[str, str]
    paper: list[dict[str, Any]]


def list_benchmarks() -> list[BenchmarkInfo]:
    """Every benchmark with its settings and the numbers to expect on it.

    Examples:
        >>> [each["name"] for each in list_benchmarks()][:2]
        ['digits/5', 'hard-digits/5']
    """
    return [
        {
            "name": name,
            "explanation": benchmark.explanation,
            "settings": benchmark.values(""),
            "sources": benchmark.sources(""),
            "paper": _paper_numbers(name),
        }
        for name, benchmark in BENCHMARKS.items()
    ]


def _paper_numbers(name: str) -> list[dict[str, Any]]:
    return [
        {
            "method": method,
            "metric": number.metric,
            "mean": number.mean / 100,
            "standard_error": number.error / 100,
            "table": number.table,
            "n": number.n,
        }
        for method, numbers in reported(name).items()
        for number in numbers
    ]


PRESETS = {
    "paper": "what the paper says, and the released code where it is silent",
    "official": "what the authors' released code does: ewc, mas, lwf, lfl and their a-versions",
}

_COVERED = ("ewc", "mas", "lwf", "lfl")
_ESTIMATED = ("ewc", "mas")
"""Methods that estimate importance; the released code leaves out the last partial batch."""

_OFFICIAL: dict[str, Any] = {
    "training.lr": "search",
    "training.patience": 10,
    "training.weight_decay": 2e-4,
    "training.clip": 10_000.0,
    "training.reset_momentum": False,
    "auxiliary.weight_decay": 5e-4,
}


def preset(name: str, method: str) -> dict[str, Any]:
    """What a preset sets over a benchmark's settings for a method; λ and λ_a stay as they are.

    Raises:
        SpecError: There is none of that name, or it does not cover the method.
    """
    if name not in PRESETS:
        raise SpecError(unknown("preset", name, PRESETS))
    if name == "paper":
        return {}
    base = method.removeprefix("a-")
    if base not in _COVERED:
        possible = ", ".join([*_COVERED, *(f"a-{covered}" for covered in _COVERED)])
        raise SpecError(
            f"--preset official is what the authors released, and {method} is not among it. It "
            f"covers {possible}. Use one of these, or --preset paper."
        )
    return _OFFICIAL | ({"drop_last": True} if base in _ESTIMATED else {})
