"""One command line for several methods: a setting goes to those that have it."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from ancl.cli.config import read_config
from ancl.cli.request import FLAGS, Request
from ancl.errors import AnclError, SpecError
from ancl.experiments.spec import GENERAL, RunSpec
from ancl.methods.registry import MethodRef


def resolve_several(
    request: Request, methods: Sequence[str], among: Sequence[str] = ()
) -> list[RunSpec]:
    """Every method with every seed, in this order.

    Args:
        request: What all have in common.
        methods: Their names.
        among: Other methods the same command line speaks to.

    Raises:
        SpecError: All mistakes, each once, on its own line.
    """
    mistakes: list[str] = []
    specs: list[RunSpec] = []
    for method in methods:
        try:
            ignored = foreign_settings(method, [*methods, *among], _own_settings(request))
            asked = replace(request, method=method, ignored=ignored)
            specs += [resolved.spec for resolved in asked.resolve()]
        except AnclError as error:
            mistakes += str(error).split("\n")
    if mistakes:
        raise SpecError("\n".join(dict.fromkeys(mistakes)))
    return specs


def foreign_settings(method: str, methods: Iterable[str], given: Iterable[str]) -> frozenset[str]:
    """Of the settings given, those that other methods have and this one has not."""
    own = MethodRef(method).settings
    others = {name for other in methods for name in _settings_of(other)}
    return frozenset(key for key in given if key in others and key not in own)


def _settings_of(method: str) -> list[str]:
    try:
        return list(MethodRef(method).settings)
    except AnclError:
        return []  # its own turn tells what is wrong with it


def _own_settings(request: Request) -> list[str]:
    """The settings of methods (not of data, network or training) that were given anywhere."""
    keys = [text.partition("=")[0].strip() for text in request.settings]
    keys += [FLAGS[flag][0] for flag in request.flags]
    if request.config:
        with suppress(SpecError):  # the request itself tells it
            keys += read_config(request.config).layer.values
    return [key for key in keys if "." not in key and key not in GENERAL]
