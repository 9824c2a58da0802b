"""Only plain files are read, and only our own are replaced: every writer of the library."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ancl.analysis import AnalysisResult
from ancl.analysis.context import AnalysisOptions
from ancl.errors import StoreError
from ancl.experiments.compare import Comparison
from ancl.experiments.results import prepare_run, run_directory
from ancl.experiments.run import Outcome
from ancl.experiments.search import SearchDirectory
from ancl.experiments.spec import Layer, resolve
from ancl.files import STAGES, check_place, claim, read_plain, read_stages, write_stages
from ancl.metrics import Estimate

SPEC = resolve("lwf", "digits/5", [Layer("test", {"threads": 1})]).spec


def write_a_run(runs: Path) -> Path:
    directory = run_directory(runs, SPEC)
    prepare_run(directory, SPEC, ["0" * 64])
    return directory / "spec.yaml"


def write_a_search(runs: Path) -> Path:
    search = SearchDirectory(runs, "two-stage", SPEC, [])
    search.add_stages(["0" * 64])
    return search.path / STAGES


def write_a_comparison(runs: Path) -> Path:
    return Comparison([SPEC], Outcome([], []), None, 1.0).write(runs)


class Uncorrelated(AnalysisResult):
    def correlations(self) -> dict[str, Estimate]:
        return {}


def write_an_analysis(runs: Path) -> Path:
    options = AnalysisOptions(task=1, lamb_as=(1.0,))
    result = Uncorrelated([SPEC], options, {}, ("0" * 64,))
    return result.write(runs) / "result.json"


@pytest.mark.parametrize(
    "write", [write_a_run, write_a_search, write_a_comparison, write_an_analysis]
)
def test_a_writer_replaces_its_own_files_and_nobody_elses(
    write: Callable[[Path], Path], tmp_path: Path
) -> None:
    file = write(tmp_path / "first")
    assert write(tmp_path / "first") == file  # its own
    theirs = tmp_path / "second" / file.relative_to(tmp_path / "first")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("my own work")
    (theirs.parent / "beside.txt").write_text("mine")

    with pytest.raises(StoreError, match="files that ancl did not write"):
        write(tmp_path / "second")

    assert theirs.read_text() == "my own work"
    theirs.unlink()
    assert write(tmp_path / "second") == theirs  # a new name beside other files
    assert (theirs.parent / "beside.txt").read_text() == "mine"


def test_a_mark_must_be_ours(tmp_path: Path) -> None:
    (tmp_path / "stages.json").write_text('{"keys": []}')
    with pytest.raises(StoreError, match=r"stages\.json"):
        claim(tmp_path, ["stages.json"], ["stages.json"])
    claim(tmp_path, ["stages.json"], ["stages.json"], overwrite=True)
    write_stages(tmp_path, ["a", "b"])
    claim(tmp_path, ["stages.json"], ["stages.json"])
    assert read_stages(tmp_path) == {"a", "b"}


@pytest.mark.parametrize("path", ["", ".", "/", "a/..", "a\0b", "a" * 5000])
def test_no_place_of_its_own(path: str) -> None:
    with pytest.raises(StoreError, match=r"is not a place|too long, or no name"):
        check_place(path, "results")


@pytest.mark.parametrize("target", ["/dev/zero", "/dev", "nowhere"])
def test_only_plain_files_are_read(target: str, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match=r"not a plain file|directory"):
        read_plain(tmp_path / "link")


def test_a_size_bounds_what_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(100))
    assert read_plain(tmp_path / "file", 100) == bytes(100)
    with pytest.raises(OSError, match="more than 99 bytes"):
        read_plain(tmp_path / "file", 99)
