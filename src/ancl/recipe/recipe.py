"""What decides learning, as frozen values: the recipe of a learner, and the spec of a run."""

import dataclasses
import inspect
import json
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_type_hints

from annotated_types import Ge, Le
from pydantic import BaseModel, ConfigDict, InstanceOf
from torch import nn

from ancl.checks import checked
from ancl.hashing import later_defaults, not_later
from ancl.memory import Memory, RunMemory
from ancl.methods.computed import COMPUTED
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef, arguments, later_options, section_of
from ancl.networks import NAMES, later_network_options, network_options
from ancl.recipe.benchmarks import BENCHMARKS
from ancl.recipe.data_spec import DEFINING, DataSpec, TaskSpec, data_title
from ancl.runtime import MOST_AT_ONCE
from ancl.training.config import Training

SEARCH = "search"
"""What ``training.lr`` may be instead of a number; it sets ``training.lr_search``."""


class Recipe(BaseModel):
    """What decides learning, whichever images are learned: what a run and a learner share.

    A learner's may hold a method, a network or an augmentation itself in the place of its name.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    method: str | InstanceOf[Method]
    seed: int
    options: dict[str, Any]
    data: TaskSpec
    network: dict[str, Any]
    memory: Memory
    training: Training
    auxiliary: Training

    def make_method(self) -> Method:
        """The method with its settings."""
        if isinstance(self.method, Method):
            return self.method
        return MethodRef(self.method).make(self.options)

    def values(self) -> dict[str, Any]:
        """Everything as JSON values; nothing in the place of what has no name."""
        network, augment = dict(self.network), self.data.augment
        if isinstance(network.get("name"), nn.Module):
            network["name"] = None
        named = {
            "method": self.method if isinstance(self.method, str) else None,
            "network": network,
            "data": dataclasses.replace(
                self.data, augment=augment if isinstance(augment, str) else ""
            ),
        }
        values: dict[str, Any] = json.loads(
            self.model_copy(update=named).model_dump_json(warnings=False)
        )
        values["data"]["augment"] = values["data"]["augment"] or None
        return values

    @property
    def task_aware(self) -> bool:
        """Whether the task of a sample is known at test time (TIL)."""
        return self.data.scenario == "til"


class RunSpec(Recipe):
    """Everything that decides a run: a recipe, its images, and the machine.

    It is written beside the results as ``spec.yaml``. ``benchmark`` is made from the data, see
    ``data_name``, where a run has none.
    """

    method: str
    benchmark: str
    data: DataSpec
    memory: RunMemory
    device: str
    threads: int

    def plain(self) -> dict[str, Any]:
        """Everything as JSON values, but later settings at their defaults.

        It is not a serializer of the model: a Ctrl-C in one would become an error of pydantic.
        """
        values = self.values()
        network = later_network_options(self.network.get("name"))
        for section, later in {**_later_settings(), "network": network}.items():
            values[section] = not_later(later, values[section])
        return values

    def values(self) -> dict[str, Any]:
        """Everything as JSON values."""
        values = super().values()
        return {name: values[name] for name in ("method", "benchmark")} | values

    def shared(self) -> dict[str, Any]:
        """The recipe of the run as JSON values, as a learner has it.

        A learner takes known classes again with ``cil``.
        """
        values = self.values()
        for section, kind in (("data", TaskSpec), ("memory", Memory)):
            names = [field.name for field in dataclasses.fields(kind)]
            values[section] = {name: values[section][name] for name in names}
        if self.data.scenario == "cir":
            values["data"]["scenario"] = "cil"
        return {name: values[name] for name in Recipe.model_fields}

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
    "device": Field(str, "auto", "Where networks compute: auto, cpu, cuda, cuda:N or mps."),
    "threads": Field(
        Annotated[int, Ge(1), Le(MOST_AT_ONCE)] | None,
        None,
        "CPU threads; they change the last bits.",
    ),
}
SECTIONS = ("data", "network", "memory", "training", "auxiliary")
DEFAULT_METHOD = "auto"
"""What a learner learns with where nobody says it."""
DEFAULT_NETWORK = "resnet32"
"""What a method trains where nobody says it."""
PRETRAINED_NETWORK = "efficientnet_lite0"
"""What a method computes features with, which trains nothing."""


def default_network(method: MethodRef | Method | None) -> str:
    """The network where none is named: one to train, or one that has learned before."""
    return PRETRAINED_NETWORK if computes(method) else DEFAULT_NETWORK


def computes(method: MethodRef | Method | None) -> bool:
    """Whether a method trains no weight of a network, but computes its classifier."""
    if isinstance(method, Method):
        return method.trains_nothing
    return method is not None and method.base in COMPUTED


_OF_A_LEARNER: Mapping[str, Any] = {
    "network.name": str | InstanceOf[nn.Module],
    "data.scenario": Literal["til", "cil", "dil"],
    "data.augment": Any,  # whoever looks it up says what it must be
}
"""What a learner takes where a run takes something else; known classes come again in ``cil``."""


def fields_for(
    method: MethodRef | None, network: str | nn.Module, kind: type[Recipe] = RunSpec
) -> dict[str, Field]:
    """Every setting that a recipe of this method with this network accepts, by dotted key.

    Args:
        method: The method; one that is given itself has no settings.
        network: The same of a network.
        kind: What is made of the settings: ``RunSpec`` or ``Recipe``.
    """
    fields = {name: field for name, field in GENERAL.items() if name in kind.model_fields}
    fields |= {f"data.{name}": field for name, field in _fields(section_kind(kind, "data"))}
    fields["network.name"] = Field(str, default_network(method), f"One of {', '.join(NAMES)}.")
    for key, accepted in _OF_A_LEARNER.items() if kind is Recipe else ():
        fields[key] = fields[key]._replace(type=accepted)
    for name, parameter in options_of(network).items():
        fields[f"network.{name}"] = Field(
            parameter.annotation, parameter.default, f"An option of {network}."
        )
    for section in ("memory", "training", "auxiliary"):
        fields |= {f"{section}.{n}": field for n, field in _fields(section_kind(kind, section))}
    texts = method.explanations() if method else {}
    for name, parameter in method.settings.items() if method else ():
        fields[name] = Field(parameter.annotation, parameter.default, texts.get(name, ""))
    return fields


def dotted(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe that is given as JSON values, by dotted key.

    Raises:
        ValueError: One of its sections is none.
    """
    sections = {name: checked(dict[str, Any], values[name]) for name in (*SECTIONS, "options")}
    settings = {"seed": values["seed"], **sections.pop("options")}
    for section, inner in sections.items():
        settings |= {f"{section}.{name}": value for name, value in inner.items()}
    return settings


def options_of(network: str | nn.Module) -> dict[str, inspect.Parameter]:
    """The options of a named network; a module has none.

    Raises:
        SpecError: There is no such network.
    """
    return network_options(network) if isinstance(network, str) else {}


def section_kind(kind: type[Recipe], name: str) -> type[Any]:
    """The dataclass of one section."""
    section = kind.model_fields[name].annotation
    assert isinstance(section, type)
    return section


def _fields(kind: type[Any]) -> Iterator[tuple[str, Field]]:
    texts = {name: text for base in kind.__mro__[-2::-1] for name, text in arguments(base).items()}
    hints = get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        yield field.name, Field(hints[field.name], field.default, texts.get(field.name, ""))
