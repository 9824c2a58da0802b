"""Settings: from layers of values to checked runs. All mistakes are found together."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from ancl.errors import AnclError, SpecError
from ancl.experiments.benchmarks import BENCHMARKS
from ancl.experiments.benchmarks import preset as preset_settings
from ancl.experiments.build import build, threads
from ancl.experiments.config_file import ConfigFile, read_config
from ancl.experiments.pairing import settings_of
from ancl.experiments.results import Places, run_directory
from ancl.experiments.spec import (
    DEFAULT_NETWORK,
    GENERAL,
    LATER,
    SEARCH,
    Layer,
    Resolved,
    RunSpec,
    fields_for,
    resolve,
)
from ancl.methods.registry import MethodRef
from ancl.store.store import Store

RIVALS = {
    "data.tasks": ("data.classes",),
    "data.classes": ("data.tasks", "data.first"),
    "memory.per_class": ("memory.total",),
    "memory.total": ("memory.per_class",),
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
        options: The method's own settings, such as ``lamb``, and ``device`` and ``threads``.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    seeds = () if seed is None else (seed,)
    values = {**(settings or {}), **options}
    asked = make_request(method, benchmark, values, seeds, preset, quick, config)
    return asked.resolve()[0].spec


def specs(
    methods: Sequence[str],
    benchmark: str | None = None,
    *,
    seeds: Sequence[int] = (),
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[RunSpec]:
    """Checked runs: every method with every seed. See ``spec`` for the arguments.

    A method's own setting (``lamb``) goes to those methods that have it.

    Examples:
        >>> [(s.method, s.seed) for s in specs(["lwf", "a-lwf"], "digits/5", seeds=[0, 1])]
        [('lwf', 0), ('lwf', 1), ('a-lwf', 0), ('a-lwf', 1)]

    Raises:
        SpecError: All mistakes, each once, on its own line.
    """
    values = {**(settings or {}), **options}
    asked = make_request(None, benchmark, values, seeds, preset, quick, config)
    return resolve_methods(asked, methods)


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
            mistakes += self._without_auxiliary(resolved[0].spec)
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

    def _without_auxiliary(self, spec: RunSpec) -> list[str]:
        """What is set of an auxiliary network that no method of the request has."""
        named = [
            f"{layer.label(key)}: {key}"
            for layer in self.layers
            for key in layer.values
            # A file may be of another method's run, or of several methods.
            if key.startswith("auxiliary.") and layer.label(key) in ("--set", "settings")
        ]
        if not named or MethodRef(spec.method).make(spec.options).auxiliary:
            return []
        if any(map(_trains_auxiliary, self.beside)):
            return []
        return [
            f"{each} is of an auxiliary network, and {spec.method} trains none. Leave it out, or "
            f"use a variant that does, such as a-NAME."
            for each in named
        ]

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
    fields = fields_for(method, DEFAULT_NETWORK)
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
    own, source = settings_of(spec), spec.data.source
    cut = QUICK_CIFAR100 if source.startswith("cifar100") else QUICK
    return all(own[key] == value for key, value in cut.items() if key.startswith("data."))


# -- several methods -------------------------------------------------------------------------


def resolve_methods(
    request: Request, methods: Sequence[str], among: Sequence[str] = ()
) -> list[RunSpec]:
    """Every method with every seed, in this order. A setting goes to the methods that have it.

    Args:
        request: What all have in common.
        methods: Their names.
        among: Other methods whose settings the request may hold.

    Raises:
        SpecError: All mistakes, each once, on its own line.
    """
    mistakes: list[str] = []
    found: list[RunSpec] = []
    for method in methods:
        try:
            ignored = foreign_settings(method, [*methods, *among], request.own_settings())
            asked = replace(request, method=method, ignored=ignored, beside=(*methods, *among))
            found += [resolved.spec for resolved in asked.resolve()]
        except AnclError as error:
            mistakes += str(error).split("\n")
    if mistakes:
        raise SpecError("\n".join(dict.fromkeys(mistakes)))
    return found


def foreign_settings(method: str, methods: Iterable[str], given: Iterable[str]) -> frozenset[str]:
    """Of the settings given, those that another method has and this one has not."""
    own = MethodRef(method).settings
    others = {name for other in methods for name in _settings_of(other)}
    return frozenset(key for key in given if key in others and key not in own)


def _trains_auxiliary(method: str) -> bool:
    try:
        return MethodRef(method).make({}).auxiliary is not None
    except (AnclError, TypeError):
        return True  # it cannot be made so: reported when the method itself is resolved


def _settings_of(method: str) -> list[str]:
    try:
        return list(MethodRef(method).settings)
    except AnclError:
        return []  # reported when the method itself is resolved


# -- what a run would do ---------------------------------------------------------------------


def preview(resolved: Resolved, places: Places) -> dict[str, Any]:
    """A run that is not started, as JSON: its tasks, its stages, its settings and their sources."""
    spec, store = resolved.spec, Store(places.store)
    with threads(spec.threads):
        experiment = build(spec, places.data)
    values = spec.plain()
    names = [name for task in experiment.stream.tasks for name in task.names]
    return {
        "method": spec.method,
        "benchmark": spec.stream,
        "seed": spec.seed,
        "directory": str(run_directory(places.runs, spec)),
        "notes": list(experiment.warnings),
        "tasks": [
            {
                "task": task.index,
                "classes": list(task.names),
                **({"returning": [names[n] for n in task.returning]} if task.returning else {}),
                **dict(zip(("train", "val", "test"), task.sizes, strict=True)),
            }
            for task in experiment.stream.tasks
        ],
        "stages": [
            {
                "task": stage.task,
                "stage": stage.name,
                "key": stage.key,
                "stored": store.has(stage.key),
                "most_epochs": stage.epochs,
            }
            for stage in experiment.stages
        ],
        "settings": {
            key: {"value": _value(values, key), "source": resolved.sources[_decides(values, key)]}
            for key in resolved.sources
        },
    }


def _decides(values: Mapping[str, Any], key: str) -> str:
    """The setting that decides a value: a rate may be one to search."""
    section, _, name = key.partition(".")
    searched = name in ("lr", "lr_first") and values[section]["lr_search"]
    return f"{section}.lr_search" if searched else key


def _value(values: Mapping[str, Any], key: str) -> Any:
    section, dot, name = key.partition(".")
    if dot:
        return SEARCH if _decides(values, key) != key else _dumped(values, section, name)
    return values[key] if key in values else _dumped(values, "options", key)


def _dumped(values: Mapping[str, Any], section: str, name: str) -> Any:
    """A value of a section; later settings are left out at their default."""
    found = values[section]
    return found[name] if name in found else LATER[section][name]
