"""The flags that commands share: as types, and in groups."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ancl.cli.flag_values import is_count, read_count

if TYPE_CHECKING:
    from ancl.compute import ExecutorChoice
    from ancl.experiments.results import Places

# -- single flags ----------------------------------------------------------------------------

Method = Annotated[
    str | None,
    Argument(metavar="METHOD", show_default=False, help="Such as lwf or a-lwf: ancl list methods"),
]
Benchmark = Annotated[
    str | None,
    Argument(
        metavar="BENCHMARK", show_default=False, help="Such as digits/5: ancl list benchmarks"
    ),
]
Lamb = Annotated[
    str | None,
    Option("--lamb", metavar="X", help="λ, the pull towards the old network; or auto[:κ]."),
]
AuxiliaryLamb = Annotated[
    str | None,
    Option(
        "--lamb-a", metavar="X", help="λ_a, the pull towards the auxiliary one; or balance[:ρ]."
    ),
]
Seed = Annotated[str | None, Option("--seed", metavar="N", help="The seed of all randomness. [0]")]
Seeds = Annotated[
    str | None,
    Option("--seeds", metavar="0-2,7", help="Several runs, one per seed, and their mean."),
]
Scenario = Annotated[
    str | None,
    Option(
        "--scenario",
        metavar="til|cil|dil|cir",
        help="The task is known at test time, or not; new domains; known classes come again.",
    ),
]
Tasks = Annotated[str | None, Option("--tasks", metavar="N", help="Number of equal tasks.")]
Classes = Annotated[
    str | None,
    Option("--classes", metavar="50,10x5", help="Or the number of classes of each task."),
]
First = Annotated[
    str | None,
    Option("--first", metavar="N", help="Number of classes of the first task, if it is larger."),
]
Order = Annotated[
    str | None,
    Option(
        "--order", metavar="ORDER", help="Order of classes: natural, icarl, seed:N, or 3,1,0,2."
    ),
]
Data = Annotated[str | None, Option("--data", metavar="SOURCE", help="Images: ancl list data")]
SkipBadImages = Annotated[
    bool, Option("--skip-bad-images", help="Leave out files of the folder that are not images.")
]
Network = Annotated[
    str | None,
    Option("--network", metavar="NAME", help="ancl list networks, or your own: path/file.py:NAME"),
]
MemoryPerClass = Annotated[
    str | None,
    Option("--memory-per-class", metavar="N", help="Number of images to keep of each class."),
]
Memory = Annotated[
    str | None,
    Option("--memory", metavar="N", help="Or the number in total, shared by the classes."),
]
MemorySelection = Annotated[
    str | None,
    Option(
        "--memory-selection",
        metavar="RULE",
        help="Which images: herding, random, entropy or distance.",
    ),
]
Epochs = Annotated[
    str | None, Option("--epochs", metavar="N", help="Largest number of epochs per task.")
]
LearningRate = Annotated[str | None, Option("--lr", metavar="X", help="Learning rate, or search.")]
BatchSize = Annotated[
    str | None, Option("--batch-size", metavar="N", help="Number of images in a batch.")
]
Set = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="KEY=VALUE",
        help="Any setting; ancl list methods --options METHOD shows all. May be repeated.",
    ),
]
Config = Annotated[
    Path | None,
    Option("--config", metavar="FILE.yaml", help="Settings from a file, such as a run's spec.yaml"),
]
Device = Annotated[str | None, Option("--device", metavar="D", help="auto, cpu, cuda, cuda:N, mps")]
Threads = Annotated[
    str | None,
    Option(
        "--threads", metavar="N", help="Number of CPU threads; it changes the last bits of results."
    ),
]
Runs = Annotated[Path, Option("--runs", metavar="DIR", help="Where results go.")]
Store = Annotated[
    Path | None, Option("--store", metavar="DIR", help="Where stages are kept. [RUNS/.store]")
]
Executor = Annotated[
    str | None,
    Option("--executor", metavar="serial|pool|ray", help="Where stages are computed. [serial]"),
]
Workers = Annotated[
    str | None,
    Option("--workers", metavar="N", help="Number of processes that compute stages at once."),
]
Address = Annotated[
    str | None,
    Option("--address", metavar="A", help="Address of a running Ray cluster; else one is started."),
]
Preset = Annotated[
    str,
    Option(
        "--preset",
        metavar="paper|official",
        help="Train as the paper says, or as its released code does.",
    ),
]
Quick = Annotated[
    bool, Option("--quick", help="Few epochs on few images: does it run? Not a result.")
]
Log = Annotated[
    str | None,
    Option("--log", metavar="tensorboard,wandb", help="Also write curves for these tools."),
]
Overwrite = Annotated[
    bool, Option("--overwrite", help="Also replace files in the way that ancl did not write.")
]
DryRun = Annotated[bool, Option("--dry-run", help="Show what would be done, and stop.")]
Json = Annotated[bool, Option("--json", help="Print one JSON object on standard output.")]
Quiet = Annotated[bool, Option("--quiet", help="Show no progress.")]

DataRoot = Annotated[
    Path | None,
    Option(
        "--data-root", metavar="DIR", help="Where data sets are. [$ANCL_DATA, $DATA_DIR or data]"
    ),
]

RUNS = Path("runs")


# -- groups of flags -------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of the terms of the loss."""

    lamb: Lamb = None
    lamb_a: AuxiliaryLamb = None


