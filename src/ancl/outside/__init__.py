"""Code from outside the package: found by name, and known by its source."""

from ancl.outside.loading import FORMS, LIBRARIES, Loaded, in_library, is_outside, load
from ancl.outside.source import Sources, sources_of

__all__ = [
    "FORMS",
    "LIBRARIES",
    "Loaded",
    "Sources",
    "in_library",
    "is_outside",
    "load",
    "sources_of",
]
