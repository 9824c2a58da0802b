"""Values checked against their annotated types, with messages that end a sentence."""

import inspect
import math
from typing import Any

from pydantic import TypeAdapter, ValidationError


def checked(kind: Any, value: Any) -> Any:
    """The value as its type has it: text to numbers, lists to tuples.

    Raises:
        ValueError: What the value must be instead, as in "must be greater than 0".
    """
    try:
        adapter = TypeAdapter(Any if kind is inspect.Parameter.empty else kind)
        taken = adapter.validate_python(value)
    except ValidationError as error:
        wanted = dict.fromkeys(_readable(problem["msg"]) for problem in error.errors())
        raise ValueError(" or ".join(wanted)) from error
    if isinstance(taken, float) and not math.isfinite(taken):
        raise ValueError("must be a finite number")
    return taken


def _readable(message: str) -> str:
    text = message.removeprefix("Input ").replace("should be", "must be")
    return text.split(", unable to parse")[0].split(", got a")[0]
