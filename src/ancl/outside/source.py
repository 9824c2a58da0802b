"""The source code a module is made of: its file, and what it imports from its own folder.

A file's own modules are those beside it, a package's those of the package. They belong
to the code: their text is hashed with it, and sent with it to another machine.
"""

import ast
import hashlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_COVERED = sys.stdlib_module_names | {"ancl", "torch"}
"""Never a user's own: keys hold the versions of ``ancl`` and torch, and Python's is known."""
_INSTALLED = {"site-packages", "dist-packages"}
_LOADERS = {
    *("import_module", "exec_module", "spec_from_file_location"),
    *("run_path", "run_module", "CDLL", "cpp_extension"),
}
_DYNAMIC = {
    *("__import__", "exec", "builtins.__import__", "builtins.exec", "sys.path"),
    *(*_LOADERS, *(f".{name}" for name in _LOADERS)),
}
"""What loads code that the text of a file does not name."""

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
    """The text of a module and of all modules it imports from its own folder or package.

    Args:
        place: Where the module is.
        files: What each file says, by its path relative to the folder.
        gaps: What is not known of the code, each as a phrase; empty where all of it is.
        installed: For an installed package, the hash of all its files; it is not sent along.
    """

    def __init__(
        self,
        place: Place,
        files: Mapping[str, bytes],
        gaps: tuple[str, ...] = (),
        installed: str = "",
    ) -> None:
        self.place, self.files, self.gaps, self.installed = place, files, gaps, installed

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
    def others(self) -> dict[str, bytes]:
        """The files without the first."""
        return {path: data for path, data in self.files.items() if path != self.place.entry}


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
        found = collect(place, _as_loaded)
        known = _KNOWN[place] = (found, _marks(found))
    return known[0]


def changed(sources: Sources) -> bool:
    """Whether a file says something else than when it was loaded."""
    folder = sources.place.folder
    return any(_LOADED.get(folder / path, data) != data for path, data in sources.files.items())


def remember(sources: Sources) -> None:
    """Keep what these files say, since they are loaded now."""
    folder = sources.place.folder
    _LOADED.update({folder / path: data for path, data in sources.files.items()})
    _KNOWN.clear()


def place_of(module: str, file: Path) -> Place:
    """Where a module is: beside its file, or at the top of its packages."""
    own = file.parent if file.name == "__init__.py" else file.with_suffix("")
    parts = tuple(module.split("."))
    folder = own.parents[len(parts) - 1] if own.parts[-len(parts) :] == parts else file.parent
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
    return [_mark(sources.place.folder / path) for path in sources.files]


def _as_loaded(file: Path) -> bytes:
    return _LOADED[file] if file in _LOADED else file.read_bytes()


def _mark(file: Path) -> tuple[int, int] | None:
    if file in _LOADED:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


_KNOWN: dict[Place, tuple[Sources, list[tuple[int, int] | None]]] = {}
"""Sources that were collected, with the marks of their files at that time."""


def collect(place: Place, read: Callable[[Path], bytes]) -> Sources:
    """A file and, step by step, what it imports from its own folder or package."""
    installed = _installed_files(place.only) if place.only else ""
    if installed:
        return Sources(place, {place.entry: read(place.folder / place.entry)}, (), installed)
    files: dict[str, bytes] = {}
    gaps: list[str] = []
    # Python runs a module's packages before it.
    packages = (f"{each}/__init__.py" for each in PurePosixPath(place.entry).parents if each.name)
    waiting = [place.entry, *(each for each in packages if (place.folder / each).is_file())]
    while waiting:
        path = waiting.pop()
        if path in files:
            continue
        try:
            files[path] = read(place.folder / path)
        except OSError as error:
            gaps.append(f"{path} cannot be read ({error.strerror})")
            continue
        imports, dynamic = _scan(files[path])
        gaps += [f"{path} {phrase}" for phrase in dynamic]
        for each in imports:
            for name in _possible(path, each):
                found, gap = _own_files(place, name)
                waiting += found
                gaps += [f"{path} imports {'.'.join(name)}, {gap}"] if gap else []
    return Sources(place, dict(sorted(files.items())), tuple(dict.fromkeys(gaps)))


@lru_cache(maxsize=64)
def _installed_files(package: str) -> str:
    """A hash of the files of an installed package, as its installer noted them; or nothing.

    Large packages have compiled parts and imports by name, and reading them takes seconds.
    """
    for name in (package, *metadata.packages_distributions().get(package, ())):
        try:
            noted = metadata.distribution(name).read_text("RECORD") or ""
        except metadata.PackageNotFoundError:
            continue
        starts = (f"{package}/", f"{package}.")
        own = [n for n in noted.splitlines() if n.startswith(starts) and ",sha256=" in n]
        if own:
            return hashlib.sha256("\n".join(sorted(own)).encode()).hexdigest()
    return ""


class _Import(NamedTuple):
    """An import statement: dots before the module, the module, and names taken from it."""

    level: int
    module: tuple[str, ...]
    names: tuple[str, ...] = ()


@lru_cache(maxsize=1024)
def _scan(data: bytes) -> tuple[tuple[_Import, ...], tuple[str, ...]]:
    """Every import statement of a file, inside functions too, and what loads code otherwise."""
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError):
        return (), ("is not Python that can be read",)
    imports: list[_Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [_Import(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            imports.append(_Import(node.level, module, tuple(alias.name for alias in node.names)))
    words = {word for node in ast.walk(tree) for word in _words(node)} & _DYNAMIC
    phrases = (f"uses {word}, which may load code that no import names" for word in sorted(words))
    return tuple(dict.fromkeys(imports)), tuple(phrases)


def _words(node: ast.AST) -> tuple[str, ...]:
    """What a node names, as ``_DYNAMIC`` spells it."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.ImportFrom):
        return (*(node.module or "").split("."), *(alias.name for alias in node.names))
    if not isinstance(node, ast.Attribute):
        return ()
    owner = node.value.id if isinstance(node.value, ast.Name) else ""
    return (f"{owner}.{node.attr}", f".{node.attr}")


def _possible(path: str, found: _Import) -> Iterator[tuple[str, ...]]:
    """All modules that an import statement of a file may load, in full."""
    package = PurePosixPath(path).parent.parts
    if found.level > len(package) + 1:
        return
    start = package[: len(package) - found.level + 1] if found.level else ()
    whole = (*start, *found.module)
    yield from (whole[:n] for n in range(1, len(whole) + 1))
    yield from ((*whole, name) for name in found.names)


def _own_files(place: Place, name: tuple[str, ...]) -> tuple[list[str], str]:
    """The files of a module if it is an own one, and why its code is not known, if so."""
    if name[0] in _COVERED or (place.only and name[0] != place.only):
        return [], ""
    if name[0] == place.package:
        return [], "of the package it is in: name it package.module:NAME instead of by its path"
    parent, last = place.folder.joinpath(*name[:-1]), name[-1]
    if last == "*":
        # A package's __all__ may name any of its modules.
        package = (parent / "__init__.py").is_file()
        found = sorted(parent.glob("*.py")) if package else []
        return [file.relative_to(place.folder).as_posix() for file in found], ""
    if any((parent / f"{last}{suffix}").is_file() for suffix in EXTENSION_SUFFIXES):
        return [], "a compiled extension"
    for file in (parent / last / "__init__.py", parent / f"{last}.py"):
        if file.is_file():
            return [file.relative_to(place.folder).as_posix()], ""
    return [], "which has no source file" if (parent / f"{last}.pyc").is_file() else ""


def dotted_name(path: str) -> str:
    """The name of a module, of its path relative to the folder."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
