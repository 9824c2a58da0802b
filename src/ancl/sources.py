"""Data by name: what ``data.source`` may be."""

from collections.abc import Callable
from typing import NamedTuple

from ancl.data import Source, digits, hard_digits
from ancl.errors import ScenarioError, unknown


class KnownSource(NamedTuple):
    """How to load a named source, and how many classes it has: known before it is read."""

    load: Callable[[], Source]
    classes: int
    explanation: str


SOURCES: dict[str, KnownSource] = {
    "digits": KnownSource(digits, 10, "1,797 handwritten digits of 8x8 pixels, embedded"),
    "hard-digits": KnownSource(hard_digits, 10, "the same, shifted and noisy, 12x12 pixels"),
}


def known_source(name: str) -> KnownSource:
    """The entry of a name.

    Raises:
        ScenarioError: There is none of that name.
    """
    if name not in SOURCES:
        raise ScenarioError(unknown("data source", name, SOURCES))
    return SOURCES[name]
