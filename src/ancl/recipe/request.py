"""Settings: from layers of values to checked runs. All mistakes are found together."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from ancl.errors import AnclError, SpecError, printable
from ancl.memory import Memory
from ancl.methods.registry import MethodRef
from ancl.recipe.benchmarks import BENCHMARKS
from ancl.recipe.benchmarks import preset as preset_settings
from ancl.recipe.data_spec import DataSpec
from ancl.recipe.recipe import (
    GENERAL,
    Layer,
    Resolved,
    RunSpec,
    default_network,
    fields_for,
)
from ancl.recipe.resolve import resolve, unused_auxiliary
from ancl.recipe.yaml_file import ConfigFile, read_config
from ancl.training.config import Training

RIVALS = {
    "data.tasks": ("data.classes",),
    "data.classes": ("data.tasks", "data.first"),
    "memory.per_class": ("memory.total", "memory.bytes"),
    "memory.total": ("memory.per_class", "memory.bytes"),
    "memory.bytes": ("memory.per_class", "memory.total"),
}
"""What a setting replaces where a layer below gave it."""

QUICK: dict[str, Any] = {
    "data.per_class": 20,
    "data.test_per_class": 5,
    "data.val_fraction": 0.002,
}
"""Few images per class with ``quick``: all tasks so far are evaluated after each one."""
QUICK_CIFAR100: dict[str, Any] = {
    "data.source": "cifar100-16",
    "data.per_class": 40,
    "data.test_per_class": 20,
    "data.val_fraction": 0.02,
    "data.augment": "crop",
    "network.name": "resnet8",
    "training.batch_size": 25,
    "training.epochs": 4,
    "training.epochs_first": 8,
    "training.lr": 0.05,
    "training.lr_first": 0.1,
    "training.schedule": "cosine",
    "training.warmup": 0.1,
}
"""A cut of the small CIFAR-100 protocols with ``quick``: above chance in less than a minute."""
QUICK_LOOK = (
    "A quick look: few epochs on few images per class. These numbers say that it runs, nothing "
    "about the method."
)
"""What every output says of runs with ``quick``."""


# -- from values to a checked run ------------------------------------------------------------


def spec(
    method: str | None = None,
    benchmark: str | None = None,
    *,
    seed: int | None = None,
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> RunSpec:
    """A checked run.

    Examples:
        >>> spec("a-lwf", "digits/5", settings={"training.epochs": 2}, lamb_a=0.5).options["lamb_a"]
        0.5

    Args:
        method: Such as ``a-lwf``; ``list_methods()`` shows all. A ``config`` may name it.
        benchmark: Such as ``digits/5``; ``list_benchmarks()`` shows all. The same.
        seed: Where all randomness comes from; 0 by default.
        preset: ``paper`` or ``official``: what is laid over the benchmark's settings.
        quick: Whether trainings are short and on few images: does it run?
        config: A YAML file of settings, such as the ``spec.yaml`` of a run.
        settings: Values by dotted key, such as ``training.epochs``.
        options: The method's own settings, such as ``lamb``; ``device`` and ``threads``; and whole
            sections, as ``Learner`` takes them: ``training=Training(...)`` or ``dict(epochs=3)``,
            ``auxiliary``, ``memory=20`` (per class), ``network="mlp"``, ``data="folder:photos"``.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    seeds = () if seed is None else (seed,)
    values = dotted_settings({**(settings or {}), **options})
    asked = make_request(method, benchmark, values, seeds, preset, quick, config)
    return asked.resolve()[0].spec


