"""A run as one frozen value, resolved from layers of settings; all mistakes are found together."""

import dataclasses
import inspect
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import torch
from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict

from ancl.checks import checked
from ancl.data import check_normalization, enough_classes, find_augmentation
from ancl.errors import AnclError, SpecError, did_you_mean, printable, unknown
from ancl.hashing import later_defaults, not_later
from ancl.memory import Memory, RunMemory
from ancl.methods.method import Method
from ancl.methods.registry import (
    MethodRef,
    arguments,
    later_options,
    method_defaults,
    section_of,
)
from ancl.networks import NAMES, network_options
from ancl.recipe.benchmarks import BENCHMARKS
from ancl.recipe.benchmarks import benchmark as benchmark_named
from ancl.recipe.data_spec import DEFINING, DataSpec, data_name, data_title
from ancl.runtime import MOST_AT_ONCE, resolve_device
from ancl.training.config import Training

T = TypeVar("T")
_INHERITED = "as training"
SEARCH = "search"
"""What ``training.lr`` may be instead of a number; it sets ``training.lr_search``."""


class RunSpec(BaseModel):
    """Everything that decides a run; written beside its results as ``spec.yaml``.

    ``benchmark`` is made from the data, see ``data_name``, where a run has none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str
    benchmark: str
    seed: int
    options: dict[str, Any]
    data: DataSpec
    network: dict[str, Any]
    memory: RunMemory
    training: Training
    auxiliary: Training
    device: str
    threads: int

    def plain(self) -> dict[str, Any]:
        """Everything as JSON values, but later settings at their defaults.

        It is not a serializer of the model: a Ctrl-C in one would become an error of pydantic.
        """
        values = self.values()
        for section, later in _later_settings().items():
            values[section] = not_later(later, values[section])
        return values

    def values(self) -> dict[str, Any]:
        """Everything as JSON values."""
        values: dict[str, Any] = json.loads(self.model_dump_json())
        return values

    def settings(self) -> dict[str, Any]:
        """Every setting by dotted key, without the seed and where it runs."""
        values = self.values()
        # Not every method has a later option: one at its default is as one that is not there.
        options = not_later(later_options(), values["options"])
        settings = {"method": self.method, "benchmark": self.benchmark, **options}
        for section in SECTIONS:
            settings |= {f"{section}.{name}": value for name, value in values[section].items()}
        return settings

    @property
    def stream(self) -> str:
        """What the tasks are called: the benchmark, where its images and its tasks are as it says.

        Otherwise what they are instead, see ``data_title``.
        """
        recipe = BENCHMARKS.get(self.benchmark)
        if recipe is None:
            return self.benchmark
        own = DataSpec(**section_of(recipe.values(self.method), "data"))
        both = [[getattr(data, name) for name in DEFINING] for data in (own, self.data)]
        return self.benchmark if both[0] == both[1] else data_title(self.data)

    @property
    def task_aware(self) -> bool:
        """Whether the task of a sample is known at test time (TIL)."""
        return self.data.scenario == "til"

    @property
    def accuracy(self) -> Literal["taw", "tag"]:
        """The accuracy that counts: task-aware in TIL, else task-agnostic."""
        return "taw" if self.task_aware else "tag"


@cache
def _later_settings() -> dict[str, Mapping[str, Any]]:
    """The settings that came after runs were filed, with their defaults, by section."""
    return {
        "data": later_defaults(DataSpec),
        "memory": later_defaults(RunMemory),
        "training": later_defaults(Training),
        "auxiliary": later_defaults(Training),
        "options": later_options(),
    }


class Layer(NamedTuple):
    """Settings by dotted key, and where they come from.

    Args:
        source: The file, flag or benchmark.
        values: The settings.
        lines: Where it is a file, the line of each.
        origins: Where the source itself took a value from.
        labels: The source of single values, where it has another name: the flag of each.
    """

    source: str
    values: Mapping[str, Any]
    lines: Mapping[str, int] = {}
    origins: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}

    def label(self, key: str) -> str:
        """The source of one value."""
        return self.labels.get(key, self.source)

    def named(self, key: str) -> str:
        """Where a value comes from, for a reader."""
        origin = self.origins.get(key)
        return f"{self.source} ({origin})" if origin else self.label(key)


class Field(NamedTuple):
    """One setting a run accepts."""

    type: Any
    default: Any
    explanation: str


class Resolved(NamedTuple):
    """A checked run, and where each of its settings comes from, by dotted key."""

    spec: RunSpec
    sources: dict[str, str]


GENERAL = {
    "seed": Field(Annotated[int, Ge(0)], 0, "The seed of all randomness."),
    "device": Field(str, "auto", "auto, cpu, cuda, cuda:N or mps."),
    "threads": Field(
        Annotated[int, Ge(1), Le(MOST_AT_ONCE)] | None,
        None,
        "CPU threads; they change the last bits.",
    ),
}
SECTIONS = ("data", "network", "memory", "training", "auxiliary")
DEFAULT_NETWORK = "resnet32"
MISSING = (
    "A BENCHMARK is missing. Write one, as in: ancl run a-lwf digits/5 (see ancl list benchmarks). "
    "Or name your data: ancl run a-lwf --data folder:photos@32 --tasks 5 (see ancl list data)."
)


def fields_for(method: MethodRef, network: str) -> dict[str, Field]:
    """Every setting a run of this method with this network accepts, by dotted key."""
    found = dict(GENERAL)
    found |= {f"data.{name}": field for name, field in _fields(DataSpec)}
    known = f"One of {', '.join(NAMES)}."
    found["network.name"] = Field(str, DEFAULT_NETWORK, known)
    for name, parameter in network_options(network).items():
        found[f"network.{name}"] = Field(
            parameter.annotation, parameter.default, f"An option of {network}."
        )
    found |= {f"memory.{name}": field for name, field in _fields(RunMemory)}
    found |= {f"training.{name}": field for name, field in _fields(Training)}
    found |= {f"auxiliary.{name}": field for name, field in _fields(Training)}
    texts = method.explanations()
    for name, parameter in method.settings.items():
        found[name] = Field(parameter.annotation, parameter.default, texts.get(name, ""))
    return found


def resolve(method: str, benchmark: str | None, layers: Sequence[Layer] = ()) -> Resolved:
    """Lay the layers over the benchmark's settings and check everything.

    Args:
        method: Its name.
        benchmark: Its name; without one the layers name the data, and the rest has defaults.
        layers: Settings, later ones first.

    Raises:
        SpecError: Each mistake on its own line.
    """
    return _Resolver(method, benchmark, layers).resolve()


class _Resolver:
    """Collects values, where they come from, and every mistake."""

    def __init__(self, method: str, benchmark: str | None, layers: Sequence[Layer]) -> None:
        self.mistakes: list[str] = []
        self.benchmark, self.layers = benchmark, list(layers)
        self.method = self.attempt(lambda: MethodRef(method))
        self.lay_benchmark()
        self.accepted: dict[str, Field] = {}
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def lay_benchmark(self) -> None:
        """The benchmark's settings come first, if there is one."""
        names_data = any(layer.values.get("data.source") for layer in self.layers)
        name = self.benchmark
        if name is None and not names_data:
            self.mistakes.append(MISSING)
        elif name is not None and (name in BENCHMARKS or not names_data):
            known = self.attempt(lambda: benchmark_named(name))
            if known and self.method:
                method = self.method.name
                settings, origins = known.values(method), known.sources(method)
                self.layers.insert(0, Layer(f"benchmark {name}", settings, origins=origins))

    def resolve(self) -> Resolved:
        """Everything checked, or every mistake."""
        spec = self.lay() if self.method else None
        if self.mistakes or spec is None:
            raise SpecError("\n".join(self.mistakes))
        return Resolved(spec, self.sources)

    def attempt(self, make: Callable[[], T]) -> T | None:
        """What can be made, or a mistake noted."""
        try:
            return make()
        except AnclError as error:
            self.mistakes.append(str(error))
            return None

    def lay(self) -> RunSpec | None:
        """Lay one layer over the other."""
        assert self.method is not None
        named = self.network()
        network = named or DEFAULT_NETWORK
        self.accepted = fields_for(self.method, network)
        self.values = {key: field.default for key, field in self.accepted.items()}
        self.sources = dict.fromkeys(self.accepted, "default")
        for layer in self.layers:
            for key, value in layer.values.items():
                if named or not key.startswith("network."):  # options of a known network only
                    self.set(layer, key, value, network)
        empty = inspect.Parameter.empty
        for name in (n for n, value in self.values.items() if value is empty):
            owner = network if name.startswith("network.") else self.method.name
            self.mistakes.append(f"{owner} needs a value for {name}: --set {name}=…")
        if self.mistakes:
            return None
        self.check_together()
        return None if self.mistakes else self.spec()

    def network(self) -> str | None:
        """The network's name, which decides what other settings there are; none if unknown."""
        named = [
            layer.values["network.name"] for layer in self.layers if "network.name" in layer.values
        ]
        name = str(named[-1]) if named else DEFAULT_NETWORK
        known = self.attempt(lambda: network_options(name))
        return None if known is None else name

    def set(self, layer: Layer, key: str, value: Any, network: str) -> None:
        """Take one value, or note why not."""
        line = layer.lines.get(key)
        place = f"{layer.source}:{line}: " if line else f"{layer.label(key)}: "
        if key not in self.accepted:
            self.mistakes.append(place + self.unknown(key, network))
            return
        if key == "training.lr" and value == SEARCH:
            self.set(layer, "training.lr_search", True, network)
            return
        if key == "training.lr" and "training.lr_search" not in layer.values:
            self.end_search(layer, network)
        try:
            taken = checked(self.accepted[key].type, value)
        except ValueError as error:
            self.mistakes.append(f"{place}{key} is {printable(repr(value), 200)}; it {error}.")
            return
        self.values[key], self.sources[key] = taken, layer.named(key)
        twin = key.replace("training.", "auxiliary.", 1)
        if twin != key and self.sources[twin] in ("default", _INHERITED):
            # The auxiliary network is trained as the main one by default.
            self.values[twin], self.sources[twin] = taken, _INHERITED

    def end_search(self, layer: Layer, network: str) -> None:
        """A rate that is given takes back the search that an earlier layer asked for."""
        if self.values["training.lr_search"]:
            self.set(layer, "training.lr_search", False, network)

    def unknown(self, key: str, network: str) -> str:
        """The message for a setting that is not there."""
        assert self.method is not None
        section, _, name = key.rpartition(".")
        start = f"{section}."
        if section in SECTIONS:
            possible = [k.removeprefix(start) for k in self.accepted if k.startswith(start)]
            owner = f"network {network}" if section == "network" else section
            near = did_you_mean(name, possible)
            return f"{owner} has no setting {name!r}.{near} It accepts: {', '.join(possible)}."
        return self.method.unknown(key, self.accepted)

    def check_together(self) -> None:
        """Note what does not fit although each value is possible."""
        assert self.method is not None
        values, method = self.values, self.method
        made = self.attempt(lambda: method.make({name: values[name] for name in method.settings}))
        self.attempt(lambda: resolve_device(values["device"]))
        if made:
            self.take_defaults(made)
        data = DataSpec(**self.section("data"))
        sizes = self.attempt(data.sizes)
        self.name_benchmark(data, len(sizes) if sizes else data.tasks)
        if sizes:
            self.attempt(lambda: enough_classes(data.scenario, sizes))
        if sizes and made:
            self.check_memory(made, data.scenario, sum(sizes))
        self.attempt(lambda: find_augmentation(data.augment))
        self.attempt(lambda: check_normalization(data.normalization))
        for name in ("training", "auxiliary"):
            training = Training(**self.section(name))
            problems = training.problems()
            if made and name == "training":
                problems += made.training_problems(training)
            self.mistakes += [f"{name}: {problem}" for problem in problems]
        for asked, remedy in (
            ("training.schedule=patience", "training.schedule=cosine"),
            ("training.lr_search=true", "a number for training.lr"),
        ):
            key, _, value = asked.partition("=")
            trains = not made or made.main != "none"
            if trains and data.val_fraction == 0 and values[key] in (True, value):
                self.mistakes.append(
                    f"{asked} needs validation images, but data.val_fraction is 0. "
                    f"Raise it, or use {remedy}."
                )
        if values["auxiliary.lr_search"] and not values["training.lr_search"]:
            self.mistakes.append(
                "auxiliary.lr_search is true and training.lr_search is not, but a task's rate is "
                "searched once, for both networks. Use --set training.lr=search, or a number."
            )

    def name_benchmark(self, data: DataSpec, tasks: int | None) -> None:
        """The data's name for a run without a benchmark; an earlier run's spec has it already."""
        name = data_name(data, tasks)
        if self.benchmark not in (None, name, *BENCHMARKS):
            self.mistakes.append(unknown("benchmark", str(self.benchmark), BENCHMARKS))
        self.benchmark = self.benchmark or name

    def take_defaults(self, made: Method) -> None:
        """Fill in what the method decides, unless a layer did; a memory's size is one thing."""
        sized = ("memory.per_class", "memory.total")
        size_given = any(self.sources[key] != "default" for key in sized)
        for key, value in method_defaults(made).items():
            given = self.sources.get(key) not in ("default", _INHERITED)
            if not (size_given if key in sized else given):
                self.values[key], self.sources[key] = value, "default"

    def check_memory(self, made: Method, scenario: str, groups: int) -> None:
        """Note what does not fit a memory shared by this number of classes (and domains)."""
        memory = RunMemory(**self.section("memory"))
        self.mistakes += memory_problems(memory, made, scenario, groups)

    def spec(self) -> RunSpec:
        """The run."""
        assert self.method is not None
        assert self.benchmark is not None
        return RunSpec(
            method=self.method.name,
            benchmark=self.benchmark,
            seed=self.values["seed"],
            options={name: self.values[name] for name in self.method.settings},
            data=DataSpec(**self.section("data")),
            network=self.section("network"),
            memory=RunMemory(**self.section("memory")),
            training=Training(**self.section("training")),
            auxiliary=Training(**self.section("auxiliary")),
            device=str(resolve_device(self.values["device"])),
            threads=self.values["threads"] or torch.get_num_threads(),
        )

    def section(self, name: str) -> dict[str, Any]:
        """The values of one section, without its name."""
        return section_of(self.values, name)


def memory_problems(memory: Memory, method: Method, scenario: str, groups: int) -> list[str]:
    """What does not fit a memory shared by this number of groups, each as a sentence."""
    kept = memory if memory.size else None
    return memory.problems(groups, scenario) or method.problems(scenario, kept, groups)


def _fields(kind: type[Any]) -> Iterator[tuple[str, Field]]:
    texts = {name: text for each in kind.__mro__[-2::-1] for name, text in arguments(each).items()}
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        yield field.name, Field(hints[field.name], field.default, texts.get(field.name, ""))
