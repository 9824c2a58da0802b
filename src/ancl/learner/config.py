"""What a learner is made of: decided when it is made, saved with it, and made of that again."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, get_type_hints

import torch
from torch import nn

from ancl.checks import checked
from ancl.data import Augment, Normalization, Task, check_normalization, find_augmentation
from ancl.errors import (
    AnclError,
    MethodError,
    SpecError,
    StoreError,
    did_you_mean,
    printable,
    unknown,
)
from ancl.hashing import describe, digest, later_defaults, not_later
from ancl.memory import Memory, RunMemory
from ancl.methods.method import Method
from ancl.methods.registry import MethodRef, method_defaults, section_of
from ancl.methods.task_history import check_hold_out
from ancl.networks import network_maker, network_options
from ancl.outside import in_library, is_outside
from ancl.recipe.build import affordable, method_network
from ancl.recipe.recipe import RunSpec, memory_problems
from ancl.recipe.request import dotted_settings
from ancl.stages.final_state import FinalState, augment_digest
from ancl.stages.plan import Setting
from ancl.store.entry import DamagedError, StageResult, read_entry
from ancl.training.config import Training

T = TypeVar("T")
KIND = "learner 5"
LEARNED = ("til", "cil", "dil")
"""The scenarios of a learner, which takes known classes again in the first two."""
HELD = 20
"""How many validation images of each class a learner keeps, at most."""


@dataclass(frozen=True, eq=False)
class LearnerConfig:
    """All that decides what a learner learns from its tasks; see ``Learner`` for the values.

    Args:
        method: The method itself.
        method_name: What it is made again from; nothing for one of the user's own.
        settings: The same.
    """

    method: Method
    method_name: str | None
    settings: Mapping[str, Any]
    network: str | nn.Module
    network_options: Mapping[str, Any]
    memory: Memory
    scenario: str
    seed: int
    training: Training
    auxiliary: Training
    val_fraction: float
    augment: Augment
    held: int = HELD
    normalization: str | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.scenario not in LEARNED:
            raise SpecError(unknown("scenario", self.scenario, LEARNED))
        problems = self.training.problems() + self.auxiliary.problems()
        if self.seed < 0:
            problems.append(f"seed is {self.seed}; it must be 0 or more.")
        if not 0 <= self.val_fraction < 1:
            problems.append(f"val_fraction is {self.val_fraction}; it must be from 0 to below 1.")
        if self.held < 0:
            problems.append(f"held is {self.held}; it must be 0 or more.")
        for check in (
            lambda: find_augmentation(self.augment),
            lambda: check_normalization(self.normalization),
        ):
            try:
                check()
            except AnclError as error:
                problems.append(str(error))
        problems += self.method.training_problems(self.training)
        trains = self.method.main != "none"
        if trains and self.training.schedule == "patience" and self.val_fraction == 0:
            problems.append("schedule=patience needs val_fraction above 0, or use cosine.")
        # What one class alone would already rule out, more classes do too.
        problems += self._memory_problems(1)
        if problems:
            raise SpecError("\n".join(problems))

    def setting(
        self,
        input_shape: Sequence[int],
        normalization: Normalization | None,
        device: torch.device,
    ) -> Setting:
        """What stages are planned from, for images of this shape."""
        options, told = self._all_network_options(), self.scenario == "til"
        network = method_network(self.method, self.network, input_shape, options, told)
        return Setting(
            architecture=network,
            training=self.training,
            auxiliary=self.auxiliary,
            normalization=normalization if self.normalization else network.moments(normalization),
            augment=find_augmentation(self.augment),
            memory=self.memory if self.memory.size else None,
            task_aware=self.scenario == "til",
            seed=self.seed,
            device=device,
        )

    def check_tasks(self, tasks: Sequence[Task], setting: Setting) -> None:
        """Refuse tasks whose images the memory cannot be shared by, or that come again in vain.

        Raises:
            SpecError: It is too small for the number of classes (and domains), or the method
                cannot learn known classes again.
            ScenarioError: A class has too few images to hold any of them out.
        """
        problems = self._memory_problems(sum(len(task.names) for task in tasks))
        if tasks[-1].returning and self.method.why_once:
            problems.append(
                f"{self.method.name} cannot learn known classes again: {self.method.why_once}. "
                f"Leave their images out, or begin with another method, such as lwf or icarl"
                f"{self.method.way_out}."
            )
        if problems:
            raise SpecError("\n".join(problems))
        check_hold_out(setting.memory, self.method.hold_out, tasks)

    def meta(self) -> dict[str, Any]:
        """Everything as JSON; a method, network or augmentation of the user's own is left out."""
        return {
            "method": self.method_name,
            "settings": dict(self.settings),
            "network": self.network if isinstance(self.network, str) else None,
            "network_options": dict(self.network_options),
            "memory": not_later(later_defaults(Memory), dataclasses.asdict(self.memory)),
            "scenario": self.scenario,
            "seed": self.seed,
            "training": dataclasses.asdict(self.training),
            "auxiliary": dataclasses.asdict(self.auxiliary),
            "val_fraction": self.val_fraction,
            "augment": self.augment if isinstance(self.augment, str) else None,
            "held": self.held,
            "normalization": self.normalization,
        }

    def check_given(
        self, given: "SuppliedCode", state: FinalState, named: str | None, augmented: str | None
    ) -> tuple[str, ...]:
        """Refuse parts that are given again and are not those that a state was learned with.

        Where changes are accepted, they are named instead.

        Args:
            given: What was given, and where it belongs.
            state: What was learned.
            named: The name of the network it was learned with.
            augmented: The same of the augmentation.
        """
        accepted: list[str] = []
        if (
            given.method is not None
            and digest(describe(self.method, complete=False)) != state.method
        ):
            if not given.accept_changed:
                raise MethodError(
                    f"The method given to {given.call} is not the one that {given.path} was "
                    f"trained with. Give the same parts and values, from the same code, or "
                    f"accept_changed=True."
                )
            accepted.append(f"method, trained as {state.method[:12]}")
        if given.augment is not None:
            accepted += self._check_augment(given, state, augmented)
        if given.network is None:
            return tuple(accepted)
        source = None
        if isinstance(self.network, str):
            code = network_maker(self.network).code
            source = code.sources.digest if code else None
            same = self.network == named or (
                code is not None and code.attribute == (named or "").rpartition(":")[2]
            )
        else:
            same = named is None
        if source != state.network or not same:
            shown = named or "a module of your own"
            if not given.accept_changed:
                raise SpecError(
                    f"The network given to {given.call} is not the one that {given.path} was "
                    f"trained with ({shown}): its name or its code differs. Give the same network, "
                    f"from the same code, or accept_changed=True."
                )
            accepted.append(f"network {shown}, trained as {(state.network or 'a module')[:12]}")
        return tuple(accepted)

    def _check_augment(
        self, given: "SuppliedCode", state: FinalState, named: str | None
    ) -> list[str]:
        """Refuse an augmentation that is another one; where that is accepted, name it."""
        ours = [isinstance(each, str) and not is_outside(each) for each in (self.augment, named)]
        same = augment_digest(find_augmentation(self.augment)) == state.augment
        if self.augment == named if any(ours) else same:
            return []
        shown = named or "code of your own"
        if not given.accept_changed:
            raise SpecError(
                f"The augmentation given to {given.call} is not the one that {given.path} was "
                f"trained with ({shown}): its name or its code differs. Give the same one, leave "
                f"it out if it is not code of your own, or accept_changed=True (--accept-changed)."
            )
        return [f"augmentation, trained as {(state.augment or shown)[:12]}"]

    def _memory_problems(self, groups: int) -> list[str]:
        return memory_problems(self.memory, self.method, self.scenario, groups)

    def _all_network_options(self) -> dict[str, Any]:
        """The options given, and what the method decides of them."""
        given = dict(self.network_options)
        if not isinstance(self.network, str):
            return given
        decided = section_of(method_defaults(self.method), "network")
        possible = network_options(self.network)
        return {name: value for name, value in decided.items() if name in possible} | given


