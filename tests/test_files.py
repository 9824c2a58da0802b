"""Only plain files are read, and only our own are replaced: every writer of the library."""

from collections.abc import Callable
from pathlib import Path

import pytest

from ancl import Comparison, StoreError, StudyResult
from tests.lab import (
    STAGES,
    AnalysisOptions,
    AnalysisResult,
    BenchmarkPlan,
    Estimate,
    Layer,
    Outcome,
    Places,
    ResultFolder,
    SearchDirectory,
    StudyPlan,
    check_place,
    claim,
    prepare_run,
    read_plain,
    read_stages,
    resolve,
    run_directory,
    write_stages,
    write_study,
)

SPEC = resolve("lwf", "digits/5", [Layer("test", {"threads": 1})]).spec


def write_a_run(runs: Path, overwrite: bool) -> Path:
    directory = run_directory(runs, SPEC)
    prepare_run(directory, SPEC, ["0" * 64], overwrite=overwrite)
    return directory / "spec.yaml"


def write_a_search(runs: Path, overwrite: bool) -> Path:
    search = SearchDirectory(Places.of(runs, overwrite=overwrite), "two-stage", SPEC, [])
    search.add_stages(["0" * 64])
    return search.path / STAGES


def write_a_comparison(runs: Path, overwrite: bool) -> Path:
    return Comparison({"lwf": [SPEC]}, Outcome([], []), None, 1.0).write(runs, overwrite=overwrite)


class Uncorrelated(AnalysisResult):
    def correlations(self) -> dict[str, Estimate]:
        return {}


def write_an_analysis(runs: Path, overwrite: bool) -> Path:
    options = AnalysisOptions(task=1, lamb_as=(1.0,))
    result = Uncorrelated([SPEC], options, {}, ("0" * 64,))
    return result.write(runs, overwrite=overwrite) / "result.json"


def write_a_study_result(runs: Path, overwrite: bool) -> Path:
    ResultFolder(runs, overwrite=overwrite).fail(SPEC, "for a test", {})
    return runs / f"{run_directory(Path(), SPEC).name}.json"


def write_study_tables(runs: Path, overwrite: bool) -> Path:
    seeds = {"search_seeds": (0,), "table_seeds": (1,), "reference_seeds": (2,)}
    plan = StudyPlan(**seeds, benchmarks={"digits/5": BenchmarkPlan()})
    return write_study(StudyResult(plan), runs, overwrite=overwrite)[1]


WRITERS = [
    write_a_run,
    write_a_search,
    write_a_comparison,
    write_an_analysis,
    write_a_study_result,
    write_study_tables,
]


@pytest.mark.parametrize("write", WRITERS)
def test_a_writer_replaces_its_own_files_and_nobody_elses(
    write: Callable[[Path, bool], Path], tmp_path: Path
) -> None:
    file = write(tmp_path / "first", False)
    assert write(tmp_path / "first", False) == file  # its own
    theirs = tmp_path / "second" / file.relative_to(tmp_path / "first")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("my own work")
    (theirs.parent / "beside.txt").write_text("mine")

    with pytest.raises(StoreError, match="files that ancl did not write"):
        write(tmp_path / "second", False)

    assert theirs.read_text() == "my own work"
    theirs.unlink()
    assert write(tmp_path / "second", False) == theirs  # a new name beside other files
    assert (theirs.parent / "beside.txt").read_text() == "mine"


@pytest.mark.parametrize("write", WRITERS)
def test_a_writer_that_may_overwrite_replaces_what_is_in_its_way_alone(
    write: Callable[[Path, bool], Path], tmp_path: Path
) -> None:
    file = write(tmp_path / "first", False)
    theirs = tmp_path / "second" / file.relative_to(tmp_path / "first")
    theirs.parent.mkdir(parents=True)
    theirs.write_text("my own work")
    (theirs.parent / "beside.txt").write_text("mine")

    assert write(tmp_path / "second", True) == theirs

    assert theirs.read_text() == file.read_text()
    assert (theirs.parent / "beside.txt").read_text() == "mine"
    assert write(tmp_path / "second", False) == theirs  # it is ours from then on


def test_a_mark_must_be_ours(tmp_path: Path) -> None:
    (tmp_path / "stages.json").write_text('{"keys": []}')
    with pytest.raises(StoreError, match=r"stages\.json"):
        claim(tmp_path, ["stages.json"], ["stages.json"])
    claim(tmp_path, ["stages.json"], ["stages.json"], overwrite=True)
    keys = ["a" * 64, "b" * 64]
    write_stages(tmp_path, keys)
    claim(tmp_path, ["stages.json"], ["stages.json"])
    assert read_stages(tmp_path) == {*keys}


@pytest.mark.parametrize("path", ["", ".", "/", "a/..", "a\0b", "a" * 5000])
def test_no_place_of_its_own(path: str) -> None:
    with pytest.raises(StoreError, match=r"is not a place|too long, or not a name"):
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
