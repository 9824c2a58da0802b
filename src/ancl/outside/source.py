"""The source code a module is made of: its file, and all modules it imports that are not installed.

They are beside the file, in its package, or wherever Python finds them (``PYTHONPATH``, a package
that is installed to be edited). They belong to the code: their text is hashed with it, and sent
with it to another machine. Installed packages are known by their versions.
"""

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple

from ancl.outside.scan import Import, scan

_COVERED = sys.stdlib_module_names | {"ancl", "torch"}
"""Never a user's own: keys hold the versions of ``ancl`` and torch, and Python's is known."""
_INSTALLED = {"site-packages", "dist-packages"}
_LOADED: dict[Path, bytes] = {}
"""What each file said when it was loaded: a later change is not what this process runs."""


class Place(NamedTuple):
    """Where a module is.

    Args:
        folder: What the names of its own modules are relative to.
        entry: The file, as a path relative to the folder.
        only: The only package whose modules are its own; any in the folder if left out.
        package: The package that the folder itself belongs to, if any.
    """

    folder: Path
    entry: str
    only: str | None = None
    package: str | None = None


class Sources:
    """The text of a module and of all modules it imports that are not installed.

    Args:
        place: Where the module is.
        files: What each file says, by its path relative to its folder.
        gaps: What is not known of the code, each as a phrase; empty where all of it is.
        installed: For an installed package, the hash of all its files; it is not sent along.
        elsewhere: The folder of each file that is not in the module's own.
        versions: The installed packages it imports, each with its version.
    """

    def __init__(
        self,
        place: Place,
        files: Mapping[str, bytes],
        gaps: tuple[str, ...] = (),
        installed: str = "",
        elsewhere: Mapping[str, Path] = MappingProxyType({}),
        versions: tuple[str, ...] = (),
    ) -> None:
        self.place, self.files, self.gaps, self.installed = place, files, gaps, installed
        self.elsewhere, self.versions = elsewhere, versions

    @cached_property
    def digest(self) -> str:
        """A hash of all files. It depends neither on the folder nor on the first file's name."""
        entry = self.place.entry
        parts = sorted(("" if path == entry else path, data) for path, data in self.files.items())
        total = hashlib.sha256(self.installed.encode())
        for path, data in parts:
            total.update(f"{path}\0{hashlib.sha256(data).hexdigest()}\n".encode())
        return total.hexdigest()

    @property
    def identity(self) -> str:
        """The same with the versions of the packages it imports, where there are any."""
        if not self.versions:
            return self.digest
        return hashlib.sha256("\n".join([self.digest, *self.versions]).encode()).hexdigest()

    @property
    def others(self) -> dict[str, bytes]:
        """The files without the first."""
        return {path: data for path, data in self.files.items() if path != self.place.entry}

    def file(self, path: str) -> Path:
        """Where one of the files is."""
        return self.elsewhere.get(path, self.place.folder) / path


def sources_of(module: str, file: Path) -> Sources:
    """The source of a module that this process has loaded, in any way.

    Args:
        module: The module's name.
        file: The file it was loaded from.
    """
    spec = getattr(sys.modules.get(module), "__spec__", None)
    place = place_of(spec.name if spec else module, Path(os.path.abspath(file)))
    known = _KNOWN.get(place)
    if known is None or known[1] != _marks(known[0]):
        sources = collect(place, _as_loaded)
        known = _KNOWN[place] = (sources, _marks(sources))
    return known[0]


def changed(sources: Sources) -> bool:
    """Whether a file says something else than when it was loaded."""
    return any(_LOADED.get(sources.file(p), data) != data for p, data in sources.files.items())


def remember(sources: Sources) -> None:
    """Keep what these files say, since they are loaded now."""
    _LOADED.update({sources.file(path): data for path, data in sources.files.items()})
    _KNOWN.clear()


