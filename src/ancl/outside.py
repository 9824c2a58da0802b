"""Code from outside the package, by name: ``path/file.py:NAME`` or ``package.module:NAME``.

A file may import modules that lie beside it, a module of a package those of its package. They
belong to the code: their text is hashed with it, and sent with it to another machine.
"""

import ast
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib import metadata
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple

from ancl.errors import AnclError, unknown

FORMS = ("path/file.py:NAME", "package.module:NAME")
"""How to name code of one's own."""

_COVERED = sys.stdlib_module_names | {"ancl", "torch"}
"""Never a user's own: keys hold the versions of ``ancl`` and torch, and Python's is known."""
_INSTALLED = {"site-packages", "dist-packages"}
_DYNAMIC_NAMES = {"__import__", "exec", "import_module", "CDLL"}
_DYNAMIC_ATTRIBUTES = {
    "import_module",
    "exec_module",
    "spec_from_file_location",
    "run_path",
    "run_module",
    "CDLL",
    "cpp_extension",
}
"""What loads code that the text of a file does not name."""

_LOADED: dict[Path, bytes] = {}
"""What each file said when it was loaded: a later change is not what this process runs."""
_DIGESTS: dict[str, str] = {}
"""The digest of the sources that each file was loaded with, by the name of its module."""


class Place(NamedTuple):
    """Where a module lies.

    Args:
        folder: What the names of its own modules are relative to.
        entry: The file, as a path relative to the folder.
        only: The only package whose modules are its own; any in the folder where left out.
        package: The package that the folder itself belongs to, if any.
    """

    folder: Path
    entry: str
    only: str | None = None
    package: str | None = None


