"""The index of a store: quick where it is right, and never believed over an entry."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Store
from tests.lab import (
    HEADER,
    INDEX,
    MARK,
    TENSORS,
    StageResult,
    patch_part,
    read_header,
)

KEYS = ("aaa", "abb", "bcc")


def entry(**meta: object) -> StageResult:
    return StageResult({"x": torch.ones(50)}, dict(meta))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Three entries whose headers have not changed for long."""
    patch_part(monkeypatch, "SETTLED_NS", -1)
    found = Store(tmp_path / "store")
    for task, key in enumerate(KEYS):
        found.save(key, entry(stage="main", task=task))
    return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of entries whose headers a listing reads."""
    names: list[str] = []

    def counted(directory: Path) -> dict[str, Any]:
        names.append(directory.name)
        return read_header(directory)

    patch_part(monkeypatch, "index_read_header", counted)
    return names


def lines(store: Store) -> dict[str, Any]:
    return dict(json.loads((store.root / INDEX).read_text())["lines"])


def forge(store: Store, change: Any) -> None:
    content = json.loads((store.root / INDEX).read_text())
    for line in content["lines"].values():
        change(line)
    (store.root / INDEX).write_text(json.dumps(content))


def place(store: Store, key: str, name: str = HEADER) -> Path:
    return store.root / "entries" / key[:2] / key / name


def test_a_header_is_read_once(store: Store, read: list[str]) -> None:
    first = list(store.entries())
    assert sorted(read) == list(KEYS)
    read.clear()

    assert list(store.entries()) == first
    assert read == []
    assert [(info.key, info.task, info.state) for info in first] == [
        ("aaa", 0, "ok"),
        ("abb", 1, "ok"),
        ("bcc", 2, "ok"),
    ]


def test_use_new_entries_and_removed_ones_change_their_own_lines_alone(
    store: Store, read: list[str]
) -> None:
    list(store.entries())
    read.clear()
    store.load("aaa")  # marks its use
    store.save("abb", entry(stage="evaluate", task=7))
    store.save("ddd", entry(stage="grow"))
    assert store.prune(["aaa", "abb", "ddd"])[0] == 1

    found = {info.key: (info.stage, info.task) for info in store.entries()}

    assert found == {"aaa": ("main", 0), "abb": ("evaluate", 7), "ddd": ("grow", None)}
    assert read == ["abb", "ddd"]
    assert lines(store).keys() == {"aaa", "abb", "ddd"}


def same_size(path: Path) -> None:
    """Change a file in place; its size and its time of modification stay as they were."""
    before = path.stat()
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"main"', b'"evil"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    ("change", "name", "reason"),
    [
        (same_size, HEADER, f"the checksum of {HEADER} does not fit: it was changed"),
        (lambda path: path.write_text("{"), HEADER, f"{HEADER} is not JSON or is truncated"),
        (lambda path: path.unlink(), HEADER, f"{HEADER} is missing"),
        (lambda path: path.unlink(), TENSORS, f"{TENSORS} is missing"),
        (lambda path: os.truncate(path, 50), TENSORS, f"{TENSORS} has 50 bytes instead of"),
    ],
)
def test_damage_is_listed_whatever_the_index_says(
    store: Store, change: Any, name: str, reason: str
) -> None:
    list(store.entries())
    time.sleep(0.02)  # more than a tick of the disk's clock
    change(place(store, "abb", name))

    states = {info.key: info.state for info in store.entries()}

    assert states.pop("abb").startswith(reason)
    assert states == {"aaa": "ok", "bcc": "ok"}
    assert "abb" not in lines(store)


def test_a_header_that_changed_just_now_is_not_kept(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch_part(monkeypatch, "SETTLED_NS", 3600 * 10**9)
    assert len(list(store.entries())) == 3
    assert not (store.root / INDEX).exists()


def test_a_copied_store_brings_no_index(store: Store, read: list[str], tmp_path: Path) -> None:
    list(store.entries())
    read.clear()
    subprocess.run(["cp", "-a", str(store.root), str(tmp_path / "copy")], check=True)

    assert len(list(Store(tmp_path / "copy").entries())) == 3
    assert sorted(read) == list(KEYS)


FORGED = {
    "tensors of other sizes": lambda line: line.__setitem__(4, 10**9),
    "another file": lambda line: line.__setitem__(0, 1),
    "texts for numbers": lambda line: line.__setitem__(0, "1"),
    "too few fields": lambda line: line.pop(),
    "infinite numbers": lambda line: line.__setitem__(0, float("inf")),
}


@pytest.mark.parametrize("change", FORGED.values(), ids=FORGED)
def test_forged_lines_are_not_believed(store: Store, read: list[str], change: Any) -> None:
    before = list(store.entries())
    forge(store, change)
    read.clear()

    assert list(store.entries()) == before
    assert sorted(read) == list(KEYS)
    read.clear()
    assert list(store.entries()) == before
    assert read == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"lines": 3}', "[" * 100_000, "9" * 5000, "\xff"])
def test_a_damaged_index_that_is_ours_is_made_again(
    store: Store, read: list[str], text: str
) -> None:
    before = list(store.entries())
    (store.root / INDEX).write_text(f'{{"format": "{MARK}"}}{text}')
    read.clear()

    assert list(store.entries()) == before
    assert sorted(read) == list(KEYS)
    assert lines(store).keys() == set(KEYS)


def test_a_file_of_somebody_else_is_neither_believed_nor_replaced(store: Store) -> None:
    (store.root / INDEX).write_text("my own index")
    assert len(list(store.entries())) == 3
    assert (store.root / INDEX).read_text() == "my own index"


def test_a_forged_index_changes_neither_a_prune_nor_a_check(store: Store) -> None:
    # Made by somebody who can write to the store: every line fits its file, and lies.
    os.truncate(place(store, "abb", TENSORS), 50)
    list(store.entries())

    def lie(line: list[Any]) -> None:
        line[4:] = [50, "evil", 99]

    forge(store, lie)

    [(key, reason)] = store.verify()
    assert (key, reason.startswith(f"{TENSORS} has 50 bytes")) == ("abb", True)
    size = sum(path.stat().st_size for path in place(store, "bcc", "").iterdir())
    assert store.prune(["aaa", "abb"]) == (1, size)
    assert store.has("aaa")
    loaded = store.load("aaa")
    assert loaded is not None
    assert loaded.meta == {"stage": "main", "task": 0}


def test_a_store_that_cannot_be_written_is_listed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    patch_part(monkeypatch, "index_replace_text", denied)
    assert [info.key for info in store.entries()] == list(KEYS)
    assert not (store.root / INDEX).exists()
