import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ancl import StoreError
from tests.lab import collect

Make = Callable[..., Path]


def test_finds_runs_searches_and_analyses_below_a_directory(
    make: Make, make_search: Make, make_analysis: Make, runs: Path
) -> None:
    first, second = make(seed=0), make(seed=1)
    search, analysis = make_search(), make_analysis()

    found = collect([runs])

    assert {run.directory for run in found.runs} == {first, second}
    assert [each.name for each in found.searches] == [search.name]
    assert [each.name for each in found.analyses] == [analysis.name]
    assert found.damaged == []


def test_a_named_run_is_read_alone_and_once(make: Make) -> None:
    first, _ = make(seed=0), make(seed=1)

    assert [run.directory for run in collect([first, first]).runs] == [first]


def test_a_comparison_names_its_runs(make: Make, runs: Path) -> None:
    first, _ = make(seed=0), make(seed=1)
    place = runs / "comparisons" / "one.json"
    place.parent.mkdir()
    # As written elsewhere: the directory is found beside the comparison.
    place.write_text(json.dumps({"methods": {"lwf": {"runs": [f"elsewhere/{first.name}"]}}}))

    assert [run.directory.name for run in collect([place]).runs] == [first.name]


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("result.json", "{", "JSONDecodeError"),
        ("result.json", "[]", "another shape"),
        ("result.json", '{"spec": {}}', "result.json: spec.method: Field required"),
        ("accuracy_taw.csv", "nonsense", "accuracy_taw.csv"),
        ("accuracy_tag.csv", "after,task 0\ntask 0,0.5\n", "do not fit 2 tasks"),
        ("log.jsonl", "{\n", "JSONDecodeError"),
    ],
)
def test_a_damaged_run_is_named_and_the_rest_reported(
    make: Make, runs: Path, name: str, text: str, reason: str
) -> None:
    whole, broken = make(seed=0), make(seed=1)
    (broken / name).write_text(text)

    found = collect([runs])

    assert [run.directory for run in found.runs] == [whole]
    assert [each.directory for each in found.damaged] == [broken]
    assert reason in found.damaged[0].reason


@pytest.mark.parametrize("name", ["accuracy_taw.csv", "log.jsonl", "result.json"])
def test_a_missing_file_is_named(make: Make, runs: Path, name: str) -> None:
    broken = make()
    (broken / name).unlink()

    found = collect([runs])

    assert found.runs == []
    assert name in found.damaged[0].reason


def test_without_its_environment_a_run_is_still_reported(make: Make, runs: Path) -> None:
    place = make()
    (place / "environment.json").unlink()

    found = collect([runs])

    assert [run.environment for run in found.runs] == [{}]
    assert "The rest of the run is reported" in found.damaged[0].reason


def test_damaged_searches_and_analyses_are_named(
    make_search: Make, make_analysis: Make, runs: Path
) -> None:
    (make_search() / "trials.json").unlink()
    (make_analysis() / "result.json").write_text('{"seeds": [0]}')

    found = collect([runs])

    assert (found.searches, found.analyses) == ([], [])
    assert len(found.damaged) == 2


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        collect([tmp_path / "nowhere"])
