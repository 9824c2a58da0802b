"""Whether the difference of two runs says something, and what else it may come from.

Every output that takes a difference asks here: comparisons, tables, figures and the page.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from ancl.errors import StoreError
from ancl.experiments.groups import Group
from ancl.experiments.read_results import read_run
from ancl.experiments.results import ParameterCount, RunResult
from ancl.methods.registry import later_options
from ancl.metrics import (
    Estimate,
    Interval,
    Matrix,
    forward_transfer,
    intransigence,
    mean_and_error,
    paired,
    t_interval,
)
from ancl.recipe.recipe import RunSpec
from ancl.wording import SIGNS, setting_text, split_method, value_text

_SAME = ("data.", "network.")
_LONGEST = 24
_ALIKE = 0.01
"""Networks whose sizes differ by less than this share are not told apart."""


class Pairing(NamedTuple):
    """What two runs of different methods do not have in common.

    Args:
        refused: Data, network or images that differ: no difference of results is taken.
        differing: Other settings that differ: they are named beside the difference.
    """

    refused: tuple[str, ...]
    differing: tuple[str, ...]

    @property
    def text(self) -> str:
        """What a reader of the difference has to know; empty where there is nothing.

        >>> Pairing((), ("λ 10 instead of 3",)).text
        'λ 10 instead of 3'
        >>> Pairing(("network.name resnet8 instead of resnet32",), ()).text
        'not compared: network.name resnet8 instead of resnet32'
        """
        if self.refused:
            return f"not compared: {'; '.join(self.refused)}"
        return "; ".join(self.differing)


@dataclass(frozen=True, eq=False)
class Conditions:
    """All that decided a result, besides the seed and where it ran.

    Args:
        settings: Every setting by dotted key.
        images: The images of every task to train, validate and test on.
        tests: The keys of the test images of every task, where they are known.
        size: Parameters and exemplars after the last task, where they were counted.
        searched: How many values of λ and λ_a were tried for it; nothing where it has neither, or
            where no search is known.
    """

    settings: Mapping[str, Any]
    images: tuple[tuple[int, int, int], ...]
    tests: tuple[str, ...]
    size: ParameterCount | None = None
    searched: int | None = None


Searches = Sequence[Mapping[str, Any]]
"""Decisions of searches with their trials, as ``read_search`` gives them."""


def conditions(result: RunResult, searches: Searches = ()) -> Conditions:
    """What decided a result.

    Args:
        result: The result.
        searches: Searches that may have chosen its λ and λ_a.
    """
    tests = tuple(task.test_key for task in result.state.tasks) if result.state else ()
    size = result.parameters[-1] if result.parameters else None
    searched = values_tried(result.spec, searches) if searches else None
    return Conditions(result.spec.settings(), result.images, tests, size, searched)


def values_tried(spec: RunSpec, searches: Searches) -> int | None:
    """How many values of λ and λ_a searches on the same benchmark tried before they chose a run's.

    Nothing where the method has neither.
    """
    steps = [step for step in SIGNS if step in spec.options]
    base, tried = split_method(spec.method)[0], set[tuple[str, float]]()
    for search in searches:
        if search["benchmark"] != spec.stream or search["protocol"] != "two-stage":
            continue
        for step in steps:
            # λ is searched with the plain method, for its variants too.
            plain = step == "lamb" and split_method(str(search["method"]))[0] == base
            chosen = search.get(step) == spec.options[step]
            if chosen and (plain or search["method"] == spec.method):
                tried |= {(step, t[step]) for t in search["trials"] if t.get("step") == step}
    return len(tried) if steps else None


def pairing(ours: Conditions, theirs: Conditions) -> Pairing:
    """What differs besides the method and its variant.

    Settings that only one of them has do not count. λ and other options of a method count where
    both are the same method, with or without a variant.
    """
    bases = [split_method(str(side.settings["method"]))[0] for side in (ours, theirs)]
    own_settings, other_settings = ({**later_options(), **side.settings} for side in (ours, theirs))
    keys = [
        key
        for key, value in own_settings.items()
        if key in other_settings and other_settings[key] != value
        if key not in ("method", "benchmark") and not key.startswith("auxiliary.")
        if "." in key or bases[0] == bases[1]
    ]
    texts = {key: _unlike(key, own_settings[key], other_settings[key]) for key in keys}
    refused = [text for key, text in texts.items() if key.startswith(_SAME)]
    if not refused and (ours.images != theirs.images or _other_tests(ours, theirs)):
        refused.append("the images are not the same")
    differing = [text for key, text in texts.items() if not key.startswith(_SAME)]
    differing += _unequal_means(ours, theirs, any(key.startswith("memory.") for key in keys))
    return Pairing(tuple(refused), tuple(differing))


def _unequal_means(ours: Conditions, theirs: Conditions, memory_named: bool) -> list[str]:
    """Exemplars, parameters and searches that are not the same, though no setting says so."""
    texts = []
    if ours.size and theirs.size:
        if ours.size.images != theirs.size.images and not memory_named:
            texts.append(f"{ours.size.images:,} images kept instead of {theirs.size.images:,}")
        if abs(ours.size.stored - theirs.size.stored) > _ALIKE * theirs.size.stored:
            texts.append(f"{ours.size.stored:,} parameters instead of {theirs.size.stored:,}")
    both = (ours.searched, theirs.searched)
    if None not in both and both[0] != both[1]:
        texts.append(f"{both[0]} values of λ and λ_a searched instead of {both[1]}")
    return texts


def _other_tests(ours: Conditions, theirs: Conditions) -> bool:
    return bool(ours.tests and theirs.tests) and ours.tests != theirs.tests


def _unlike(key: str, ours: object, theirs: object) -> str:
    name = setting_text(key)
    values = [value_text(value) for value in (ours, theirs)]
    if max(map(len, values)) > _LONGEST:
        return f"another {name}"
    return f"{name} {values[0]} instead of {values[1]}"


# -- groups against groups --------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Difference:
    """A method minus another one, paired by seed.

    Args:
        group: The method, such as a variant.
        host: What it is compared with on the same stream: a variant's plain method, or a baseline.
        pairing: What else differs. Where it refuses, there is no number.
    """

    group: Group
    host: Group
    pairing: Pairing

    @classmethod
    def between(cls, group: Group, host: Group, searches: Searches = ()) -> Self:
        """A group minus another, with what else differs."""
        sides = (conditions(side.results[0], searches) for side in (group, host))
        return cls(group, host, pairing(*sides))

    @property
    def title(self) -> str:
        """Which is taken from which."""
        return f"{self.group.title} − {self.host.title}"

    def gaps(self, metric: str) -> dict[int, float]:
        """Ours minus the host's by seed, on the seeds both have; empty where refused."""
        if self.pairing.refused:
            return {}
        ours, theirs = (side.values(metric) for side in (self.group, self.host))
        return paired(ours, theirs)

    def estimate(self, metric: str) -> Estimate | None:
        """Mean and standard error of the difference."""
        gaps = list(self.gaps(metric).values())
        return mean_and_error(gaps) if gaps else None

    def interval(self, metric: str) -> Interval | None:
        """Mean and 95 % interval of the difference, at least one test image each way."""
        gaps = list(self.gaps(metric).values())
        return t_interval(gaps, 1 / sum(self.group.results[0].sizes)) if gaps else None

    def cells(self) -> list[list[float]]:
        """The accuracy matrix minus the host's: the mean over the seeds that both have."""
        if self.pairing.refused:
            return []
        ours, theirs = (
            dict(zip(side.seeds, side.matrices, strict=True)) for side in (self.group, self.host)
        )
        gaps = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
        means: list[list[float]] = np.mean(gaps, axis=0).tolist()
        return means


