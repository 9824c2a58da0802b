"""YAML files: settings in the form of a run's ``spec.yaml``, and any text of YAML."""

import math
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node
from ruamel.yaml.tokens import AliasToken

from ancl.errors import SpecError, printable, unknown
from ancl.files import read_plain
from ancl.recipe.recipe import SECTIONS, Layer

_MOST, _DEEPEST, _MOST_VALUES = 1_000_000, 50, 100_000
_COMPACT = re.compile(rf"(?:[-?:] +){{{_DEEPEST}}}")
_ENDLESS = re.compile(r"\b0[xob]?[0-9a-fA-F_]{1000}")
_FILE_SECTIONS = (*SECTIONS, "options")


class ConfigFile(NamedTuple):
    """What a file holds: method and benchmark where it names them, and settings by dotted key."""

    names: dict[str, str]
    layer: Layer


def read_config(path: Path) -> ConfigFile:
    """Read a file in the form of a run's ``spec.yaml``.

    Raises:
        SpecError: It cannot be read, is not YAML, or has another form; mistakes with their lines.
    """
    text = read_text(path, "--config: ", "an existing YAML file, such as the spec.yaml of a run")
    yaml = YAML(typ="safe", pure=True)
    try:
        _check_yaml(text)
        root = yaml.compose(text)
        pairs = list(_pairs(root, path)) if root else []
        mistakes = [
            f"{path}:{line}: {key} is given twice. Remove one." for key, line in _twice(pairs)
        ]
        if mistakes:
            raise SpecError("\n".join(mistakes))
        values = yaml.load(text) or {}
    except (YAMLError, ValueError, RecursionError) as error:
        raise unreadable(path, error) from error
    return _sorted_out(path, values, dict(pairs))


def parse_yaml(text: str, *, aliases: bool = False) -> Any:
    """The value of a YAML text.

    Args:
        text: The text.
        aliases: Whether ``*name`` may stand for a part that is written elsewhere.

    Raises:
        MarkedYAMLError: It is not YAML; the error says where.
        ValueError: It cannot be read for another reason, such as its depth.
    """
    try:
        _check_yaml(text, aliases=aliases)
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError:
        raise
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except (YAMLError, ValueError) as error:
        raise ValueError(printable(str(error), 200)) from error


Location = tuple[str | int, ...]
"""Where a value is in a YAML text: keys and positions, from the outermost one on."""


def yaml_lines(text: str) -> dict[Location, int]:
    """The line of every key and item of a YAML text that ``parse_yaml`` read.

    What ``<<`` takes over has the line where it is written.
    """
    lines: dict[Location, int] = {}
    root = YAML(typ="safe", pure=True).compose(text)
    waiting: list[tuple[Location, Node]] = [((), root)] if root else []
    while waiting:
        where, node = waiting.pop()
        inner: list[tuple[str | int, Node, int]]
        if isinstance(node, MappingNode):
            inner = [(str(key.value), value, key.start_mark.line) for key, value in node.value]
        else:
            items = node.value if isinstance(node, CollectionNode) else ()
            inner = [(n, item, item.start_mark.line) for n, item in enumerate(items)]
        for name, value, line in inner:
            if name == "<<" and isinstance(node, MappingNode):
                merged = [value] if isinstance(value, MappingNode) else value.value
                waiting += [(where, each) for each in merged]
                continue
            lines.setdefault((*where, name), line + 1)
            waiting.insert(0, ((*where, name), value))
    return lines


def read_scalar(text: str) -> Any:
    """A value as YAML reads it; what is not YAML is the text itself.

    >>> read_scalar("1e-3"), read_scalar("true"), read_scalar("[80, 120]"), read_scalar("50,10x5")
    (0.001, True, [80, 120], '50,10x5')
    """
    try:
        return parse_yaml(text)
    except (YAMLError, ValueError):
        return text


