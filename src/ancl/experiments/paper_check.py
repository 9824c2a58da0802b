"""In what runs differ from the protocol behind the paper's numbers."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ancl.data import PUBLISHED
from ancl.experiments.build import RunResult
from ancl.experiments.paper import RUNS
from ancl.experiments.spec import RunSpec, resolve

_WHERE = ("seed", "device", "threads")
_RATES = frozenset({"lr", "lr_first", "lr_search"})


def settings_of(spec: RunSpec) -> dict[str, Any]:
    """Every setting by dotted key, without the seed and where it ran."""
    found: dict[str, Any] = {}
    for key, value in json.loads(spec.model_dump_json(exclude=set(_WHERE))).items():
        if isinstance(value, Mapping):
            start = "" if key == "options" else f"{key}."
            found |= {f"{start}{name}": inner for name, inner in value.items()}
        else:
            found[key] = value
    return found


def changed_settings(spec: RunSpec) -> dict[str, tuple[Any, Any]]:
    """Settings that are not the recipe's, and the recipe's; a searched rate is the paper's rule."""
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
    if len(results) != RUNS:
        found.append(f"n is {len(results)} instead of {RUNS} seeds")
    return found


def _missing_images(result: RunResult) -> list[str]:
    whole = PUBLISHED.get(result.spec.data.source)
    if whole is None or result.spec.data.per_class is not None:
        return []
    return [
        f"{count:,} of the publisher's {total:,} {kind} images"
        for kind, count, total in zip(
            ("training", "test"), result.images, whole.images, strict=True
        )
        if count != total
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else json.dumps(value)
