"""Files fetched over HTTP: resumed after a break, and named only after their checksum fits."""

from __future__ import annotations

import http.client
import shutil
import tarfile
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

from ancl.data.published import Published, Remote, verify
from ancl.data.source import Source
from ancl.errors import ScenarioError

TIMEOUT_SECONDS = 30.0
TRIES = 5
"""How often in a row one address may give nothing new before the next one is tried."""

_CHUNK = 1 << 18
_NOTHING_LEFT = 416

Progress = Callable[[int, int | None], None]
"""Called with the bytes that have arrived, and their total, if the server sends it."""


def download(remote: Remote, target: Path, progress: Progress) -> None:
    """Fetch a file from the first address that holds it.

    What has arrived is in ``NAME.part`` and is resumed, also by a later call. The file
    gets its name after its checksum was compared.

    Raises:
        ScenarioError: No address gave the file; the message says where to put it by hand.
    """
    problems = []
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        for url in remote.urls:
            try:
                _fetch(url, part, progress)
                verify(part, remote)
                part.replace(target)
                return
            except ScenarioError:
                part.unlink()
                problems.append(f"{url}: the file there has another checksum")
            except (urllib.error.URLError, http.client.HTTPException, ConnectionError) as error:
                problems.append(f"{url}: {getattr(error, 'reason', error)}")
            except TimeoutError:
                problems.append(f"{url}: no answer within {TIMEOUT_SECONDS:.0f} s")
    except OSError as error:
        raise ScenarioError(
            f"{remote.name} cannot be written to {target.parent} ({error.strerror}). Make room "
            "there, or give another --data-root."
        ) from error
    raise ScenarioError(by_hand(remote, target, f"could not be fetched ({'; '.join(problems)})"))


def by_hand(remote: Remote, target: Path, why: str) -> str:
    """What to do without a connection."""
    return (
        f"{remote.name} {why}. Get it on a machine with a connection, from {remote.urls[0]}, put "
        f"it at {target.absolute()}, and run the same command again."
    )


def _fetch(url: str, part: Path, progress: Progress) -> None:
    """Read one address to its end, however often the connection breaks on the way."""
    idle = 0
    while True:
        before = _size(part)
        try:
            if _read_on(url, part, progress):
                return
            problem: Exception = ConnectionError("the connection was cut")
        except urllib.error.HTTPError as error:
            error.close()  # it is an answer too, with its own connection
            if error.code != _NOTHING_LEFT or before == 0:
                raise
            part.unlink()  # longer than the file there: not a part of it
            problem = error
        except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = error
        idle = 0 if _size(part) > before else idle + 1
        if idle >= TRIES:
            raise problem


def _read_on(url: str, part: Path, progress: Progress) -> bool:
    """Append what is missing; whether that was all. A server that starts anew is followed."""
    have = _size(part)
    request = urllib.request.Request(url, headers={"User-Agent": "ancl"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
        goes_on = answer.status == http.client.PARTIAL_CONTENT
        have = have if goes_on else 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else None
        with part.open("ab" if goes_on else "wb") as file:
            while chunk := answer.read(_CHUNK):
                file.write(chunk)
                have += len(chunk)
                progress(have, total)
    return total is None or have >= total


def _size(part: Path) -> int:
    return part.stat().st_size if part.is_file() else 0


Announce = Callable[[Remote], Progress]
"""Called with each file before it is fetched; returns what receives its progress."""


def fetch(data: Published, root: Path, announce: Announce, *, offline: bool = False) -> Source:
    """Download a data set, unpack it into the root and read it; what exists is not fetched.

    Raises:
        ScenarioError: It cannot be obtained, or is not what was published.
    """
    folder, fetched = root / data.folder, set[Path]()
    for remote in () if data.find(root) else data.files:
        target = root / remote.name if data.archive else folder / remote.name
        if target.exists():
            verify(target, remote)
        elif offline:
            raise ScenarioError(by_hand(remote, target, "is not here, and --offline was given"))
        else:
            download(remote, target, announce(remote))
            fetched.add(target)
    packed = root / data.files[0].name
    if data.archive and not folder.is_dir() and packed.is_file():
        verify(packed, data.files[0])
        unpack(packed, folder)
        if packed in fetched:  # an archive that the user put there stays
            packed.unlink()
    return data.load(root)


def import_from(data: Published, path: Path, root: Path) -> Source:
    """Check an archive or folder and copy it into the root, under the publisher's name.

    Raises:
        ScenarioError: It is something else, or there is already one in the root.
    """
    if not path.exists():
        raise ScenarioError(f"There is no file or folder {path}. Give the archive or its folder.")
    existing = data.find(root)
    if existing is not None:
        raise ScenarioError(
            f"{data.name} is already there: {existing}. Check it with: ancl data check "
            f"{data.name}, or remove it and import again."
        )
    if path.is_file() and not data.archive:
        raise ScenarioError(
            f"{data.name} is not one file but {len(data.files)}: "
            f"{', '.join(file.name for file in data.files)}. Give their folder."
        )
    if path.is_file():
        verify(path, data.files[0])
        unpack(path, root / data.folder)
    else:
        data.load_from(path)
        _place(root / data.folder, lambda temporary: _copy(path, temporary))
    return data.load(root)


def unpack(archive: Path, folder: Path) -> None:
    """The archive's folder, put in place atomically.

    Raises:
        ScenarioError: It is damaged, or holds no folder of that name.
    """

    def extract(temporary: Path) -> None:
        outer = temporary.with_name(f"{temporary.name}.tmp")
        try:
            if archive.suffix == ".zip":
                with zipfile.ZipFile(archive) as zipped:
                    zipped.extractall(outer)
            else:
                with tarfile.open(archive) as taped:
                    taped.extractall(outer, filter="data")
            (outer / folder.name).rename(temporary)
        except (tarfile.TarError, zipfile.BadZipFile, EOFError, FileNotFoundError) as error:
            raise ScenarioError(
                f"{archive} cannot be unpacked to {folder} ({error}). Remove it and fetch it again."
            ) from error
        finally:
            shutil.rmtree(outer, ignore_errors=True)

    _place(folder, extract)


def _copy(path: Path, temporary: Path) -> None:
    shutil.copytree(path, temporary, ignore=shutil.ignore_patterns(".*"))


def _place(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder under another name and give it its own at the end."""
    temporary = folder.with_name(f".{folder.name}.{uuid.uuid4().hex}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        make(temporary)
        temporary.rename(folder)
    except OSError as error:
        raise ScenarioError(
            f"{folder} cannot be written ({error.strerror or error}). Make room there, or give "
            "another --data-root."
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
