"""The file of a study: read with every mistake and its line, or written for named methods."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml.error import YAMLError

from ancl.checks import readable
from ancl.errors import AnclError, SpecError, printable, unknown
from ancl.experiments.study_plan import (
    BenchmarkPlan,
    GridValue,
    MethodPlan,
    RowValue,
    RulesPlan,
    StudyPlan,
)
from ancl.experiments.study_results import fixed_settings
from ancl.files import replace_text
from ancl.methods.registry import MethodRef
from ancl.recipe.benchmarks import benchmark as benchmark_named
from ancl.recipe.method_rows import MethodRow, resolve_rows
from ancl.recipe.recipe import Layer
from ancl.recipe.request import Request
from ancl.recipe.resolve import resolve
from ancl.recipe.yaml_file import Location, parse_yaml, read_text, unreadable, yaml_lines
from ancl.wording import SIGNS


def read_study_plan(path: Path) -> StudyPlan:
    """Read the file of a study.

    Raises:
        SpecError: All mistakes, each on its own line, with the line of the file.
    """
    text = read_text(path, "", "a study file")
    try:
        values = parse_yaml(text, aliases=True)
        lines = yaml_lines(text)
    except (YAMLError, ValueError) as error:
        raise unreadable(path, error) from error
    file = _StudyFile(path, lines)
    try:
        plan = StudyPlan.model_validate(values)
    except ValidationError as error:
        raise SpecError("\n".join(file.wrong_form(error))) from error
    if mistakes := list(file.mistakes(plan)):
        raise SpecError("\n".join(dict.fromkeys(mistakes)))
    return plan


class _StudyFile:
    """Says what is wrong with a study, and where.

    Args:
        path: The file.
        lines: The line of everything in it.
    """

    def __init__(self, path: Path, lines: Mapping[Location, int]) -> None:
        self._path, self._lines = path, lines

    def at(self, *location: str | int) -> str:
        """File and line of what is there, or of the nearest that contains it."""
        at: Location = ()
        for part in location:  # the names of forms, which pydantic adds, are not in the file
            at = (*at, part) if (*at, part) in self._lines else at
        line = self._lines.get(at)
        return f"{self._path}:{line}: " if line else f"{self._path}: "

    def wrong_form(self, error: ValidationError) -> Iterator[str]:
        """One line for each mistake; of a list and a value in it, the value's."""
        locations = [mistake["loc"] for mistake in error.errors()]
        for mistake in error.errors():
            location = mistake["loc"]
            if any(other[: len(location)] == location and other != location for other in locations):
                continue
            yield self.at(*location) + self._form_text(mistake, location)

    def _form_text(self, mistake: Any, location: Location) -> str:
        name = ".".join(printable(str(part), 60) for part in location) or "the file"
        last = printable(str(location[-1]), 60) if location else ""
        if mistake["type"] == "extra_forbidden":
            section = ".".join(map(str, location[:-1])) or "a study"
            return unknown(f"part of {printable(section, 200)}", last, _possible(location[:-1]))
        if mistake["type"] == "missing":
            example = _EXAMPLES.get(last, "")
            return f"{name} is missing." + (f" Write {last}: {example}." if example else "")
        said = {
            "model_type": "must be names with values, such as 'table_seeds: [20, 21]'",
            "too_short": f"must have {mistake.get('ctx', {}).get('min_length')} or more",
        }.get(mistake["type"], readable(mistake["msg"]))
        return f"{name}: {said}."

    def mistakes(self, plan: StudyPlan) -> Iterator[str]:
        """What is wrong although the form is right: seeds, rows, methods and settings."""
        both = sorted(set(plan.search_seeds) & set(plan.table_seeds))
        if both:
            yield (
                f"{self.at('table_seeds')}the seeds {', '.join(map(str, both))} decide and are "
                f"reported. Give table_seeds that are not among search_seeds."
            )
        for name, entry in plan.benchmarks.items():
            where = ("benchmarks", name)
            yield from self._row_mistakes(where, entry)
            try:
                benchmark_named(name)
            except AnclError as error:
                if "data.source" not in entry.settings:
                    yield f"{self.at(*where)}{error}"
                    continue
            for method, grids in entry.methods.items():
                values = {"lamb": grids.lamb[0], **grids.settings}
                place = (*where, "methods", method)
                among = [f"{variant}-{method}" for variant in ("a", "afec")]
                yield from self._setting_mistakes(place, method, values, entry, among)
            for row, values in entry.references.items():
                given = {k: v for k, v in values.items() if not isinstance(v, RowValue)}
                method = str(given.pop("method", row))
                yield from self._setting_mistakes((*where, "references", row), method, given, entry)

    def _row_mistakes(self, where: Location, entry: BenchmarkPlan) -> Iterator[str]:
        above: dict[str, Mapping[str, Any]] = {}
        for name, row in entry.references.items():
            for key, value in row.items():
                if not isinstance(value, RowValue):
                    continue
                start = f"{self.at(*where, 'references', name, key)}{key} is that of the row "
                if value.row not in above:
                    yield (
                        f"{start}{value.row}, and no row above it has this name. Above it are: "
                        f"{', '.join(above) or 'none'}."
                    )
                elif key not in {**entry.settings, **above[value.row]}:
                    has = ", ".join(above[value.row]) or "nothing"
                    yield f"{start}{value.row}, which does not have it. It has: {has}."
            above[name] = row
        if entry.baseline and entry.baseline not in entry.references:
            at = self.at(*where, "baseline")
            yield at + unknown("row of references", entry.baseline, entry.references)

    def _setting_mistakes(
        self,
        where: Location,
        method: str,
        values: Mapping[str, Any],
        entry: BenchmarkPlan,
        among: Sequence[str] = (),
    ) -> Iterator[str]:
        """What the settings of a row, and those of its benchmark, do not fit."""
        grids = {key: value.grid for key, value in values.items() if isinstance(value, GridValue)}
        plain = {key: value for key, value in values.items() if key not in grids}
        tries = [{key: value} for key, grid in grids.items() for value in grid] or [{}]
        of_benchmark = self._layer((*where[:2], "settings"), entry.settings)
        for tried in tries:
            first = {key: grid[0] for key, grid in grids.items()}
            inner = (*where, "settings") if "methods" in where else where
            layer = self._layer(inner, {**plain, **first, **tried})
            fixed = Layer("settings", fixed_settings(str(where[1])))
            try:
                request = Request(None, str(where[1]), (fixed, of_benchmark, layer), seeds=(0,))
                resolve_rows(request, [method], among)
            except AnclError as error:
                for line in str(error).split("\n"):
                    placed = line.startswith(f"{self._path}:")
                    yield line if placed else self.at(*where) + line

    def _layer(self, where: Location, values: Mapping[str, Any]) -> Layer:
        lines = {k: self._lines[*where, k] for k in values if (*where, k) in self._lines}
        return Layer(str(self._path), dict(values), lines)


