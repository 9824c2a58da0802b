"""Decoded pixels: in the cache directory, bounded, and gone with their images."""

import gc
import json
import os
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ancl import SpecError
from tests.lab import cache_root, clear_caches, folder_source, list_caches, patch_part


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache directory of the test's own; all that is decoded is kept there."""
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path / "cache"))
    patch_part(monkeypatch, "WORTH_KEEPING", 1)
    return tmp_path / "cache" / "pixels"


def photos(place: Path, value: int = 0, count: int = 3) -> Path:
    for name in ("cat", "dog"):
        (place / name).mkdir(parents=True)
        for number in range(count):
            pixels = np.full((6, 6, 3), 40 * number + len(name) + ord(name[0]) + value, np.uint8)
            Image.fromarray(pixels).save(place / name / f"{number}.png")
    return place


def no_pixels_in(place: Path) -> bool:
    """Whether a folder holds what was put there, and nothing hidden beside."""
    return not [file for file in place.rglob("*") if file.name.startswith(".")]


def test_the_folder_of_photos_stays_as_it_is(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    first = folder_source(folder).fingerprint

    (entry,) = list_caches()

    assert no_pixels_in(folder)
    assert (entry.place, entry.images) == (str(folder), 6)
    assert entry.bytes > 6 * 6 * 6 * 3
    assert folder_source(folder).fingerprint == first


def test_what_is_cached_is_not_decoded_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "photos")
    first = folder_source(folder, 4).fingerprint
    monkeypatch.setattr(Image, "open", None)  # decoding anything would fail
    assert folder_source(folder, 4).fingerprint == first


@pytest.mark.parametrize("change", ["deleted", "replaced"])
def test_pixels_die_with_one_of_their_images(tmp_path: Path, change: str, root: Path) -> None:
    """A person's photo that is deleted leaves no pixel behind once the folder is read again."""
    folder = photos(tmp_path / "photos")
    secret = np.arange(108, dtype=np.uint8).reshape(6, 6, 3)
    Image.fromarray(secret).save(folder / "cat" / "me.png")
    folder_source(folder)
    assert any(secret.tobytes() in file.read_bytes() for file in root.rglob("*.npy"))

    if change == "deleted":
        (folder / "cat" / "me.png").unlink()
    else:
        Image.new("RGB", (6, 6)).save(folder / "cat" / "me.png")
    folder_source(folder)

    assert not any(secret.tobytes() in file.read_bytes() for file in root.rglob("*.npy"))
    assert len(list_caches()) == 1


def test_caches_of_a_folder_that_is_gone_are_removed_by_the_list(tmp_path: Path) -> None:
    here, gone = photos(tmp_path / "here"), photos(tmp_path / "gone", 1)
    for folder in (here, gone):
        folder_source(folder)
    for file in gone.rglob("*.png"):
        file.unlink()

    assert [entry.place for entry in list_caches()] == [str(here)]


def test_all_caches_together_are_bounded_and_the_oldest_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [photos(tmp_path / str(number), number) for number in range(3)]
    for folder in folders:
        folder_source(folder)
    for age, entry in enumerate(sorted(list_caches(), key=lambda entry: entry.place)):
        os.utime(entry.path / "origin.json", (time.time() - 100 + age,) * 2)
    folder_source(folders[0])  # used again, so that the second is the oldest now
    monkeypatch.setenv("ANCL_CACHE_SIZE", str(3 * list_caches()[0].bytes))

    folder_source(photos(tmp_path / "new", 9))

    assert {Path(entry.place).name for entry in list_caches()} == {"new", "0", "2"}


def test_pixels_that_do_not_fit_are_read_without_a_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "photos")
    expected = folder_source(folder).fingerprint
    clear_caches()
    monkeypatch.setenv("ANCL_CACHE_SIZE", "10")

    assert folder_source(folder).fingerprint == expected
    assert list_caches() == []
    monkeypatch.setenv("ANCL_CACHE_SIZE", "much")
    with pytest.raises(SpecError, match="'much', which is not a size"):
        folder_source(folder)


def test_a_directory_that_cannot_be_written_costs_the_cache_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path / "file"))
    assert len(folder_source(photos(tmp_path / "photos")).train) == 4