def baseline_differences(
    groups: Sequence[Group], baselines: Sequence[Group], searches: Searches = ()
) -> dict[Group, Difference]:
    """Every group minus the baseline of its stream, where they have a seed in common."""
    of_stream = {baseline.stream: baseline for baseline in baselines}
    return {
        group: Difference.between(group, of_stream[group.stream], searches)
        for group in groups
        if group.stream in of_stream and group not in baselines
        if set(of_stream[group.stream].seeds) & set(group.seeds)
    }


def differences(groups: Sequence[Group], searches: Searches = ()) -> dict[Group, Difference]:
    """Every variant that has a host with a seed in common, on the same stream.

    Of several hosts the likest one is taken: one that is not refused, with the fewest settings
    that differ.
    """
    by_variant: dict[Group, Difference] = {}
    for group in groups:
        kind = (group.stream, group.base, "CL")
        pairs = [
            Difference.between(group, host, searches)
            for host in groups
            if (host.stream, host.base, host.variant) == kind and set(host.seeds) & set(group.seeds)
        ]
        if pairs and group.variant != "CL":
            by_variant[group] = min(
                pairs, key=lambda p: (bool(p.pairing.refused), len(p.pairing.differing))
            )
    return by_variant


class Sweep(NamedTuple):
    """Groups that differ in one number only, in its order.

    Args:
        setting: ``lamb`` for plain methods, ``lamb_a`` for variants.
        values: The numbers.
        groups: One group each; with ``lamb_a`` of ANCL the host comes first, as 0.
    """

    setting: str
    values: tuple[float, ...]
    groups: tuple[Group, ...]


