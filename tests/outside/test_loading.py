"""Code by name: found, refused with the reason, loaded anew where it changed."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ancl import MethodError, SpecError
from tests.lab import load, program

Write = Callable[[str, Mapping[str, str]], Path]

HELPED = "import helper\ndef value(): return helper.NUMBER\n"


def call(name: str) -> object:
    return load(name, "a function", SpecError).value()


def test_a_file_may_import_what_lies_beside_it(write: Write) -> None:
    folder = write(
        "mine",
        {
            "net.py": "def value():\n    from parts.blocks import SIZE\n    return SIZE\n",
            "parts/__init__.py": "",
            "parts/blocks.py": "from .sizes import SIZE\n",
            "parts/sizes.py": "SIZE = 7\n",
        },
    )

    found = load(f"{folder}/net.py:value", "a function", SpecError)

    assert found.value() == 7
    assert found.attribute == "value"
    assert list(found.sources.files) == [
        "net.py",
        "parts/__init__.py",
        "parts/blocks.py",
        "parts/sizes.py",
    ]


def test_a_module_of_a_package_is_found_by_its_name(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write("project", {"packed/__init__.py": "", "packed/a.py": "def value(): return 1\n"})
    monkeypatch.syspath_prepend(folder)

    found = load("packed.a:value", "a function", SpecError)

    assert found.value() == 1
    assert list(found.sources.files) == ["packed/__init__.py", "packed/a.py"]
    assert found.sources.gaps == ()


def test_a_file_is_executed_once_and_again_where_it_or_its_helper_changed(write: Write) -> None:
    folder = write("mine", {"net.py": HELPED, "other.py": HELPED, "helper.py": "NUMBER = 1\n"})
    name = f"{folder}/net.py:value"
    other = f"{folder}/other.py:value"
    first = load(name, "a function", SpecError)

    assert call(name) == call(other) == 1
    assert load(name, "a function", SpecError).value is first.value
    write("mine", {"helper.py": "NUMBER = 2\n"})  # the same size, within the same second
    assert call(other) == 2
    assert call(name) == 2
    assert load(name, "a function", SpecError).sources.digest != first.sources.digest
    write("mine", {"net.py": "def value(): return 3\n"})
    assert call(name) == 3


def test_a_package_that_changed_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write("project", {"altered.py": "def value(): return 1\n"})
    monkeypatch.syspath_prepend(folder)
    assert call("altered:value") == 1
    write("project", {"altered.py": "def value(): return 2\n"})

    with pytest.raises(SpecError, match="altered was changed after this process loaded it"):
        call("altered:value")


def test_helpers_of_two_folders_do_not_replace_each_other(write: Write) -> None:
    one = write("one", {"net.py": HELPED, "helper.py": "NUMBER = 1\n"})
    two = write("two", {"net.py": HELPED, "helper.py": "NUMBER = 2\n"})
    same = write("same", {"net.py": HELPED, "helper.py": "NUMBER = 1\n"})

    assert call(f"{one}/net.py:value") == 1
    with pytest.raises(SpecError, match=rf"finds another module .*{one}/helper.py. Rename {two}/h"):
        call(f"{two}/net.py:value")
    # What says the same is the same code.
    assert call(f"{same}/net.py:value") == 1


def test_a_helper_named_like_an_installed_package_is_refused(write: Write) -> None:
    folder = write("mine", {"net.py": "import typer\nvalue = typer.run", "typer.py": "run = 1\n"})

    with pytest.raises(SpecError, match=r"imports 'typer' from its folder.*Rename .*mine/typer.py"):
        call(f"{folder}/net.py:value")


def test_no_folder_joins_the_path_without_need(write: Write) -> None:
    folder = write("mine", {"net.py": "import math\ndef value(): return 1\n", "typer.py": ""})

    assert call(f"{folder}/net.py:value") == 1
    assert str(folder) not in sys.path


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:value", r"There is no file .*none\.py\. Give an existing one: path/file.py:NAME"),
        ("net.py:valeu", r"no function 'valeu'\. Did you mean 'value'\? Possible: value\."),
        ("net.py:NUMBER", r"NUMBER is of type int\. Name a function\."),
        ("broken.py:value", r"broken\.py does not load: ZeroDivisionError: division by zero"),
        ("lines.py:value", r"lines\.py does not load: SyntaxError: "),
        ("lacking.py:value", r"lacking\.py does not load: ModuleNotFoundError: .*no_such_thing"),
        ("relative.py:value", r"relative import.* Write 'import x' for x\.py beside it"),
    ],
)
def test_what_is_wrong_is_told(write: Write, name: str, message: str) -> None:
    folder = write(
        "mine",
        {
            "net.py": "from math import sqrt\nNUMBER = 1\ndef value(): return 1\n",
            "broken.py": "1 / 0\n",
            "lines.py": "def value(:\n",
            "lacking.py": "import no_such_thing\n",
            "relative.py": "from . import net\n",
        },
    )

    with pytest.raises(MethodError, match=message):
        load(f"{folder}/{name}", "a function", MethodError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module:value", r"There is no module 'no_such_module' .* path/file\.py:NAME"),
        ("math.nothing:value", r"There is no module 'math.nothing'"),
        (":value", r"There is no module ''"),
        ("failing:value", r"failing does not load: ZeroDivisionError"),
        ("dependent:value", r"dependent does not load: ModuleNotFoundError: .*no_such_thing"),
    ],
)
def test_what_is_wrong_with_a_module_is_told(
    write: Write, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    folder = write("p", {"failing.py": "1 / 0\n", "dependent.py": "import no_such_thing\n"})
    monkeypatch.syspath_prepend(folder)

    with pytest.raises(SpecError, match=message):
        call(name)


def test_a_file_that_loads_itself_is_told_so(write: Write) -> None:
    text = program(
        "from pathlib import Path\nfrom ancl import SpecError\n"
        "from tests.lab import load\nload(f'{Path(__file__)}:value', 'a function', SpecError)\n"
        "def value(): return 1\n"
    )
    folder = write("mine", {"script.py": text})

    with pytest.raises(SpecError, match=r"script\.py loads itself\. Put what it does"):
        call(f"{folder}/script.py:value")


def test_where_a_file_lies_decides_nothing(write: Write, tmp_path: Path) -> None:
    files = {"net.py": HELPED, "helper.py": "NUMBER = 1\n"}
    digests = {
        load(f"{write(place, files)}/net.py:value", "a function", SpecError).sources.digest
        for place in ("here", "there/deeper")
    }

    assert len(digests) == 1
