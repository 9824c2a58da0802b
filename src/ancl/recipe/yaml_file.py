"""YAML files: settings in the form of a run's ``spec.yaml``, and the plans of studies."""

import math
import re
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from annotated_types import Ge, Gt, MinLen
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import CollectionNode, MappingNode, Node
from ruamel.yaml.tokens import AliasToken

from ancl.checks import readable
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
    text = _read(path, "--config: ", "an existing YAML file, such as the spec.yaml of a run")
    yaml = YAML(typ="safe", pure=True)
    try:
        _check_yaml(text)
        root = yaml.compose(text)
        found = list(_pairs(root, path)) if root else []
        mistakes = [
            f"{path}:{line}: {key} is given twice. Remove one." for key, line in _twice(found)
        ]
        if mistakes:
            raise SpecError("\n".join(mistakes))
        values = yaml.load(text) or {}
    except (YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(path, error) from error
    return _sorted_out(path, values, dict(found))


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
        inner = [each for pair in node.value for each in pair] if pairs else node.value
        known[id(node)] = 1 + sum(_values(each, known) for each in inner)
    return known[id(node)]


def _unreadable(path: Path, error: Exception) -> SpecError:
    """What is wrong with a YAML text, and in which line where that is known."""
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = error.problem or error.context
        return SpecError(f"{place}: this is not YAML: {problem}. Correct the line.")
    why = printable(str(error), 200)
    return SpecError(f"{path}: this is not YAML that can be read: {why}.")


def _read(path: Path, where: str, wanted: str) -> str:
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
    seen, found = set[str](), list[tuple[str, int]]()
    for key, line in pairs:
        found += [(key, line)] if key in seen else []
        seen.add(key)
    return found


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


# -- study files -----------------------------------------------------------------------------

EXTENDED_FROM = 3
"""Values a grid needs for its edge to be extended: with two, each value is an edge."""


def _ascending(values: tuple[float, ...]) -> tuple[float, ...]:
    if list(values) != sorted(set(values)):
        raise ValueError("must ascend")
    if values and not 1e-30 <= values[0] <= values[-1] <= 1e30:
        raise ValueError("must be between 1e-30 and 1e30")  # what lies beyond an edge is finite
    return values


Values = Annotated[tuple[Annotated[float, Gt(0)], ...], AfterValidator(_ascending)]
Seeds = Annotated[tuple[Annotated[int, Ge(0)], ...], MinLen(1)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class MethodPlan(_Section):
    """Grids of λ, of λ_a, of AFEC's λ_a (no AFEC without), and settings by dotted key."""

    lamb: Annotated[Values, MinLen(EXTENDED_FROM)]
    lamb_a: Annotated[Values, MinLen(EXTENDED_FROM)]
    afec: Values = ()
    settings: dict[str, Any] = {}


class BenchmarkPlan(_Section):
    """Methods to study on a benchmark, and reference rows with their settings.

    A row is named by its method, or has any name and the setting ``method``.
    """

    methods: dict[str, MethodPlan] = {}
    references: dict[str, dict[str, Any]] = {}
    settings: dict[str, Any] = {}


class StudyPlan(_Section):
    """The seeds that decide, those of the table and those of references; and what to study."""

    search_seeds: Seeds
    table_seeds: Seeds
    reference_seeds: Seeds
    benchmarks: Annotated[dict[str, BenchmarkPlan], MinLen(1)]


Rules = Annotated[tuple[str, ...], MinLen(1)]


class RulesPlan(_Section):
    """Rules that compete in place of the grids of another study, and the methods that decide.

    Rules for λ are those of an Ω on answers, and those of an Ω on weights.
    """

    of: str
    search_seeds: Seeds
    table_seeds: Seeds
    deciding: Annotated[tuple[str, ...], MinLen(1)]
    lamb_a: Rules
    lamb: dict[Literal["answers", "weights"], Rules]

    def rules(self, kind: str) -> tuple[str, ...]:
        """Rules that compete: for ``lamb_a``, or for λ of Ω on ``answers`` or ``weights``."""
        found: dict[str, tuple[str, ...]] = {"lamb_a": self.lamb_a}
        found |= {str(name): rules for name, rules in self.lamb.items()}
        return found.get(kind, ())


def read_study_plan(path: Path) -> StudyPlan:
    """Read the file of a study of grids.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    return _read_plan(path, StudyPlan)


def read_rules_plan(path: Path) -> RulesPlan:
    """Read the file of a study of rules.

    Raises:
        SpecError: All mistakes, each on its own line.
    """
    return _read_plan(path, RulesPlan)


def studies_rules(path: Path) -> bool:
    """Whether a study file names another study, whose grids its rules stand for."""
    try:
        found = parse_yaml(_read(path, "", "a study file"), aliases=True)
    except (YAMLError, ValueError):
        return False  # reading it as a study says why
    return isinstance(found, dict) and "of" in found


_Plan = TypeVar("_Plan", StudyPlan, RulesPlan)


def _read_plan(path: Path, kind: type[_Plan]) -> _Plan:
    try:
        text = _read(path, "", "a study file")
        found = kind.model_validate(parse_yaml(text, aliases=True))
    except ValidationError as error:
        raise SpecError("\n".join(_mistakes(path, error))) from error
    except (YAMLError, ValueError) as error:
        raise _unreadable(path, error) from error
    both = sorted(set(found.search_seeds) & set(found.table_seeds))
    if both:
        raise SpecError(
            f"{path}: the seeds {', '.join(map(str, both))} decide and are reported. Give "
            f"table_seeds that are not among search_seeds."
        )
    return found


def _mistakes(path: Path, error: ValidationError) -> Iterator[str]:
    """One line for each mistake; of a list and a value in it, the value's."""
    places = [each["loc"] for each in error.errors()]
    for each in error.errors():
        place = each["loc"]
        if any(other[: len(place)] == place and other != place for other in places):
            continue
        said = {
            "model_type": "must be names with values, such as 'table_seeds: [20, 21]'",
            "too_short": f"must have {each.get('ctx', {}).get('min_length')} or more",
        }.get(each["type"], readable(each["msg"]))
        name = ".".join(printable(str(part), 60) for part in place) or "the file"
        yield f"{path}: {name}: {said}."