def place_of(module: str, file: Path) -> Place:
    """Where a module is: beside its file, or at the top of its packages."""
    root = file.parent if file.name == "__init__.py" else file.with_suffix("")
    parts = tuple(module.split("."))
    folder = root.parents[len(parts) - 1] if root.parts[-len(parts) :] == parts else file.parent
    # Beside installed packages are others, which are not its own.
    only = parts[0] if folder.name in _INSTALLED else None
    top = folder
    while (top / "__init__.py").is_file():
        package, top = top.name, top.parent
    return Place(
        folder, file.relative_to(folder).as_posix(), only, package if top != folder else None
    )


def _marks(sources: Sources) -> list[tuple[int, int] | None]:
    """What changes when a file does; nothing for those whose text is kept since they loaded."""
    return [_mark(sources.file(path)) for path in sources.files]


def _as_loaded(file: Path) -> bytes:
    return _LOADED[file] if file in _LOADED else file.read_bytes()


def _mark(file: Path) -> tuple[int, int] | None:
    if file in _LOADED:
        return None
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


_KNOWN: dict[Place, tuple[Sources, list[tuple[int, int] | None]]] = {}
"""Sources that were collected, with the marks of their files at that time."""


def collect(place: Place, read: Callable[[Path], bytes]) -> Sources:
    """A file and, step by step, what it imports that is not installed."""
    installed = _installed_files(place.only) if place.only else ""
    if installed:
        return Sources(place, {place.entry: read(place.folder / place.entry)}, (), installed)
    files: dict[str, bytes] = {}
    gaps: list[str] = []
    elsewhere: dict[str, Path] = {}
    versions: set[str] = set()
    # Python runs a module's packages before it.
    packages = (
        f"{imported}/__init__.py"
        for imported in PurePosixPath(place.entry).parents
        if imported.name
    )
    waiting = [
        place.entry,
        *(imported for imported in packages if (place.folder / imported).is_file()),
    ]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        try:
            files[path] = read(elsewhere.get(path, place.folder) / path)
        except OSError as error:
            gaps.append(f"{path} cannot be read ({error.strerror})")
            continue
        seen = scan(files[path])
        gaps += [f"{path}:{line} {phrase}" for line, phrase in seen.gaps]
        for imported in seen.imports:
            for name in _possible(path, imported):
                matches = _find(place, name)
                waiting += matches.files
                elsewhere |= dict.fromkeys(matches.files, matches.folder) if matches.folder else {}
                versions |= {matches.version} - {""}
                gaps += [f"{path} imports {'.'.join(name)}, {matches.gap}"] if matches.gap else []
    used = {path: folder for path, folder in elsewhere.items() if folder != place.folder}
    return Sources(
        place,
        dict(sorted(files.items())),
        tuple(dict.fromkeys(gaps)),
        elsewhere=used,
        versions=tuple(sorted(versions)),
    )


@lru_cache(maxsize=64)
def _installed_files(package: str) -> str:
    """A hash of the files of an installed package, as its installer noted them; or nothing.

    Large packages have compiled parts and imports by name, and reading them takes seconds.
    """
    for name in _distributions(package):
        try:
            noted = metadata.distribution(name).read_text("RECORD") or ""
        except metadata.PackageNotFoundError:
            continue
        starts = (f"{package}/", f"{package}.")
        entries = [n for n in noted.splitlines() if n.startswith(starts) and ",sha256=" in n]
        if entries:
            return hashlib.sha256("\n".join(sorted(entries)).encode()).hexdigest()
    return ""


def _possible(path: str, found: Import) -> Iterator[tuple[str, ...]]:
    """All modules that an import statement of a file may load, in full."""
    package = PurePosixPath(path).parent.parts
    if found.level > len(package) + 1:
        return
    start = package[: len(package) - found.level + 1] if found.level else ()
    whole = (*start, *found.module)
    yield from (whole[:n] for n in range(1, len(whole) + 1))
    yield from ((*whole, name) for name in found.names)


