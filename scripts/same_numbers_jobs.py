"""The jobs of ``same_numbers.py``: tiny, and commands alone, so that they outlive renaming."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

SIZE, CLASSES = 8, 6


@dataclass(frozen=True)
class Job:
    """Commands that run one after another in a directory of their own.

    Args:
        name: What differences are reported under.
        commands: The words after ``ancl`` of each.
        quick: Whether it is one of the most telling jobs.
        same_as: The job that it must equal in every hash.
    """

    name: str
    commands: tuple[tuple[str, ...], ...]
    quick: bool = False
    same_as: str = ""


# -- what the jobs read ----------------------------------------------------------------------

OWN_NETWORK = '''"""A backbone from outside that never learns: its features are kept."""

import torch
from torch import nn


class Frozen(nn.Module):
    def __init__(self, input_shape):
        super().__init__()
        drawn = torch.Generator().manual_seed(3)
        size = input_shape[0] * input_shape[1] * input_shape[2]
        self.weight = nn.Parameter(torch.randn(10, size, generator=drawn) / 8, requires_grad=False)
        self.out_features = 10

    def forward(self, x):
        return torch.relu(x.flatten(1) @ self.weight.T)
'''


def images(
    classes: Sequence[int], each: int, seed: int, size: int = SIZE
) -> tuple[np.ndarray, ...]:
    """Colour images of some classes, which can be told apart but not too easily."""
    around = np.random.default_rng(0).random((200, size, size, 3))
    drawn = np.random.default_rng(seed)
    y = np.repeat(np.asarray(classes), each)
    x = 0.4 * around[y] + 0.6 * drawn.random((len(y), size, size, 3))
    return (255 * x).astype(np.uint8), y


def write_inputs(directory: Path) -> None:
    """Write what the jobs read: arrays, months, pictures to ask about, and a network."""
    for name, count, size, train in (
        ("small", CLASSES, SIZE, 8),
        ("grey", 10, 8, 8),
        ("hundred", 100, 16, 10),
        ("two-hundred", 200, 8, 10),
    ):
        x, y = images(range(count), train, 1, size)
        test = images(range(count), 4 if count == CLASSES else 1, 2, size)
        if name == "grey":
            x, test = x[..., 0], (test[0][..., 0], test[1])
        arrays = {"x_train": x, "y_train": y, "x_test": test[0], "y_test": test[1]}
        np.savez(directory / f"{name}.npz", **arrays)
    for month, classes in enumerate(([0, 1], [2, 3], [4, 1]), start=1):
        x, y = images(classes, 8, 10 + month)
        np.savez(directory / f"month{month}.npz", x=x, y=y)
    x, y = images(range(5), 4, 2)
    np.savez(directory / "asked.npz", x=x, y=y)
    (directory / "pictures").mkdir()
    for index, picture in enumerate(images(range(5), 2, 20)[0]):
        Image.fromarray(picture).save(directory / "pictures" / f"{index}.png")
    (directory / "network.py").write_text(OWN_NETWORK)


# -- every method, in every variant and scenario ---------------------------------------------

WITHOUT_MEMORY = (
    *(
        "finetune",
        "alone",
        "joint",
        "freeze",
        "ewc",
        "mas",
        "si",
        "rwalk",
        "lwf",
        "lfl",
        "lwm",
        "dmc",
    ),
    *("connector", "ccgn"),
)
WITH_MEMORY = ("icarl", "eeil", "bic", "wa", "lucir", "podnet")
REPLAY = ("er", "er-ace", "dark-er", "dark-er-pp", "agem", "mir", "gdumb")
COMPUTED = ("ncm", "slda", "ridge", "acil", "ranpac", "knn", "logistic", "auto")
GROWING = ("der", *(f"aanets-{name}" for name in WITH_MEMORY))
NEED_MAPS = ("lwm", "podnet", "ccgn", "der")
SCENARIOS = ("til", "cil", "dil", "cir")
SETTINGS = {
    "ewc": ("lamb=20",),
    "mas": ("lamb=0.5",),
    "lfl": ("lamb=20",),
    "eeil": ("balanced_epochs=1",),
    "bic": ("bias_epochs=2",),
    "podnet": ("balanced_epochs=1", "proxies=2"),
    "der": ("balanced_epochs=1",),
    "ccgn": ("hidden=4",),
    "gdumb": ("passes=2",),
}
MLP = ("--network", "mlp", "--set", "network.hidden=[12]")
RESNET = ("--network", "resnet8", "--set", "network.width=4")
MACHINE = ("--threads", "1", "--device", "cpu", "--quiet", "--json")
TINY = ("--epochs", "1", "--batch-size", "6", "--set", "data.val_fraction=0.25")


def base_of(name: str) -> str:
    """The method that a variant is of."""
    return name.removeprefix("afec-").removeprefix("a-").removeprefix("aanets-")


def network_of(name: str, scenario: str) -> tuple[str, ...]:
    """A residual network where it is needed, and in one scenario of all."""
    needed = "aanets" in name or base_of(name) in NEED_MAPS or scenario == "cil"
    return RESNET if needed else MLP


def run(
    name: str, scenario: str, *more: str, network: Sequence[str] | None = None
) -> tuple[str, ...]:
    """A run of three tasks, or of two domains."""
    words = ["run", name, "--data", "arrays:../small.npz", "--scenario", scenario]
    if scenario == "dil" and "data.domains" not in " ".join(more):
        words += ["--set", "data.domains=rotation:0,90"]
    elif not {"--tasks", "--classes"} & set(more):
        words += ["--tasks", "3"]
    keeps = base_of(name) in (*WITH_MEMORY, *REPLAY, "der") or (name, scenario) == ("ccgn", "cil")
    if keeps and "--memory" not in more:
        words += ["--memory-per-class", "3"]
    for setting in SETTINGS.get(base_of(name), ()):
        words += ["--set", setting]
    words += network_of(name, scenario) if network is None else network
    return (*words, *TINY, *more, "--runs", "runs", "--store", "store", *MACHINE)


def method_jobs() -> Iterator[Job]:
    """Every method and variant in every scenario; what is refused is refused in both trees."""
    for base in (*WITHOUT_MEMORY, *WITH_MEMORY, *GROWING, *COMPUTED, *REPLAY, "fetril"):
        for name in (base, f"a-{base}", f"afec-{base}"):
            for scenario in SCENARIOS:
                quick = scenario == ("til" if base in WITHOUT_MEMORY else "cil")
                quick = quick and ("aanets" not in name or name == "aanets-lucir")
                yield Job(f"{name} {scenario}", (run(name, scenario),), quick)


# -- settings that change how it is learned --------------------------------------------------


def setting_jobs() -> Iterator[Job]:
    """Rules for λ, schedules, memories, augmentations, frozen networks."""
    two = ("--epochs", "3")
    for name, scenario, rules in (
        ("lwf", "til", ("--lamb", "auto")),
        ("a-lwf", "til", ("--lamb", "auto", "--lamb-a", "balance")),
        ("a-lwf", "cil", ("--lamb", "2", "--lamb-a", "0.5")),
        ("a-lwf", "til", ("--lamb", "2", "--lamb-a", "balance:0.5")),
        ("a-ewc", "til", ("--lamb", "auto:0.3", "--lamb-a", "balance")),
        ("a-ewc", "cil", ("--lamb", "5", "--lamb-a", "5")),
        ("ewc", "cil", ("--lamb", "auto")),
        ("a-mas", "til", ("--lamb", "1", "--lamb-a", "balance:0.2")),
        ("a-icarl", "cil", ("--lamb", "auto", "--lamb-a", "balance")),
        ("a-lucir", "cil", ("--lamb", "auto", "--lamb-a", "1")),
        ("wa", "cil", ("--lamb", "2")),
        ("afec-ewc", "til", ("--lamb-a", "3", "--set", "afec_start=carried")),
        ("afec-lwf", "til", ("--lamb-a", "3", "--set", "afec_renewed=task")),
        ("a-eeil", "cil", ("--lamb", "auto", "--set", "balanced_keeps=old")),
    ):
        title = " ".join(rules).replace("--", "").replace("set ", "")
        quick = rules[:2] == ("--lamb", "auto")
        yield Job(f"{name} {scenario} {title}", (run(name, scenario, *rules, *two),), quick)
    fixed = ("--set", "training.schedule=cosine", "--set", "training.warmup=0.3")
    steps = ("--set", "training.schedule=multistep", "--set", "training.milestones=[1,2]")
    short = ("--set", "training.patience=1", "--set", "training.lr_min=0.02", "--epochs", "8")
    for title, name, scenario, more in (
        ("cosine", "a-lwf", "til", (*fixed, *two)),
        ("cosine", "icarl", "cil", (*fixed, *two)),
        ("multistep", "a-ewc", "til", (*steps, *two)),
        ("constant, adamw", "lwf", "til", ("--set", "training.schedule=constant",
            "--set", "training.optimizer=adamw", "--lr", "0.01", *two)),
        ("patience", "a-lwf", "til", short),
        ("patience by accuracy", "a-icarl", "cil", (*short, "--set",
            "training.select_by=accuracy")),
        ("proximal, clipped", "a-ewc", "til", ("--set", "training.penalty_step=proximal",
            "--set", "training.clip=1", *two)),
        ("rate searched", "a-lwf", "til", ("--lr", "search")),
        ("flip", "a-ewc", "cil", ("--set", "data.augment=flip", *two)),
        ("crop", "icarl", "cil", ("--set", "data.augment=crop", *two)),
        ("memory in total", "icarl", "cil", ("--memory", "9")),
        ("memory of any images", "a-wa", "cil", ("--memory-selection", "random")),
        ("memory by entropy", "lwf", "cil", ("--memory-per-class", "2", "--memory-selection",
            "entropy")),
        ("memory by distance", "a-lwf", "cil", ("--memory-per-class", "2", "--memory-selection",
            "distance", "--set", "auxiliary_data=combined")),
        ("another seed", "a-ewc", "til", ("--seed", "7", "--order", "seed:3")),
        ("Fisher by sample", "a-ewc", "til", ("--set", "estimator=sample", "--set",
            "labels=sampled")),
        ("first task larger", "a-si", "cil", ("--classes", "4,1,1")),
        ("sparse", "der", "cil", ("--set", "sparsity=0.1")),
        ("projected", "connector", "til", ("--set", "stability=projected")),
        ("corruption", "a-lwf", "dil", ("--set", "data.domains=corruption")),
        ("permutation", "a-ewc", "dil", ("--set", "data.domains=permutation", "--tasks", "2")),
        ("half of the classes again", "a-icarl", "cir", ("--set", "data.returning=0.9",
            "--set", "data.per_coming=3")),
    ):  # fmt: skip
        yield Job(f"{name} {scenario}, {title}", (run(name, scenario, *more),), title == "patience")
    frozen = ("--network", "../network.py:Frozen")
    for name, scenario in (("a-lwf", "til"), ("icarl", "cil"), ("lwf", "cir"), ("joint", "til")):
        words = run(name, scenario, "--epochs", "2", network=frozen)
        yield Job(f"{name} {scenario}, frozen network", (words,), name == "icarl")


# -- several runs, and learners --------------------------------------------------------------


def experiment_jobs() -> Iterator[Job]:
    """Two seeds alone and in a pool, a comparison, searches."""
    seeds = run("a-lwf", "til", "--seeds", "0-1")
    yield Job("two seeds", (seeds,))
    yield Job("two seeds in a pool", ((*seeds, "--workers", "2"),), same_as="two seeds")
    places = ("--runs", "runs", "--store", "store", *MACHINE)
    small = ("--data", "arrays:../small.npz", "--tasks", "3", *MLP, *TINY)
    compared = ("compare", "lwf", "a-lwf", "afec-lwf", "joint", "--seeds", "0-2")
    yield Job("compare", ((*compared, *small, *places),))
    grids = ("search", "a-lwf", "--lamb-grid", "1,10", "--lamb-a-grid", "0.5,2", *small, *places)
    yield Job("search", (grids,), quick=True)
    yield Job("search, race", ((*grids, "--race"),))
    per_task = ("search", "lwf", "--protocol", "per-task", "--lamb", "8", *small, *places)
    yield Job("search, per task", (per_task,))
    first = run("a-lwf", "cil", "--memory-per-class", "2")
    yield Job("a run read again", (first, first))


def learner(*start: str, months: int = 3) -> tuple[tuple[str, ...], ...]:
    """A learner of some months, each saved on its own; the third brings a known class again."""
    commands: list[tuple[str, ...]] = []
    for month in range(1, months + 1):
        words = ["learn", "month1" if month == 1 else f"month{month - 1}"]
        words += ["--data", f"arrays:../month{month}.npz", "-o", f"month{month}"]
        words += ["--store", f"store{month}"]
        words += [*start, "--epochs", "2", "--batch-size", "6"] if month == 1 else []
        commands.append((*words, *MACHINE))
        asked = ("predict", f"month{month}", "../pictures", "--top-k", "2", "--json")
        commands.append((*asked, "--device", "cpu"))
    asked_of = "asked" if months == 3 else "month1"
    held = ("evaluate", f"month{months}", "--data", f"arrays:../{asked_of}.npz", "--json")
    return (*commands, (*held, "--device", "cpu"))


def learner_jobs() -> Iterator[Job]:
    """Learners that are saved, loaded, asked, and learn on."""
    for name, start in (
        ("icarl", (*RESNET, "--memory-per-class", "3")),
        ("a-wa", (*MLP, "--memory-per-class", "3")),
        ("bic", (*MLP, "--memory-per-class", "4", "--set", "bias_epochs=2")),
        ("der", (*RESNET, "--memory-per-class", "3", "--set", "balanced_epochs=1")),
        ("a-lwf", (*MLP, "--lamb", "auto", "--memory-per-class", "2")),
        ("a-ewc", (*MLP, "--lamb", "5", "--seed", "3")),
        ("aanets-lucir", (*RESNET, "--memory-per-class", "3")),
    ):
        words = ("--method", name, *start)
        months = 2 if name in ("der", "aanets-lucir") else 3  # they refuse known classes
        yield Job(f"learner {name}", learner(*words, months=months), name in ("icarl", "der"))
    til = ("--method", "a-lwf", "--scenario", "til", *MLP)
    yield Job("learner a-lwf til", learner(*til, months=2))


# -- keys of the benchmarks' specs, planned without training ---------------------------------


def key_jobs() -> Iterator[Job]:
    """Plans with the settings of every benchmark, on other images of as many classes."""
    for benchmark, source, names in (
        ("cifar100/10", "hundred", ("lwf", "a-ewc", "afec-mas", "a-lfl", "joint", "dmc", "lwm")),
        ("cifar100/20", "hundred", ("a-lwf", "finetune")),
        ("tinyimagenet/10", "two-hundred", ("a-mas", "a-lwf")),
        ("tinyimagenet/20", "two-hundred", ("ewc",)),
        ("cifar100/6", "hundred", ("icarl", "a-icarl", "a-bic", "a-lucir", "a-podnet", "eeil")),
        ("cifar100/11", "hundred", ("afec-lucir", "a-podnet", "wa", "der", "aanets-lucir")),
        ("tinyimagenet/11", "two-hundred", ("a-icarl", "podnet")),
        ("tinyimagenet/21", "two-hundred", ("bic",)),
        ("cifar100-small/5", "hundred", ("a-lwf", "a-ewc", "afec-lwf")),
        ("cifar100-small/4", "hundred", ("a-bic", "lucir")),
        ("digits/5", "", ("a-lwf", "ewc", "connector", "ccgn", "a-rwalk", "icarl")),
        ("hard-digits/5", "", ("a-si", "freeze")),
        ("fashion-digits/5", "", ("a-lwf", "joint")),
    ):
        for name in names:
            data = ("--data", f"arrays:../{source}.npz") if source else ()
            words = ("run", name, benchmark, *data, "--dry-run", "--threads", "1", "--json")
            yield Job(
                f"keys of {name} {benchmark}", ((*words, "--device", "cpu"),), name == "a-lwf"
            )
    official = ("run", "a-ewc", "cifar100/10", "--preset", "official", "--data")
    words = (*official, "arrays:../hundred.npz", "--dry-run", "--threads", "1", "--json")
    yield Job("keys of the official preset", ((*words, "--device", "cpu"),))


def all_jobs() -> list[Job]:
    """Every job, in a fixed order."""
    jobs = [*method_jobs(), *setting_jobs(), *experiment_jobs(), *learner_jobs(), *key_jobs()]
    assert len({job.name for job in jobs}) == len(jobs), json.dumps([job.name for job in jobs])
    return jobs
