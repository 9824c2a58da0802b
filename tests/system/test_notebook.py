"""The notebook runs as it is, and its page shows it."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "notebook.py"))


def test_the_page_is_that_of_the_notebook(script: dict[str, Any]) -> None:
    notebook = json.loads(script["NOTEBOOK"].read_text(encoding="utf-8"))

    assert script["PAGE"].read_text(encoding="utf-8") == script["page"](notebook), (
        "run: python scripts/notebook.py --page"
    )
    counts = [cell["execution_count"] for cell in notebook["cells"] if "outputs" in cell]
    assert counts == [1, 2, 3, 4]


@pytest.mark.slow
def test_the_notebook_runs_as_it_is(script: dict[str, Any], tmp_path: Path) -> None:
    notebook = json.loads(script["NOTEBOOK"].read_text(encoding="utf-8"))

    ran = script["run"](notebook, tmp_path)

    printed = ["".join(o["text"]) for c in ran["cells"] for o in c.get("outputs", [])]
    assert "A-LwF minus LwF by seed" in printed[0]
    assert "λ of l1:" in printed[1]
    assert r"\toprule" in printed[2]
    assert "l1 $-$ LwF &" in printed[2]
    assert "what else differs: nothing" in printed[2]
    assert "forgetting in points" in printed[3]
