"""Equal keys, equal results: whatever can change a stage's numbers is in its key.

Two specs differ in one or two settings, often by very little. Each computes the stages that have
equal keys in both, from nothing and in a store of its own; the results must agree to the bit.
Settings come from the lists that runs are checked against, so that a new one is covered at once.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from ancl import AnclError, MethodError, RunSpec
from tests.lab import (
    AUGMENTATIONS,
    METHODS,
    VARIANTS,
    Field,
    MethodRef,
    StageResult,
    checked,
    fields_for,
)

Settings = Mapping[str, Any]
OWN = f"{Path(__file__).with_name('any_method.py')}:any_method"


def possible(method: str) -> bool:
    try:
        MethodRef(method).make({})
    except MethodError:
        return False
    return True


# What two branches add is the same for every host.
_SAME = [f"aanets-{host}" for host in ("eeil", "bic", "wa", "podnet", "icarl")]
NAMES = [
    *(m for m in METHODS if m not in _SAME),
    *(n for v in VARIANTS for m in METHODS if m not in _SAME and possible(n := f"{v}-{m}")),
]


def fields_of(method: str, network: str) -> dict[str, Field]:
    return fields_for(MethodRef(method), network)


# -- neighbours of a value -----------------------------------------------------------------------

TEXTS: dict[str, Sequence[str]] = {
    "data.background": ("black", "#808080"),
    "data.order": ("natural", "seed:1", "seed:2"),
    "data.domains": ("rotation", "rotation:0,30", "permutation", "corruption"),
    "data.augment": tuple(AUGMENTATIONS),
    "data.classes": ("4,3,3", "4,3,2,1", "4,6", "7,3", "5,5"),
    "lamb_a": ("balance:0", "balance:0.3", "balance:0.31"),
    "lamb": ("auto", "auto:0.3", "auto:0.31"),
    "training.optimizer": ("sgd", "adamw", "adam"),
    "auxiliary.optimizer": ("sgd", "adamw", "adam"),
    "auxiliary_trains": ("last", "affine", "layers.1", "layer3"),
}
NOT_VARIED = {
    "device": "one is all there is",
    "threads": "kernels may give other bits, so that every key has it",
    "data.source": "images are in keys by their content",
    "network.name": "it decides which other settings there are",
}


def neighbours(key: str, field: Field, value: Any) -> list[Any]:
    """Other values of a setting, most of them near to the one it has."""
    found: list[Any] = []
    for kind in members(field.type):
        found += near(kind, value, TEXTS.get(key, ()))
    taken = {}
    for other in found:
        try:
            taken[repr(checked(field.type, other))] = other
        except ValueError:
            continue
    taken.pop(repr(value), None)
    return list(taken.values())


def members(kind: Any) -> Iterator[Any]:
    """The types a value may have, of an annotated union of them."""
    if get_origin(kind) in (Union, UnionType):
        for member in get_args(kind):
            yield from members(member)
    elif get_origin(kind) is Annotated:
        yield from members(get_args(kind)[0])
    else:
        yield kind


def near(kind: Any, value: Any, texts: Sequence[str]) -> list[Any]:
    """Values of one type."""
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind is NoneType:
        return [None]
    if kind is bool:
        return [True, False]
    if kind is int:
        return [number + step for step in (-3, -2, -1, 1, 2, 3)] if number else [1, 2, 3]
    if kind is float:
        return [number * factor for factor in (0.5, 0.9, 1.1, 2.0)] if number else [0.01, 0.5]
    if kind is str:
        return list(texts)
    if get_origin(kind) is Mapping:
        return [{"nesterov": True}, {"dampening": 0.1}]  # training.optimizer_options
    if get_origin(kind) is tuple and get_origin(get_args(kind)[0]) is Annotated:
        kind = tuple[get_args(get_args(kind)[0])[0], ...]  # type: ignore[misc]
    if get_args(kind)[:1] == (float,):
        return [(0.5, 0.25), (0.4, 0.25)]  # data.normalization: a mean and a std
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if get_args(kind)[:1] == (int,):
        longer = tuple(value) if isinstance(value, tuple) else ()
        return [(*longer, 1), (*longer, 2), tuple(item + 1 for item in longer)]
    return []


def varied(method: str, base: Settings) -> tuple[list[str], list[str]]:
    """The settings that can be changed: those of most interest, and all others.

    The first are the memory's, and the method's own or, of ``a-NAME`` and ``afec-NAME``, those of
    the variant: what it shares with NAME is tried there.
    """
    made = MethodRef(method)
    own = inspect.signature(VARIANTS[made.variant] if made.variant else made.maker).parameters
    keys = [key for key in fields_of(method, base["network.name"]) if key not in NOT_VARIED]
    first = [key for key in keys if key in own or key.startswith("memory.")]
    return first, [key for key in keys if key not in first]


@pytest.mark.parametrize("network", ["mlp", "resnet"])
def test_every_setting_has_neighbours(network: str, runs: Any) -> None:
    stuck = set()
    for name in (*METHODS, "a-lwf", "afec-lwf", OWN):
        base = runs.small(name, "cil", getattr(runs, network))
        for key, field in fields_of(name, base["network.name"]).items():
            stuck |= set() if neighbours(key, field, base.get(key, field.default)) else {key}

    assert stuck - NOT_VARIED.keys() == set()


# -- drawn pairs ---------------------------------------------------------------------------------


class Around(NamedTuple):
    """A spec's settings, and others near to it: what each changes."""

    base: Settings
    changes: list[Settings]


