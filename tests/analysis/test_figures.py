from pathlib import Path
from typing import Any

import pytest

from tests.lab import AnalysisResult, draw, make_tables

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def analysis(ewc: Any) -> AnalysisResult:
    tables = make_tables(ewc.context)
    return AnalysisResult([ewc.experiment.spec], ewc.context.options, tables, ())


@pytest.fixture(scope="module")
def drawn(analysis: AnalysisResult, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return draw(analysis, tmp_path_factory.mktemp("figures"))


def test_the_same_numbers_give_the_same_bytes(
    analysis: AnalysisResult, drawn: list[Path], tmp_path: Path
) -> None:
    again = draw(analysis, tmp_path)

    assert [path.name for path in drawn] == [
        *("distance.png", "distance.svg", "cka.png", "cka.svg"),
        *("landscape_s0.png", "landscape_s0.svg"),
    ]
    for one, two in zip(drawn, again, strict=True):
        assert one.read_bytes() == two.read_bytes()
        assert one.stat().st_size > 5000


def test_other_numbers_give_other_figures_and_a_flat_landscape_one_too(
    analysis: AnalysisResult, drawn: list[Path], tmp_path: Path
) -> None:
    moved = [{**row, "old": row["old"] + 1.0} for row in analysis.tables["distance"]]
    flat = [{**row, "taw": 1.0} for row in analysis.tables["landscape"]]
    tables = {**analysis.tables, "distance": moved, "landscape": flat}

    other = draw(AnalysisResult(analysis.specs, analysis.options, tables, ()), tmp_path)

    changed = {
        a.name for a, b in zip(drawn, other, strict=True) if a.read_bytes() != b.read_bytes()
    }
    assert changed == {"distance.png", "distance.svg", "landscape_s0.png", "landscape_s0.svg"}
