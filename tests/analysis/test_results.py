import csv
import json
import math
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from ancl import StoreError
from tests.lab import AnalysisOptions, AnalysisResult, Layer, as_csv, choose_lamb, resolve

LAMB_AS = (1.0, 10.0, 100.0)


def analysis(**tables: list[dict[str, Any]]) -> AnalysisResult:
    specs = [
        resolve("a-ewc", "digits/5", [Layer("test", {"seed": seed, "lamb_a": 1.0})]).spec
        for seed in (0, 1)
    ]
    return AnalysisResult(specs, AnalysisOptions(LAMB_AS), tables, ("abc",))


def rows(values: dict[int, list[float]], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            **{"seed": seed, "network": "ancl", "lamb_a": lamb_a, **more},
            **dict.fromkeys(("old", "auxiliary", "multi", "mean"), value),
        }
        for seed, column in values.items()
        for lamb_a, value in zip(LAMB_AS, column, strict=True)
    ]


def whole() -> AnalysisResult:
    values = {0: [1.0, 2.0, 3.0], 1: [5.0, 4.0, 6.0]}
    return analysis(
        distance=rows(values),
        cka=rows(values, layer="mean"),
        accuracy=rows({0: [3, 2, 1], 1: [1, 2, 3]}),
    )


def test_correlations_are_means_over_seeds() -> None:
    found = whole().correlations()

    # Seed 0 ascends (1), seed 1 goes 2, 1, 3 (1 - 6 * 2 / 24 = 0.5).
    assert found["distance_old_with_lamb_a"].mean == pytest.approx(0.75)
    assert found["distance_old_with_lamb_a"].error == pytest.approx(0.25)
    assert found["cka_multi_with_mean_accuracy"].mean == pytest.approx((-1.0 + 0.5) / 2)


def test_a_curve_is_the_mean_of_seeds_for_each_lamb_a() -> None:
    curve = whole().curve("distance", "old")

    assert [each.mean for each in curve] == [3.0, 3.0, 4.5]
    assert [each.n for each in curve] == [2, 2, 2]


def test_the_directory_name_is_deterministic_and_depends_on_the_specs() -> None:
    other = analysis()
    fewer = AnalysisResult(other.specs[:1], other.options, {}, ())

    assert analysis().name == other.name
    assert other.name.startswith("digits-5_a-ewc_")
    assert fewer.name != other.name


def test_what_is_written_is_what_was_found(tmp_path: Path) -> None:
    place = whole().write(tmp_path)
    found = json.loads((place / "result.json").read_text())

    read = list(csv.DictReader(StringIO((place / "distance.csv").read_text())))
    assert place.parent == tmp_path / "analyses"
    assert [float(row["old"]) for row in read] == [1.0, 2.0, 3.0, 5.0, 4.0, 6.0]
    assert found["keys"] == ["abc"]
    assert found["rank_correlations"]["distance_old_with_lamb_a"]["mean"] == 0.75
    assert found["options"]["lamb_as"] == [1.0, 10.0, 100.0]


def test_what_does_not_exist_is_null_and_an_empty_cell() -> None:
    flat = {0: [1.0, 1.0, 1.0], 1: [1.0, 1.0, 1.0]}
    found = analysis(distance=rows(flat), cka=rows(flat, layer="mean"), accuracy=rows(flat))

    assert math.isnan(found.correlations()["distance_old_with_lamb_a"].mean)
    assert found.json()["rank_correlations"]["distance_old_with_lamb_a"]["mean"] is None
    assert as_csv([{"a": 1, "b": None}, {"a": 2, "c": 3}]) == "a,b,c\n1,,\n2,,3\n"


def test_a_directory_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "analyses").write_text("a file")

    with pytest.raises(StoreError, match=r"cannot be written.*--runs DIR"):
        whole().write(tmp_path)


def test_lamb_is_chosen_by_the_mean_over_seeds() -> None:
    tried = {1.0: (0.9, 0.5), 10.0: (0.7, 0.8), 100.0: (0.8, 0.7)}
    found = [
        {"lamb": lamb, "validation": value} for lamb, values in tried.items() for value in values
    ]

    assert choose_lamb(found) == 10.0  # as good as 100, and smaller
