"""From layers of settings to a checked recipe or run; all mistakes are found together."""

import dataclasses
import inspect
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from ancl.checks import checked
from ancl.data import check_normalization, enough_classes, find_augmentation
from ancl.data.registry import check_short_side, check_size, named_size
from ancl.errors import AnclError, SpecError, did_you_mean, printable, unknown
from ancl.hashing import later_defaults
from ancl.memory import Memory
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef, method_defaults, section_of
from ancl.networks import PretrainableBackbone, network_maker
from ancl.outside import is_outside
from ancl.recipe.benchmarks import BENCHMARKS
from ancl.recipe.benchmarks import benchmark as benchmark_named
from ancl.recipe.data_spec import DataSpec, data_name
from ancl.recipe.recipe import (
    DEFAULT_NETWORK,
    PRETRAINED_NETWORK,
    SEARCH,
    SECTIONS,
    Field,
    Layer,
    Recipe,
    Resolved,
    RunSpec,
    computes,
    fields_for,
    options_of,
    section_kind,
)
from ancl.recipe.tuning import SOURCE, gentle_settings
from ancl.runtime import resolve_device
from ancl.training.config import Training

T = TypeVar("T")
_INHERITED = "as training"
_OF_THE_METHOD = ("training.select_by", "training.clip")
"""What the method decides where a training has no value for it."""
_LASTING = {field.name for field in dataclasses.fields(Training)} - later_defaults(Training).keys()
_WRITTEN = {f"training.{name}" for name in _LASTING}
_WRITTEN |= {"seed", "data.scenario", "data.val_fraction", "data.augment", "network.frozen"}
"""What every written recipe has of a network that may be pretrained."""
BENCHMARK = "benchmark "
"""What the source of a benchmark's settings begins with."""
CALL = "Learner"
"""The source of what is given to ``Learner`` by keyword, where sections are whole."""
_MISSING = (
    "A BENCHMARK is missing. Write one, as in: ancl run a-lwf digits/5 (see ancl list benchmarks). "
    "Or name your data: ancl run a-lwf --data folder:photos@32 --tasks 5 (see ancl list data)."
)
_FAIR = (
    "the network's growth over all tasks decides how many images are kept, and a learner does not "
    "know how many will come. Give memory.per_class or memory.total instead; a run with "
    "memory.fair says what is left"
)


_NOT_TESTED = "a learner has no test images of its tasks. Leave this out"
_OWN_OPTIMIZER = (
    "a learner takes optimizers of torch.optim alone; your own code is for runs. Name another, "
    "such as adam."
)


def resolve(method: str, benchmark: str | None, layers: Sequence[Layer] = ()) -> Resolved:
    """Lay the layers over the benchmark's settings and check everything.

    Args:
        method: Its name.
        benchmark: Its name; without one the layers name the data, and the rest has defaults.
        layers: Settings, later ones first.

    Raises:
        SpecError: Each mistake on its own line.
    """
    resolver = _RunResolver(method, benchmark, layers)
    spec = resolver.resolve()
    assert isinstance(spec, RunSpec)
    return Resolved(spec, resolver.sources)


def resolve_recipe(method: str | Method, layers: Sequence[Layer] = ()) -> Recipe:
    """What a learner is made of: the layers over the defaults, and everything checked.

    Args:
        method: Its name, or the method itself, which has its settings.
        layers: Settings, later ones first; ``network.name`` may be a module, and ``data.augment``
            a function.

    Raises:
        SpecError: Each mistake on its own line.
    """
    return _Resolver(method, layers).resolve()


