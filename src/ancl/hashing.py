"""What a part is, as JSON: everything that can change its numbers, and nothing else.

Stage keys are hashes of such descriptions. Code of the package itself is covered by
``NUMERICS``; code from outside enters by the hash of its source files.
"""

import dataclasses
import hashlib
import inspect
import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from ancl.errors import AnclError
from ancl.outside import Sources, sources_of

PROCESS = uuid.uuid4().hex
"""Stands for code that cannot be described: such a key is found by no other process."""
_SHOWN = 3
"""How many reasons a message names."""


class UnstorableError(AnclError):
    """Code that is not completely known, so its results may be confused with those of other code.

    Args:
        message: What is not known, and what to do.
        known: What is known of it, as JSON, where that is something.
    """

    def __init__(self, message: str, known: Any = None) -> None:
        super().__init__(message)
        self.known = known


class Later:
    """Marks a setting that came after results were stored: ``Annotated[bool, LATER] = False``.

    It is left out of descriptions, specs and keys while it has its default, wherever it is
    nested, so that what was stored before it came is still found.
    """


LATER = Later()


@cache
def later_defaults(owner: Callable[..., Any]) -> Mapping[str, Any]:
    """The settings of a dataclass or function that are marked as later, with their defaults."""
    hints = get_type_hints(owner, include_extras=True)
    marked = {name for name, hint in hints.items() if _is_later(hint)}
    if not marked:
        return {}
    parameters = inspect.signature(owner).parameters
    return {name: parameters[name].default for name in parameters if name in marked}


def _is_later(hint: Any) -> bool:
    return get_origin(hint) is Annotated and any(isinstance(m, Later) for m in get_args(hint))


def not_later(later: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values without later settings that have their default."""
    return {n: v for n, v in values.items() if not (n in later and later[n] == v)}


Unknown = Callable[[object, UnstorableError], Any]
"""What to write for a value that cannot be described."""


def describe(value: object, unknown: Unknown | None = None, *, complete: bool = True) -> Any:
    """A part as JSON: its class and its fields, recursively.

    Args:
        value: A plain value, a dataclass, a class or function of a module, or an object with a
            method ``key_description()``.
        unknown: Gives the description of a part that has none.
        complete: Whether all that code from outside depends on must be known, the versions of
            installed packages too. Else it goes by its text alone, whatever that reads: enough to
            tell whether someone gives the same code again.

    Raises:
        UnstorableError: There is such a part, and no ``unknown``.

    >>> describe((1, 0.5, "a", None))
    [1, 0.5, 'a', None]
    """
    try:
        return _describe(value, unknown, complete)
    except UnstorableError as error:
        if unknown is None:
            raise
        return unknown(value, error)


def _describe(value: object, unknown: Unknown | None, complete: bool) -> Any:
    part = partial(describe, unknown=unknown, complete=complete)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): part(item) for key, item in value.items()}
    if isinstance(value, slice):
        return [value.start, value.stop]
    if isinstance(value, Sequence):
        return [part(item) for item in value]
    if isinstance(value, type) or inspect.isfunction(value):
        _of_a_module(value)
        return {"is": _origin(value, complete)}
    description = getattr(value, "key_description", None)
    if description is not None:
        return description()
    if dataclasses.is_dataclass(value):
        origin = _origin(type(value), complete)
        return {"is": origin, **{n: part(v) for n, v in described_fields(value).items()}}
    raise UnstorableError(
        f"{type(value).__name__} has no description: make it a frozen dataclass or a function of "
        f"a module, so that its settings can enter the keys of stored results."
    )


def described_fields(part: Any) -> dict[str, Any]:
    """The fields of a dataclass that say what it is, by name."""
    # What equality leaves out is not identity either: reasons in words may be worded anew.
    names = [field.name for field in dataclasses.fields(part) if field.compare]
    kind: Callable[..., Any] = type(part)
    return not_later(later_defaults(kind), {name: getattr(part, name) for name in names})


def digest(description: object) -> str:
    """The hash of a JSON description."""
    text = json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def is_ours(module: str) -> bool:
    """Whether code of this module is covered by ``NUMERICS`` and torch's version."""
    return module.split(".")[0] in {"ancl", "torch", "builtins"}


def _origin(code: Any, complete: bool) -> Any:
    """The name of a class or function, with the hash of each outside source file it comes from.

    Our own parts go by their name alone, so that moving a file changes no key.
    """
    bases = code.__mro__ if isinstance(code, type) else (code,)
    outside = [base for base in bases if not is_ours(base.__module__) and base.__module__ != "abc"]
    if not outside:
        ours = code.__module__.partition(".")[0] == "ancl"
        return code.__qualname__ if ours else f"{code.__module__}.{code.__qualname__}"
    # The module's name depends on how the file was loaded; the hash of the file does not.
    return [code.__qualname__, *sorted({source_hash(base, complete=complete) for base in outside})]


def _of_a_module(code: Any) -> None:
    """Refuse what is made inside a function: two of one name may hold different values."""
    if "<" in code.__qualname__ or getattr(code, "__closure__", None):
        raise UnstorableError(
            f"{code.__qualname__} may hold values from where it was made, which no key can show. "
            f"Make it a frozen dataclass or a plain function of a module."
        )


def source_hash(code: Any, *, complete: bool = True) -> str:
    """The hash of the file that defines a class or function, and of its own modules.

    Own modules are those it imports that are not installed; see ``ancl.outside``. ``complete`` is
    as in ``describe``.

    Raises:
        UnstorableError: Some of its source code is not known.
    """
    try:
        file = inspect.getsourcefile(code)
    except TypeError:
        file = None
    if file is None or not Path(file).is_file():
        raise UnstorableError(
            f"{code.__qualname__} has no source file, so a stored result could be confused with "
            f"that of another version. Put it into a file to have its results stored and resumed."
        )
    sources = sources_of(code.__module__, Path(file))
    return known_digest(code.__qualname__, sources) if complete else sources.digest


def known_digest(name: str, sources: Sources) -> str:
    """The hash of the source code of what has this name, and of the versions of what it imports.

    Raises:
        UnstorableError: Some of it is not known.
    """
    if sources.gaps:
        more = len(sources.gaps) - _SHOWN
        shown = "; ".join([*sources.gaps[:_SHOWN], *([f"and {more} more"] if more > 0 else [])])
        raise UnstorableError(
            f"Not all that decides {name} is known: {shown}. Its source code does not show what "
            f"that reads or runs. Use import statements, and settings for values, to have its "
            f"results stored and resumed."
        )
    return sources.identity
