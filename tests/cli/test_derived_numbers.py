"""A number that follows from others is never shown where it disagrees with them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ancl as package
from ancl import StoreError
from tests.lab import prune, read_run, read_stages, reference_gap

from ..reporting.conftest import write_synthetic_analysis, write_synthetic_search


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run and its store, copied."""
    shutil.copytree(finished, tmp_path / "runs")
    return next((tmp_path / "runs").glob("digits-5_lwf*"))


def edit(file: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


METRICS = ("aac", "aiac", "final_accuracy", "forgetting", "learning_accuracy", "backward_transfer")


@pytest.mark.parametrize("name", METRICS)
def test_an_edited_metric_of_a_run_is_refused_by_every_reader(
    ancl, run: Path, name: str, no_figures: None
) -> None:
    edit(run / "result.json", lambda found: found["metrics"].update({name: 0.9999}))

    said = f"{name} is 0.9999, and the accuracy matrix beside it gives"
    for reader in (read_run, package.load_run):
        with pytest.raises(StoreError, match=said):
            reader(run)
    told = ancl("report", "--runs", "runs")
    assert (told.code, said in told.err) == (2, True)
    assert not (run.parent / "report").exists()


@pytest.mark.parametrize("place", ["result.json", "accuracy_taw.csv", "both"])
def test_an_edited_matrix_is_refused(run: Path, place: str) -> None:
    if place != "accuracy_taw.csv":
        edit(run / "result.json", lambda found: found["matrices"]["taw"][1].__setitem__(0, 0.125))
    if place != "result.json":
        file = run / "accuracy_taw.csv"
        *lines, last = file.read_text().splitlines()
        file.write_text("\n".join([*lines, f"task 1,0.125,{last.split(',')[2]}", ""]))

    with pytest.raises(StoreError, match=r"different accuracies|the accuracy matrix beside it"):
        read_run(run)


def test_what_is_read_is_the_matrix_itself(run: Path) -> None:
    written = json.loads((run / "result.json").read_text())

    # A result of an earlier version may lack metrics that came later.
    edit(run / "result.json", lambda found: found["metrics"].pop("forgetting_from_best"))
    found = read_run(run)

    assert {**found.metrics} == written["metrics"]
    assert found.matrices["taw"][1].tolist() == written["matrices"]["taw"][1]


def test_a_damaged_joint_run_gives_no_gap(run: Path) -> None:
    result = read_run(run)
    joint = run.with_name(run.name.replace("_lwf_", "_joint_"))
    shutil.copytree(run, joint)
    edit(joint / "result.json", lambda found: found["spec"].update(method="joint"))
    assert reference_gap([result], run.parent, "joint") is not None
    edit(joint / "result.json", lambda found: found["metrics"].update(aac=0.9999))

    assert reference_gap([result], run.parent, "joint") is None


def test_a_mean_that_is_not_its_scores_is_not_reported(ancl, run: Path, no_figures: None) -> None:
    search = write_synthetic_search(run.parent)
    edit(search / "trials.json", lambda trials: [t.update(scores={"0": 0.5}) for t in trials])
    assert ancl("report", "--runs", "runs", "--json").json["damaged"] == []
    edit(search / "trials.json", lambda trials: trials[0].update(mean=0.9999))
    assert "0.9999 is not that of its scores" in ancl("report", "--runs", "runs", "--json").out
    edit(search / "trials.json", lambda trials: trials[0].update(mean=0.5, chosen=True))

    assert "the decision is another" in ancl("report", "--runs", "runs", "--json").out


@pytest.mark.parametrize("table", ["rank_correlations", "accuracy"])
def test_an_edited_analysis_is_not_reported(ancl, run: Path, table: str, no_figures: None) -> None:
    def change(found: Any) -> None:
        if table == "accuracy":
            found["tables"]["accuracy"][0]["mean"] = 0.9999
        else:
            found[table]["distance_old_with_lamb_a"]["mean"] = 0.9999

    place = write_synthetic_analysis(run.parent)
    assert "is not a whole analysis" not in ancl("report", "--runs", "runs", "--json").out
    edit(place / "result.json", change)

    found = ancl("report", "--runs", "runs", "--json").json
    assert ["is not that of its" in each["reason"] for each in found["damaged"]] == [True]


# -- what a prune keeps ----------------------------------------------------------------------


def no_key(keys: list[str]) -> None:
    keys[0] = "z" + keys[0][1:]


def another_key(keys: list[str]) -> None:
    keys[0] = ("0" if keys[0][0] != "0" else "1") + keys[0][1:]


def fewer(keys: list[str]) -> None:
    keys.pop()


@pytest.mark.parametrize("old", [False, True], ids=["", "of an earlier version"])
@pytest.mark.parametrize("damage", [no_key, another_key, fewer])
def test_a_prune_removes_nothing_where_the_keys_of_a_run_are_damaged(
    ancl, run: Path, damage: Callable[[list[str]], None], old: bool
) -> None:
    if old:
        edit(run / "stages.json", lambda found: found.pop("sha256"))
    assert read_stages(run) == frozenset(json.loads((run / "result.json").read_text())["keys"])
    edit(run / "stages.json", lambda found: damage(found["keys"]))

    told = ancl("store", "prune", "--runs", "runs")

    assert (told.code, "Nothing was removed" in told.err) == (2, True)
    assert "stages.json is damaged" in told.err
    package.load_run(run)
    shutil.rmtree(run)
    assert prune(run.parent).removed > 0
