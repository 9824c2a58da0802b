"""Code from outside the package: found by name, and known by its source."""

from ancl.outside.loading import FORMS, Loaded, is_outside, load
from ancl.outside.source import Sources, sources_of

__all__ = ["FORMS", "Loaded", "Sources", "is_outside", "load", "sources_of"]