class _Resolver:
    """Collects values, where they come from, and every mistake; it makes a learner's recipe."""

    kind: ClassVar[type[Recipe]] = Recipe

    def __init__(self, method: str | Method, layers: Sequence[Layer]) -> None:
        self.mistakes: list[str] = []
        self.layers = list(layers)
        self.given = method
        self.ref = None if isinstance(method, Method) else self.attempt(lambda: MethodRef(method))
        self.accepted: dict[str, Field] = {}
        self.values: dict[str, Any] = {}
        self.sources: dict[str, str] = {}

    def resolve(self) -> Recipe:
        """Everything checked, or every mistake."""
        if self.ref or isinstance(self.given, Method):
            self.lay()
        if self.mistakes:
            raise SpecError("\n".join(self.mistakes))
        return self.kind(**self.parts())

    def attempt(self, make: Callable[[], T]) -> T | None:
        """What can be made, or a mistake noted."""
        try:
            return make()
        except AnclError as error:
            self.mistakes.append(str(error))
            return None

    def lay(self) -> None:
        """Lay one layer over the other."""
        named = self.network()
        network = named or DEFAULT_NETWORK
        self.accepted = fields_for(self.ref, network, self.kind)
        self.values = {key: field.default for key, field in self.accepted.items()}
        self.values["network.name"] = network
        self.sources = dict.fromkeys(self.accepted, "default")
        for layer in self.layers:
            for key, value in layer.values.items():
                if named or not key.startswith("network."):  # options of a known network only
                    self.set(layer, key, value, network)
        empty = inspect.Parameter.empty
        for name in (n for n, value in self.values.items() if value is empty):
            owner = network if name.startswith("network.") or not self.ref else self.ref.name
            self.mistakes.append(f"{owner} needs a value for {name}: --set {name}=…")
        if not self.mistakes:
            self.check_together()

    def network(self) -> str | nn.Module | None:
        """The network, which decides what other settings there are; none if unknown."""
        named = [
            layer.values["network.name"] for layer in self.layers if "network.name" in layer.values
        ]
        network = named[-1] if named else PRETRAINED_NETWORK if self.computes else DEFAULT_NETWORK
        if not isinstance(network, nn.Module) or self.kind is RunSpec:
            network = str(network)
        known = self.attempt(lambda: options_of(network))
        return None if known is None else network

    @property
    def computes(self) -> bool:
        """Whether the method trains no weight of a network, but computes its classifier."""
        return computes(self.given if isinstance(self.given, Method) else self.ref)

    def set(self, layer: Layer, key: str, value: Any, network: str | nn.Module) -> None:
        """Take one value, or note why not."""
        line = layer.lines.get(key)
        place = f"{layer.source}:{line}: " if line else f"{layer.label(key)}: "
        if key not in self.accepted:
            whole = self.whole_section(key, value) if layer.source == CALL else ""
            self.mistakes.append(place + (whole or self.unknown(key, network)))
            return
        if key == "training.lr" and value == SEARCH:
            self.set(layer, "training.lr_search", True, network)
            return
        if key == "training.lr" and "training.lr_search" not in layer.values:
            self.end_search(layer, network)
        if key in ("training.epochs", "training.lr", "auxiliary.epochs", "auxiliary.lr"):
            listed = f"{key}_by_task"
            named = layer._replace(labels={**layer.labels, listed: layer.label(key)})
            if isinstance(value, list | tuple):
                self.set(named, listed, value, network)
                return
            if self.values[listed] is not None:
                self.set(named, listed, None, network)  # one number for all takes it back
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

    def end_search(self, layer: Layer, network: str | nn.Module) -> None:
        """A rate that is given takes back the search that an earlier layer asked for."""
        if self.values["training.lr_search"]:
            self.set(layer, "training.lr_search", False, network)

    def unknown(self, key: str, network: str | nn.Module) -> str:
        """The message for a setting that is not there."""
        if why := self.not_of_a_learner(key):
            return f"{key}: {why}."
        section, _, name = key.rpartition(".")
        start = f"{section}."
        if section in SECTIONS:
            possible = [k.removeprefix(start) for k in self.accepted if k.startswith(start)]
            owner = f"network {network}" if section == "network" else section
            if isinstance(network, nn.Module) and section == "network":
                return f"Your own module takes no options, but {name} was given."
            near = did_you_mean(name, possible)
            return f"{owner} has no setting {name!r}.{near} It accepts: {', '.join(possible)}."
        if self.ref is None:
            return (
                f"{key}: a Method has its settings already. Set them where it is made, or give the "
                f"method's name."
            )
        return self.ref.unknown(key, self.accepted)

    def not_of_a_learner(self, key: str) -> str:
        """Why a setting is one of runs alone; empty where it is not."""
        if key == "memory.fair":
            return _FAIR
        section, _, name = key.rpartition(".")
        if section == "data" and name in {field.name for field in dataclasses.fields(DataSpec)}:
            return "a learner learns all images that it is given as one task. Leave this out"
        if key in ("device", "threads"):
            return "it is no setting of a learner, which may learn elsewhere later. Leave this out"
        return ""

    def whole_section(self, key: str, value: object) -> str:
        """The message for a setting of a section that is given as one of the method."""
        for kind, section in ((Training, "training"), (Memory, "memory")):
            if self.ref and key in {field.name for field in dataclasses.fields(kind)}:
                shown = f"{key}={printable(repr(value), 200)}"
                return (
                    f"{shown}: {self.ref.name} has no such setting, the {section} has. Give "
                    f"{section}=dict({shown})."
                )
        return ""

    def check_together(self) -> None:
        """Note what does not fit although each value is possible."""
        made = self.attempt(self.make)
        if made:
            self.take_defaults(made)
        self.check_tasks(made)
        data = self.section("data")
        self.attempt(lambda: find_augmentation(data.augment))
        self.attempt(lambda: check_normalization(data.normalization))
        for name in ("training", "auxiliary"):
            training = self.section(name)
            if self.kind is Recipe and is_outside(training.optimizer):
                # It is saved and opened again: what is read back from disk is never executed.
                self.mistakes.append(f"{name}.optimizer: {_OWN_OPTIMIZER}")
                continue
            if self.kind is Recipe and training.evaluate_every:
                self.mistakes.append(f"{name}.evaluate_every: {_NOT_TESTED}")
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
            if trains and data.val_fraction == 0 and self.values[key] in (True, value):
                self.mistakes.append(
                    f"{asked} needs validation images, but data.val_fraction is 0. "
                    f"Raise it, or use {remedy}."
                )
        if self.values["auxiliary.lr_search"] and not self.values["training.lr_search"]:
            self.mistakes.append(
                "auxiliary.lr_search is true and training.lr_search is not, but a task's rate is "
                "searched once, for both networks. Use --set training.lr=search, or a number."
            )

    def make(self) -> Method:
        """The method with its settings."""
        return self.given if isinstance(self.given, Method) else self.reference.make(self.options)

    @property
    def reference(self) -> MethodRef:
        """The method by its name."""
        assert self.ref is not None
        return self.ref

    @property
    def options(self) -> dict[str, Any]:
        """The method's own settings."""
        return {name: self.values[name] for name in (self.ref.settings if self.ref else ())}

    def take_defaults(self, made: Method) -> None:
        """Fill in what the method decides, unless a layer did; a memory's size is one thing.

        A whole ``Training`` leaves what it leaves out of ``_OF_THE_METHOD`` to the method.
        """
        sized = ("memory.per_class", "memory.total", "memory.bytes")
        size_given = any(self.sources[key] != "default" for key in sized)
        for key, value in method_defaults(made).items():
            given = self.sources.get(key) not in ("default", _INHERITED)
            if key in _OF_THE_METHOD:
                given = self.values[key] is not None
            if not (size_given if key in sized else given):
                self.values[key], self.sources[key] = value, "default"
        if self.computes:
            self.attempt(self.take_pretrained)
        elif made.main != "none":
            self.attempt(self.take_gentle)

    def take_pretrained(self) -> None:
        """What pretrained weights expect of images that nobody gives a size.

        Raises:
            SpecError: They are not there.
        """
        library = self.pretrained()
        if library and self.sources["data.size"] == "default" and self.named_size() is None:
            self.values["data.size"] = library.size()

    def pretrained(self) -> PretrainableBackbone | None:
        """What has made the network, where it begins with pretrained weights.

        Raises:
            SpecError: They are not there.
        """
        name, weights = self.values["network.name"], self.values.get("network.weights")
        library = network_maker(name).library if isinstance(name, str) else None
        return library if library and library.located(weights) else None

    def take_gentle(self) -> None:
        """Train pretrained weights gently, unless a layer says otherwise.

        A whole recipe, as it was written before there were such defaults, is taken as it is.

        Raises:
            SpecError: They are not there.
        """
        whole = any(layer.values.keys() >= _WRITTEN for layer in self.layers)
        if self.values.get("network.frozen", True) or whole or not (library := self.pretrained()):
            return
        settings = gentle_settings(
            self.values["network.trains"], embeds_patches=library.embeds_patches
        )
        for key, value in settings.items():
            twin = key.replace("training.", "auxiliary.", 1)
            for name in dict.fromkeys((key, twin)):
                if not self.decided(name):
                    self.values[name], self.sources[name] = value, SOURCE

    def decided(self, key: str) -> bool:
        """Whether a layer says a value: not a benchmark, whose network is one to train anew.

        A whole ``Training`` says what is not its default.
        """
        source, name = self.sources[key], key.partition(".")[2]
        if source in ("default", _INHERITED) or source.startswith(BENCHMARK):
            return key == "data.augment" and self.values[key] != "none"
        fields = {f"training.{field.name}" for field in dataclasses.fields(Training)}
        whole = any(fields <= layer.values.keys() for layer in self.layers)
        return not (whole and self.values[key] == getattr(Training, name, self))

    def named_size(self) -> int | None:
        """The size that the name of the images gives, where these are known."""
        return None

    def check_tasks(self, made: Method | None) -> None:
        """Note what does not fit the tasks, as far as they are known; here none is."""
        if made:
            # What one class alone would already rule out, more classes do too.
            scenario = self.values["data.scenario"]
            self.mistakes += memory_problems(self.section("memory"), made, scenario, 1)

    def parts(self) -> dict[str, Any]:
        """What the recipe is made of."""
        sections = ("data", "memory", "training", "auxiliary")
        return {
            "method": self.ref.name if self.ref else self.given,
            "seed": self.values["seed"],
            "options": self.options,
            "network": section_of(self.values, "network"),
            **{name: self.section(name) for name in sections},
        }

    def section(self, name: str) -> Any:
        """One section of the recipe."""
        return section_kind(self.kind, name)(**section_of(self.values, name))