_EXAMPLES = {
    "search_seeds": "[10, 11]",
    "table_seeds": "[20, 21, 22]",
    "lamb": "[1, 3, 10]",
    "lamb_a": "[0.1, 1, 10]",
}


def _possible(location: Location) -> list[str]:
    """What the section there may hold."""
    kind: type[BaseModel] = StudyPlan
    if location[:1] == ("benchmarks",):
        kind = MethodPlan if "methods" in location else BenchmarkPlan
        if "references" in location:
            kind = RowValue if location[-1] == "row" else GridValue
    elif location[:1] == ("rules",):
        kind = RulesPlan
    return list(kind.model_fields)


# -- a new one -------------------------------------------------------------------------------


def new_study(path: Path, texts: Sequence[str], benchmark: str, *, overwrite: bool = False) -> None:
    """Write a study file with comments: a row for each method, with as many values to try.

    Args:
        path: The file.
        texts: The methods, each maybe with values: ``lwf@lamb=3``.
        benchmark: The benchmark's name.
        overwrite: Whether a file that is there is replaced.

    Raises:
        SpecError: A file is there, no method is named, or one cannot be used.
    """
    if path.exists() and not overwrite:
        raise SpecError(f"{path} is there. Give another name, or --overwrite to replace it.")
    if not texts:
        raise SpecError(
            "--new needs methods: ancl study --new study.yaml lwf a-lwf my.py:l1 --on digits/5"
        )
    spec = resolve_rows(Request(None, benchmark), texts)[texts[0]][0]
    rows = [MethodRow.read(text) for text in dict.fromkeys(texts)]
    body = "".join(_row_text(row, rows[:n], benchmark) for n, row in enumerate(rows))
    text = _NEW.format(
        titles=", ".join(row.text for row in rows),
        file=path,
        benchmark=benchmark,
        epochs=spec.training.epochs,
        baseline=_yaml(rows[0].text),
        rows=body.rstrip("\n"),
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_text(path, text)
    read_study_plan(path)


_NEW = """\
# A study of {titles}.
#   ancl study {file} --dry-run      its runs, and about how long they take
#   ancl study {file} --workers 2    runs them; the same command resumes
#   ancl study {file} --tables       tables from what is done
# What may stand here: docs/studies.md. Every setting: ancl list methods --options METHOD

search_seeds: [10, 11]         # these choose values, by validation images alone
table_seeds: [20, 21, 22]      # these are reported; none of them may choose

benchmarks:
  {benchmark}:
    settings:                  # of all rows: any that --set takes
      training.epochs: {epochs}
    baseline: {baseline}       # every row minus this one, seed by seed
    references:                # a row for each method, or with any name and method: NAME
{rows}
"""


def _row_text(row: MethodRow, above: Sequence[MethodRow], benchmark: str) -> str:
    """A row: what was given, and a grid for each λ that was not."""
    ref = MethodRef(row.method)
    options = resolve(ref.name, benchmark, [Layer(row.text, row.values)]).spec.options
    settings = {"method": _yaml(row.method)} if row.text != row.method else {}
    settings |= {key: _yaml(value) for key, value in row.values.items()}
    comments: dict[str, str] = {}
    hosts = [other.text for other in above if MethodRef(other.method).name == ref.base]
    for key in (key for key in SIGNS if key in options and key not in row.values):
        if key == "lamb" and hosts:
            settings[key] = f"{{row: {_yaml(hosts[0])}}}"
            comments[key] = f"the {SIGNS[key]} that {hosts[0]} has"
        else:
            settings[key] = f"{{grid: {_yaml(_grid(options[key], key, ref.name, benchmark))}}}"
            comments[key] = f"{SIGNS[key]}: chosen on search_seeds"
    if not settings:
        return f"      {_yaml(row.text)}: {{}}\n"
    lines = [f"      {_yaml(row.text)}:"]
    for key, value in settings.items():
        line = f"        {key}: {value}"
        lines.append(f"{line.ljust(50)} # {comments[key]}" if key in comments else line)
    return "\n".join(lines) + "\n"


def _grid(default: Any, key: str, method: str, benchmark: str) -> list[float]:
    """The benchmark's grid, or a tenth, once and ten times the default."""
    known = benchmark_named(benchmark).grids.get(method)
    if known and known.setting == key:
        return list(known.values)
    middle = float(default) if isinstance(default, int | float) and default > 0 else 1.0
    return [float(f"{middle * factor:.3g}") for factor in (0.1, 1, 10)]


def _yaml(value: Any) -> str:
    """A value as YAML reads it back; JSON is YAML."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][\w./-]*(:[\w.-]+)?", value):
        return value
    return json.dumps(value)
