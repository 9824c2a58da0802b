"""The tables of docs/evidence/pretrained.md, from the results alone."""

from pathlib import Path


def write_tables(folder: Path, page: Path) -> None:
    raise NotImplementedError
