"""Decoded pixels: in the cache directory, bounded, and gone with their images."""

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


def test_a_damaged_cache_is_no_cache(tmp_path: Path) -> None:
    folder = photos(tmp_path / "photos")
    first = folder_source(folder).fingerprint
    for name in ("pixels.npy", "origin.json"):
        (entry,) = list_caches()
        file = entry.path / name
        file.write_bytes(file.read_bytes()[:50])
        assert folder_source(folder).fingerprint == first


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
