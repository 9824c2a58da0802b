"""Results are read from headers: what a run needs no tensors for, it reads no tensors for."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ancl import Store
from tests.lab import StageResult

KEY = "ab" * 32


def files(root: Path) -> dict[str, Path]:
    return {path.name: path for path in root.glob("entries/ab/*/*")}


def flip(path: Path) -> None:
    """Another last byte, in a file of the same size."""
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("name", "damage", "read", "loaded"),
    [
        ("tensors.safetensors", flip, True, False),  # found by whoever needs the tensors
        ("tensors.safetensors", cut, False, False),
        ("tensors.safetensors", Path.unlink, False, False),
        ("entry.json", flip, False, False),
    ],
)
def test_what_is_damaged_is_told(
    tmp_path: Path, name: str, damage: Callable[[Path], None], read: bool, loaded: bool
) -> None:
    told: list[str] = []
    store = Store(tmp_path, told.append)
    store.save(KEY, StageResult({"x": torch.arange(4.0)}, {"tag": [0.5]}))
    assert store.load_meta(KEY) == {"tag": [0.5]}
    assert store.load_meta("cd" * 32) is None
    assert told == []

    damage(files(tmp_path)[name])

    assert (store.load_meta(KEY) is not None) is read
    assert len(told) == (not read)
    assert (store.load(KEY) is not None) is loaded
    assert all("is damaged" in line for line in told)


def test_an_entry_under_another_key_is_not_taken(tmp_path: Path) -> None:
    told: list[str] = []
    store = Store(tmp_path, told.append)
    store.save(KEY, StageResult({}, {"tag": [0.5]}))
    other = "ab" * 31 + "cd"
    next(tmp_path.glob("entries/ab/*")).rename(tmp_path / "entries" / "ab" / other)

    assert store.load_meta(other) is None
    assert "it was written as" in told[0]
