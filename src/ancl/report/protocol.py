"""In what a group of runs differs from the protocol behind the paper's numbers."""

from typing import Any

from ancl.data import PUBLISHED
from ancl.recipes.paper import RUNS
from ancl.report.groups import Group, settings_of
from ancl.spec import resolve

_RATES = ("training.lr", "training.lr_first", "training.lr_search")


def protocol_differences(group: Group) -> list[str]:
    """Settings, images and seeds that are not the recipe's, each in a few words.

    A learning rate that was searched is the paper's own rule, so it is no difference.
    """
    spec = group.spec
    recipe = settings_of(resolve(spec.method, spec.benchmark).spec)
    searched = spec.training.lr_search
    found = [
        f"{key} is {_text(value)} instead of {_text(recipe.get(key))}"
        for key, value in group.settings.items()
        if value != recipe.get(key)
        and not (searched and key.replace("auxiliary.", "training.", 1) in _RATES)
    ]
    found += _missing_images(group)
    if len(group.runs) != RUNS:
        found.append(f"n is {len(group.runs)} instead of {RUNS}")
    return found


def _missing_images(group: Group) -> list[str]:
    whole = PUBLISHED.get(group.spec.data.source)
    if whole is None or group.spec.data.per_class is not None:
        return []
    counts = zip(("training", "test"), group.runs[0].result.images, whole.images, strict=True)
    return [
        f"{count:,} of the publisher's {total:,} {kind} images"
        for kind, count, total in counts
        if count != total
    ]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
