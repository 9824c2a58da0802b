"""Where data lies: one folder that holds what the publishers call their own folders."""

import os
from pathlib import Path

VARIABLES = ("ANCL_DATA", "DATA_DIR")
"""Environment variables that name the data root, the first one set wins."""


def data_root(given: str | Path | None = None) -> Path:
    """The folder given, else ``$ANCL_DATA``, else ``$DATA_DIR``, else ``./data``."""
    named = [given, *(os.environ.get(variable) for variable in VARIABLES)]
    return Path(next((name for name in named if name), "data")).expanduser()
