"""Values checked against annotated types, and such types as text."""

import inspect
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BeforeValidator, GetCoreSchemaHandler, TypeAdapter, ValidationError
from pydantic_core import CoreSchema

_PLAIN = {int: "integer", float: "number", str: "text", bool: "true | false", type(None): "null"}
_BOUNDS: Mapping[type, tuple[str, str]] = {
    Ge: ("≥", "ge"),
    Gt: (">", "gt"),
    Le: ("≤", "le"),
    Lt: ("<", "lt"),
}


@dataclass(frozen=True)
class Text:
    """Marks a text of a certain form: ``Annotated[str, Text("balance:ρ", read)]``.

    Args:
        form: The form as a user reads it; empty where it is not offered.
        read: Gives the text to keep of any value, or raises a ValueError: what it must be.
    """

    form: str
    read: Callable[[Any], str]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """Check by ``read``."""
        return BeforeValidator(self.read).__get_pydantic_core_schema__(source, handler)


def checked(kind: Any, value: Any) -> Any:
    """The value as its type has it: text to numbers, lists to tuples.

    Raises:
        ValueError: What the value must be instead, as in "must be greater than 0".
    """
    try:
        adapter = TypeAdapter(Any if kind is inspect.Parameter.empty else kind)
        taken = adapter.validate_python(value)
    except ValidationError as error:
        wanted = dict.fromkeys(readable(problem["msg"]) for problem in error.errors())
        raise ValueError(" or ".join(wanted)) from error
    if _has_bool(value) and not _has_bool(taken):
        raise ValueError("must be a number, not true or false")
    if isinstance(taken, float) and not math.isfinite(taken):
        raise ValueError("must be a finite number")
    return taken


def _has_bool(value: Any) -> bool:
    inside = value if isinstance(value, list | tuple) else ()
    return isinstance(value, bool) or any(map(_has_bool, inside))


def readable(message: str) -> str:
    """A message of pydantic's, in words that fit behind the name of a setting.

    >>> readable("Input should be a valid integer, unable to parse string as an integer")
    'must be a valid integer'
    """
    text = message.removeprefix("Input ").removeprefix("Value error, ")
    text = text.replace("should be", "must be")
    return text.split(", unable to parse")[0].split(", got a")[0]


def number_behind(name: str, text: str) -> float | None:
    """The number of a rule that is given as text; nothing where only its name is given.

    >>> number_behind("balance", "balance:0.3"), number_behind("auto", "auto")
    (0.3, None)

    Raises:
        ValueError: The name is another one, or what follows it is not a number.
    """
    before, colon, number = text.partition(":")
    if before != name:
        raise ValueError(text)
    return float(number) if colon else None


def type_text(kind: Any) -> str:
    """A type as a user writes values of it.

    >>> type_text(Annotated[int, Ge(1)] | None), type_text(Literal["til", "cil"])
    ('integer ≥ 1 or null', 'til | cil')
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in _PLAIN:
        return _PLAIN[kind]
    if origin is Annotated and isinstance(arguments[1], Text):
        return arguments[1].form
    if origin is Annotated:
        bounds = " and ".join(_bound(mark) for mark in arguments[1:] if type(mark) in _BOUNDS)
        return f"{type_text(arguments[0])} {bounds}".rstrip()
    if origin is Literal:
        return " | ".join(map(str, arguments))
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, map(type_text, arguments)))
    if origin in (tuple, list, Sequence):
        return f"list of {type_text(arguments[0])}s"
    return "value"


def _bound(bound: Any) -> str:
    sign, name = _BOUNDS[type(bound)]
    return f"{sign} {getattr(bound, name):g}"
