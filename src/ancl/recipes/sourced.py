"""Values that say where they come from."""

from collections.abc import Mapping
from typing import Any, NamedTuple


class Sourced(NamedTuple):
    """A value, and in a few words where it comes from."""

    value: Any
    source: str


def plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The values alone."""
    return {key: v.value if isinstance(v, Sourced) else v for key, v in settings.items()}


def sources(settings: Mapping[str, Any]) -> dict[str, str]:
    """Where values come from, by key, where that is known."""
    return {key: v.source for key, v in settings.items() if isinstance(v, Sourced)}
