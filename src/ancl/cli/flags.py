"""Every option of the commands in one table, and the groups of options that commands share."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ancl.cli.flag_values import (
    is_count,
    parse_seeds,
    read_count,
    read_list,
    read_order,
    read_share,
    read_shares,
    read_text,
    scalar,
    without_bad_images,
)
from ancl.errors import SpecError

if TYPE_CHECKING:
    from ancl.compute import ExecutorChoice
    from ancl.experiments.results import Places
    from ancl.recipe.recipe import Layer
    from ancl.recipe.request import Request

# -- the table -------------------------------------------------------------------------------


class Row(NamedTuple):
    """What a parameter of a command is on the command line.

    Args:
        metavar: What stands for its value; nothing for a switch.
        help: Its line of help.
        key: The setting of a run that it gives, if it gives one.
        read: How its text becomes the setting's value.
        flag: Its flags, if they are not the parameter's name.
        least: The smallest number it takes.
        is_argument: Whether it is given by its position.
    """

    metavar: str | None
    help: str
    key: str = ""
    read: Callable[[str], Any] = scalar
    flag: str = ""
    least: int | None = None
    is_argument: bool = False

    def declared(self, parameter: str) -> Any:
        """The row as Typer declares it."""
        if self.is_argument:
            return typer.Argument(metavar=self.metavar, show_default=False, help=self.help)
        names = (self.flag or flag_name(parameter)).split()
        return typer.Option(*names, metavar=self.metavar, help=self.help, min=self.least)


def flag_name(parameter: str) -> str:
    """The flag of a parameter: ``--lamb-a`` of ``lamb_a``."""
    return "--" + parameter.replace("_", "-")


_argument = functools.partial(Row, is_argument=True)

ROWS: dict[str, Row] = {
    # what is learned, and how: each gives a setting
    "lamb": Row("X", "λ, the pull towards the old network; or auto[:κ].", "lamb"),
    "lamb_a": Row("X", "λ_a, the pull towards the auxiliary one; or balance[:ρ].", "lamb_a"),
    "scenario": Row(
        "til|cil|dil|cir",
        "til: the task is known at test time; cil: it is not; dil: new domains; "
        "cir: cil, and known classes come again.",
        "data.scenario",
        read_text,
    ),
    "tasks": Row("N", "Number of equal tasks.", "data.tasks"),
    "classes": Row("50,10x5", "Or the number of classes of each task.", "data.classes", read_text),
    "first": Row("N", "Number of classes of the first task, if it is larger.", "data.first"),
    "order": Row(
        "ORDER", "Order of classes: natural, icarl, seed:N, or 3,1,0,2.", "data.order", read_order
    ),
    "data": Row("SOURCE", "Images: ancl list data", "data.source", read_text),
    "network": Row(
        "NAME", "ancl list networks, or your own: path/file.py:NAME", "network.name", read_text
    ),
    "memory_per_class": Row("N", "Number of images to keep of each class.", "memory.per_class"),
    "memory": Row("N", "Or the number in total, shared by the classes.", "memory.total"),
    "memory_selection": Row(
        "RULE",
        "Which images the memory keeps: herding, random, ring, reservoir, balanced, …",
        "memory.selection",
        read_text,
    ),
    "epochs": Row(
        "N", "Largest number of epochs of a task; or by task: 30,10.", "training.epochs", read_list
    ),
    "lr": Row("X", "Learning rate; or by task: 0.1,0.05; or search.", "training.lr", read_list),
    "evaluate_every": Row(
        "N", "Also test on all tasks so far after every N epochs.", "training.evaluate_every"
    ),
    "batch_size": Row("N", "Number of images in a batch.", "training.batch_size"),
    "resize": Row(
        "fit|crop|stretch",
        "How pictures are resized; fit and crop keep their proportions. [stretch]",
        "data.resize",
        read_text,
    ),
    "background": Row(
        "COLOUR", "The colour under transparent pixels. [white]", "data.background", read_text
    ),
    "device": Row(
        "D", "Where networks compute: auto, cpu, cuda, cuda:N, mps. [auto]", "device", read_text
    ),
    "threads": Row("N", "Number of CPU threads; it changes the last bits of results.", "threads"),
    "seed": Row("N", "The seed of all randomness. [0]", "seed"),
    # the rest of what decides runs
    "method": _argument("METHOD", "Such as lwf or a-lwf: ancl list methods"),
    "benchmark": _argument("BENCHMARK", "Such as digits/5: ancl list benchmarks"),
    "seeds": Row("0-2,7", "Several runs, one per seed, and their mean."),
    "skip_bad_images": Row(None, "Leave out files of the folder that are not images."),
    "reject": Row("P", "Reject an answer whose label is less probable than this, from 0 to 1."),
    "setting": Row(
        "KEY=VALUE",
        "Any setting; ancl list methods --options METHOD shows all. May be repeated.",
        flag="--set",
    ),
    "config": Row("FILE.yaml", "Settings from a file, such as a run's spec.yaml"),
    "preset": Row("paper|official", "Train as the paper says, or as its released code does."),
    "quick": Row(None, "Few epochs on few images: does it run? Not a result."),
    # where it is computed and kept, and what is shown
    "data_root": Row("DIR", "Where data sets are. [$ANCL_DATA, $DATA_DIR or data]"),
    "executor": Row("serial|pool|ray", "Where stages are computed. [serial]"),
    "workers": Row("N", "Number of processes that compute stages at once."),
    "address": Row("A", "Address of a running Ray cluster; else one is started."),
    "runs": Row("DIR", "Where results go."),
    "store": Row("DIR", "Where stages are kept. [RUNS/.store]"),
    "overwrite": Row(None, "Also replace files in the way that ancl did not write."),
    "dry_run": Row(None, "Show what would be done, and stop."),
    "as_json": Row(None, "Print one JSON object on standard output.", flag="--json"),
    "quiet": Row(None, "Show no progress."),
    "log": Row("tensorboard,wandb", "Also write curves for these tools."),
    # a saved learner is opened
    "learner": _argument("LEARNER", "A saved learner, or the directory of a finished run."),
    "augment": Row("NAME", "The augmentation again, if it is your own code."),
    "accept_changed": Row(None, "Accept your own code although it has changed since."),
    "Opening.method": Row("NAME", "The method again, if it is your own code."),
    "Opening.network": Row("NAME", "The network again, if it is your own code."),
    "Opening.store": Row("DIR", "The store of a run. [.store beside it]"),
    "version": Row("N", "An earlier version of the learner: ancl versions LEARNER", least=1),
    # conditions on test images
    "min_accuracy": Row("0.85", "At least this share of all test images must be right."),
    "max_drop": Row("0.02", "Accuracy on classes known before may fall by at most this much."),
    "min_recall": Row(
        "CLASS=0.8", "At least this share of a class's images must be right. May be repeated."
    ),
    # one command alone; it comes before a row of the same name above
    "demo.quick": Row(None, "One seed and two epochs per task: a smoke test."),
    "demo.seeds": Row("0-2,7", "One run per seed. [0-4]"),
    "demo.threads": Row("N", "CPU threads. [1]"),
    "compare.methods": _argument(
        "METHOD…", "Such as lwf a-lwf joint; with values for one alone: lwf@lamb=3"
    ),
    "compare.on": Row("BENCHMARK", "Such as digits/5: ancl list benchmarks"),
    "compare.baseline": Row("METHOD", "All differences are minus this one. [the first METHOD]"),
    "report.baseline": Row(
        "METHOD", "All differences are minus this one: lwf or lwf@lamb=3. [each variant's host]"
    ),
    "search.protocol": Row(
        "two-stage|per-task",
        "One λ, then one λ_a, for all tasks; or at each task halve λ until it learns.",
    ),
    "search.lamb_grid": Row("1,10,100", "Values of λ to try. [the benchmark's]"),
    "search.lamb_a_grid": Row("0.1,1", "Values of λ_a to try. [the benchmark's]"),
    "search.search_seeds": Row("0-2,7", "Seeds that decide, by their mean."),
    "search.race": Row(None, "Stop values that have no chance to win, from half of the tasks on."),
    "search.seeds": Row("0-2,7", "Seeds of the command that runs what was found."),
    "study.file": _argument("FILE.yaml", "The study file."),
    "study.methods": _argument("[METHOD]…", "With --new: such as lwf a-lwf my.py:l1 lwf@lamb=3"),
    "study.new": Row(None, "Write a new file, with comments, for these methods."),
    "study.on": Row("BENCHMARK", "With --new: what to learn. [digits/5]"),
    "study.tables": Row(None, "Train nothing: make tables and figures from stored results."),
    "study.folder": Row(
        "DIR", "One small file per run. [results beside FILE.yaml]", flag="--results"
    ),
    "study.out": Row("DIR", "Where tables go. [beside FILE.yaml]", flag="--output -o"),
    "analyze.method": _argument("METHOD", "One with an ANCL variant: ewc or a-ewc, …"),
    "analyze.lamb_a": Row("10,100,…", "Every λ_a to compare."),
    "analyze.lamb": Row("X", "λ, the pull towards the old network."),
    "analyze.search_lamb": Row("1,10,…", "Choose λ from these by validation accuracy of CL."),
    "analyze.task": Row("T", "The task; 1 is the first.", least=2),
    "analyze.grid": Row("N", "N × N points of landscape; 0 for none.", least=0),
    "analyze.split": Row(
        "test|val|train|old",
        "Images for CKA and landscape. [old for CKA, test for the landscape]",
    ),
    "analyze.images": Row("N", "Largest number of images per measurement; 0 for all.", least=0),
    "analyze.estimator": Row("biased|unbiased|minibatch", "The estimator of CKA.", flag="--cka"),
    "analyze.double": Row(None, "Compute the Hessian in double precision."),
    "report.stored": _argument(
        "[RUN]…", "Run directories, or runs/comparisons/NAME.json. [all below --runs]"
    ),
    "report.out": Row("DIR", "Where the report goes. [RUNS/report]", flag="--output -o"),
    "results.stored": _argument(
        "[RUN]…", "Run directories, or runs/comparisons/NAME.json. [all below --runs]"
    ),
    "results.tidy": Row(None, "Every number of the runs as one tidy table, in CSV or JSON."),
    "results.output": Row(
        "FILE", "With --tidy: where it goes. [standard output]", flag="--output -o"
    ),
    "learn.learner": _argument("LEARNER", "A saved learner, a finished run, or a new directory."),
    "learn.data": Row("SOURCE", "The images to learn, such as folder:photos"),
    "learn.output": Row("DIR", "Where the learner is saved. [LEARNER]", flag="--output -o"),
    "learn.method": Row(
        "NAME",
        "For a new learner: icarl, a-icarl … Later only if it is your own code. [auto]",
    ),
    "learn.network": Row(
        "NAME", "For a new learner: ancl list networks. Later only if it is your own code."
    ),
    "learn.augment": Row(
        "NAME", "For a new learner: flip, crop … Later only if it is your own code."
    ),
    "learn.test": Row(
        "SOURCE", "Test images, such as folder:test-photos: measured on before and after."
    ),
    "learn.keep_versions": Row("N", "Keep this many versions from now on. [all]"),
    "learn.store": Row("DIR", "Where stages are kept. [beside LEARNER, until it is saved]"),
    "learn.export": Row(None, "Also write LEARNER's name.onnx here, for ancl serve."),
    "learn.wait": Row(
        "SECONDS",
        "How long to wait while another process changes the learner. [until it is done]",
        least=0,
    ),
    "predict.images": _argument("IMAGES...", "Image files, or folders of them."),
    "predict.skip_bad_images": Row(None, "Exit with 0 also where files cannot be read."),
    "predict.top_k": Row("K", "Number of labels for each image.", least=1),
    "predict.task": Row("N", "Only the classes of this task compete; 1 is the first."),
    "predict.as_csv": Row(None, "CSV on standard output: a line for each label.", flag="--csv"),
    "evaluate.data": Row("SOURCE", "Images with labels, such as folder:photos"),
    "evaluate.against": Row("N", "Compare with this version, class by class.", least=1),
    "versions.learner": _argument("LEARNER", "A saved learner."),
    "versions.images": Row("N", "List every image that version N learned.", least=1),
    "undo.to": Row("N", "The version. [the one that the current one was made from]", least=1),
    "undo.wait": Row(
        "SECONDS", "How long to wait while another process changes the learner.", least=0
    ),
    "forget.images": Row("PATH", "An image file, or a folder of them. May be repeated."),
    "forget.class_": Row(
        "CLASS", "All images of a class, and its name. May be repeated.", flag="--class"
    ),
    "forget.id_": Row(
        "ID",
        "What an image is called, or how its hash begins: ancl versions LEARNER --images N. "
        "May be repeated.",
        flag="--id",
    ),
    "forget.keep_networks": Row(
        None, "Keep and mark earlier versions whose network was trained on these images."
    ),
    "forget.allow_again": Row(
        None, "Let these images be learned again later, also if they were forgotten before."
    ),
    "repair.learner": _argument("LEARNER", "A saved learner."),
    "repair.retrain": Row(None, "Train a new network, on the images that are kept."),
    "repair.export": Row(None, "Also write LEARNER's name.onnx here, for ancl serve."),
    "repair.method": Row("NAME", "The method again, if it is your own code."),
    "repair.network": Row("NAME", "The network again, if it is your own code."),
    "repair.wait": Row(
        "SECONDS",
        "How long to wait while another process changes the learner. [until it is done]",
        least=0,
    ),
    "rename.old": _argument("OLD", "The name of a class."),
    "rename.new": _argument("NEW", "Its new name."),
    "merge_classes.classes": _argument("CLASS...", "Two classes or more."),
    "merge_classes.into": Row("NAME", "The name of the one class. [that of the first]"),
    "export.output": Row("FILE", "The file. [LEARNER's name, here]", flag="--output -o"),
    "export.format": Row("onnx|pt2", "For any ONNX runtime, or torch.export. [onnx]"),
    "serve.name": _argument("NAME", "A learner that was exported, or its .onnx file."),
    "serve.host": Row("ADDRESS", "Where it listens; 0.0.0.0 lets other machines ask."),
    "serve.port": Row("N", "The port; 0 takes a free one.", least=0),
    "serve.token_file": Row("FILE", "A file with the token that clients must send. [$ANCL_TOKEN]"),
    "serve.no_token": Row(None, "Let everybody ask, also from other machines."),
    "serve.max_bytes": Row("20MB", "The largest body of a request."),
    "serve.max_pixels": Row("N", "The largest picture, in pixels.", least=1),
    "serve.timeout": Row("SECONDS", "The longest time of a request.", least=1),
    "serve.threads": Row("N", "Number of CPU threads. [all]"),
    "list.of": Row("METHOD", "Every setting of a method.", flag="--options"),
    "data.name": _argument("NAME", "Such as cifar100: ancl data list"),
    "check.name": _argument(
        "NAME", "One data set, or your own: folder:PATH@32. [all that are here]"
    ),
    "data.path": _argument("PATH", "The archive as published, or the folder it holds."),
    "data.clear": Row(None, "Remove all caches."),
    "data.offline": Row(None, "Use what is here; fetch nothing."),
    "store.keep_runs": Row(
        None, "Keep what runs and searches in --runs need, or nothing.", flag="--keep-runs/--all"
    ),
    "store.keep_searches": Row(
        None,
        "Keep what searches in --runs tried, or only their decisions.",
        flag="--keep-searches/--drop-searches",
    ),
    "store.max_size": Row("2GB", "Remove the oldest first, only until the store fits."),
}
"""Rows by the name of the parameter; its command, module or group comes first where it differs."""


def with_flags(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its rows of the table, each group spread out into the group's options.

    Typer reads options off a signature, so the flat one is written onto the wrapper.
    """
    signature = inspect.signature(command, eval_str=True)
    owners = (command.__name__, command.__module__.rpartition(".")[2])
    groups: dict[str, type[Any]] = {}
    flat: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        kind = parameter.annotation
        if isinstance(kind, type) and is_dataclass(kind):
            groups[name] = kind
            members = inspect.signature(kind, eval_str=True).parameters.values()
            flat += [_declared(member, *owners, kind.__name__) for member in members]
        else:
            flat.append(_declared(parameter, *owners))

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{member.name: given.pop(member.name) for member in fields(group)})
        command(**given)

    wrapper.__dict__["__signature__"] = signature.replace(parameters=flat)
    return wrapper


