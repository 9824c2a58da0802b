"""Published data brought into the data root: fetched, or imported from a file or folder."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from ancl.data.download import Progress, by_hand, download
from ancl.data.published import Published, Remote, verify
from ancl.data.sources import Source
from ancl.errors import ScenarioError

Announce = Callable[[Remote], Progress]
"""Told of each file before it is fetched; gives what is told of its progress."""


def fetch(data: Published, root: Path, announce: Announce, *, offline: bool = False) -> Source:
    """Download a data set, unpack it into the root and read it; what is there is not fetched.

    Raises:
        ScenarioError: It cannot be had, or is not what was published.
    """
    folder = root / data.folder
    for remote in () if data.find(root) else data.files:
        target = root / remote.name if data.archive else folder / remote.name
        if target.exists():
            verify(target, remote)
        elif offline:
            raise ScenarioError(by_hand(remote, target, "is not here, and --offline was given"))
        else:
            download(remote, target, announce(remote))
    packed = root / data.files[0].name
    if data.archive and not folder.is_dir() and packed.is_file():
        verify(packed, data.files[0])
        unpack(packed, folder)
        packed.unlink()
    return data.load(root)


def import_from(data: Published, path: Path, root: Path) -> Source:
    """Check an archive or folder and copy it into the root, under the publisher's name.

    Raises:
        ScenarioError: It is something else, or there is already one in the root.
    """
    if not path.exists():
        raise ScenarioError(f"There is no file or folder {path}. Give the archive or its folder.")
    found = data.find(root)
    if found is not None:
        raise ScenarioError(
            f"{data.name} is already there: {found}. Check it with: ancl data check {data.name}, "
            "or remove it and import again."
        )
    if path.is_file() and not data.archive:
        raise ScenarioError(
            f"{data.name} is not one file but {len(data.files)}: "
            f"{', '.join(file.name for file in data.files)}. Give the folder they lie in."
        )
    if path.is_file():
        verify(path, data.files[0])
        unpack(path, root / data.folder)
    else:
        data.load_from(path)
        _place(root / data.folder, lambda temporary: _copy(path, temporary))
    return data.load(root)


def unpack(archive: Path, folder: Path) -> None:
    """The archive's folder, put in place whole or not at all.

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
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}")
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
