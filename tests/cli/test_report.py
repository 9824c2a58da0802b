import csv
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.lab import INSTALL, patch_part

RUN = ("--epochs", "1", "--quiet", "--threads", "1", "--set", "data.per_class=10")


@pytest.fixture
def two_runs(ancl: Any) -> Any:
    return ancl("run", "lwf", "digits/5", "--seeds", "0,1", *RUN, "--json").json


def test_report_repeats_the_numbers_of_the_runs(ancl: Any, two_runs: Any) -> None:
    ended = ancl("report")
    found = ancl("report", "--json", "--output", "elsewhere").json

    expected = two_runs["metrics"]["aac"]
    mean, error, n = found["groups"][0]["metrics"]["aac"]
    assert (mean, error, n) == pytest.approx(
        (expected["mean"], expected["standard_error"], 2), rel=1e-5
    )
    assert f"{100 * expected['mean']:.2f} ± {100 * expected['standard_error']:.2f}" in ended.out
    assert "Report: runs/report/report.html" in ended.out
    assert Path("elsewhere/report.html").is_file()
    assert "elsewhere/tables/aac_til.tex" in found["files"]


def test_a_damaged_run_is_named(ancl: Any, two_runs: Any) -> None:
    broken = Path(two_runs["runs"][1]["directory"])
    (broken / "result.json").write_text("{")

    ended = ancl("report")

    assert ended.code == 0
    assert "Not reported, or only in part:" in ended.out
    assert broken.name in ended.out


def test_nothing_to_report_is_said(ancl: Any) -> None:
    Path("runs").mkdir()

    ended = ancl("report", "--json")

    assert ended.code == 2
    assert "There is no finished run in runs" in json.loads(ended.out)["error"]


def test_run_and_demo_leave_a_page(ancl: Any, two_runs: Any) -> None:
    alone = ancl("run", "lwf", "digits/5", "--seed", "0", *RUN, "--json").json

    assert Path(two_runs["report"]).parent.parent == Path("runs/comparisons")
    assert Path(alone["report"]) == Path(alone["runs"][0]["directory"]) / "report.html"
    assert '"seeds":[0,1]' in Path(two_runs["report"]).read_text()
    assert '"seeds":[0]' in Path(alone["report"]).read_text()


def test_without_matplotlib_the_command_says_what_to_install(
    ancl: Any, two_runs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("report_can_draw", "command_can_draw"):
        patch_part(monkeypatch, name, lambda: False)

    ended = ancl("report", "--output", "plain")

    assert INSTALL in ended.out
    assert not Path("plain/figures").exists()
    assert Path("plain/report.html").is_file()


CODE = "open({ran!r}, 'a').write('ran')\ndef make(*given, **named): raise SystemExit(99)\n"


def strangers(ran: Path) -> Path:
    """A run, a search, an analysis and a comparison of somebody else that all name code."""
    evil = Path("evil.py").resolve()
    evil.write_text(CODE.format(ran=str(ran)))
    [run] = Path("runs").glob("digits*")
    method = json.loads((run / "result.json").read_text())["spec"]["method"]
    for file in Path("runs").rglob("*.json"):
        text = file.read_text()
        for name in (method, "mlp", "digits"):
            text = text.replace(f'"{name}"', f'"{evil}:make"')
        file.write_text(text)
    for name in ("method", "name", "source"):
        text = (run / "spec.yaml").read_text()
        (run / "spec.yaml").write_text(re.sub(rf"\b{name}: .*", f"{name}: {evil}:make", text))
    return run


def test_nothing_that_a_strangers_results_name_is_imported(ancl: Any) -> None:
    small = (*RUN, "--tasks", "2", "--set", "network.name=mlp")
    ancl("compare", "lwf", "--on", "digits/5", *small)
    ancl("search", "lwf", "digits/5", "--lamb-grid", "1,10", *small)
    ancl("analyze", "lwf", "digits/5", "--lamb-a", "1", "--grid", "0", *small)
    ran = Path("ran").resolve()
    run = strangers(ran)
    sys.path.insert(0, str(Path.cwd()))  # even where the name could be found

    try:
        ended = [ancl("report", *given) for given in ((), (str(run),), ("runs/comparisons",))]
        listed = ancl("store", "list")
        pruned = ancl("store", "prune", "--dry-run")
    finally:
        sys.path.remove(str(Path.cwd()))

    assert all(each.code in (0, 2) for each in (*ended, listed, pruned)), ended
    assert ended[0].code == 0
    assert "evil.py:make" in Path("runs/report/report.html").read_text()
    assert not ran.exists()
    assert "evil" not in sys.modules


def test_cells_of_a_strangers_results_are_no_formulas(ancl: Any, finished: Path) -> None:
    shutil.copytree(finished, "runs")
    file = next(Path("runs").glob("digits*")) / "result.json"
    found = json.loads(file.read_text())
    found["spec"] |= {"method": 'x.py:=HYPERLINK("x")', "benchmark": "@SUM(1)"}
    file.write_text(json.dumps(found))

    assert ancl("report").code == 0

    tables = [path.read_text() for path in Path("runs/report/tables").glob("*.csv")]
    cells = {cell for text in tables for row in csv.reader(text.splitlines()) for cell in row}
    assert {'\'=HYPERLINK("x")', "'@SUM(1)"} <= cells
    numbers = {cell for cell in cells if re.fullmatch(r"[-+]?[\d.]+", cell)}
    assert [c for c in cells - numbers if c.startswith(("=", "+", "-", "@"))] == []
