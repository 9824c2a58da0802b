"""What a user asked for: arguments, flags, ``--set`` and a file, as layers of settings."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ancl.cli.config import ConfigFile, read_config, scalar
from ancl.errors import AnclError, SpecError
from ancl.experiments import preset
from ancl.experiments.spec import DEFAULT_NETWORK, Layer, Resolved, fields_for, resolve
from ancl.methods.registry import MethodRef

Value = Callable[[str], Any]


def _text(value: str) -> str:
    return value


def _order(value: str) -> Any:
    """Class numbers may be written with commas alone."""
    return (
        [int(n) for n in value.split(",")] if re.fullmatch(r"\d+(,\d+)*", value) else scalar(value)
    )


FLAGS: dict[str, tuple[str, Value]] = {
    "--lamb": ("lamb", scalar),
    "--lamb-a": ("lamb_a", scalar),
    "--scenario": ("data.scenario", _text),
    "--tasks": ("data.tasks", scalar),
    "--classes": ("data.classes", _text),
    "--first": ("data.first", scalar),
    "--order": ("data.order", _order),
    "--data": ("data.source", _text),
    "--memory-per-class": ("memory.per_class", scalar),
    "--memory": ("memory.total", scalar),
    "--memory-selection": ("memory.selection", _text),
    "--epochs": ("training.epochs", scalar),
    "--device": ("device", _text),
    "--threads": ("threads", scalar),
}
"""Each flag's setting, and how its value is read."""

RIVALS = {
    "data.tasks": ("data.classes",),
    "data.classes": ("data.tasks", "data.first"),
    "memory.per_class": ("memory.total",),
    "memory.total": ("memory.per_class",),
}
"""What a setting replaces where a layer below gave it."""

QUICK_IMAGES = 20
"""Training images a class of a quick look."""
QUICK_TEST_IMAGES = 5
"""Its test images a class: all tasks so far are tested after each one, which adds up."""
QUICK_VALIDATION = 0.002
"""Its share of images to validate on, which are looked at after every task."""

FLAG_RIVALS = RIVALS | {"training.epochs": ("training.epochs_first",)}


