"""Saved learners as values: read, changed, and written again with the checksums that fit."""

from pathlib import Path
from typing import Any

from tests.lab import (
    Note,
    StageResult,
    add_version,
    read_bundle,
    read_version,
    read_versions,
    write_bundle,
)


def read_saved(place: Path) -> StageResult:
    """The current version: its JSON, and its tensors as ``part/name``."""
    version, parts = read_version(place)
    tensors = {f"{part}/{name}": t for part, group in parts.items() for name, t in group.items()}
    return StageResult(tensors, version.learner)


def write_saved(place: Path, entry: StageResult) -> None:
    """A learner of one version, which may be forged."""
    if set(entry.meta) & {"kind"}:
        write_bundle(place, {"kind": entry.meta["kind"]}, {}, ())
        return
    parts: dict[str, dict[str, object]] = {}
    for name, tensor in entry.tensors.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = tensor
    add_version(place, entry.meta, parts, Note(), "", replace=True)


def write_header(place: Path, changes: dict[str, Any]) -> Any:
    """Change fields of a learner's header, or leave them out (``...``), and read its versions."""
    meta = {**read_bundle(place, lambda bundle: bundle.meta), **changes}
    meta = {name: value for name, value in meta.items() if value is not ...}
    write_bundle(place, meta, {}, [file.name for file in (place / "parts").iterdir()])
    return read_versions(place)
