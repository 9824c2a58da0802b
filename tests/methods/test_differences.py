"""The table of differences: every setting exists, is accepted and changes the default."""

from pathlib import Path

import pytest

from ancl import RunSpec, list_differences
from ancl import spec as spec_of
from tests.lab import DIFFERENCE_SOURCES as SOURCES
from tests.lab import DIFFERENCES, METHODS, MethodRef
from tests.lab import PaperDifference as Difference
from tests.lab import differences_table as table

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
BEGIN, END = "<!-- differences: made by ancl.methods.differences -->", "<!-- end of differences -->"
GENERAL = {"*": ["finetune", "a-lwf", "afec-icarl"], "a-*": ["a-lwf", "a-icarl", "a-podnet"]}
GENERAL |= {"afec-*": ["afec-finetune", "afec-ewc", "afec-lwf", "afec-lucir"]}
CASES = [
    pytest.param(row, name, id=f"{name}: {row.about}")
    for row in DIFFERENCES
    for pattern in row.methods
    for name in GENERAL.get(pattern, [pattern])
]


def spec(method: str, values: dict[str, object] | None = None) -> RunSpec:
    benchmark = "cifar100/6" if MethodRef(method).make({}).memory else "cifar100/10"
    return spec_of(method, benchmark, settings=values)


def value(found: RunSpec, key: str) -> object:
    section, dot, name = key.partition(".")
    if key == "training.lr" and found.training.lr_search:
        return "search"
    if not dot:
        return found.options[key]
    return getattr(getattr(found, section), name)


@pytest.mark.parametrize(("row", "name"), CASES)
def test_a_setting_is_accepted_and_is_not_the_default(row: Difference, name: str) -> None:
    default, theirs = spec(name), spec(name, dict(row.settings))

    changed = [key for key in row.settings if value(default, key) != value(theirs, key)]
    for key, wanted in row.settings.items():
        assert value(theirs, key) == wanted
    assert bool(changed) is bool(row.settings)


def test_rows_name_known_methods_and_implementations() -> None:
    names = {*METHODS, *GENERAL, *(f"{v}-{name}" for v in ("a", "afec") for name in METHODS)}

    assert {name for row in DIFFERENCES for name in row.methods} <= names
    assert {name for row in DIFFERENCES for name in row.whose} == set(SOURCES)
    whats = [(name, row.about, row.theirs) for row in DIFFERENCES for name in row.methods]
    assert len(whats) == len(set(whats))
    assert all(all(part for part in row[:6]) for row in DIFFERENCES)


def test_a_method_has_its_own_rows_first_then_its_variants_and_everybodys() -> None:
    found = list_differences("afec-ewc")

    assert [row.methods for row in found if "afec-ewc" in row.methods] == [("afec-ewc",)] * 2
    assert found[-1].methods == ("*",)
    assert ("a-*",) not in [row.methods for row in found]
    assert list_differences("a-ewc") != list_differences("ewc")
    assert [row for row in list_differences("ewc") if "ewc" in row.methods] == [
        row for row in list_differences("a-ewc") if "ewc" in row.methods
    ]


def test_the_page_shows_the_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)

    assert page[begin:end].strip() == table(), (
        "docs/methods.md: replace what is between the two marks by "
        "ancl.methods.differences.differences_table()"
    )
