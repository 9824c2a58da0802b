"""A directory, a pipe or a link to itself in the place of any file that we read: one message."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import open_plain

KINDS: dict[str, Callable[[Path], None]] = {
    "directory": lambda path: path.mkdir(),
    "pipe": lambda path: os.mkfifo(path),
    "loop": lambda path: path.symlink_to(path.name),
    "nowhere": lambda path: path.symlink_to("nowhere"),
}
STUDY = """
search_seeds: [0]
table_seeds: [1]
reference_seeds: [1]
benchmarks:
  digits/5:
    settings: {training.epochs: 1, training.schedule: cosine, network.name: mlp, data.per_class: 10}
    methods: {lwf: {lamb: [1, 3, 5], lamb_a: [0.5, 1, 2]}}
"""


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def check_every_file(
    ancl: Any, root: Path, commands: list[tuple[str, ...]], kinds: list[str]
) -> int:
    """Put something else in the place of every file in turn; gives how often a command refused."""
    refused, whole = 0, Path("whole")
    shutil.copytree(root, whole, symlinks=True)
    for file in sorted(path for path in whole.rglob("*") if path.is_file()):
        for kind in kinds:
            for words in commands:
                shutil.rmtree(root)
                shutil.copytree(whole, root, symlinks=True)
                place = root / file.relative_to(whole)
                place.unlink()
                KINDS[kind](place)
                before = open_files()

                ended = ancl(*words)  # any other exception than an exit is raised

                said = ended.out + ended.err
                assert ended.code in (0, 1, 2), (place, words)
                assert "Traceback" not in said
                assert len(ended.err.splitlines()) < 12, (place, words)
                assert open_files() <= before, (place, words)
                refused += ended.code > 0
    return refused


def test_a_directory_is_refused_and_nothing_stays_open(tmp_path: Path) -> None:
    before = open_files()
    for name, make in KINDS.items():
        make(tmp_path / name)
        for _ in range(20):
            with pytest.raises(OSError, match=r"plain file|Too many|No such") as error:
                open_plain(tmp_path / name)
            assert error.value.filename in (str(tmp_path / name), tmp_path / name)

    assert open_files() == before


def test_every_file_of_a_learner(ancl: Any, write_digits: Callable[..., str]) -> None:
    write_digits(Path("m1"), {"a": 0, "b": 1}, each=4)
    begin = "learn L --data folder:m1 --method lwf --network mlp --epochs 1 --threads 1 --quiet"
    assert ancl(*begin.split()).code == 0

    assert check_every_file(ancl, Path("L"), [("predict", "L", "m1/a")], [*KINDS]) >= 8


def test_every_file_of_an_entry_of_the_store(ancl: Any, finished: Path) -> None:
    (entry, *_) = sorted((finished / ".store" / "entries").glob("*/*"))
    place = Path("runs/.store/entries") / entry.parent.name / entry.name
    shutil.copytree(entry, place)
    commands = [("store", "list"), ("store", "verify")]

    assert check_every_file(ancl, place, commands, [*KINDS]) == 8


@pytest.mark.parametrize("kind", ["directory", pytest.param("pipe", marks=pytest.mark.slow)])
def test_every_file_of_a_run(ancl: Any, finished: Path, kind: str, no_figures: None) -> None:
    (run,) = finished.glob("digits-5_lwf_*")
    shutil.copytree(finished / ".store", "runs/.store")
    place = Path("runs") / run.name
    shutil.copytree(run, place)

    again = ("run", "--config", str(place / "spec.yaml"), "--quiet")
    commands = [("report",), ("store", "prune"), again]

    assert check_every_file(ancl, place, commands, [kind]) > 4


@pytest.mark.slow
def test_every_file_of_a_study(ancl: Any, no_figures: None) -> None:
    place = Path("study")
    place.mkdir()
    (place / "s.yaml").write_text(STUDY)
    assert ancl("study", "study/s.yaml", "--quiet").code == 0
    commands = [("study", "study/s.yaml", "--tables")]

    assert check_every_file(ancl, place, commands, ["directory", "pipe"]) > 4