def _declared(parameter: inspect.Parameter, *owners: str) -> inspect.Parameter:
    names = [*(f"{owner}.{parameter.name}" for owner in owners), parameter.name]
    row = next(ROWS[name] for name in names if name in ROWS)
    return parameter.replace(
        annotation=Annotated[parameter.annotation, row.declared(parameter.name)]
    )


# -- groups of options -----------------------------------------------------------------------

RUNS = Path("runs")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of the terms of the loss."""

    lamb: str | None = None
    lamb_a: str | None = None


@dataclass(frozen=True, kw_only=True)
class Seeding:
    """Seeds: one run or several."""

    seed: str | None = None
    seeds: str | None = None


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is learned, from how many images, and for how long."""

    scenario: str | None = None
    tasks: str | None = None
    classes: str | None = None
    first: str | None = None
    order: str | None = None
    data: str | None = None
    data_root: Path | None = None
    skip_bad_images: bool = False
    network: str | None = None
    memory_per_class: str | None = None
    memory: str | None = None
    memory_selection: str | None = None
    epochs: str | None = None
    lr: str | None = None
    batch_size: str | None = None
    resize: str | None = None
    background: str | None = None
    setting: list[str] | None = None
    config: Path | None = None


@dataclass(frozen=True, kw_only=True)
class PresetSettings(Settings):
    """What is learned, with a preset under it."""

    evaluate_every: str | None = None
    preset: str = "paper"
    quick: bool = False


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The device that computes."""

    device: str | None = None
    threads: str | None = None


@dataclass(frozen=True, kw_only=True)
class Machines(Machine):
    """Where stages are computed, maybe several at the same time."""

    executor: str | None = None
    workers: str | None = None
    address: str | None = None

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

    runs: Path = RUNS
    store: Path | None = None
    overwrite: bool = False
    dry_run: bool = False
    as_json: bool = False
    quiet: bool = False

    def places(self, data_root: Path | None) -> Places:
        """Every place, with that of the data."""
        from ancl.experiments.results import Places

        return Places.of(self.runs, self.store, data_root, overwrite=self.overwrite)


@dataclass(frozen=True, kw_only=True)
class Opening:
    """How a learner is opened: code from outside the package named again, and a run's store."""

    method: str | None = None
    network: str | None = None
    augment: str | None = None
    accept_changed: bool = False
    store: Path | None = None
    version: int | None = None


