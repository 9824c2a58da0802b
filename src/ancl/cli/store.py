"""``ancl store``: what the store holds, whether it is whole, and what may go."""

import json
import time
from pathlib import Path

import typer

from ancl.cli.flags import RUNS, with_flags
from ancl.wording import byte_size, duration, parse_size, table

app = typer.Typer(no_args_is_help=True, help="List, verify and prune stored stages.")

DAMAGED = 1


@app.command("list")
@with_flags
def list_entries(
    *,
    runs: Path = RUNS,
    store: Path | None = None,
    as_json: bool = False,
) -> None:
    """What is stored: key, stage, task, size and when it was last used; and for which searches."""
    from ancl.files import store_place
    from ancl.store.prune import held_by_searches
    from ancl.store.store import Store

    root, now = store_place(runs, store), time.time()
    infos = list(Store(root).existing().entries())
    total = sum(info.bytes for info in infos)
    searches = held_by_searches(runs, infos)
    if as_json:
        entries = [info.__dict__ for info in infos]
        held = [search._asdict() for search in searches]
        content = {"store": str(root), "entries": entries, "bytes": total, "searches": held}
        print(json.dumps(content))
        return
    rows = [
        [
            info.key[:12],
            info.stage or "?",
            "" if info.task is None else str(info.task + 1),
            byte_size(info.bytes),
            duration(max(now - info.modified, 0)),
            "" if info.state == "ok" else info.state,
        ]
        for info in infos
    ]
    if rows:
        print(table(["key", "stage", "task", "size", "last used", ""], rows, "llrrrl"))
    if searches:
        lines = [[s.name, str(s.entries), byte_size(s.bytes), s.state] for s in searches]
        print(table(["search", "entries", "size", ""], lines, "lrrl"))
    print(f"{root}: {_entries(len(infos))}, {byte_size(total)}")


@app.command("verify")
@with_flags
def verify(
    *,
    runs: Path = RUNS,
    store: Path | None = None,
    as_json: bool = False,
) -> None:
    """Compare every checksum; the exit code is 1 where something is damaged."""
    from rich.console import Console
    from rich.progress import Progress

    from ancl.files import store_place
    from ancl.store.store import Store

    root, count = store_place(runs, store), 0
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:
        bar = bars.add_task("entries")

        def told(done: int, total: int) -> None:
            nonlocal count
            count = total
            bars.update(bar, completed=done, total=total)

        damaged = Store(root).existing().verify(told)
    if as_json:
        faults = [{"key": key, "reason": reason} for key, reason in damaged]
        print(json.dumps({"store": str(root), "entries": count, "damaged": faults}))
    else:
        for key, reason in damaged:
            print(f"{key}: {reason}")
        advice = "; runs that need them compute them again" if damaged else ""
        print(f"{root}: {_entries(count)}, {len(damaged)} damaged{advice}.")
    if damaged:
        raise typer.Exit(DAMAGED)


@app.command("prune")
@with_flags
def prune(
    *,
    runs: Path = RUNS,
    store: Path | None = None,
    keep_runs: bool = True,
    keep_searches: bool = True,
    max_size: str | None = None,
    dry_run: bool = False,
    as_json: bool = False,
) -> None:
    """Remove what no run or search needs; stopped ones count too.

    To drop one run or search, delete its directory first.
    """
    from ancl.files import store_place
    from ancl.store.prune import prune as prune_store

    removed, freed = prune_store(
        runs,
        store,
        keep_runs=keep_runs,
        keep_searches=keep_searches,
        max_bytes=None if max_size is None else _size(max_size),
        dry_run=dry_run,
    )
    root = store_place(runs, store)
    if as_json:
        content = {"removed": removed, "bytes": freed, "dry_run": dry_run}
        print(json.dumps({"store": str(root), **content}))
    else:
        verb = "would be removed" if dry_run else "removed"
        print(f"{root}: {_entries(removed)} {verb}, {byte_size(freed)}.")


def _size(text: str) -> int:
    from ancl.errors import SpecError, printable

    size = parse_size(text)
    if size is None:
        raise SpecError(
            f"--max-size: {printable(text, 60)!r} is not a size. Write it as 500MB or 2GB."
        )
    return size


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count} entries"