def sweeps(groups: Sequence[Group], pairs: Mapping[Group, Difference]) -> list[Sweep]:
    """Curves over λ of plain methods and over λ_a of variants, where there are several values."""
    families: dict[str, list[tuple[float, Group]]] = defaultdict(list)
    for group in groups:
        setting = _swept(group)
        value = group.settings.get(setting)
        if isinstance(value, int | float):
            rest = {k: v for k, v in group.settings.items() if k != setting}
            families[json.dumps(rest, sort_keys=True)].append((float(value), group))
    made = []
    for members in families.values():
        pair = pairs.get(members[0][1])
        members.sort(key=lambda member: member[0])
        if pair and pair.group.variant == "ANCL" and not any(pair.pairing):
            members = [(0.0, pair.host), *(member for member in members if member[0])]
        if len(members) > 1:
            values, along = zip(*members, strict=True)
            made.append(Sweep(_swept(along[-1]), tuple(values), tuple(along)))
    return made


def _swept(group: Group) -> str:
    return "lamb" if group.variant == "CL" else "lamb_a"


# -- runs against reference runs ---------------------------------------------------------------

References = Mapping[str, Callable[[Matrix, Matrix], float]]
REFERENCES: References = {"joint": intransigence, "alone": forward_transfer}
"""Methods that others are measured against, and the metric of both accuracy matrices."""


def reference_gap(results: Sequence[RunResult], runs: Path, reference: str) -> Estimate | None:
    """A metric against runs of a reference on the same stream, where every seed has one."""
    if results[0].spec.method == reference:
        return None
    values = []
    for result in results:
        other = _reference_run(result, runs, reference)
        if other is None:
            return None
        values.append(REFERENCES[reference](result.counted, other.counted))
    return mean_and_error(values)


def _reference_run(result: RunResult, runs: Path, reference: str) -> RunResult | None:
    spec, ours = result.spec, conditions(result)
    name = f"{spec.benchmark.replace('/', '-')}_{reference}_s{spec.seed}_*"
    for directory in sorted(runs.glob(name)):
        # A run that is incomplete or damaged must not hide this run's numbers.
        with suppress(StoreError):
            other = read_run(directory)
            refused = pairing(ours, conditions(other)).refused
            if not refused and other.spec.training == spec.training:
                return other
    return None