@dataclass(frozen=True, kw_only=True)
class GateFlags:
    """Conditions on test images."""

    min_accuracy: str | None = None
    max_drop: str | None = None
    min_recall: list[str] | None = None

    def conditions(self) -> dict[str, Any]:
        """As values.

        Raises:
            SpecError: One cannot be read.
        """
        return {
            "min_accuracy": read_share("--min-accuracy", self.min_accuracy),
            "max_drop": read_share("--max-drop", self.max_drop),
            "min_recall": read_shares("--min-recall", self.min_recall or ()),
        }


# -- from options to settings ----------------------------------------------------------------


def make_request(method: str | None, benchmark: str | None, *groups: object) -> Request:
    """What groups of flags ask for; flags that are not about runs are ignored."""
    from ancl.recipe.request import Request

    given = {name: value for group in groups for name, value in vars(group).items()}
    mistakes: list[str] = []
    direct = ("config", "preset", "quick")
    return Request(
        method,
        benchmark,
        (_command_line(given, mistakes),),
        seeds=_seeds(given, mistakes),
        seeds_source="--seeds",
        mistakes=tuple(mistakes),
        **{name: given[name] for name in direct if name in given},
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
    from ancl.recipe.recipe import Layer

    values: dict[str, Any] = {}
    labels: dict[str, str] = {}
    for text in given.get("setting") or []:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            mistakes.append(f"--set: {text!r} is not a setting. Write --set key=value.")
        else:
            values[key.strip()], labels[key.strip()] = scalar(value), "--set"
    for name, row in ROWS.items():
        if row.key and (text := given.get(name)) is not None:
            values[row.key], labels[row.key] = row.read(text), flag_name(name)
    if given.get("skip_bad_images"):
        try:
            values["data.source"] = without_bad_images(values.get("data.source"))
            labels["data.source"] = "--data"
        except SpecError as error:
            mistakes.append(str(error))
    for name in ("epochs", "lr"):
        key, flag = ROWS[name].key, flag_name(name)
        if labels.get(key) == flag and f"{key}_first" not in values:
            values[f"{key}_first"], labels[f"{key}_first"] = None, flag  # for the first task too
    return Layer("command line", values, labels=labels)


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
