"""Results of stages on disk: one directory each, checked when read."""

from ancl.store.entry import StageResult
from ancl.store.store import Store

__all__ = ["StageResult", "Store"]
