"""``ancl data``: which data is here, and how to get more."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flag_values import thread_limit, without_bad_images
from ancl.cli.flags import with_flags
from ancl.wording import byte_size, table

if TYPE_CHECKING:
    from ancl.data import Published, Source
    from ancl.data.download import Progress
    from ancl.data.published import Remote
    from ancl.picture import PictureRule

app = typer.Typer(no_args_is_help=True, help="List, fetch, check and import data.")

DAMAGED = 1


@app.command("list")
@with_flags
def list_data(*, data_root: Path | None = None, as_json: bool = False) -> None:
    """Every data set, and where it was found."""
    from ancl.data import PUBLISHED
    from ancl.data import data_root as root_of
    from ancl.data.formats.imagenet_folder import FOLDER, NAME
    from ancl.data.registry import FORMS, SOURCES

    root = root_of(data_root)
    entries: list[dict[str, Any]] = []
    for name, source in SOURCES.items():
        data = PUBLISHED.get(name)
        place = data.find(root) if data else None
        if name == NAME and (root / FOLDER).is_dir():
            place = root / FOLDER
        entries.append(
            {
                "name": name,
                "classes": source.classes,
                "images": source.images,
                "explanation": source.explanation,
                "embedded": data is None and source.images is not None,
                "place": str(place) if place else None,
            }
        )
    if as_json:
        print(json.dumps({"root": str(root), "data": entries, "forms": list(FORMS)}))
        return
    rows = [
        [
            entry["name"],
            str(entry["classes"] or "yours"),
            f"{entry['images']:,}" if entry["images"] else "yours",
            "embedded" if entry["embedded"] else entry["place"] or _hint(entry["name"], root),
        ]
        for entry in entries
    ]
    print(table(["data", "classes", "images", "where"], rows, "lrrw"))
    print(f"\nData root: {root.absolute()}\nYour own: {', '.join(FORMS)}")


@app.command("fetch")
@with_flags
def fetch(
    name: str,
    *,
    data_root: Path | None = None,
    offline: bool = False,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Download a data set, check and unpack it; a broken download is resumed."""
    from ancl.data import data_root as root_of
    from ancl.data import fetch as fetch_data

    data, root = _published(name), root_of(data_root)
    source = fetch_data(data, root, _Announcer(quiet).announce, offline=offline)
    _report([_checked(data, root, source)], as_json)


@app.command("check")
@with_flags
def check(
    name: str | None = None,
    *,
    skip_bad_images: bool = False,
    resize: str | None = None,
    background: str | None = None,
    threads: str | None = None,
    data_root: Path | None = None,
    as_json: bool = False,
) -> None:
    """Read data and compare it with what was published; the exit code is 1 where it differs."""
    from ancl.data import data_root as root_of
    from ancl.errors import ScenarioError
    from ancl.picture import PictureRule

    root = root_of(data_root)
    is_own = name is not None and ":" in name
    chosen = [] if is_own else _here(root) if name is None else [_published(name)]
    given: dict[str, Any] = {"resize": resize, "background": background}
    rule = PictureRule(**{part: value for part, value in given.items() if value is not None})
    named = without_bad_images(name) if skip_bad_images else str(name)
    with thread_limit(threads):
        reports = [_checked_own(named, root, rule)] if is_own else []
    for data in chosen:
        if data.find(root) is None:
            data.load(root)  # says where it was looked for
        try:
            reports.append(_checked(data, root, data.load(root)))
        except ScenarioError as error:
            reports.append({"name": data.name, "place": str(data.find(root)), "fault": str(error)})
    _report(reports, as_json)
    if any("fault" in report for report in reports):
        raise typer.Exit(DAMAGED)


@app.command("import")
@with_flags
def import_data(
    name: str,
    path: Path,
    *,
    data_root: Path | None = None,
    as_json: bool = False,
) -> None:
    """Check an archive or folder you have, and copy it into the data root."""
    from ancl.data import data_root as root_of
    from ancl.data import import_from

    data, root = _published(name), root_of(data_root)
    _report([_checked(data, root, import_from(data, path, root))], as_json)


