"""Whether the difference of two runs says something, and what else it may come from.

Every output that takes a difference asks here: comparisons, tables, figures and the page.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ancl.experiments.results import RunResult
from ancl.methods.registry import later_options
from ancl.wording import setting_text, split_method, value_text

_SAME = ("data.", "network.")
_LONGEST = 24


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
    """

    settings: Mapping[str, Any]
    images: tuple[tuple[int, int, int], ...]
    tests: tuple[str, ...]


def conditions(result: RunResult) -> Conditions:
    """What decided a result."""
    tests = tuple(task.test_key for task in result.state.tasks) if result.state else ()
    return Conditions(result.spec.settings(), result.images, tests)


def pairing(ours: Conditions, theirs: Conditions) -> Pairing:
    """What differs besides the method and its variant.

    Settings that only one of them has do not count. λ and other options of a method count where
    both are the same method, with or without a variant.
    """
    bases = [split_method(str(each.settings["method"]))[0] for each in (ours, theirs)]
    own, other = ({**later_options(), **side.settings} for side in (ours, theirs))
    keys = [
        key
        for key, value in own.items()
        if key in other and other[key] != value
        if key not in ("method", "benchmark") and not key.startswith("auxiliary.")
        if "." in key or bases[0] == bases[1]
    ]
    texts = {key: _unlike(key, own[key], other[key]) for key in keys}
    refused = [text for key, text in texts.items() if key.startswith(_SAME)]
    if not refused and (ours.images != theirs.images or _other_tests(ours, theirs)):
        refused.append("the images are not the same")
    differing = [text for key, text in texts.items() if not key.startswith(_SAME)]
    return Pairing(tuple(refused), tuple(differing))


def _other_tests(ours: Conditions, theirs: Conditions) -> bool:
    return bool(ours.tests and theirs.tests) and ours.tests != theirs.tests


def _unlike(key: str, ours: object, theirs: object) -> str:
    name = setting_text(key)
    values = [value_text(each) for each in (ours, theirs)]
    if max(map(len, values)) > _LONGEST:
        return f"another {name}"
    return f"{name} {values[0]} instead of {values[1]}"
