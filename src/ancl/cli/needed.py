"""What runs and searches are made of: the keys that a prune keeps."""

import json
import math
import re
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ancl.errors import AnclError, SpecError, StoreError
from ancl.experiments.build import build, threads
from ancl.experiments.search_base import STAGES
from ancl.experiments.spec import RunSpec
from ancl.store.store import Info, Store

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def needed_keys(runs: Path, *, searches: bool = True) -> frozenset[str]:
    """The keys of every run in a directory, finished or stopped, and of every analysis and search.

    Args:
        runs: The directory.
        searches: Whether what searches tried is needed.

    Raises:
        StoreError: There is no such directory, or it cannot be told what a run needs.
    """
    if not runs.is_dir():
        raise StoreError(
            f"There is no directory {runs}, so it is not known what runs need. Give it with --runs "
            f"DIR, or use --all to keep nothing."
        )
    keys: set[str] = set()
    unreadable: list[str] = []
    places = [place for place in (runs, runs / "analyses") if place.is_dir()]
    inside = sorted(p for place in places for p in place.iterdir() if p.is_dir())
    for directory in [*inside, *(searches_in(runs) if searches else [])]:
        try:
            keys.update(_keys_of(directory))
        except (OSError, ValueError, KeyError, TypeError, YAMLError, AnclError) as error:
            unreadable.append(f"  {directory}: {type(error).__name__}: {error}")
    if unreadable:
        raise StoreError(
            "Nothing was removed, since it is not known what these need:\n"
            + "\n".join(unreadable)
            + "\nRun their commands again, delete their directories, or use --all to keep nothing."
        )
    return frozenset(keys)


def searches_in(runs: Path) -> list[Path]:
    """The directories of searches, finished or stopped."""
    return sorted(file.parent for file in (runs / "searches").glob(f"*/{STAGES}"))


def search_keys(directory: Path) -> frozenset[str]:
    """What a search is made of, so far."""
    return frozenset(json.loads((directory / STAGES).read_text(encoding="utf-8")))


class Held(NamedTuple):
    """What the store holds for a search: entries, bytes, and whether it is finished."""

    name: str
    entries: int
    bytes: int
    state: str


def held_by_searches(runs: Path, stored: Iterable[Info]) -> list[Held]:
    """Every search with what is stored of its stages, which others may have too."""
    sizes, found = {info.key: info.bytes for info in stored}, []
    for directory in searches_in(runs):
        try:
            there = search_keys(directory) & sizes.keys()
        except (OSError, ValueError, TypeError):
            found.append(Held(directory.name, 0, 0, f"{STAGES} is damaged"))
            continue
        state = "" if (directory / "decision.json").is_file() else "stopped"
        found.append(Held(directory.name, len(there), sum(sizes[k] for k in there), state))
    return found


def _keys_of(directory: Path) -> Collection[str]:
    """The keys in a result, those a stopped run's spec plans, or none where it is no run."""
    result, spec = directory / "result.json", directory / "spec.yaml"
    if (directory / STAGES).is_file():
        return search_keys(directory)
    if result.is_file():
        return set(json.loads(result.read_text(encoding="utf-8"))["keys"])
    return _planned(spec) if spec.is_file() else set()


def _planned(path: Path) -> set[str]:
    found = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    try:
        spec = RunSpec.model_validate(found)
    except ValidationError as error:
        raise SpecError(f"spec.yaml is not whole ({error.error_count()} errors)") from error
    with threads(spec.threads):
        return {stage.key for stage in build(spec).stages}


def removable(store: Store, keep: Collection[str], max_bytes: int | None) -> tuple[int, int]:
    """What a prune would remove: entries and bytes, leftovers of crashes aside."""
    found = sorted(store.entries(), key=lambda info: info.modified)
    over = math.inf if max_bytes is None else sum(info.bytes for info in found) - max_bytes
    count = freed = 0
    for info in found:
        if info.key not in keep and over > 0:
            count, freed, over = count + 1, freed + info.bytes, over - info.bytes
    return count, freed


def parse_size(text: str) -> int:
    """Bytes from a size as people write it.

    >>> parse_size("2GB"), parse_size("1.5 MB"), parse_size("100")
    (2000000000, 1500000, 100)
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)B?", text.strip().upper())
    if match is None:
        raise SpecError(f"--max-size: {text!r} is no size. Write it as 500MB or 2GB.")
    return round(float(match[1]) * _UNITS[match[2]])