@dataclass
class Request:
    """A command line that asks for runs.

    Args:
        method: The argument, if given.
        benchmark: The same.
        flags: Values of flags by flag.
        settings: ``KEY=VALUE`` of every ``--set``.
        config: The file of ``--config``.
        seed: One seed.
        seeds: Several, such as 0-2,7.
        ignored: Settings that are for other methods of the same command.
        preset: What is laid over the benchmark's settings.
        quick: Whether every training lasts one epoch, on few images.
    """

    method: str | None
    benchmark: str | None
    flags: Mapping[str, str] = field(default_factory=dict)
    settings: Sequence[str] = ()
    config: Path | None = None
    seed: str | None = None
    seeds: str | None = None
    ignored: Collection[str] = ()
    preset: str = "paper"
    quick: bool = False

    @classmethod
    def of(cls, method: str | None, benchmark: str | None, *groups: object) -> Self:
        """What groups of flags ask for; flags that say nothing of runs are passed over."""
        given = {name: value for group in groups for name, value in vars(group).items()}
        flags = {flag: given.get(flag[2:].replace("-", "_")) for flag in FLAGS}
        own = ("config", "seed", "seeds", "preset", "quick")
        return cls(
            method,
            benchmark,
            {flag: value for flag, value in flags.items() if value is not None},
            given.get("setting") or [],
            **{name: given[name] for name in own if name in given},
        )

    def resolve(self) -> list[Resolved]:
        """A checked run for every seed.

        Raises:
            SpecError: All mistakes, each on its own line.
        """
        mistakes: list[str] = []
        file = self._file(mistakes)
        method = self.method or file.names.get("method")
        benchmark = self.benchmark or file.names.get("benchmark")
        preset, quick = self._named_layers(method, mistakes)
        layers = [
            layer._replace(values={k: v for k, v in layer.values.items() if k not in self.ignored})
            for layer in (preset, file.layer, quick, *self._command_line(mistakes))
        ]
        seeds = self._seed_layers(mistakes)
        if not method:
            mistakes.append(
                "A METHOD is missing. Write it as in: ancl run a-lwf digits/5, or in a file for "
                "--config. See ancl list methods."
            )
            raise SpecError("\n".join(mistakes))
        try:
            resolved = [resolve(method, benchmark, [*layers, *seed]) for seed in seeds]
        except SpecError as error:
            mistakes.append(str(error))
        if mistakes:
            raise SpecError("\n".join(mistakes))
        return resolved

    def _named_layers(self, method: str | None, mistakes: list[str]) -> tuple[Layer, Layer]:
        """The preset's settings, and those of a quick look."""
        over, quick = dict[str, Any](), dict[str, Any]()
        try:
            known = MethodRef(method or "finetune")
        except AnclError:
            pass  # resolving tells what is wrong with it
        else:
            try:
                over = preset(self.preset, known.name)
            except SpecError as error:
                mistakes.append(str(error))
            quick = quick_settings(known) if self.quick else {}
        return Layer(f"--preset {self.preset}", over), Layer("--quick", quick)

    def _file(self, mistakes: list[str]) -> ConfigFile:
        if self.config:
            try:
                names, layer = read_config(self.config)
                return ConfigFile(names, layer._replace(values=_replacing(layer.values, RIVALS)))
            except SpecError as error:
                mistakes.append(str(error))
        return ConfigFile({}, Layer("--config", {}))

    def _command_line(self, mistakes: list[str]) -> list[Layer]:
        """``--set``, then flags; neither takes back what the other says."""
        given: dict[str, Any] = {}
        for text in self.settings:
            key, equals, value = text.partition("=")
            if not equals or not key.strip():
                mistakes.append(f"--set: {text!r} is no setting. Write --set key=value.")
            else:
                given[key.strip()] = scalar(value)
        flags = {flag: (FLAGS[flag][0], FLAGS[flag][1](v)) for flag, v in self.flags.items()}
        named = {*given, *(key for key, _ in flags.values())}
        layers = [Layer("--set", _replacing(given, RIVALS, named))]
        for flag, (key, value) in flags.items():
            layers.append(Layer(flag, _replacing({key: value}, FLAG_RIVALS, named)))
        return layers

    def _seed_layers(self, mistakes: list[str]) -> list[list[Layer]]:
        if self.seed is not None and self.seeds is not None:
            mistakes.append("--seed and --seeds were both given. Leave out one.")
        if self.seeds is None:
            return [[] if self.seed is None else [Layer("--seed", {"seed": scalar(self.seed)})]]
        try:
            return [[Layer("--seeds", {"seed": seed})] for seed in parse_seeds(self.seeds)]
        except SpecError as error:
            mistakes.append(str(error))
            return [[]]


def quick_settings(method: MethodRef) -> dict[str, Any]:
    """One epoch of everything that has epochs, on few images a class."""
    fields = fields_for(method, DEFAULT_NETWORK)
    # What is off by default (0 epochs of balanced tuning) stays off.
    epochs = {k: 1 for k, field in fields.items() if k.endswith("epochs") and field.default != 0}
    first = dict.fromkeys(("training.epochs_first", "auxiliary.epochs_first"))
    images = {
        "data.per_class": QUICK_IMAGES,
        "data.test_per_class": QUICK_TEST_IMAGES,
        "data.val_fraction": QUICK_VALIDATION,
    }
    return {**epochs, **first, **images}


def parse_seeds(text: str) -> list[int]:
    """Seeds from a list with ranges, each once.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        last = int(match[2] or match[1]) if match else -1
        if match is None or last < int(match[1]):
            raise SpecError(
                f"--seeds: {part.strip()!r} in {text!r} is no seed or range. Write 0-2,7 for the "
                f"seeds 0, 1, 2 and 7."
            )
        seeds += range(int(match[1]), last + 1)
    return list(dict.fromkeys(seeds))


def _replacing(
    values: Mapping[str, Any], rivals: Mapping[str, Sequence[str]], named: Collection[str] = ()
) -> dict[str, Any]:
    """The values, and nothing for what they replace, unless it is named itself."""
    replaced = {
        rival: None
        for key in values
        if values[key] is not None
        for rival in rivals.get(key, ())
        if rival not in named and rival not in values
    }
    return {**values, **replaced}
