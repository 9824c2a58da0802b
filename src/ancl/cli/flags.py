"""The flags that commands share: as types, in groups, and read to values."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ancl.errors import SpecError, printable

if TYPE_CHECKING:
    from ancl.executors import ExecutorChoice
    from ancl.experiments.results import Places
    from ancl.experiments.settings import Request
    from ancl.experiments.spec import Layer

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
Seed = Annotated[str | None, Option("--seed", metavar="N", help="Where randomness comes from. [0]")]
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
    str | None, Option("--memory", metavar="N", help="Or of all classes together, shared equally.")
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
    """The same, with a preset under them."""

    preset: Preset = "paper"
    quick: Quick = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device that computes."""

    device: Device = None
    threads: Threads = None


@dataclass(frozen=True, kw_only=True)
class Machines(Machine):
    """The same, for stages that may be computed at the same time."""

    executor: Executor = None
    workers: Workers = None
    address: Address = None

    def choose(self) -> ExecutorChoice:
        """The executor that the flags ask for."""
        from ancl.executors import choose_executor

        if self.workers is not None and not is_count(self.workers):
            raise SpecError(
                f"--workers: {printable(self.workers, 40)!r} is not a number of workers. Write 1 "
                f"or more."
            )
        workers = int(self.workers) if self.workers else None
        # A mistake in --threads is reported together with those of the other settings.
        threads = int(self.threads) if self.threads and is_count(self.threads) else None
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


def is_count(text: str) -> bool:
    """Whether a text is a number from 1 on."""
    return bool(re.fullmatch(r"0*[1-9]\d{0,5}", text))


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


MOST_SEEDS = 10_000
"""More runs than this in one command are taken for a mistake."""


# -- from text to values ---------------------------------------------------------------------


def scalar(text: str) -> Any:
    """A value as YAML reads it; what is not YAML is the text itself.

    >>> scalar("1e-3"), scalar("true"), scalar("[80, 120]"), scalar("50,10x5")
    (0.001, True, [80, 120], '50,10x5')
    """
    from ruamel.yaml.error import YAMLError

    from ancl.experiments.config_file import parse_yaml

    try:
        return parse_yaml(text)
    except (YAMLError, ValueError):
        return text


def _text(value: str) -> str:
    return value


def _order(value: str) -> Any:
    """Class numbers may be written with commas alone."""
    plain = re.fullmatch(r"\d{1,9}(,\d{1,9})*", value)
    return [int(n) for n in value.split(",")] if plain else scalar(value)


FLAGS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "--lamb": ("lamb", scalar),
    "--lamb-a": ("lamb_a", scalar),
    "--scenario": ("data.scenario", _text),
    "--tasks": ("data.tasks", scalar),
    "--classes": ("data.classes", _text),
    "--first": ("data.first", scalar),
    "--order": ("data.order", _order),
    "--data": ("data.source", _text),
    "--network": ("network.name", _text),
    "--memory-per-class": ("memory.per_class", scalar),
    "--memory": ("memory.total", scalar),
    "--memory-selection": ("memory.selection", _text),
    "--epochs": ("training.epochs", scalar),
    "--lr": ("training.lr", scalar),
    "--batch-size": ("training.batch_size", scalar),
    "--device": ("device", _text),
    "--threads": ("threads", scalar),
    "--seed": ("seed", scalar),
}
"""The setting of each flag, and how its value is read."""


def make_request(method: str | None, benchmark: str | None, *groups: object) -> Request:
    """What groups of flags ask for; flags that are not about runs are ignored."""
    from ancl.experiments.settings import Request

    given = {name: value for group in groups for name, value in vars(group).items()}
    mistakes: list[str] = []
    own = ("config", "preset", "quick")
    return Request(
        method,
        benchmark,
        (_command_line(given, mistakes),),
        seeds=_seeds(given, mistakes),
        seeds_source="--seeds",
        mistakes=tuple(mistakes),
        **{name: given[name] for name in own if name in given},
    )


def make_layer(*groups: object) -> Layer:
    """The settings that groups of flags give.

    Raises:
        SpecError: All flags that cannot be read, each on its own line.
    """
    mistakes: list[str] = []
    given = {name: value for group in groups for name, value in vars(group).items()}
    layer = _command_line(given, mistakes)
    if mistakes:
        raise SpecError("\n".join(mistakes))
    return layer


def _command_line(given: Mapping[str, Any], mistakes: list[str]) -> Layer:
    """``--set`` and flags as one layer, so that neither replaces a rival that the other gives."""
    from ancl.experiments.spec import Layer

    values: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for text in given.get("setting") or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            mistakes.append(f"--set: {text!r} is not a setting. Write --set key=value.")
        else:
            values[key.strip()], labels[key.strip()] = scalar(value), "--set"
    for flag, (key, read) in FLAGS.items():
        if (text := given.get(flag[2:].replace("-", "_"))) is not None:
            values[key], labels[key] = read(text), flag
    if given.get("skip_bad_images"):
        try:
            values["data.source"] = without_bad_images(values.get("data.source"))
            labels["data.source"] = "--data"
        except SpecError as error:
            mistakes.append(str(error))
    for flag in ("--epochs", "--lr"):
        key, first = FLAGS[flag][0], f"{FLAGS[flag][0]}_first"
        if labels.get(key) == flag and first not in values:
            values[first], labels[first] = None, flag  # it counts for the first task too
    return Layer("command line", values, labels=labels)


def without_bad_images(source: object) -> str:
    """The name of a folder that says that files which are not images are left out.

    Raises:
        SpecError: It is not a folder.
    """
    from ancl.data.formats.folders import SKIP_BAD

    if not isinstance(source, str) or not source.startswith("folder:"):
        raise SpecError("--skip-bad-images is for a folder of images: --data folder:PATH.")
    return source.removesuffix(SKIP_BAD) + SKIP_BAD


def _seeds(given: Mapping[str, Any], mistakes: list[str]) -> tuple[int, ...]:
    if given.get("seeds") is None:
        return ()
    if given.get("seed") is not None:
        mistakes.append("--seed and --seeds were both given. Leave out one.")
    try:
        return tuple(parse_seeds(given["seeds"]))
    except SpecError as error:
        mistakes.append(str(error))
        return ()


def parse_seeds(text: str) -> list[int]:
    """Seeds from a list with ranges, each once.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
        last = int(match[2] or match[1]) if match else -1
        if match is None or last < int(match[1]):
            raise SpecError(
                f"--seeds: {printable(part.strip(), 40)!r} in {printable(text, 80)!r} is not a "
                f"seed or range. Write 0-2,7 for the seeds 0, 1, 2 and 7."
            )
        if len(seeds) + last - int(match[1]) >= MOST_SEEDS:
            raise SpecError(
                f"--seeds: {part.strip()!r} asks for more than {MOST_SEEDS:,} runs. Give fewer."
            )
        seeds += range(int(match[1]), last + 1)
    return list(dict.fromkeys(seeds))


def parse_numbers(flag: str, text: str | None) -> tuple[float, ...] | None:
    """Numbers from a list with commas, each once; None where nothing is given.

    >>> parse_numbers("--lamb-grid", "1,10,1")
    (1.0, 10.0)
    """
    if text is None:
        return None
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise SpecError(
            f"{flag}: {text!r} is not a list of numbers ≥ 0. Write {flag} 0.1,1,10."
        ) from None
