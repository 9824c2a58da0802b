"""Runs beside the paper's numbers, differences from its protocol, and the gap to joint training."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from ancl.data import PUBLISHED
from ancl.errors import StoreError
from ancl.experiments import Expected, benchmark, expected
from ancl.experiments.pairing import conditions, pairing, settings_of
from ancl.experiments.paper import RUNS
from ancl.experiments.read_results import read_run
from ancl.experiments.results import RunResult, estimate_json, estimates
from ancl.experiments.spec import SEARCH, RunSpec, resolve
from ancl.metrics import Estimate, intransigence, mean_and_error
from ancl.outside import is_outside

_RATES = frozenset({"lr", "lr_first", "lr_search"})


class Verdict(NamedTuple):
    """The paper's numbers for a method, and what keeps runs from being compared with them."""

    numbers: tuple[Expected, ...]
    differences: list[str]
    notes: list[str]


def verdict(results: Sequence[RunResult]) -> Verdict | None:
    """The paper's numbers for these runs; nothing where it has none for what was learned."""
    spec = results[0].spec
    numbers = expected(spec.benchmark, spec.method)
    if not numbers or spec.stream != spec.benchmark:
        return None
    return Verdict(numbers, protocol_differences(results), _notes(spec))


def verdict_json(found: Verdict, results: Sequence[RunResult]) -> dict[str, Any]:
    """Our numbers and the paper's as JSON, in fractions."""
    got = estimates(results)
    return {
        "comparable": not found.differences,
        "differences": found.differences,
        "notes": found.notes,
        "metrics": {
            number.metric: {
                "got": estimate_json(got[number.metric]),
                "paper": {
                    "mean": number.mean / 100,
                    "standard_error": number.error / 100,
                    "n": number.n,
                    "table": number.table,
                },
            }
            for number in found.numbers
        },
    }


def _notes(spec: RunSpec) -> list[str]:
    """What the benchmark had to choose because the paper does not say it."""
    if spec.training.lr_search:
        return [f"training.lr={SEARCH}: by the released code's rule."]
    recipe, changed = benchmark(spec.benchmark), changed_settings(spec)
    values = recipe.values(spec.method)
    return [
        f"{key} {values[key]} is {source}."
        for key, source in recipe.sources(spec.method).items()
        if source.startswith("ours") and key not in changed
    ]


def joint_gap(results: Sequence[RunResult], runs: Path) -> Estimate | None:
    """Intransigence against joint runs on the same stream, where every seed has one."""
    if results[0].spec.method == "joint":
        return None
    values = []
    for each in results:
        joint = _joint_run(each, runs)
        if joint is None:
            return None
        values.append(intransigence(each.counted, joint.counted))
    return mean_and_error(values)


def _joint_run(result: RunResult, runs: Path) -> RunResult | None:
    spec, ours = result.spec, conditions(result)
    name = f"{spec.benchmark.replace('/', '-')}_joint_s{spec.seed}_*"
    for directory in sorted(runs.glob(name)):
        # A joint run that is incomplete or damaged must not hide this run's numbers.
        with suppress(StoreError):
            found = read_run(directory)
            refused = pairing(ours, conditions(found)).refused
            if not refused and found.spec.training == spec.training:
                return found
    return None


def changed_settings(spec: RunSpec) -> dict[str, tuple[Any, Any]]:
    """Settings that are not the recipe's, and the recipe's; a searched rate is the paper's rule."""
    if is_outside(spec.method):  # read back from a run: its code is not ours to import
        return {}
    recipe = settings_of(resolve(spec.method, spec.benchmark).spec)
    searched = _RATES if spec.training.lr_search else frozenset()
    return {
        key: (value, recipe.get(key))
        for key, value in settings_of(spec).items()
        if value != recipe.get(key) and key.rpartition(".")[2] not in searched
    }


def protocol_differences(results: Sequence[RunResult]) -> list[str]:
    """Settings, images and seeds that are not the recipe's, each in a few words."""
    first = results[0]
    found = [
        f"{key} is {_text(ours)} instead of {_text(theirs)}"
        for key, (ours, theirs) in changed_settings(first.spec).items()
    ]
    found += _missing_images(first)
    # Our own numbers are measured again by anybody, with any number of seeds.
    measured = any(not each.table for each in expected(first.spec.benchmark, first.spec.method))
    if len(results) != RUNS and not measured:
        found.append(f"n is {len(results)} instead of {RUNS} seeds")
    return found


def obstacles(result: RunResult) -> list[str]:
    """What keeps expected numbers from standing beside a run's: a quick look is never beside them.

    The images and the network must be the recipe's, and the epochs at least as many. All else that
    differs is named beside the numbers: ``protocol_differences``.
    """
    return [
        f"{key} is {_text(ours)} instead of {_text(theirs)}"
        for key, (ours, theirs) in changed_settings(result.spec).items()
        if key.startswith(("data.", "network.")) or _fewer_epochs(key, ours, theirs)
    ] + _missing_images(result)


def _fewer_epochs(key: str, ours: Any, theirs: Any) -> bool:
    numbers = isinstance(ours, int) and isinstance(theirs, int)
    return key in ("training.epochs", "training.epochs_first") and numbers and ours < theirs


def _missing_images(result: RunResult) -> list[str]:
    whole = PUBLISHED.get(result.spec.data.source)
    if whole is None or result.spec.data.per_class is not None:
        return []
    found = (sum(train + val for train, val, _ in result.images), sum(result.sizes))
    return [
        f"{count:,} of the publisher's {total:,} {kind} images"
        for kind, count, total in zip(("training", "test"), found, whole.images, strict=True)
        if count != total
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
