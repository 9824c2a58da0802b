"""What version 0.2 left on disk, as this one takes it: docs/upgrade.md says it in these words.

The files were written by 0.2.0 itself: ``ancl run lwf digits/5 --epochs 2 --threads 1`` with the
seeds 0 and 1, ``ancl run a-lwf digits/5 --epochs 2 --threads 1 --lamb-a 1``, and a learner of noisy
photos of two classes; figures and pages were removed.
"""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from ruamel.yaml import YAML

import ancl
from tests.lab import build, collect, make_report, run_directory

HERE = Path(__file__).with_name("0.2")
RUNS = sorted((HERE / "runs").iterdir())


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    return Path(shutil.copytree(HERE, tmp_path / "earlier"))


@pytest.fixture
def as_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numerics that the files were written with, on any machine."""
    numerics = json.loads((RUNS[0] / "environment.json").read_text())["numerics"]
    monkeypatch.setattr(torch, "__version__", numerics["torch"])
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: numerics["cpu"])


def test_a_report_and_a_table_read_its_runs(earlier: Path) -> None:
    report = make_report(collect([earlier / "runs"]))
    rows = ancl.results(earlier / "runs")

    assert [*report.findings] == ["digits/5"]
    read = {Path(row["run"]).name: row["value"] for row in rows if row["quantity"] == "aac"}
    written = {run.name: json.loads((run / "result.json").read_text()) for run in RUNS}
    assert read == {name: result["metrics"]["aac"] for name, result in written.items()}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_the_same_settings_have_the_same_keys_and_the_same_directory(run: Path, as_then) -> None:
    settings = {"training.epochs": 2, "threads": 1}
    spec = YAML(typ="safe").load((run / "spec.yaml").read_text())
    lamb_a = {"lamb_a": 1.0} if spec["method"] == "a-lwf" else {}
    today = ancl.spec(spec["method"], "digits/5", seed=spec["seed"], settings=settings, **lamb_a)
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        keys = [stage.key for stage in build(today).stages]
    finally:
        torch.set_num_threads(before)

    assert sorted(keys) == sorted(json.loads((run / "stages.json").read_text())["keys"])
    assert run_directory(Path(), today).name == run.name


def test_its_learner_is_refused_in_one_line_and_left_as_it_is(earlier: Path) -> None:
    files = {file: file.read_bytes() for file in (earlier / "birds").iterdir()}

    with pytest.raises(ancl.StoreError) as refused:
        ancl.Learner.load(earlier / "birds")

    said = str(refused.value)
    page = (HERE.parents[2] / "docs" / "upgrade.md").read_text(encoding="utf-8")
    quoted = " ".join(re.search(r"^It says:\n\n((?: {4}.*\n)+)", page, re.M)[1].split())  # type: ignore[index]
    assert re.sub(r"(?<=reads learner )\d+", "…", said) == quoted.replace(
        "birds", str(earlier / "birds")
    )
    assert "\n" not in said
    assert {file: file.read_bytes() for file in (earlier / "birds").iterdir()} == files