def decided_memory(method: Method) -> Memory:
    """What a method keeps of earlier tasks' images where nobody else says it."""
    return Memory(**section_of(method_defaults(method), "memory"))


def decided_trainings(
    method: Method, training: Training | None, auxiliary: Training | None
) -> tuple[Training, Training]:
    """Both networks' trainings with what the method decides where nobody else does."""
    defaults, training = method_defaults(method), training or Training()
    if auxiliary is None:
        auxiliary = replace(training, **section_of(defaults, "auxiliary"))
    if training.select_by is None:
        training = replace(training, **section_of(defaults, "training"))
    return training, auxiliary


def whole_section(kind: type[T], name: str, value: object) -> T | None:
    """A section of settings, given as its dataclass, as a mapping or as one value.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    if value is None or isinstance(value, kind):
        return value
    hints, taken, mistakes = get_type_hints(kind, include_extras=True), {}, []
    for key, given in section_of(dotted_settings({name: value}), name).items():
        if key not in hints:
            near = did_you_mean(key, hints)
            mistakes.append(f"{name} has no setting {key!r}.{near} It accepts: {', '.join(hints)}.")
            continue
        try:
            taken[key] = checked(hints[key], given)
        except ValueError as error:
            mistakes.append(f"{name}.{key} is {printable(repr(given), 200)}; it {error}.")
    if mistakes:
        raise SpecError("\n".join(mistakes))
    return kind(**taken)


class NamedMethod(NamedTuple):
    """A method, and the name and settings it can be made again from, where it has a name."""

    name: str | None
    settings: dict[str, Any]
    method: Method


def named_method(method: str | Method, settings: Mapping[str, Any]) -> NamedMethod:
    """A method with its settings."""
    if isinstance(method, Method):
        if settings:
            raise SpecError(
                f"{', '.join(settings)}: a Method has its settings already. Set them where it is "
                f"made, or give the method's name."
            )
        return NamedMethod(None, {}, method)
    ref = MethodRef(method)
    for kind, section in ((Training, "training"), (Memory, "memory")):
        names = {field.name for field in dataclasses.fields(kind)} - set(ref.settings)
        wrong = ", ".join(f"{n}={v!r}" for n, v in settings.items() if n in names)
        if wrong:
            raise SpecError(
                f"{wrong}: {ref.name} has no such setting, the {section} has. Give "
                f"{section}=dict({wrong})."
            )
    taken = ref.check(settings)
    return NamedMethod(ref.name, taken, ref.make(taken))


# -- made again ------------------------------------------------------------------------------


@dataclass(frozen=True)
class SuppliedCode:
    """Parts that a caller gives again: what a directory names is never executed.

    Args:
        path: The directory that is read.
        call: The call that they are given to, for messages.
        method: The method, or where its code lies.
        network: The network, or where its code lies.
        augment: The augmentation, or where its code lies.
        accept_changed: Whether they may differ from those that were trained with.
    """

    path: Path
    call: str
    method: str | Method | None = None
    network: str | nn.Module | None = None
    augment: Augment | None = None
    accept_changed: bool = False

    def method_or(self, saved: str | None) -> str | Method:
        """The method given, or one of ours by its saved name.

        Raises:
            MethodError: Both are ours, and not the same.
        """
        if self.method is None:
            return self._ours("method", saved)
        names = [each for each in (self.method, saved) if isinstance(each, str)]
        if len(names) == 2 and not any(map(is_outside, names)) and not self.accept_changed:
            given, own = (MethodRef(name).name for name in names)
            if given != own:
                raise MethodError(
                    f"The method given to {self.call} is not the one that {self.path} was trained "
                    f"with ({own}). Leave it out, or begin a new learner in another directory."
                )
        return self.method

    def network_or(self, saved: str | None) -> str | nn.Module:
        """The network given, or one of ours by its saved name."""
        return self.network if self.network is not None else self._ours("network", saved)

    def augment_or(self, saved: str | None) -> Augment:
        """The augmentation given, or one of ours by its saved name."""
        return self.augment if self.augment is not None else self._ours("augment", saved)

    def _ours(self, part: str, saved: str | None) -> str:
        if saved is not None and not is_outside(saved):
            return saved
        noun = {"augment": "augmentation"}.get(part, part)
        own = f"the {noun} {saved}" if saved else f"{noun} code of your own"
        example = f"{saved!r}" if saved else "…"
        raise SpecError(
            f"{self.path} was trained with {own}. Code from outside is executed only where you "
            f"name it yourself. Give it again: {self.call}(path, {part}={example})."
        )


def config_of_spec(spec: RunSpec, given: SuppliedCode, state: FinalState | None) -> LearnerConfig:
    """What a learner is made of that learns as a run would, or more after its ``state``.

    Raises:
        SpecError: A method or network is not there, or has no such option or not of this value.
    """
    chosen, options = given.method_or(spec.method), dict(spec.network)
    recorded = {} if isinstance(chosen, Method) else spec.options
    name, settings, method = named_method(chosen, recorded)
    network = given.network_or(str(options.pop("name", None)))
    config = LearnerConfig(
        method=method,
        method_name=name,
        settings=settings,
        network=network,
        network_options=_checked_options(network, options, state),
        memory=spec.memory,
        # A learner takes known classes again in every scenario but dil.
        scenario="cil" if spec.data.scenario == "cir" else spec.data.scenario,
        seed=spec.seed,
        training=spec.training,
        auxiliary=spec.auxiliary,
        val_fraction=spec.data.val_fraction,
        augment=given.augment_or(spec.data.augment),
        normalization=spec.data.normalization,
    )
    return replace(config, memory=_plain_memory(spec.memory, config, state))


def _plain_memory(memory: RunMemory, config: LearnerConfig, state: FinalState | None) -> Memory:
    """The memory of a run as it was in the end; a learner does not know how many tasks will come.

    Raises:
        SpecError: It is to be fair, and there is no run.
    """
    if not memory.fair:
        return Memory(memory.per_class, memory.total, memory.selection, memory.batch)
    if state is None:
        raise SpecError(
            "memory.fair is true, so the network's growth over all tasks decides how many images "
            "are kept, and a learner does not know how many will come. Give memory.per_class or "
            "memory.total instead; a run with memory.fair says what is left."
        )
    network = config.setting(state.input_shape, None, torch.device("cpu")).architecture
    sizes = [len(task.names) for task in state.tasks]
    # Images are kept as bytes, other inputs as numbers of 4 bytes.
    image_bytes = math.prod(state.input_shape) * (1 if state.pixels else 4)
    return affordable(memory, network, sizes, image_bytes) or Memory(selection=memory.selection)


def config_of_meta(
    meta: Mapping[str, Any], given: SuppliedCode, state: FinalState
) -> LearnerConfig:
    """What a saved learner was made of; parts from outside are given."""
    chosen = given.method_or(meta["method"])
    saved = {} if isinstance(chosen, Method) else meta["settings"]
    name, settings, method = named_method(chosen, saved)
    network = given.network_or(meta["network"])
    return LearnerConfig(
        method=method,
        method_name=name,
        settings=settings,
        network=network,
        network_options=_checked_options(network, meta["network_options"], state),
        memory=_whole(Memory, {**later_defaults(Memory), **meta["memory"]}),
        scenario=meta["scenario"],
        seed=checked(int, meta["seed"]),
        training=_whole(Training, meta["training"]),
        auxiliary=_whole(Training, meta["auxiliary"]),
        val_fraction=checked(float, meta["val_fraction"]),
        augment=given.augment_or(meta["augment"]),
        held=checked(int, meta["held"]),
        # A learner that was saved before there was such a setting has none.
        normalization=checked(str | tuple[float, ...] | None, meta.get("normalization")),
    )


def _whole(kind: type[Any], values: Mapping[str, Any]) -> Any:
    """A dataclass from all of its fields; saved values lack none and have no others."""
    made = checked(kind, values)
    if set(values) != {field.name for field in dataclasses.fields(kind)}:
        raise ValueError(f"the fields of {kind.__name__.lower()} are not all there, or others are")
    return made


def read_saved(path: Path) -> StageResult:
    """The directory a learner was saved to.

    Raises:
        StoreError: It is not a saved learner, or is damaged.
    """
    try:
        entry = read_entry(path)
    except DamagedError as error:
        raise StoreError(
            f"{path} is not a saved learner: {error.reason}. Give a directory that Learner.save "
            f"wrote."
        ) from error
    if entry.meta.get("kind") != KIND:
        raise StoreError(f"{path} holds no learner. Give a directory that Learner.save wrote.")
    return entry


def _checked_options(
    network: str | nn.Module, options: Mapping[str, Any], state: FinalState | None
) -> dict[str, Any]:
    """Options of a network by name, each of its type; ``architecture`` refuses unknown ones.

    Once there is a state, a file of weights is known by its hash: what was learned is stored, and
    no file that a directory names is read.
    """
    known = network_options(network) if isinstance(network, str) else {}
    taken = dict(options)
    named = isinstance(network, str) and in_library(network)
    if state is not None and named and taken.get("weights") is not None:
        if state.pretrained is None:
            raise ValueError("the network has weights whose hash is not there")
        taken["weights"] = f"sha256:{state.pretrained}"
    for name in taken.keys() & known.keys():
        try:
            taken[name] = checked(known[name].annotation, taken[name])
        except ValueError as error:
            raise SpecError(f"network.{name} is {taken[name]!r}; it {error}.") from error
    return taken
