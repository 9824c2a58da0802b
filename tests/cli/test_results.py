"""``ancl results``: runs in a table, and every number of them as one tidy table."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import ancl as library


def test_every_number_is_a_row(ancl: Any, finished: Path) -> None:
    where = ("--runs", str(finished))
    (directory,) = finished.glob("digits*")
    result = json.loads((directory / "result.json").read_text())
    rows = ancl("results", "--tidy", "--json", *where).json
    ancl("results", "--tidy", "-o", "tables/all.csv", *where)
    printed = list(csv.DictReader(ancl("results", "--tidy", *where).out.splitlines()))
    written = list(csv.DictReader(Path("tables/all.csv").read_text().splitlines()))

    metrics = {r["quantity"]: r["value"] for r in rows if r["quantity"] in result["metrics"]}
    assert metrics == {k: v for k, v in result["metrics"].items() if v is not None}
    taw = {(r["after"], r["task"]): r["value"] for r in rows if r["quantity"] == "accuracy_taw"}
    matrix = result["matrices"]["taw"]
    assert taw == {(1, 1): matrix[0][0], (2, 1): matrix[1][0], (2, 2): matrix[1][1]}
    assert {(r["method"], r["seed"], r["lamb"], r["network"]) for r in rows} == {
        ("lwf", 0, 10.0, "mlp")
    }
    assert rows == library.results(runs=finished)
    assert written == printed
    assert [(r["quantity"], float(r["value"])) for r in printed] == [
        (r["quantity"], r["value"]) for r in rows
    ]


def test_the_table_of_runs_and_what_is_refused(ancl: Any, finished: Path) -> None:
    where = ("--runs", str(finished))
    text = ancl("results", *where).out
    Path("there.csv").write_text("mine")
    there = ancl("results", "--tidy", "-o", "there.csv", *where)

    assert text.splitlines()[0].split()[:3] == ["benchmark", "method", "seed"]
    assert str(next(finished.glob("digits*"))) in text
    assert (there.code, Path("there.csv").read_text()) == (2, "mine")
    assert "--output is for --tidy" in ancl("results", "-o", "x", *where).err
    assert "none does not exist" in ancl("results", "--runs", "none").err


@pytest.mark.parametrize("given", [("--tidy",), ()])
def test_where_there_is_no_run_a_message_says_so(ancl: Any, given: tuple[str, ...]) -> None:
    Path("runs").mkdir()

    ended = ancl("results", *given)

    assert (ended.code, "There is no finished run in runs." in ended.err) == (2, True)