class Sources:
    """The text of a module and of all modules it imports from its own folder or package.

    Args:
        place: Where the module lies.
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


class Loaded(NamedTuple):
    """What a name stands for.

    Args:
        name: As it was given.
        value: The function, class or object.
        sources: The code it comes from.
    """

    name: str
    value: Any
    sources: Sources

    @property
    def attribute(self) -> str:
        """Its name inside its module."""
        return self.name.rpartition(":")[2]


def is_outside(name: str) -> bool:
    """Whether a name stands for code from outside.

    >>> is_outside("mine.py:net"), is_outside("timm.models:net"), is_outside("resnet32")
    (True, True, False)
    """
    return ":" in name


def load(
    name: str, wanted: str, error: type[AnclError], also: type | tuple[type, ...] = ()
) -> Loaded:
    """What a name stands for; a file is executed again only where its source has changed.

    Args:
        name: ``path/file.py:NAME`` or ``package.module:NAME``.
        wanted: What it should be, for messages: "a function that returns …".
        error: What to raise where there is no such thing.
        also: Types of objects that may be named besides functions and classes.
    """
    where, _, attribute = name.rpartition(":")
    if where.endswith(".py"):
        module, sources = _from_file(Path(where).expanduser(), error)
    else:
        module, sources = _from_package(where, error)
    value = getattr(module, attribute, None)
    if value is None:
        raise error(f"{where}: {unknown('function', attribute, _callables(module))}")
    if not callable(value) and not isinstance(value, also):
        raise error(f"{name} is of type {type(value).__name__}. Name {wanted}.")
    return Loaded(name, value, sources)


def sources_of(module: str, file: Path) -> Sources:
    """The source of a module that this process has loaded, by whatever way.

    Args:
        module: The module's name.
        file: The file it was loaded from.
    """
    spec = getattr(sys.modules.get(module), "__spec__", None)
    place = _place(spec.name if spec else module, Path(os.path.abspath(file)))
    known = _KNOWN.get(place)
    if known is None or known[1] != _marks(known[0]):
        found = _collect(place, lambda path: _LOADED.get(path) or path.read_bytes())
        known = _KNOWN[place] = (found, _marks(found))
    return known[0]


# -- loading ---------------------------------------------------------------------------------------


def _from_file(path: Path, error: type[AnclError]) -> tuple[ModuleType, Sources]:
    if not path.is_file():
        raise error(f"There is no file {path}. Give an existing one: path/file.py:NAME.")
    file = Path(os.path.abspath(path))
    # Named by its place, so that two files of the same name do not replace each other.
    name = f"ancl_outside_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    sources = _collect(_place(name, file), Path.read_bytes)
    if name in sys.modules and _DIGESTS[name] == sources.digest:
        return sys.modules[name], sources
    if _changed(sources):
        _forget(sources)
    if sources.others or sources.gaps:
        _open_folder(path, sources, error)
    _remember(sources)
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as problem:  # a user's file may raise anything
        del sys.modules[name]
        relative = isinstance(problem, ImportError) and "relative import" in str(problem)
        remedy = ". Write 'import x' for x.py beside it, or give package.module:NAME."
        raise error(
            f"{path} does not load: {type(problem).__name__}: {problem}{remedy if relative else ''}"
        ) from problem
    _DIGESTS[name] = sources.digest
    return module, sources


def _from_package(where: str, error: type[AnclError]) -> tuple[ModuleType, Sources]:
    try:
        module = importlib.import_module(where)
    except Exception as problem:  # a user's module may raise anything
        absent = isinstance(problem, ModuleNotFoundError) and where.startswith(problem.name or "-")
        if absent or isinstance(problem, TypeError | ValueError):
            raise error(
                f"There is no module {where!r} ({problem}). Install it, or give a file: "
                f"path/file.py:NAME."
            ) from problem
        raise error(f"{where} does not load: {type(problem).__name__}: {problem}") from problem
    file = getattr(module, "__file__", None)
    if file is None or not file.endswith(".py"):
        gap = f"{where} has no source file"
        return module, Sources(Place(Path(), where), {}, (gap,))
    sources = _collect(_place(where, Path(os.path.abspath(file))), Path.read_bytes)
    if _changed(sources):
        raise error(f"{where} was changed after this process loaded it. Start Python again.")
    _remember(sources)
    return module, sources


def _changed(sources: Sources) -> bool:
    """Whether a file says something else than when it was loaded."""
    folder = sources.place.folder
    return any(_LOADED.get(folder / path, data) != data for path, data in sources.files.items())


def _remember(sources: Sources) -> None:
    folder = sources.place.folder
    _LOADED.update({folder / path: data for path, data in sources.files.items()})
    _KNOWN.clear()


def _forget(sources: Sources) -> None:
    """Have the own modules of changed code imported anew."""
    for path in sources.others:
        module = sys.modules.get(_dotted(path))
        if getattr(module, "__file__", None) == str(sources.place.folder / path):
            del sys.modules[_dotted(path)]


def _open_folder(path: Path, sources: Sources, error: type[AnclError]) -> None:
    """Make the folder's modules importable, after all others, unless a name is taken.

    Python knows one module of a name: code must not silently get that of another folder.
    """
    folder = sources.place.folder
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    for top in sorted({_top(other) for other in sources.others}):
        found = _found(top)
        base = _base(found) if found else None
        own = {other: data for other, data in sources.others.items() if _top(other) == top}
        if base is None or not all(_says(base / other, data) for other, data in own.items()):
            origin = (found.origin or "a folder") if found else "nowhere"
            raise error(
                f"{path} imports {top!r} from its folder, but Python finds another module of that "
                f"name first: {origin}. Rename {folder / next(iter(own))}."
            )


def _found(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # a module that something else than an import has put there
        return None


def _base(spec: ModuleSpec) -> Path | None:
    """The folder in which a top-level module or package lies."""
    if spec.origin and spec.has_location:
        file = Path(spec.origin)
        return file.parent.parent if file.name == "__init__.py" else file.parent
    places = list(spec.submodule_search_locations or ())
    return Path(places[0]).parent if places else None


def _says(file: Path, data: bytes) -> bool:
    return file.is_file() and file.read_bytes() == data


def _callables(module: ModuleType) -> list[str]:
    """What a module offers: its own functions and classes, or all where it has none."""
    found = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
    own = [n for n, v in found.items() if getattr(v, "__module__", None) == module.__name__]
    return own or list(found)


# -- source code -----------------------------------------------------------------------------------


def _place(module: str, file: Path) -> Place:
    """Where a module lies: beside its file, or at the top of its packages."""
    own = file.parent if file.name == "__init__.py" else file.with_suffix("")
    parts = tuple(module.split("."))
    folder = own.parents[len(parts) - 1] if own.parts[-len(parts) :] == parts else file.parent
    # Beside installed packages lie others, which are not its own.
    only = parts[0] if _INSTALLED & set(folder.parts) else None
    packages = [each for each in (folder, *folder.parents) if (each / "__init__.py").is_file()]
    package = packages[-1].name if packages[:1] == [folder] else None
    return Place(folder, file.relative_to(folder).as_posix(), only, package)


def _marks(sources: Sources) -> list[tuple[int, int] | None]:
    """What changes when a file does; nothing for those whose text is kept since they loaded."""
    return [_mark(sources.place.folder / path) for path in sources.files]


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


def _collect(place: Place, read: Callable[[Path], bytes]) -> Sources:
    """A file and, step by step, what it imports from its own folder or package."""
    installed = _installed_files(place.only) if place.only else ""
    if installed:
        return Sources(place, {place.entry: read(place.folder / place.entry)}, (), installed)
    files: dict[str, bytes] = {}
    gaps: list[str] = []
    waiting = [place.entry]
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
        return (), ("is no Python that can be read",)
    imports: list[_Import] = []
    dynamic: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [_Import(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = tuple(node.module.split(".")) if node.module else ()
            names = tuple(alias.name for alias in node.names)
            imports.append(_Import(node.level, module, names))
            dynamic += [name for name in (*module, *names) if name in _DYNAMIC_ATTRIBUTES]
        elif isinstance(node, ast.Name) and node.id in _DYNAMIC_NAMES:
            dynamic.append(node.id)
        elif isinstance(node, ast.Attribute):
            if node.attr in _DYNAMIC_ATTRIBUTES:
                dynamic.append(node.attr)
            elif node.attr == "path" and isinstance(node.value, ast.Name) and node.value.id == "sys":
                dynamic.append("sys.path")
    phrases = (f"uses {name}, which may load code that no import statement names" for name in dynamic)
    return tuple(dict.fromkeys(imports)), tuple(dict.fromkeys(phrases))


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
        return [], "of the package it lies in: name it package.module:NAME instead of by its path"
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


def _dotted(path: str) -> str:
    """The name of a module, of its path relative to the folder."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _top(path: str) -> str:
    return _dotted(path).split(".")[0]