def dotted_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted key; a whole section may be a mapping, its dataclass, or one value.

    Examples:
        >>> dotted_settings({"lamb": 3, "training": {"epochs": 2}, "memory": 20, "network": "mlp"})
        {'lamb': 3, 'training.epochs': 2, 'memory.per_class': 20, 'network.name': 'mlp'}

    Raises:
        SpecError: A section is something else.
    """
    settings: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _WHOLE or value is None:
            settings[key] = value
            continue
        whole = _WHOLE[key]
        if isinstance(value, Mapping):
            settings |= {f"{key}.{name}": inner for name, inner in value.items()}
        elif whole.kind and isinstance(value, whole.kind):
            settings |= {f"{key}.{n}": v for n, v in dataclasses.asdict(value).items()}
        elif whole.value and type(value) is whole.value:
            settings[f"{key}.{whole.name}"] = value
        else:
            raise SpecError(f"{key} is {printable(repr(value), 80)}. Write {whole.example}.")
    return settings


class _Whole(NamedTuple):
    """What a whole section may be given as.

    Args:
        example: How to write it.
        kind: Its dataclass, if it has one.
        value: The type of the one value that stands for it, if there is one.
        name: The setting that this value is of.
    """

    example: str
    kind: type[Any] | None = None
    value: type[Any] | None = None
    name: str = ""


_WHOLE: Mapping[str, _Whole] = {
    "data": _Whole("data='folder:photos', or data=dict(tasks=5)", DataSpec, str, "source"),
    "network": _Whole("network='resnet8', or network=dict(name='mlp')", None, str, "name"),
    "memory": _Whole("memory=20 (per class), or memory=dict(total=500)", Memory, int, "per_class"),
    "training": _Whole("training=dict(epochs=3), or a Training", Training),
    "auxiliary": _Whole("auxiliary=dict(epochs=3), or a Training", Training),
}


def make_request(
    method: str | None,
    benchmark: str | None,
    values: Mapping[str, Any],
    seeds: Sequence[int] = (),
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
) -> "Request":
    """A request with one layer of values."""
    return Request(
        method,
        benchmark,
        (Layer("settings", dict(values)),),
        config=Path(config) if config is not None else None,
        seeds=tuple(seeds),
        preset=preset,
        quick=quick,
    )


@dataclass(frozen=True)
class Request:
    """Runs that are asked for, not yet checked.

    Args:
        method: Its name; the config file may have it.
        benchmark: The same.
        layers: Values by dotted key; a later layer replaces what an earlier one gave.
        config: A YAML file of settings, below all layers.
        seeds: One run per seed; without any, one run with the seed of the layers.
        seeds_source: What messages call ``seeds``.
        preset: What is laid over the benchmark's settings.
        quick: Whether trainings are short and on few images: does it run?
        beside: The methods of the same request.
        ignored: Settings that are for other methods of it.
        mistakes: Mistakes found before, such as flags that cannot be read.
    """

    method: str | None
    benchmark: str | None
    layers: tuple[Layer, ...] = ()
    config: Path | None = None
    seeds: tuple[int, ...] = ()
    seeds_source: str = "seeds"
    preset: str = "paper"
    quick: bool = False
    beside: tuple[str, ...] = ()
    ignored: frozenset[str] = frozenset()
    mistakes: tuple[str, ...] = ()

    def with_values(self, source: str, values: Mapping[str, Any]) -> Self:
        """The same request with another layer over the others."""
        return replace(self, layers=(*self.layers, Layer(source, dict(values))))

    def with_threads(self, threads: int | None) -> Self:
        """The same with an executor's threads, unless a layer or the benchmark has a number."""
        known = BENCHMARKS.get(self.benchmark or "")
        if threads is None or self.given("threads") or (known and "threads" in known.settings):
            return self
        return self.with_values("--threads", {"threads": threads})

    def given(self, key: str) -> bool:
        """Whether a layer has a value for this setting."""
        return any(key in layer.values for layer in self.layers)

    def resolve(self) -> list[Resolved]:
        """A checked run for every seed.

        Raises:
            SpecError: All mistakes, each on its own line.
        """
        mistakes: list[str] = []
        file = self._file(mistakes)
        method = self.method or file.names.get("method")
        benchmark = self.benchmark or file.names.get("benchmark")
        lowest, quick = self._named_layers(method, self._source(benchmark, file), mistakes)
        mistakes += self.mistakes
        layers = [self._laid(layer) for layer in (lowest, file.layer, quick, *self.layers)]
        if not method:
            mistakes.append(
                "A METHOD is missing. Write it as in: ancl run a-lwf digits/5, or in a file for "
                "--config. See ancl list methods."
            )
            raise SpecError("\n".join(mistakes))
        seeds = [[Layer(self.seeds_source, {"seed": seed})] for seed in self.seeds] or [[]]
        resolved: list[Resolved] = []
        try:
            resolved = [resolve(method, benchmark, [*layers, *seed]) for seed in seeds]
            if not any(map(_trains_auxiliary, self.beside)):
                mistakes += unused_auxiliary(self.layers, resolved[0].spec)
        except SpecError as error:
            mistakes.append(str(error))
        if mistakes:
            raise SpecError("\n".join(mistakes))
        return resolved

    def own_settings(self) -> list[str]:
        """The settings of methods (not of data, network or training) that are given anywhere."""
        keys = [key for layer in self.layers for key in layer.values]
        if self.config:
            with suppress(SpecError):  # resolving reports it
                keys += read_config(self.config).layer.values
        return [key for key in keys if "." not in key and key not in GENERAL]

    def _laid(self, layer: Layer) -> Layer:
        """A layer without what is ignored, and with nothing for what its values replace."""
        values = {k: v for k, v in layer.values.items() if k not in self.ignored}
        replaced = {
            rival: layer.label(key)
            for key, value in values.items()
            if value is not None
            for rival in RIVALS.get(key, ())
            if rival not in values
        }
        return layer._replace(
            values={**values, **dict.fromkeys(replaced)}, labels={**layer.labels, **replaced}
        )

    def _source(self, benchmark: str | None, file: ConfigFile) -> str:
        """The name of the data, which decides what a quick look is."""
        known = BENCHMARKS.get(benchmark or "")
        each = [known.values("") if known else {}, file.layer.values]
        each += [layer.values for layer in self.layers]
        named = [str(values["data.source"]) for values in each if values.get("data.source")]
        return named[-1] if named else ""

    def _named_layers(
        self, method: str | None, source: str, mistakes: list[str]
    ) -> tuple[Layer, Layer]:
        """The settings of the preset, and those of ``quick``."""
        over, quick = dict[str, Any](), dict[str, Any]()
        with suppress(AnclError):  # resolving reports what is wrong with the method
            known = MethodRef(method or "finetune")
            quick = quick_settings(known, source) if self.quick else {}
            try:
                over = preset_settings(self.preset, known.name)
            except SpecError as error:
                mistakes.append(str(error))
        return Layer(f"--preset {self.preset}", over), Layer("--quick", quick)

    def _file(self, mistakes: list[str]) -> ConfigFile:
        if self.config:
            try:
                return read_config(self.config)
            except SpecError as error:
                mistakes.append(str(error))
        return ConfigFile({}, Layer("--config", {}))


def quick_settings(method: MethodRef, source: str = "") -> dict[str, Any]:
    """One epoch of everything that has epochs, on few images per class; for CIFAR-100 a few."""
    fields = fields_for(method, default_network(method))
    # What is off by default (0 epochs of balanced tuning) stays off.
    epochs = {k: 1 for k, field in fields.items() if k.endswith("epochs") and field.default != 0}
    if source.startswith("cifar100"):
        trained = {k: v for k, v in epochs.items() if "." not in k}
        return {**trained, **QUICK_CIFAR100}
    first = dict.fromkeys(("training.epochs_first", "auxiliary.epochs_first"))
    return {**epochs, **first, **QUICK}


def is_quick_look(spec: RunSpec) -> bool:
    """Whether a run has the few images of ``quick``, however they were asked for.

    Nothing that the spec names is imported.
    """
    settings, source = spec.settings(), spec.data.source
    cut = QUICK_CIFAR100 if source.startswith("cifar100") else QUICK
    return all(settings[key] == value for key, value in cut.items() if key.startswith("data."))


def _trains_auxiliary(method: str) -> bool:
    try:
        return MethodRef(method).make({}).auxiliary is not None
    except (AnclError, TypeError):
        return True  # it cannot be made so: reported when the method itself is resolved