@app.command("caches")
@with_flags
def list_cached(*, clear: bool = False, as_json: bool = False) -> None:
    """Decoded pixels and hashes of image files that are kept; not those of images that are gone."""
    from ancl.data.caches import cache_bound, cache_root, clear_caches, list_caches

    entries = clear_caches() if clear else list_caches()
    total, root = sum(entry.bytes for entry in entries), cache_root()
    if as_json:
        shown = [{**entry._asdict(), "path": str(entry.path)} for entry in entries]
        print(json.dumps({"root": str(root), "most": cache_bound(), "caches": shown}))
        return
    rows = [
        [
            entry.place,
            f"{entry.images:,}",
            byte_size(entry.bytes),
            time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used)),
        ]
        for entry in entries
    ]
    if rows:
        print(table(["images in", "images", "size", "last used"], rows, "wrrl"))
    what = "Removed" if clear else "Kept"
    print(f"{what}: {byte_size(total)} of {byte_size(cache_bound())} possible, in {root}")


def _checked_own(name: str, root: Path, rule: PictureRule) -> dict[str, Any]:
    """What your own data holds, or all that is wrong with it."""
    from ancl.data.formats.folders import SKIP_BAD
    from ancl.data.registry import load_source
    from ancl.errors import ScenarioError

    place = name.partition(":")[2].removesuffix(SKIP_BAD)
    try:
        return _contents(name, place, load_source(name, root, None, rule))
    except ScenarioError as error:
        bad = getattr(error.__cause__, "bad", {})
        return {"name": name, "place": place, "fault": str(error), "bad": dict(bad)}


def _published(name: str) -> Published:
    from ancl.data import PUBLISHED
    from ancl.errors import ScenarioError, unknown

    if name not in PUBLISHED:
        raise ScenarioError(unknown("published data set", name, PUBLISHED))
    return PUBLISHED[name]


def _here(root: Path) -> list[Published]:
    """The data sets that are here, each folder once."""
    from ancl.data import PUBLISHED

    by_folder = {data.find(root): data for data in reversed(PUBLISHED.values())}
    return [data for place, data in reversed(by_folder.items()) if place is not None]


def _hint(name: str, root: Path) -> str:
    from ancl.data.formats.imagenet_folder import NAME

    if name == NAME:
        return f"not here: put yours into {root / 'imagenet'}"
    return f"not here: ancl data fetch {name}"


def _checked(data: Published, root: Path, source: Source) -> dict[str, Any]:
    return _contents(data.name, str(data.find(root)), source)


def _contents(name: str, place: str, source: Source) -> dict[str, Any]:
    return {
        "name": name,
        "place": place,
        "classes": len(source.classes),
        "train": len(source.train),
        "test": len(source.test),
        "fingerprint": source.fingerprint,
        "notes": list(source.notes),
    }


def _report(reports: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        print(json.dumps({"data": reports}))
        return
    if not reports:
        print("There is no published data in the data root. See: ancl data list")
    for report in reports:
        if "fault" in report:
            print(f"{report['name']}: {report['fault']}")
            continue
        print(
            f"{report['name']}: {report['train']:,} training and {report['test']:,} test images of "
            f"{report['classes']} classes in {report['place']}"
        )
        for note in report["notes"]:
            print(f"Note: {note}")


class _Announcer:
    """Says on standard error which file is fetched and how far it is."""

    def __init__(self, quiet: bool) -> None:
        self._quiet, self._live = quiet, sys.stderr.isatty()

    def announce(self, remote: Remote) -> Progress:
        """A line for a file, and the progress of it: one line that changes, on a terminal."""
        self._say(f"Fetching {remote.name} from {remote.urls[0].rpartition('/')[0]}\n")

        def progress(have: int, total: int | None) -> None:
            whole = f" of {byte_size(total)}" if total else ""
            if self._live or have == total:
                start, end = ("\r", "\n" if have == total else "") if self._live else ("", "\n")
                self._say(f"{start}{remote.name}: {byte_size(have)}{whole}{end}")

        return progress

    def _say(self, text: str) -> None:
        if not self._quiet:
            sys.stderr.write(text)
            sys.stderr.flush()
