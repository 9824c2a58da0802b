"""Code from outside the package, by name: ``path/file.py:NAME`` or ``package.module:NAME``.

What it imports that is not an installed package belongs to the code: its text is hashed with it,
and sent with it to another machine.
"""

import hashlib
import importlib
import importlib.util
import os
import sys
from importlib.util import cache_from_source
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from ancl.errors import AnclError, unknown
from ancl.outside.source import (
    Place,
    Sources,
    base_of,
    changed,
    collect,
    dotted_name,
    place_of,
    remember,
    spec_of,
)

FORMS = ("path/file.py:NAME", "package.module:NAME")
"""How to name your own code."""
LIBRARIES = ("timm", "torchvision")
"""Packages whose networks go by the names of their own lists: not code to load."""

_DIGESTS: dict[str, str] = {}
"""The digest of the sources that each file was loaded with, by the name of its module."""


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
    >>> is_outside("timm:resnet18")
    False
    """
    return ":" in name and not in_library(name)


def in_library(name: str) -> bool:
    """Whether a name stands for a network of another library."""
    library, colon, _ = name.partition(":")
    return bool(colon) and library in LIBRARIES


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


def _from_file(path: Path, error: type[AnclError]) -> tuple[ModuleType, Sources]:
    if not path.is_file():
        raise error(f"There is no file {path}. Give an existing one: path/file.py:NAME.")
    file = Path(os.path.abspath(path))
    # Named by its place, so that two files of the same name do not replace each other.
    name = f"ancl_outside_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    sources = collect(place_of(name, file), Path.read_bytes)
    if name in sys.modules and name not in _DIGESTS:
        raise error(
            f"{path} loads itself. Put what it does besides definitions below "
            f"if __name__ == '__main__'."
        )
    if _DIGESTS.get(name) == sources.digest:
        return sys.modules[name], sources
    if changed(sources):
        _forget(sources)
    if sources.others or sources.gaps:
        _open_folder(path, sources, error)
    remember(sources)
    return _execute(name, path, sources, error), sources


def _execute(name: str, path: Path, sources: Sources, error: type[AnclError]) -> ModuleType:
    """A module from the very text that was read: cached bytecode may be older."""
    file = sources.place.folder / sources.place.entry
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _DIGESTS.pop(name, None)
    try:
        exec(compile(sources.files[file.name], file, "exec"), vars(module))
    except Exception as problem:  # a user's file may raise anything
        del sys.modules[name]
        if isinstance(problem, error) and "loads itself" in str(problem):
            raise
        relative = isinstance(problem, ImportError) and "relative import" in str(problem)
        remedy = ". Write 'import x' for x.py beside it, or give package.module:NAME."
        raise error(
            f"{path} does not load: {type(problem).__name__}: {problem}{remedy if relative else ''}"
        ) from problem
    _DIGESTS[name] = sources.digest
    return module


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
    sources = collect(place_of(where, Path(os.path.abspath(file))), Path.read_bytes)
    if changed(sources):
        raise error(f"{where} was changed after this process loaded it. Start Python again.")
    remember(sources)
    return module, sources


def _forget(sources: Sources) -> None:
    """Import the own modules of changed code again."""
    for path in sources.others:
        module = sys.modules.get(dotted_name(path))
        if module and module.__file__ == str(sources.file(path)):
            del sys.modules[dotted_name(path)]
            # Bytecode is taken for current where size and second are the same.
            Path(cache_from_source(module.__file__)).unlink(missing_ok=True)


def _open_folder(path: Path, sources: Sources, error: type[AnclError]) -> None:
    """Make the folder's modules importable, after all others, unless a name is taken.

    Python knows one module of a name: code must not silently get that of another folder.
    """
    folder = sources.place.folder
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    importlib.invalidate_caches()
    for top in sorted({_top(other) for other in sources.others}):
        module_spec = spec_of(top)
        base = base_of(module_spec) if module_spec else None
        folder_sources = {
            other: data for other, data in sources.others.items() if _top(other) == top
        }
        if base is None or not all(
            _says(base / other, data) for other, data in folder_sources.items()
        ):
            origin = (module_spec.origin or "a folder") if module_spec else "nowhere"
            raise error(
                f"{path} imports {top!r} from its folder, but Python finds another module of that "
                f"name first: {origin}. Rename {sources.file(next(iter(folder_sources)))}."
            )


def _says(file: Path, data: bytes) -> bool:
    return file.is_file() and file.read_bytes() == data


def _callables(module: ModuleType) -> list[str]:
    """What a module offers: its own functions and classes, or all where it has none."""
    functions = {n: v for n, v in vars(module).items() if callable(v) and not n.startswith("_")}
    defined_here = [
        n for n, v in functions.items() if getattr(v, "__module__", None) == module.__name__
    ]
    return defined_here or list(functions)


def _top(path: str) -> str:
    return dotted_name(path).split(".")[0]