def _check_yaml(text: str, *, aliases: bool = False) -> None:
    """Refuse, as ``ValueError``, what would take any time or memory to read."""
    if len(text) > _MOST:
        raise ValueError(f"it has more than {_MOST:,} characters")
    opened = accumulate((letter in "[{") - (letter in "]}") for letter in text)
    if max(opened, default=0) > _DEEPEST or _COMPACT.search(text):
        raise ValueError("it is nested too deeply")
    if _ENDLESS.search(text):
        raise ValueError("it has a number of more than 1,000 digits")
    # A few aliases of aliases stand for any amount of memory.
    yaml = YAML(typ="safe", pure=True)
    if aliases:
        if _values(yaml.compose(text), {}) > _MOST_VALUES:
            raise ValueError(f"its aliases stand for more than {_MOST_VALUES:,} values")
    elif any(isinstance(token, AliasToken) for token in yaml.scan(text)):
        raise ValueError("it has an alias (*name). Write the value out")


def _values(node: Node | None, known: dict[int, float]) -> float:
    """How many values a part stands for, with all that its aliases name; infinite for a loop."""
    if not isinstance(node, CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = math.inf
        pairs = isinstance(node, MappingNode)
        inner = [child for pair in node.value for child in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_values(child, known) for child in inner)
    return known[id(node)]


def unreadable(path: Path, error: Exception) -> SpecError:
    """What is wrong with a YAML text, and in which line where that is known."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = error.problem or error.context
        return SpecError(f"{place}: this is not YAML: {problem}. Correct the line.")
    why = printable(str(error), 200)
    return SpecError(f"{path}: this is not YAML that can be read: {why}.")


def read_text(path: Path, where: str, wanted: str) -> str:
    """A file's text, or a ``SpecError`` that says why it cannot be read."""
    shown = printable(str(path), 200)
    try:
        return read_plain(path, 4 * _MOST).decode("utf-8")  # at most 4 bytes per character
    except OSError as error:
        why = error.strerror
        raise SpecError(f"{where}{shown} cannot be read ({why}). Give {wanted}.") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"{where}{shown} is not a text file. Give a YAML file.") from error


def _pairs(root: Node, path: Path) -> Iterator[tuple[str, int]]:
    """Every dotted key with its line, repeated keys included."""
    if not isinstance(root, MappingNode):
        raise SpecError(
            f"{path}:1: this is a list or text. Write settings, such as 'training: {{epochs: 5}}'."
        )
    for key, value in root.value:
        name = str(key.value)
        yield name, key.start_mark.line + 1
        if name in _FILE_SECTIONS and isinstance(value, MappingNode):
            for inner, _ in value.value:
                yield _dotted(name, str(inner.value)), inner.start_mark.line + 1


def _twice(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    seen, repeated = set[str](), list[tuple[str, int]]()
    for key, line in pairs:
        repeated += [(key, line)] if key in seen else []
        seen.add(key)
    return repeated


def _dotted(section: str, name: str) -> str:
    """The key of a setting; a method's own options have no section."""
    return name if section == "options" else f"{section}.{name}"


def _sorted_out(path: Path, found: dict[str, Any], lines: dict[str, int]) -> ConfigFile:
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for key, value in ((str(key), value) for key, value in found.items()):
        if key in ("method", "benchmark"):
            names[key] = str(value)
        elif key in _FILE_SECTIONS and isinstance(value, dict):
            values |= {_dotted(key, str(name)): inner for name, inner in value.items()}
        elif key in _FILE_SECTIONS and value is not None:
            mistakes.append(
                f"{path}:{lines[key]}: {key} is {value!r}; it must be a section of settings, such "
                f"as '{key}: {{name: value}}'."
            )
        elif isinstance(value, dict):
            mistakes.append(f"{path}:{lines[key]}: {unknown('section', key, _FILE_SECTIONS)}")
        elif key not in _FILE_SECTIONS:
            values[key] = value
    if mistakes:
        raise SpecError("\n".join(mistakes))
    return ConfigFile(names, Layer(str(path), values, lines))