@dataclass(frozen=True, kw_only=True)
class Seeding:
    """Seeds: one run or several."""

    seed: Seed = None
    seeds: Seeds = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is learned, from how many images, and for how long."""

    scenario: Scenario = None
    tasks: Tasks = None
    classes: Classes = None
    first: First = None
    order: Order = None
    data: Data = None
    data_root: DataRoot = None
    skip_bad_images: SkipBadImages = False
    network: Network = None
    memory_per_class: MemoryPerClass = None
    memory: Memory = None
    memory_selection: MemorySelection = None
    epochs: Epochs = None
    lr: LearningRate = None
    batch_size: BatchSize = None
    setting: Set = None
    config: Config = None


@dataclass(frozen=True, kw_only=True)
class PresetSettings(Settings):
    """What is learned, with a preset under it."""

    preset: Preset = "paper"
    quick: Quick = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device that computes."""

    device: Device = None
    threads: Threads = None


@dataclass(frozen=True, kw_only=True)
class Machines(Machine):
    """Where stages are computed, maybe several at the same time."""

    executor: Executor = None
    workers: Workers = None
    address: Address = None

    def choose(self) -> ExecutorChoice:
        """The executor that the flags ask for."""
        from ancl.compute import choose_executor

        workers = read_count("--workers", self.workers)
        # A mistake in --threads is reported together with those of the other settings.
        threads = read_count("--threads", self.threads) if is_count(self.threads) else None
        return choose_executor(self.executor, workers, self.address, threads)


@dataclass(frozen=True, kw_only=True)
class Results:
    """Where results go and what is shown of them."""

    runs: Runs = RUNS
    store: Store = None
    overwrite: Overwrite = False
    dry_run: DryRun = False
    as_json: Json = False
    quiet: Quiet = False

    def places(self, data_root: Path | None) -> Places:
        """Every place, with that of the data."""
        from ancl.experiments.results import Places

        return Places.of(self.runs, self.store, data_root, overwrite=self.overwrite)


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command with each parameter that is a group spread out into the group's flags.

    Typer reads flags off a signature, so the flat one is written onto the wrapper.
    """
    own = inspect.signature(command, eval_str=True)
    groups: dict[str, type[Any]] = {}
    flat: list[inspect.Parameter] = []
    for name, parameter in own.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            flat += inspect.signature(kind, eval_str=True).parameters.values()
        else:
            flat.append(parameter)

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    wrapper.__dict__["__signature__"] = own.replace(parameters=flat)
    return wrapper
