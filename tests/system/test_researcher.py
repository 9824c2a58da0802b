"""The researcher's walk: own method, search, an equal comparison with LwF, LaTeX; few commands."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_compare import OWN

SHORT = "--epochs 1 --tasks 2 --threads 1 --quiet"
WALK = f"""
search own.py:l1 digits/5 --lamb-grid 0.01,0.1,1 {SHORT}
search lwf digits/5 --lamb-grid 1,3,10 {SHORT}
compare lwf@lamb={{lwf}} own.py:l1@lamb={{own}} --on digits/5 --seeds 1-3 {SHORT}
report {{comparison}} --output paper
"""


@pytest.mark.slow
def test_the_walk_takes_at_most_ten_commands(tmp_path: Path) -> None:
    import json

    (tmp_path / "own.py").write_text(OWN)
    values: dict[str, str] = {}
    lines = WALK.split("\n")[1:-1]
    for line in lines:
        words = line.format_map({**dict.fromkeys(("lwf", "own", "comparison"), ""), **values})
        command = [sys.executable, "-m", "ancl", *words.split()]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        for file in tmp_path.glob("runs/searches/*/decision.json"):
            found = json.loads(file.read_text())
            values["lwf" if found["method"] == "lwf" else "own"] = f"{found['lamb']:g}"
        for comparison in tmp_path.glob("runs/comparisons/*.json"):
            values["comparison"] = str(comparison)

    assert len(lines) + 1 <= 10  # and one editor, for the method's file
    latex = (tmp_path / "paper/tables/difference_til.tex").read_text()
    (row,) = [line for line in latex.splitlines() if line.startswith("l1 $-$ LwF &")]
    assert row.endswith(r"&  \\")  # equal memory, epochs, parameters and search: nothing differs
