"""Caches of pixels, with several processes at once."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.lab import folder_source, list_caches, patch_part, patching, program

READ = patching("WORTH_KEEPING", "1") + program("""
import sys
from pathlib import Path
from tests.lab import folder_source

source = folder_source(Path(sys.argv[1]))
print(source.fingerprint, *source.notes, flush=True)
sys.stdin.readline()
print(int(source.train.x.dense().sum()), flush=True)
""")
"""Reads a folder of images, says its fingerprint, and reads it once more when told to."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANCL_CACHE", str(tmp_path / "cache"))
    patch_part(monkeypatch, "WORTH_KEEPING", 1)


def photos(place: Path, value: int) -> Path:
    draw = np.random.default_rng(value)
    for number in range(200):
        folder = place / f"class{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        pixels = draw.integers(0, 256, (32, 32, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return place


def reader(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", READ, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def test_two_processes_write_one_cache_and_neither_loses_it_while_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = photos(tmp_path / "photos", 0)
    both = [reader(folder) for _ in range(2)]
    said = [process.stdout.readline() for process in both if process.stdout]
    expected = folder_source(folder)
    assert said == [f"{expected.fingerprint}\n"] * 2  # and nothing was damaged
    (entry,) = list_caches()

    total = int(expected.train.x.dense().sum())
    del expected
    monkeypatch.setenv("ANCL_CACHE_SIZE", str(entry.bytes + 1000))
    other = photos(tmp_path / "other", 1)
    folder_source(other)
    assert [cache.path for cache in list_caches()] == [entry.path]

    assert [process.communicate("go\n")[0] for process in both] == [f"{total}\n"] * 2
    folder_source(other)
    assert [cache.place for cache in list_caches()] == [str(other)]


def test_a_process_that_is_killed_in_use_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = reader(photos(tmp_path / "photos", 0))
    assert process.stdout
    process.stdout.readline()
    process.kill()
    process.communicate()
    monkeypatch.setenv("ANCL_CACHE_SIZE", str(list_caches()[0].bytes + 1000))

    folder_source(photos(tmp_path / "other", 1))

    assert [Path(cache.place).name for cache in list_caches()] == ["other"]