def around(runs: Any, random: Random, method: str, others: int, mixed: bool = False) -> Around:
    """A small run and its neighbours, each by one or two settings.

    Args:
        runs: The small runs.
        random: Where all choices come from.
        method: The method's name.
        others: How many settings are changed besides those of most interest.
        mixed: Whether the method's own settings are drawn too.
    """
    refused = MethodRef(method).make({}).refused
    scenario = random.choice(sorted(name for name in runs.scenarios if name not in refused))
    base = runs.small(method, scenario)
    fields = fields_of(method, base["network.name"])
    for name, setting in MethodRef(method).settings.items() if mixed else ():
        base[name] = random.choice([setting.default, *neighbours(name, fields[name], None)])
    if runs.keeps_memory(method, base) or random.random() < 0.5:
        base["memory.total"] = runs.memory[scenario]
    if random.random() < 0.15:
        base |= runs.searched
    first, rest = varied(method, base)
    keys = [*first, *random.sample(rest, others)]
    changes = []
    for key in keys:
        second = random.choice(keys) if random.random() < 0.2 else key
        values = {name: base.get(name, fields[name].default) for name in (key, second)}
        changes.append({n: random.choice(neighbours(n, fields[n], v)) for n, v in values.items()})
    return Around(base, changes)


SEEDS = st.integers(0, 2**32 - 1)
"""Drawn in place of the settings, since hypothesis begins with the simplest of all choices."""


def drawn(examples: int) -> settings:
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],  # what is found is small already
        suppress_health_check=list(HealthCheck),
    )


@pytest.mark.parametrize("name", NAMES)
def test_equal_keys_mean_equal_results(name: str, runs: Any) -> None:
    checked = []

    @drawn(2 if runs.keeps_memory(name, {}) and name in METHODS else 1)
    @given(SEEDS)
    def run(seed: int) -> None:
        found = around(runs, Random(f"{name} {seed}"), name, 3)
        for change in found.changes:
            with suppress(AnclError):  # a setting that is refused has no results
                runs.check(name, found.base, {}, change)
                checked.append(change)

    run()
    assert checked


def test_equal_keys_mean_equal_results_in_any_mix_of_parts(runs: Any) -> None:
    checked = []

    @drawn(4)
    @given(SEEDS)
    def run(seed: int) -> None:
        found = around(runs, Random(seed), OWN, 0, mixed=True)
        for change in found.changes:
            # Some mixes make no sense: what cannot be computed says nothing about keys.
            with suppress(AnclError, RuntimeError, ValueError, KeyError):
                runs.check(OWN, found.base, {}, change)
                checked.append(change)

    run()
    assert checked


@pytest.mark.parametrize("scenario", ["til", "cil", "dil"])
def test_methods_that_share_a_stage_get_the_same_from_it(scenario: str, runs: Any) -> None:
    specs: dict[str, RunSpec] = {}
    for name in NAMES:
        values = runs.small(name, scenario)
        if scenario != "til" or runs.keeps_memory(name, values):
            values["memory.total"] = runs.memory[scenario]
        with suppress(AnclError):
            specs[name] = runs.spec_of(name, values)
    found, made = [], dict[str, str]()
    for name, spec in specs.items():
        makers = {made.setdefault(stage.key, name) for stage in runs.stages_of(spec)} - {name}
        found += [
            f"{name} and {o}: {lie}" for o in sorted(makers) for lie in runs.lies(specs[o], spec)
        ]

    assert found == []


def test_a_lie_would_be_found(runs: Any) -> None:
    """What the tests above rest on: another result is seen, whatever part of it differs."""
    spec = runs.spec_of("finetune", runs.small("finetune", "cil"))
    main = next(stage.key for stage in runs.stages_of(spec) if stage.name == "main")
    result = runs.compute(spec, [main])[main]
    name = next(iter(result.tensors))
    moved = {n: t.nextafter(t + 1) if n == name else t for n, t in result.tensors.items()}
    later = [{**epoch, "seconds": -1.0} for epoch in result.meta["log"]]
    other = [{**epoch, "epoch": -1} for epoch in result.meta["log"]]

    assert runs.differences(result, StageResult(moved, result.meta)) == [name]
    assert runs.differences(result, StageResult({}, result.meta)) == sorted(result.tensors)
    timed = StageResult(result.tensors, {**result.meta, "seconds": -1.0, "log": later})
    assert runs.differences(result, timed) == []
    logged = StageResult(result.tensors, {**result.meta, "log": other})
    assert runs.differences(result, logged) == ["log"]
