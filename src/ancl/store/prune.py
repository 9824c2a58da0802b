"""What runs, analyses and searches need of the store, and the removal of everything else."""

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import NamedTuple

from ancl.errors import StoreError, printable
from ancl.files import STAGES, check_place, read_stages, store_place
from ancl.store.index import Info
from ancl.store.store import Store


class Pruned(NamedTuple):
    """The number of entries removed, and the bytes freed, leftovers of crashes included."""

    removed: int
    bytes: int


def prune(
    runs: str | Path = "runs",
    store: str | Path | None = None,
    *,
    keep_runs: bool = True,
    keep_searches: bool = True,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> Pruned:
    """Remove from the store what no run, analysis or search needs.

    Args:
        runs: Where results are.
        store: Where stages are kept; by default ``.store`` below ``runs``.
        keep_runs: Whether anything is kept at all.
        keep_searches: Whether what searches tried is kept, besides their decisions.
        max_bytes: Remove the least recently used first, and only until the store fits.
        dry_run: Only count what would be removed.

    Raises:
        StoreError: There is no store, it cannot be written, or it is not known what a run needs.
    """
    place = check_place(store_place(runs, store), "a store")
    keep = needed_keys(Path(runs), searches=keep_searches) if keep_runs else frozenset[str]()
    return Pruned(*Store(place).existing().prune(keep, max_bytes, dry_run=dry_run))


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
        except (OSError, ValueError) as error:
            unreadable.append(f"  {directory}: {printable(str(error))}")
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
    sizes, searches = {info.key: info.bytes for info in stored}, []
    for directory in _searches(runs):
        try:
            there = read_stages(directory) & sizes.keys()
        except (OSError, ValueError):
            searches.append(Held(directory.name, 0, 0, f"{STAGES} is damaged"))
            continue
        state = "" if (directory / "decision.json").is_file() else "stopped"
        searches.append(Held(directory.name, len(there), sum(sizes[k] for k in there), state))
    return searches


def _searches(runs: Path) -> list[Path]:
    """The directories of searches, finished or stopped."""
    return sorted(file.parent for file in (runs / "searches").glob(f"*/{STAGES}"))


def _keys_of(directory: Path) -> Collection[str]:
    """The keys that a run, search or analysis noted; none where it is something else.

    Only this list is read. Nothing that a spec names is looked up or imported: the directory may
    be a stranger's.
    """
    marks = (STAGES, "result.json", "spec.yaml")
    return read_stages(directory) if any((directory / name).exists() for name in marks) else set()
