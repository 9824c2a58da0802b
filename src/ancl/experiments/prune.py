"""What runs, analyses and searches need of the store, and the removal of everything else."""

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from ancl.errors import AnclError, SpecError, StoreError
from ancl.experiments.build import build, threads
from ancl.experiments.results import Places
from ancl.experiments.search import STAGES
from ancl.experiments.spec import RunSpec
from ancl.store.store import Info, Store


class Pruned(NamedTuple):
    """The number of entries removed, and the bytes freed, leftovers of crashes included."""

    removed: int
    bytes: int


def prune(
    places: Places,
    *,
    keep_runs: bool = True,
    keep_searches: bool = True,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove from the store what no run, analysis or search needs.

    Args:
        places: The directories of results and of the store.
        keep_runs: Whether anything is kept at all.
        keep_searches: Whether what searches tried is kept, besides their decisions.
        max_bytes: Remove the least recently used first, and only until the store fits.
        dry_run: Only count what would be removed.

    Raises:
        StoreError: It is not known what a run needs, or the store cannot be written.
    """
    keep = needed_keys(places.runs, searches=keep_searches) if keep_runs else frozenset[str]()
    return Pruned(*Store(places.store).prune(keep, max_bytes, dry_run=dry_run))


def needed_keys(runs: Path, *, searches: bool = True) -> frozenset[str]:
    """The keys of every run in a directory, finished or stopped, and of every analysis and search.

    Args:
        runs: The directory.
        searches: Whether what searches tried is needed.

    Raises:
        StoreError: There is no such directory, or it is not known what a run needs.
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
    for directory in [*inside, *(_searches(runs) if searches else [])]:
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


class Held(NamedTuple):
    """What the store holds for a search: entries, bytes, and whether it is finished."""

    name: str
    entries: int
    bytes: int
    state: str


def held_by_searches(runs: Path, stored: Iterable[Info]) -> list[Held]:
    """Every search with what is stored of its stages; others may need the same stages."""
    sizes, found = {info.key: info.bytes for info in stored}, []
    for directory in _searches(runs):
        try:
            there = _search_keys(directory) & sizes.keys()
        except (OSError, ValueError, TypeError):
            found.append(Held(directory.name, 0, 0, f"{STAGES} is damaged"))
            continue
        state = "" if (directory / "decision.json").is_file() else "stopped"
        found.append(Held(directory.name, len(there), sum(sizes[k] for k in there), state))
    return found


def _searches(runs: Path) -> list[Path]:
    """The directories of searches, finished or stopped."""
    return sorted(file.parent for file in (runs / "searches").glob(f"*/{STAGES}"))


def _search_keys(directory: Path) -> frozenset[str]:
    return frozenset(json.loads((directory / STAGES).read_text(encoding="utf-8")))


def _keys_of(directory: Path) -> Collection[str]:
    """The keys in a result, those a stopped run's spec plans, or none where it is no run."""
    result, spec = directory / "result.json", directory / "spec.yaml"
    if (directory / STAGES).is_file():
        return _search_keys(directory)
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
