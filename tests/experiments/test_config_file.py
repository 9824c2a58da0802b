"""Files of settings: what would take any time, or cannot be shown, is refused at once."""

from pathlib import Path

import pytest

from ancl import SpecError
from tests.lab import parse_yaml, patch_part, read_config


def test_keys_given_twice_are_named_by_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("training:\n  epochs: 1\n  epochs: 2\nlamb: 1\nlamb: 2\nlamb: 3\n")

    with pytest.raises(SpecError) as caught:
        read_config(file)

    assert [line.split(": ")[0].rpartition(":")[2] for line in str(caught.value).split("\n")] == [
        "3",
        "5",
        "6",
    ]


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "0b" + "1" * 20_000, "0" + "7" * 5000])
def test_a_number_that_cannot_be_shown_is_refused(number: str) -> None:
    with pytest.raises(ValueError, match="a number of more than 1,000 digits"):
        parse_yaml(f"lamb: {number}")


def test_a_file_is_not_read_beyond_what_it_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("lamb: 1\n" + "#" * 40)
    patch_part(monkeypatch, "MOST_CHARACTERS", 10)

    with pytest.raises(SpecError, match=r"cannot be read \(it has more than 40 bytes\)"):
        read_config(file)


def test_no_file_has_a_name_with_a_zero() -> None:
    with pytest.raises(SpecError, match=r"a\\x00b cannot be read \(no file has such a name\)"):
        read_config(Path("a\0b"))
