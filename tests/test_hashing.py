"""Descriptions: equal where the numbers must be, different where they may be."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import pytest

from ancl import AnclError, make_method
from ancl.extend import CrossEntropy
from tests.lab import LATER, Ewc, Lwf, UnstorableError, describe, digest, program, source_hash


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True)
class Mine:
    factor: float = 1.0


def plain() -> int:
    return 1


def local(value: int) -> Callable[[], int]:
    return lambda: value


def test_plain_values_describe_themselves() -> None:
    assert describe({"a": (1, 2.5), "b": [None, True, "x"]}) == {
        "a": [1, 2.5],
        "b": [None, True, "x"],
    }
    assert describe(slice(2, 5)) == [2, 5]
    assert describe(Colour.RED) == "red"


def test_parts_of_the_package_are_their_name_and_fields() -> None:
    assert describe(Lwf(3.0)) == {
        "is": "Lwf",
        "temperature": 3.0,
        "smoothing": 0.0,
    }
    assert digest(describe(Lwf(2.0))) == digest(describe(Lwf()))
    assert digest(describe(Lwf(2.0))) != digest(describe(Lwf(3.0)))
    assert digest(describe(Ewc())) != digest(describe(Ewc(labels="sampled")))
    assert describe(CrossEntropy) == {"is": "CrossEntropy"}


def test_reasons_in_words_are_not_part_of_a_method() -> None:
    plain = make_method("icarl")
    worded = replace(plain, refused={"dil": "for a reason in other words"})

    assert describe(worded) == describe(plain)
    assert worded.refused != plain.refused
    assert describe(make_method("icarl", lamb=2.0)) != describe(plain)


def test_parts_from_outside_carry_the_hash_of_their_file() -> None:
    file = source_hash(Mine)

    assert describe(Mine(2.0)) == {"is": ["Mine", file], "factor": 2.0}
    assert describe(plain) == {"is": ["plain", file]}
    assert len(file) == 64


def test_a_subclass_carries_the_files_of_all_its_bases(tmp_path: Path) -> None:
    text = "from dataclasses import dataclass\nfrom ancl.extend import Method, Term\n"
    base = tmp_path / "base.py"
    base.write_text(
        f"{text}{program('from tests.lab import Lwf')}\n"
        "@dataclass(frozen=True)\nclass Mine(Lwf):\n    extra: float = 1.0\n"
        "def mine() -> Method:\n    return Method('mine', old=Term(Mine(), 1.0))\n"
    )
    regularizer = make_method(f"{base}:mine").old.regularizer

    found = describe(regularizer)

    assert found == {
        "is": ["Mine", source_hash(type(regularizer))],
        "temperature": 2.0,
        "smoothing": 0.0,
        "extra": 1.0,
    }


@pytest.mark.parametrize(
    "value", [local(1), functools.partial(plain), object(), "x".upper, lambda: 1]
)
def test_what_may_hold_unseen_values_is_refused(value) -> None:
    with pytest.raises(UnstorableError, match="frozen dataclass"):
        describe(value)


def test_code_without_a_file_is_refused() -> None:
    made = type("Made", (), {"__module__": "nowhere"})

    with pytest.raises(UnstorableError, match="Put it into a file"):
        describe(made)
    assert issubclass(UnstorableError, AnclError)


def test_a_hash_does_not_depend_on_the_order_of_names() -> None:
    assert digest({"a": 1, "b": [2]}) == digest({"b": [2], "a": 1})
    assert digest({"a": 1}) != digest({"a": 1.0})
    assert digest([1, 2]) != digest([2, 1])


@dataclass(frozen=True)
class _Inner:
    size: int = 1
    added: Annotated[int | None, LATER] = None


@dataclass(frozen=True)
class _Outer:
    inner: _Inner = _Inner()
    also: Annotated[bool, LATER] = False


def test_a_later_setting_is_described_only_where_it_is_not_its_default() -> None:
    before = describe(_Outer())

    assert "also" not in before
    assert before["inner"] == {"is": before["inner"]["is"], "size": 1}
    assert describe(_Outer(_Inner(added=3)))["inner"]["added"] == 3
    assert describe(_Outer(also=True))["also"] is True
