"""Files by name, in a folder or in a published archive."""

from __future__ import annotations

import os
import tarfile
import zipfile
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ancl.errors import ScenarioError
from ancl.files import file_mark, open_plain, read_plain


class Contents(NamedTuple):
    """What a published data set holds; labels are class numbers, ``classes`` names them."""

    train_x: NDArray[np.uint8]
    train_y: NDArray[np.int64]
    test_x: NDArray[np.uint8]
    test_y: NDArray[np.int64]
    classes: tuple[str, ...]


class Tree(Protocol):
    """Files that can be listed and read."""

    place: Path

    def marks(self) -> dict[str, str]:
        """Every file by name, with a mark that changes when the file does."""
        ...

    def origin(self, marks: dict[str, str]) -> tuple[Path, dict[str, str]]:
        """Where files with these marks are on the disk: a folder, and marks of files of it."""
        ...

    def read(self, name: str) -> bytes:
        """The content of a file."""
        ...


class FolderTree:
    """The files of a folder."""

    def __init__(self, folder: Path) -> None:
        self.place = folder

    def marks(self) -> dict[str, str]:
        """Every file that is not hidden, with its size and time."""
        marks = {}
        for folder, folders, files in os.walk(self.place):
            folders[:] = [name for name in folders if not name.startswith(".")]
            start = "" if Path(folder) == self.place else f"{Path(folder).relative_to(self.place)}/"
            for name in (name for name in files if not name.startswith(".")):
                marks[start.replace(os.sep, "/") + name] = file_mark(f"{folder}/{name}")
        return dict(sorted(marks.items()))

    def origin(self, marks: dict[str, str]) -> tuple[Path, dict[str, str]]:
        """The files themselves."""
        return self.place, marks

    def start(self, name: str, count: int) -> bytes:
        """The first bytes of a file; none where it cannot be read."""
        try:
            with open_plain(self.place / name) as file:
                return file.read(count)
        except OSError:
            return b""

    def read(self, name: str) -> bytes:
        """The content of a file."""
        try:
            return read_plain(self.place / name)
        except OSError as error:
            raise _missing(name, self.place) from error


class _Archive:
    """The file of an archive."""

    place: Path

    def origin(self, marks: dict[str, str]) -> tuple[Path, dict[str, str]]:
        """The archive, whichever of its files are meant."""
        return self.place.parent, {self.place.name: file_mark(str(self.place))}


class ZipTree(_Archive):
    """The files of a zip archive, below the folder it holds."""

    def __init__(self, archive: Path, top: str) -> None:
        self.place = archive
        self._top = f"{top}/"
        try:
            self._zip = zipfile.ZipFile(archive)
        except (OSError, zipfile.BadZipFile) as error:
            raise _damaged(archive, error) from error

    def marks(self) -> dict[str, str]:
        """Every file, with its size and checksum."""
        return {
            entry.filename.removeprefix(self._top): f"{entry.file_size} {entry.CRC}"
            for entry in sorted(self._zip.infolist(), key=lambda entry: entry.filename)
            if entry.filename.startswith(self._top) and not entry.is_dir()
        }

    def read(self, name: str) -> bytes:
        """The content of a file."""
        try:
            return self._zip.read(self._top + name)
        except KeyError as error:
            raise _missing(name, self.place) from error
        except (OSError, zipfile.BadZipFile) as error:
            raise _damaged(self.place, error) from error


class TarTree(_Archive):
    """The files of a tar archive, below the folder it holds, read into memory in one pass."""

    def __init__(self, archive: Path, top: str) -> None:
        self.place = archive
        self._files: dict[str, bytes] = {}
        try:
            with tarfile.open(archive, "r|*") as stream:
                for member in stream:
                    content = stream.extractfile(member) if member.isfile() else None
                    if content and member.name.startswith(f"{top}/"):
                        self._files[member.name.removeprefix(f"{top}/")] = content.read()
        except (OSError, EOFError, tarfile.TarError) as error:
            raise _damaged(archive, error) from error

    def marks(self) -> dict[str, str]:
        """Every file, with its size."""
        return {name: str(len(content)) for name, content in sorted(self._files.items())}

    def read(self, name: str) -> bytes:
        """The content of a file."""
        if name not in self._files:
            raise _missing(name, self.place)
        return self._files[name]


def open_tree(place: Path, top: str) -> Tree:
    """A folder, or an archive whose files are below ``top``."""
    if place.is_dir():
        return FolderTree(place)
    return ZipTree(place, top) if place.suffix == ".zip" else TarTree(place, top)


def _missing(name: str, place: Path) -> ScenarioError:
    return ScenarioError(f"{place} has no readable file {name}. Fetch or import the data again.")


def _damaged(archive: Path, error: Exception) -> ScenarioError:
    return ScenarioError(
        f"The archive {archive} is damaged ({error}). Remove it and fetch it again."
    )