@pytest.mark.parametrize("name", ["pixels.npy", "origin.json"])
@pytest.mark.parametrize("damage", ["short", "gone", "byte"])
def test_a_damaged_cache_is_said_and_made_again(tmp_path: Path, name: str, damage: str) -> None:
    folder = photos(tmp_path / "photos")
    first = folder_source(folder)
    (entry,) = list_caches()
    file = entry.path / name
    content = bytearray(file.read_bytes())
    file.unlink()
    if damage == "byte":
        content[-3] ^= 1  # one bit of a pixel, or of what the cache says of itself
    if damage != "gone":
        file.write_bytes(content[:50] if damage == "short" else content)

    again, later = folder_source(folder), folder_source(folder)

    assert first.fingerprint == again.fingerprint == later.fingerprint
    # What does not say where it comes from is removed with all that belongs to other files.
    silent = name == "origin.json" and damage != "byte"
    assert len(again.notes) == (not silent)
    assert all(f"The cache {entry.path}" in n and "is damaged" in n for n in again.notes)
    assert later.notes == ()
    assert [cache.path for cache in list_caches()] == [entry.path]


def test_a_cache_without_a_checksum_is_made_again(tmp_path: Path) -> None:
    """Earlier versions wrote none."""
    folder = photos(tmp_path / "photos")
    first = folder_source(folder).fingerprint
    (entry,) = list_caches()
    origin = json.loads((entry.path / "origin.json").read_text())
    del origin["checksum"]
    (entry.path / "origin.json").write_text(json.dumps(origin))

    again = folder_source(folder)

    assert (again.fingerprint, again.notes) == (first, ())
    assert "checksum" in json.loads((entry.path / "origin.json").read_text())


def test_a_cache_in_use_stays_and_what_does_not_fit_is_read_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    used = folder_source(photos(tmp_path / "used"))
    (entry,) = list_caches()
    monkeypatch.setenv("ANCL_CACHE_SIZE", str(entry.bytes + 50))
    other = photos(tmp_path / "other", 5)
    expected = used.train.x.dense()

    without = folder_source(other)
    assert [cache.path for cache in list_caches()] == [entry.path]
    assert used.train.x.dense().equal(expected)

    del used
    gc.collect()
    assert folder_source(other).fingerprint == without.fingerprint
    assert [Path(cache.place).name for cache in list_caches()] == ["other"]


def test_what_is_being_written_counts(tmp_path: Path, root: Path, monkeypatch) -> None:
    folder_source(photos(tmp_path / "first"))
    gc.collect()
    size = list_caches()[0].bytes
    begun = root / f"begun-{'0' * 32}"
    begun.mkdir()
    (begun / "pixels.npy").write_bytes(bytes(2 * size))
    monkeypatch.setenv("ANCL_CACHE_SIZE", str(3 * size))

    folder_source(photos(tmp_path / "second", 5))

    assert [Path(cache.place).name for cache in list_caches()] == ["second"]


def test_hidden_pixels_of_an_earlier_version_are_removed(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    old, own = folder / ".ancl-32px-0123456789abcdef.npy", folder / ".ancl-notes.npy"
    np.save(old, np.zeros((1, 2, 2, 3), np.uint8))
    own.write_bytes(b"mine")

    folder_source(folder)

    assert not old.exists()
    assert own.read_bytes() == b"mine"


def test_only_our_own_files_are_removed(tmp_path: Path, root: Path) -> None:
    folder_source(photos(tmp_path / "photos"))
    other = root / "0123456789ab-0123456789abcdef"
    other.mkdir()
    (other / "origin.json").write_text(json.dumps({"format": "mine"}))
    (entry,) = list_caches()
    (entry.path / "mine.txt").write_text("mine")

    assert len(clear_caches()) == 1

    assert (other / "origin.json").exists()
    assert (entry.path / "mine.txt").exists()
    assert list_caches() == []


def test_the_place_is_that_of_the_system_or_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_root() == tmp_path / "cache" / "pixels"
    monkeypatch.delenv("ANCL_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "ancl" / "pixels"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_root() == tmp_path / ".cache" / "ancl" / "pixels"
