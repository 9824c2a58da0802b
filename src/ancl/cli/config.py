"""Settings from a YAML file, each with its line."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node

from ancl.errors import SpecError, unknown
from ancl.experiments.spec import Layer

SECTIONS = ("data", "network", "memory", "training", "auxiliary", "options")
NAMES = ("method", "benchmark")


class ConfigFile(NamedTuple):
    """What a file says: method and benchmark where it names them, and settings by dotted key."""

    names: dict[str, str]
    layer: Layer


def scalar(text: str) -> Any:
    """A value as YAML reads it; what is no YAML is the text itself.

    >>> scalar("1e-3"), scalar("true"), scalar("[80, 120]"), scalar("50,10x5")
    (0.001, True, [80, 120], '50,10x5')
    """
    try:
        return YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return text


def read_config(path: Path) -> ConfigFile:
    """Read a file laid out as a run's ``spec.yaml``.

    Raises:
        SpecError: It is not there, not YAML, or not laid out so; each mistake with its line.
    """
    text = _read(path)
    yaml = YAML(typ="safe", pure=True)
    try:
        root = yaml.compose(text)
        found = list(_pairs(root, path)) if root else []
        mistakes = [
            f"{path}:{line}: {key} is given twice. Leave one." for key, line in _twice(found)
        ]
        if mistakes:
            raise SpecError("\n".join(mistakes))
        values = yaml.load(text) or {}
    except MarkedYAMLError as error:
        raise SpecError(_not_yaml(path, error)) from error
    return _sorted_out(path, values, dict(found))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecError(
            f"--config: {path} cannot be read ({error.strerror}). Give an existing YAML file, such "
            f"as the spec.yaml of a run."
        ) from error
    except UnicodeDecodeError as error:
        raise SpecError(f"--config: {path} is not a text file. Give a YAML file.") from error


def _not_yaml(path: Path, error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    place = f"{path}:{mark.line + 1}" if mark else str(path)
    return f"{place}: this is not YAML: {error.problem or error.context}. Mend the line."


def _pairs(root: Node, path: Path) -> Iterator[tuple[str, int]]:
    """Every dotted key with its line, as often as it is there."""
    if not isinstance(root, MappingNode):
        raise SpecError(
            f"{path}:1: this is a list or text. Write settings, such as 'training: {{epochs: 5}}'."
        )
    for key, value in root.value:
        name = str(key.value)
        yield name, key.start_mark.line + 1
        if name in SECTIONS and isinstance(value, MappingNode):
            for inner, _ in value.value:
                yield _dotted(name, str(inner.value)), inner.start_mark.line + 1


def _twice(pairs: list[tuple[str, int]]) -> list[tuple[str, int]]:
    keys = [key for key, _ in pairs]
    return [(key, line) for i, (key, line) in enumerate(pairs) if key in keys[:i]]


def _dotted(section: str, name: str) -> str:
    """The key of a setting; a method's own options have no section."""
    return name if section == "options" else f"{section}.{name}"


def _sorted_out(path: Path, found: dict[str, Any], lines: dict[str, int]) -> ConfigFile:
    names: dict[str, str] = {}
    values: dict[str, Any] = {}
    mistakes: list[str] = []
    for key, value in ((str(key), value) for key, value in found.items()):
        if key in NAMES:
            names[key] = str(value)
        elif key in SECTIONS and isinstance(value, dict):
            values |= {_dotted(key, str(name)): inner for name, inner in value.items()}
        elif key in SECTIONS and value is not None:
            mistakes.append(
                f"{path}:{lines[key]}: {key} is {value!r}; it must be a section of settings, such "
                f"as '{key}: {{name: value}}'."
            )
        elif isinstance(value, dict):
            mistakes.append(f"{path}:{lines[key]}: {unknown('section', key, SECTIONS)}")
        elif key not in SECTIONS:
            values[key] = value
    if mistakes:
        raise SpecError("\n".join(mistakes))
    return ConfigFile(names, Layer(str(path), values, lines))