class _Found(NamedTuple):
    """What is known of an imported module.

    Args:
        files: Its files where it is not installed, relative to the folder.
        gap: Why its code is not known, if so.
        folder: Where its files are.
        version: The installed package and its version.
    """

    files: tuple[str, ...] = ()
    gap: str = ""
    folder: Path | None = None
    version: str = ""


def _find(place: Place, name: tuple[str, ...]) -> _Found:
    """The files of a module beside the code or elsewhere, or the version of an installed one."""
    top = name[0]
    if top in _COVERED:
        return _Found()
    if top == place.package:
        return _Found(
            (), "of the package it is in: name it package.module:NAME instead of by its path"
        )
    if top == place.only or (place.only is None and _has(place.folder, top)):
        return _files_in(place.folder, name)
    spec = spec_of(top)
    folder = base_of(spec) if spec else None
    if spec is None or folder is None:
        # Beside the code there may be a folder of modules that no __init__.py makes a package.
        return _files_in(place.folder, name) if not place.only else _Found()
    if version := _version(top, folder):
        return _Found(version=version)
    files = _files_in(folder, name)
    if len(name) == 1 and not files.files and spec.origin:
        return _Found((), files.gap or f"which is no Python file ({Path(spec.origin).name})")
    return files


def _has(folder: Path, top: str) -> bool:
    """Whether a folder has a module or package of this name."""
    names = (
        f"{top}/__init__.py",
        f"{top}.py",
        f"{top}.pyc",
        *(top + s for s in EXTENSION_SUFFIXES),
    )
    return any((folder / name).is_file() for name in names)


def _files_in(folder: Path, name: tuple[str, ...]) -> _Found:
    """The files of a module below a folder."""
    parent, last = folder.joinpath(*name[:-1]), name[-1]
    if last == "*":
        # A package's __all__ may name any of its modules.
        package = (parent / "__init__.py").is_file()
        files = sorted(parent.glob("*.py")) if package else []
        return _Found(tuple(file.relative_to(folder).as_posix() for file in files), "", folder)
    if any((parent / f"{last}{suffix}").is_file() for suffix in EXTENSION_SUFFIXES):
        return _Found((), "a compiled extension")
    for file in (parent / last / "__init__.py", parent / f"{last}.py"):
        if file.is_file():
            return _Found((file.relative_to(folder).as_posix(),), "", folder)
    return _Found((), "which has no source file" if (parent / f"{last}.pyc").is_file() else "")


def spec_of(top: str) -> ModuleSpec | None:
    """What Python finds for a top-level name, without importing it."""
    try:
        return importlib.util.find_spec(top)
    except (ValueError, ImportError):  # something else than an import has put it there
        return None


def base_of(spec: ModuleSpec) -> Path | None:
    """The folder that holds a top-level module or package."""
    if spec.origin and spec.has_location:
        file = Path(spec.origin)
        return file.parent.parent if file.stem == "__init__" else file.parent
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]).parent if places else None


@lru_cache(maxsize=256)
def _version(top: str, folder: Path) -> str:
    """The name and version of the package that put a module into a folder; or nothing.

    A package that is installed to be edited lies elsewhere: it is known by its text.
    """
    for name in _distributions(top):
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        # What an installer noted, or the system's own packages, which note nothing.
        noted = any(file.parts[0] in (top, f"{top}.py") for file in distribution.files or ())
        here = Path(str(distribution.locate_file(""))).resolve() == folder.resolve()
        if here and (noted or folder.name in _INSTALLED):
            return f"{distribution.metadata['Name']} {distribution.version}"
    return ""


def _distributions(top: str) -> Iterator[str]:
    """The names of installed packages that may have brought a module, its own name first."""
    yield top
    yield from metadata.packages_distributions().get(top, ())


def dotted_name(path: str) -> str:
    """The name of a module, of its path relative to the folder."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