class _RunResolver(_Resolver):
    """The same for a run, with the benchmark's settings, its tasks and the machine."""

    kind = RunSpec

    def __init__(self, method: str, benchmark: str | None, layers: Sequence[Layer]) -> None:
        super().__init__(method, layers)
        self.benchmark = benchmark
        self.lay_benchmark()

    def lay_benchmark(self) -> None:
        """The benchmark's settings come first, if there is one."""
        names_data = any(layer.values.get("data.source") for layer in self.layers)
        name = self.benchmark
        if name is None and not names_data:
            self.mistakes.append(_MISSING)
        elif name is not None and (name in BENCHMARKS or not names_data):
            known = self.attempt(lambda: benchmark_named(name))
            if known and self.ref:
                method = self.ref.name
                settings, origins = known.values(method), known.sources(method)
                if self.computes:  # a benchmark's network is one to train
                    settings = {k: v for k, v in settings.items() if k[:8] != "network."}
                self.layers.insert(0, Layer(f"{BENCHMARK}{name}", settings, origins=origins))

    def not_of_a_learner(self, key: str) -> str:
        """A run has all settings."""
        return ""

    def named_size(self) -> int | None:
        """As in folder:PATH@32."""
        return named_size(self.values["data.source"])

    def check_tasks(self, made: Method | None) -> None:
        """Note what does not fit the device, the data and its tasks."""
        self.attempt(lambda: resolve_device(self.values["device"]))
        data = self.section("data")
        self.attempt(lambda: check_size(data.source, data.size))
        self.attempt(lambda: check_short_side(data.source, data.short_side, data.size))
        sizes = self.attempt(data.sizes)
        if data.every:
            self.check_one_pass()
        if made:
            self.check_renewal(made)
        self.name_benchmark(data, len(sizes) if sizes else data.tasks)
        if sizes:
            self.attempt(lambda: enough_classes(data.scenario, sizes))
        if sizes and made:
            memory = self.section("memory")
            self.mistakes += memory_problems(memory, made, data.scenario, sum(sizes))

    def check_one_pass(self) -> None:
        """A stream that comes once is learned once, at one rate: nobody knows where it ends."""
        wanted: dict[str, tuple[Any, ...]] = {
            **{"epochs": (1,), "epochs_first": (None, 1)},
            **{"schedule": ("constant",), "lr_search": (False,)},
        }
        training = {name: self.values[f"training.{name}"] for name in wanted}
        if any(training[name] not in possible for name, possible in wanted.items()):
            given = ", ".join(f"training.{n}={v}" for n, v in training.items() if v)
            self.mistakes.append(
                f"data.every={self.values['data.every']} is a stream that comes once, and the main "
                f"network would not learn it in one pass: {given}. Give training.epochs=1, "
                f"training.schedule=constant and a number for training.lr; auxiliary.epochs may be "
                f"larger."
            )

    def check_renewal(self, made: Method) -> None:
        """A memory that takes every batch needs replay batches, and a rule by images."""
        memory = self.section("memory")
        if memory.renewed == "part":
            return
        if not made.replays:
            self.mistakes.append(
                f"memory.renewed=batch is of methods that replay batches, such as er, and this is "
                f"{made.name}. Leave it out."
            )
        elif memory.selection not in ("reservoir", "balanced"):
            self.mistakes.append(
                f"memory.renewed=batch needs a memory that images may enter one by one, and "
                f"memory.selection is {memory.selection}. Use reservoir or balanced."
            )

    def name_benchmark(self, data: DataSpec, tasks: int | None) -> None:
        """The data's name for a run without a benchmark; an earlier run's spec has it already."""
        name = data_name(data, tasks)
        if self.benchmark not in (None, name, *BENCHMARKS):
            self.mistakes.append(unknown("benchmark", str(self.benchmark), BENCHMARKS))
        self.benchmark = self.benchmark or name

    def parts(self) -> dict[str, Any]:
        """What the spec is made of."""
        return {
            **super().parts(),
            "benchmark": self.benchmark,
            "device": str(resolve_device(self.values["device"])),
            "threads": self.values["threads"] or torch.get_num_threads(),
        }


def memory_problems(memory: Memory, method: Method, scenario: str, groups: int) -> list[str]:
    """What does not fit a memory shared by this number of groups, each as a sentence."""
    sized = memory if memory.size else None
    return memory.problems(groups, scenario) or method.problems(scenario, sized, groups)


def unused_auxiliary(
    layers: Sequence[Layer], recipe: Recipe, sources: Sequence[str] = ("--set", "settings")
) -> list[str]:
    """What layers set of an auxiliary network that the recipe's method does not have.

    Args:
        layers: The settings.
        recipe: What was made of them.
        sources: Where they are meant for this method: a file may be of another method's run, or
            of several methods.
    """
    named = [
        f"{layer.label(key)}: {key}"
        for layer in layers
        for key in layer.values
        if key.startswith("auxiliary.") and layer.label(key) in sources
    ]
    if not named or recipe.make_method().auxiliary:
        return []
    return [
        f"{name} is of an auxiliary network, and {recipe.method} trains none. Leave it out, or "
        f"use a variant that does, such as a-NAME."
        for name in named
    ]
