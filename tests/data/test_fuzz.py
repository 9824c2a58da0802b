"""Readers of files from strangers, with many damaged ones: a clear refusal or a correct value.

Every input is a good file with a few bytes changed, cut out or repeated, from a fixed seed.
"""

import gzip
import io
import json
import pickle
import random
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ancl import AnclError, ScenarioError
from tests.lab import (
    FILES,
    FolderTree,
    StageResult,
    read_config,
    read_entry,
    read_idx,
    read_npz,
    read_pickle,
    read_stages,
    write_entry,
    write_stages,
)

Reader = Callable[[Path, bytes], Any]
ROWS = np.arange(24, dtype=np.uint8).reshape(2, 12)


def a_pickle(protocol: int) -> bytes:
    rows = {b"data": ROWS, "labels": [1, 2], "more": ("x", None, 1.5, {"y": True})}
    return pickle.dumps(rows, protocol=protocol)


def an_npz(packed: bool) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if packed else np.savez)(file, x=ROWS, y=np.array(["a", "b"]))
    return file.getvalue()


def idx_bytes() -> bytes:
    return struct.pack(">HBBIII", 0, 8, 3, 2, 3, 4) + ROWS.tobytes()


def an_entry(place: Path, name: str) -> bytes:
    write_entry(place / "e", StageResult({"w": torch.ones(3)}, {"stage": "main", "task": 1}))
    return (place / "e" / name).read_bytes()


def stages(place: Path) -> bytes:
    write_stages(place, ["0" * 64])
    return (place / "stages.json").read_bytes()


def plain_pickle(_: Path, data: bytes) -> None:
    found = read_pickle(data, "file")
    assert all(isinstance(key, str) for key in found)
    for value in found.values():
        if isinstance(value, np.ndarray):
            assert value.dtype.kind in "biuf"
            assert value.nbytes <= len(data)


def plain_npz(place: Path, data: bytes) -> None:
    (place / "a.npz").write_bytes(data)
    for array in read_npz(place / "a.npz", ["x", "y"], ScenarioError):
        assert array.dtype.kind in "biufSU"
        assert array.nbytes < 10_000


def plain_idx(packed: bool) -> Reader:
    def read(place: Path, data: bytes) -> None:
        labels = struct.pack(">HBBI", 0, 8, 1, 2) + b"\0\1"
        for name in FILES:
            images = data if packed else gzip.compress(data, 0)
            content = images if "images" in name else gzip.compress(labels)
            (place / f"{name}.gz").write_bytes(content)
        found = read_idx(FolderTree(place), ["a", "b"])
        assert found.train_x.nbytes < 10_000
        assert found.train_x.dtype == np.uint8

    return read


def entry_with(name: str) -> Reader:
    def read(place: Path, data: bytes) -> None:
        (place / "e" / name).write_bytes(data)
        found = read_entry(place / "e", "e")
        # The checksums hold: only the value that was written is read.
        assert found.tensors["w"].tolist() == [1.0, 1.0, 1.0]
        assert found.meta == {"stage": "main", "task": 1}

    return read


def known_stages(place: Path, data: bytes) -> None:
    (place / "stages.json").write_bytes(data)
    try:
        assert all(isinstance(key, str) for key in read_stages(place))
    except (OSError, ValueError) as error:
        raise ScenarioError(str(error)) from error


def a_config(place: Path, data: bytes) -> None:
    (place / "c.yaml").write_bytes(data)
    json.dumps(read_config(place / "c.yaml").layer.values, default=str)


CONFIG = b"method: lwf\nseed: 3\ntraining:\n  epochs: 5\n  milestones: [1, 2]\nlamb: 1e-3\n"
READERS: dict[str, tuple[Callable[[Path], bytes], Reader]] = {
    **{f"pickle {p}": ((lambda _, p=p: a_pickle(p)), plain_pickle) for p in range(6)},
    "npz": (lambda _: an_npz(False), plain_npz),
    "npz packed": (lambda _: an_npz(True), plain_npz),
    "idx": (lambda _: idx_bytes(), plain_idx(False)),
    "idx packed": (lambda _: gzip.compress(idx_bytes()), plain_idx(True)),
    "entry header": (lambda place: an_entry(place, "entry.json"), entry_with("entry.json")),
    "entry tensors": (
        lambda place: an_entry(place, "tensors.safetensors"),
        entry_with("tensors.safetensors"),
    ),
    "stages": (stages, known_stages),
    "config": (lambda _: CONFIG, a_config),
}
SPECIAL = (b"\0", b"\xff", b"\x80", b"[", b"{", b"}", b'"', b"9", b"-", b".", b"c", b"R", b"b")


def damaged(data: bytes, draw: random.Random) -> bytes:
    found = bytearray(data)
    for _ in range(draw.choice((1, 1, 2, 4))):
        start = draw.randrange(len(found) + 1)
        end = min(len(found), start + draw.choice((1, 1, 2, 8, 64)))
        kind = draw.randrange(5)
        if kind == 0:
            found[start:end] = draw.randbytes(end - start)
        elif kind == 1:
            found[start:end] = b""
        elif kind == 2:
            found[start:start] = found[start:end] * draw.choice((1, 2, 50))
        elif kind == 3:
            found[start:end] = draw.choice(SPECIAL) * draw.choice((1, 4, 300))
        else:
            del found[start:]
    return bytes(found)


def attack(name: str, count: int, place: Path) -> tuple[int, int]:
    """Read damaged files; how many were refused and how many read."""
    make, read = READERS[name]
    data, draw = make(place), random.Random(f"fuzz {name}")
    read(place, data)  # a whole one is read
    refused = 0
    for _ in range(count):
        given = damaged(data, draw)
        with suppress(AnclError):
            read(place, given)
            continue
        refused += 1
    return refused, count - refused


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_refused_or_read(name: str, tmp_path: Path) -> None:
    refused, _ = attack(name, 150, tmp_path)

    assert refused > 10


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_refused_or_read(name: str, tmp_path: Path) -> None:
    refused, read = attack(name, 20_000, tmp_path)
    print(f"{name}: {refused} refused, {read} read")

    assert refused > 1000
