"""Several methods in one request, each maybe with values of its own: ``lwf@lamb=3``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from ancl.errors import AnclError, SpecError
from ancl.methods.registry import MethodRef
from ancl.recipe.recipe import Layer, RunSpec
from ancl.recipe.request import Request, dotted_settings, make_request
from ancl.recipe.resolve import unused_auxiliary
from ancl.recipe.yaml_file import read_scalar


def specs(
    methods: Sequence[str],
    benchmark: str | None = None,
    *,
    seeds: Sequence[int] = (),
    preset: str = "paper",
    quick: bool = False,
    config: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    **options: Any,
) -> list[RunSpec]:
    """Checked runs: every method with every seed. See ``spec`` for the arguments.

    A method's own setting (``lamb``) goes to those methods that have it; a value behind a method,
    as in ``lwf@lamb=3``, to it alone.

    Examples:
        >>> [(s.method, s.seed) for s in specs(["lwf", "a-lwf"], "digits/5", seeds=[0, 1])]
        [('lwf', 0), ('lwf', 1), ('a-lwf', 0), ('a-lwf', 1)]

    Raises:
        SpecError: All mistakes, each once, on its own line.
    """
    values = dotted_settings({**(settings or {}), **options})
    asked = make_request(None, benchmark, values, seeds, preset, quick, config)
    return resolve_methods(asked, methods)


class MethodRow(NamedTuple):
    """A method as a comparison names it: its name, and values for it alone.

    Args:
        text: As it was written: ``lwf@lamb=3``.
        method: The method's name.
        values: Settings by dotted key.
    """

    text: str
    method: str
    values: Mapping[str, Any]

    @classmethod
    def read(cls, text: str) -> Self:
        """Read ``NAME`` or ``NAME@key=value,key=value``.

        Examples:
            >>> MethodRow.read("my.py:l1@lamb=0.03,training.epochs=[5,2]").values
            {'lamb': 0.03, 'training.epochs': [5, 2]}

        Raises:
            SpecError: What follows the ``@`` is not a list of values.
        """
        named = _VALUES.match(text)
        if named is None:
            if "@" in text and ":" not in text:
                method = text.partition("@")[0] or "lwf"
                raise SpecError(
                    f"{text!r}: what follows the @ are no values. Write them as {method}@lamb=3 or "
                    f"{method}@lamb=3,training.epochs=10."
                )
            return cls(text, text, {})
        values: dict[str, Any] = {}
        for part in _COMMA.split(named["values"]):
            key, _, value = part.partition("=")
            if key in values:
                raise SpecError(f"{text!r} has two values for {key}. Leave out one.")
            values[key] = read_scalar(value)
        return cls(text, named["method"], values)


_VALUES = re.compile(r"(?P<method>.+?)@(?P<values>[^\W\d][\w.]*=.*)$", re.DOTALL)
_COMMA = re.compile(r",(?=[^\W\d][\w.]*=)")


def resolve_rows(
    request: Request, texts: Sequence[str], among: Sequence[str] = ()
) -> dict[str, list[RunSpec]]:
    """The runs of every method, one per seed, by the method as it was written.

    A setting goes to the methods that have it; one that is written behind a method to it alone.

    Args:
        request: What all have in common.
        texts: The methods, each maybe with values: ``lwf@lamb=3``.
        among: Other methods whose settings the request may hold.

    Raises:
        SpecError: All mistakes, each once, on its own line.
    """
    mistakes: list[str] = []
    rows: list[MethodRow] = []
    for text in dict.fromkeys(texts):
        try:
            rows.append(MethodRow.read(text))
        except SpecError as error:
            mistakes.append(str(error))
    methods = (*(row.method for row in rows), *among)
    by_row: dict[str, list[RunSpec]] = {}
    for row in rows:
        try:
            ignored = foreign_settings(row.method, methods, request.own_settings())
            asked = replace(request, method=row.method, ignored=ignored, beside=methods)
            if row.values:
                asked = replace(asked, ignored=ignored - row.values.keys())
                asked = asked.with_values(row.text, row.values)
            by_row[row.text] = [resolved.spec for resolved in asked.resolve()]
            layer = Layer(row.text, row.values)
            mistakes += unused_auxiliary([layer], by_row[row.text][0], (row.text,))
        except AnclError as error:
            mistakes += str(error).split("\n")
    if mistakes:
        raise SpecError("\n".join(dict.fromkeys(mistakes)))
    return by_row


def resolve_methods(
    request: Request, methods: Sequence[str], among: Sequence[str] = ()
) -> list[RunSpec]:
    """Every method with every seed, in this order; see ``resolve_rows``."""
    rows = resolve_rows(request, methods, among)
    return [spec for specs in rows.values() for spec in specs]


def foreign_settings(method: str, methods: Iterable[str], given: Iterable[str]) -> frozenset[str]:
    """Of the settings given, those that another method has and this one has not."""
    settings = MethodRef(method).settings
    others = {name for other in methods for name in _settings_of(other)}
    return frozenset(key for key in given if key in others and key not in settings)


def _settings_of(method: str) -> list[str]:
    try:
        return list(MethodRef(method).settings)
    except AnclError:
        return []  # reported when the method itself is resolved
