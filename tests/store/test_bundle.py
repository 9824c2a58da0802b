"""Bundles: a header, and parts that are named by what they hold."""

import json
import os
from pathlib import Path

import pytest

from ancl import StoreError
from tests.lab import (
    HEADER,
    PARTS,
    DamagedError,
    StageResult,
    is_ours,
    part_name,
    patch_part,
    read_bundle,
    write_bundle,
    write_entry,
)

ONE, TWO = b"one" * 100, b"two" * 100
NAMES = [part_name(data, "bin") for data in (ONE, TWO)]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    directory = tmp_path / "bundle"
    write_bundle(directory, {"n": 1}, dict(zip(NAMES, (ONE, TWO), strict=True)), ())
    return directory


def content(place: Path) -> tuple[dict[str, object], dict[str, bytes]]:
    names = sorted(os.listdir(place / PARTS))
    return read_bundle(place, lambda bundle: (bundle.meta, {n: bundle.part(n) for n in names}))


@pytest.mark.parametrize("links", [True, False])
def test_what_stays_is_the_same_file_or_a_copy(
    links: bool, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:
        patch_part(monkeypatch, "link", _no_links)
    before = (place / PARTS / NAMES[0]).stat().st_ino
    new = part_name(b"new", "bin")

    write_bundle(place, {"n": 2}, {new: b"new"}, NAMES[:1], beside={"README.md": "text"})

    assert content(place) == ({"n": 2}, {NAMES[0]: ONE, new: b"new"})
    assert ((place / PARTS / NAMES[0]).stat().st_ino == before) == links
    assert (place / "README.md").read_text() == "text"
    assert os.listdir(place.parent) == ["bundle"]


def _no_links(*args: object, **options: object) -> None:
    raise PermissionError("this file system has no links")


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        (f"{PARTS}/{NAMES[0]}", b"other", "is not what was written"),
        (f"{PARTS}/{NAMES[0]}", None, "is missing"),
        (HEADER, b"{", "not JSON"),
        (HEADER, None, "is missing"),
    ],
)
def test_what_is_damaged_is_said(place: Path, name: str, data: bytes | None, reason: str) -> None:
    (place / name).unlink()
    if data is not None:
        (place / name).write_bytes(data)

    with pytest.raises(DamagedError) as caught:
        read_bundle(place, lambda bundle: [bundle.part(name) for name in NAMES])

    assert reason in caught.value.reason


@pytest.mark.parametrize("name", ["../entry.json", "/etc/passwd", "x.bin", f"{NAMES[0]}/..", ""])
def test_a_name_that_leads_elsewhere_is_no_part(place: Path, name: str) -> None:
    with pytest.raises(DamagedError, match="is no name of a part"):
        read_bundle(place, lambda bundle: bundle.part(name))


@pytest.mark.parametrize("name", ["notes.txt", f"{PARTS}/notes.txt", f"{PARTS}/{'0' * 64}.bin"])
def test_what_is_not_ours_is_neither_replaced_nor_removed(place: Path, name: str) -> None:
    (place / name).write_text("mine")
    assert not is_ours(place)

    with pytest.raises(StoreError, match="did not write it as it is"):
        write_bundle(place, {}, {}, ())

    assert (place / name).read_text() == "mine"
    (place / name).unlink()
    assert is_ours(place)


def test_a_folder_called_parts_in_an_entry_is_not_ours(tmp_path: Path) -> None:
    write_entry(tmp_path / "entry", StageResult({}, {}))
    (tmp_path / "entry" / PARTS).mkdir()

    with pytest.raises(StoreError, match="did not write it as it is"):
        write_entry(tmp_path / "entry", StageResult({}, {}))

    assert (tmp_path / "entry" / PARTS).is_dir()


@pytest.mark.parametrize("fails", range(1, 6))
def test_a_writer_that_fails_anywhere_leaves_the_old_bundle_and_nothing_else(
    fails: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, calls = content(place), list[int]()
    fsync = os.fsync

    def full(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == fails:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    new = part_name(b"new", "bin")
    with monkeypatch.context() as patched:
        patch_part(patched, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            write_bundle(place, {"n": 2}, {new: b"new"}, NAMES, beside={"README.md": "text"})

    assert content(place) == before
    assert os.listdir(place.parent) == ["bundle"]


def test_the_header_lists_its_parts(place: Path) -> None:
    header = json.loads((place / HEADER).read_bytes())
    assert header["parts"] == sorted(NAMES) == sorted(os.listdir(place / PARTS))
