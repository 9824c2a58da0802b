"""One entry on disk: round trips, every kind of damage, and writers that die."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ancl import StoreError
from tests.lab import (
    HEADER,
    TENSORS,
    DamagedError,
    StageResult,
    entry_names,
    patch_part,
    read_entry,
    read_header,
    write_entry,
)


def sample() -> StageResult:
    images = torch.arange(120.0).reshape(2, 3, 4, 5).to(memory_format=torch.channels_last)
    return StageResult({"images": images, "count": torch.tensor(7)}, {"stage": "main", "rate": 0.1})


def reason(directory: Path) -> str:
    with pytest.raises(DamagedError) as caught:
        read_entry(directory)
    assert str(directory) in str(caught.value)
    return caught.value.reason


def edit(directory: Path, **changes: object) -> None:
    header = json.loads((directory / HEADER).read_text())
    (directory / HEADER).write_text(json.dumps({**header, **changes}))


def test_a_round_trip_keeps_values_types_and_shapes(tmp_path: Path) -> None:
    tensors: dict[str, Tensor] = {
        "channels last": sample().tensors["images"],
        "transposed": torch.arange(6).reshape(2, 3).t(),
        "expanded": torch.ones(1, 3).expand(4, 3),
        "strided": torch.arange(10.0)[::3],
        "parameter": torch.nn.Parameter(torch.randn(3)),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.zeros(0, 3),
        "bytes": torch.arange(4, dtype=torch.uint8),
        "mask": torch.tensor([True, False]),
        "half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16),
    }
    meta = {"rate": 0.1, "big": 2**80, "none": None, "text": "λ_a", "list": [1, [2.0, True]]}

    write_entry(tmp_path / "key", StageResult(tensors, meta))
    entry = read_entry(tmp_path / "key")

    assert entry.meta == meta
    assert entry.tensors.keys() == tensors.keys()
    for name, expected in tensors.items():
        actual = entry.tensors[name]
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape), name
        assert torch.equal(actual, expected.detach()), name
        assert actual.is_contiguous(), name


def test_an_entry_may_hold_no_tensors(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", StageResult({}, {"accuracy": 0.5}))
    assert read_entry(tmp_path / "key").tensors == {}
    assert read_entry(tmp_path / "key").meta == {"accuracy": 0.5}


def test_tied_tensors_are_written_and_come_back_apart(tmp_path: Path) -> None:
    weight = torch.arange(4.0)
    write_entry(tmp_path / "key", StageResult({"a": weight, "b": weight, "part": weight[1:]}, {}))

    tensors = read_entry(tmp_path / "key").tensors
    tensors["a"].zero_()

    assert tensors["b"].tolist() == [0.0, 1.0, 2.0, 3.0]
    assert tensors["part"].tolist() == [1.0, 2.0, 3.0]


def test_loaded_tensors_are_not_backed_by_the_file(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", sample())
    first = read_entry(tmp_path / "key").tensors["images"]
    first.add_(1)
    assert torch.equal(read_entry(tmp_path / "key").tensors["images"], sample().tensors["images"])


def test_keys_that_are_numbers_become_texts_and_keep_their_checksum(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", StageResult({}, {"rates": {1: 0.1, 10: 0.2, 2: 0.3}}))
    assert read_entry(tmp_path / "key").meta == {"rates": {"1": 0.1, "10": 0.2, "2": 0.3}}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "meta['losses'][1] is not a finite number"),
        (float("inf"), "meta['losses'][1] is not a finite number"),
        ({1, 2}, "set is not JSON serializable"),
    ],
)
def test_meta_that_is_not_json_is_refused(tmp_path: Path, value: object, expected: str) -> None:
    with pytest.raises(StoreError) as caught:
        write_entry(tmp_path / "key", StageResult({}, {"losses": [1.0, value]}))
    assert expected in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_mode_of_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_entry(tmp_path / "key", sample())
    finally:
        os.umask(before)
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "key" / TENSORS).stat().st_mode & 0o777 == 0o640


def test_a_flipped_bit_in_the_tensors_is_found(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", sample())
    path = tmp_path / "key" / TENSORS
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    assert reason(tmp_path / "key") == f"the checksum of {TENSORS} does not fit"


def test_truncated_tensors_are_found_with_and_without_reading_them(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", sample())
    path = tmp_path / "key" / TENSORS
    size = path.stat().st_size
    os.truncate(path, size - 8)

    expected = f"{TENSORS} has {size - 8} bytes instead of {size}: it was truncated or changed"
    assert reason(tmp_path / "key") == expected
    with pytest.raises(DamagedError, match="truncated"):
        read_header(tmp_path / "key")


@pytest.mark.parametrize("name", [HEADER, TENSORS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    write_entry(tmp_path / "key", sample())
    (tmp_path / "key" / name).unlink()
    assert reason(tmp_path / "key") == f"{name} is missing"


@pytest.mark.parametrize("text", ['{"loss": 1.0}', "[1, 2]", '{"format": 1}'])
def test_a_foreign_json_is_called_foreign(tmp_path: Path, text: str) -> None:
    write_entry(tmp_path / "key", sample())
    (tmp_path / "key" / HEADER).write_text(text)
    assert reason(tmp_path / "key") == f"{HEADER} is foreign: it was not written by ancl"


def test_a_truncated_json_is_found(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", sample())
    os.truncate(tmp_path / "key" / HEADER, 30)
    assert reason(tmp_path / "key") == f"{HEADER} is not JSON or is truncated"


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("ancl-store 0", "it has an older format, 0; this version reads 1"),
        ("ancl-store 2", "it has a newer format, 2; this version reads 1"),
    ],
)
def test_another_format_is_named(tmp_path: Path, version: str, expected: str) -> None:
    write_entry(tmp_path / "key", sample())
    edit(tmp_path / "key", format=version)
    assert reason(tmp_path / "key") == expected


@pytest.mark.parametrize("meta", [{"stage": "main", "rate": 0.2}, {"rate": float("nan")}])
def test_an_edited_json_is_found(tmp_path: Path, meta: dict[str, object]) -> None:
    write_entry(tmp_path / "key", sample())
    edit(tmp_path / "key", meta=meta)
    assert reason(tmp_path / "key") == f"the checksum of {HEADER} does not fit: it was changed"


def test_a_renamed_entry_is_found_where_the_key_matters(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", sample())
    (tmp_path / "key").rename(tmp_path / "other")
    assert read_entry(tmp_path / "other").meta == sample().meta
    with pytest.raises(DamagedError, match="it was written as key"):
        read_entry(tmp_path / "other", "other")


def test_an_entry_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    write_entry(tmp_path / "key", sample())
    write_entry(tmp_path / "key", StageResult({"x": torch.ones(1)}, {"epoch": 2}))
    assert read_entry(tmp_path / "key").meta == {"epoch": 2}
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_an_entry_survives_a_crash_between_the_two_renames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_entry(tmp_path / "key", StageResult({}, {"epoch": 1}))
    rename = Path.rename

    def crash(self: Path, target: Path) -> Path:
        if target == tmp_path / "key":
            raise KeyboardInterrupt
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch_part(patch, "exchange", lambda one, other: False)
        patch.setattr(Path, "rename", crash)
        with pytest.raises(KeyboardInterrupt):
            write_entry(tmp_path / "key", StageResult({}, {"epoch": 2}))

    assert not (tmp_path / "key").exists()
    assert read_entry(tmp_path / "key", "key").meta == {"epoch": 1}
    assert entry_names(tmp_path) == ["key"]
    write_entry(tmp_path / "key", StageResult({}, {"epoch": 3}))
    assert read_entry(tmp_path / "key").meta == {"epoch": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["key"]
