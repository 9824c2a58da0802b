"""The script behind docs/evidence/moving.md follows the protocol of its page."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ancl import SpecError

SCRIPTS = Path(__file__).parents[1] / "scripts"
PAGE = SCRIPTS.parent / "docs" / "evidence" / "moving.md"


@pytest.fixture(name="moving")
def _moving(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("moving", "protocol_runs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    try:
        script = __import__("moving")
        script.rate_task("ncm", 20, script.Scale())
    except SpecError:
        pytest.skip("the weights of efficientnet_lite0 are not installed")
    return script


def test_rows_are_those_of_the_protocol(moving: ModuleType, tmp_path: Path) -> None:
    results = moving.Results(tmp_path, moving.Scale())
    tasks = results.table("lite0-last", 400.0)

    assert len(tasks) == 3 * (2 + 2 * 4)
    spec = next(task.spec for task in tasks if task.row == "a-lfl" and not task.transport)
    assert (spec.data.size, spec.data.tasks, len(spec.data.order)) == (128, 5, 40)
    assert spec.options["classifier"] == "slda"
    assert (spec.options["lamb"], spec.options["transport"]) == (400.0, False)
    assert spec.network["trains"] == "last"
    assert len({task.file for task in tasks}) == len(tasks)


def test_lamb_is_the_smaller_of_equals_and_a_failed_one_never_wins(
    moving: ModuleType, tmp_path: Path
) -> None:
    results = moving.Results(tmp_path, moving.Scale())
    for (first, second), wanted in (
        (((0.5, ""), (0.5, "")), 400.0),
        (((0.5, "diverged"), (0.4, "")), 4000.0),
        (((0.5, ""), (0.6, "")), 4000.0),
    ):
        for task, (score, failed) in zip(
            results.searched("lite0-last"), (first, second), strict=True
        ):
            stored = {"spec": task.spec.plain(), "score": score, "failed": failed}
            results.write(task, stored)
        assert results.lamb("lite0-last") == wanted
    assert results.lamb("lite0-affine") is None
    assert results.lamb("vit-adapter") == 400.0


def test_stored_runs_are_those_of_the_protocol(moving: ModuleType) -> None:
    results = moving.Results(moving.FOLDER / "results", moving.Scale())
    stored = [json.loads(file.read_text()) for file in results.folder.glob("*.json")]

    assert {run["table"] for run in stored} <= {*moving.RATE_NETWORKS, *moving.BACKBONES}
    wanted = moving.rate_tasks("rates", results.scale)
    for table in ("lite0-affine", "lite0-last"):
        wanted += results.searched(table)
        if (lamb := results.lamb(table)) is not None:
            wanted += results.table(table, lamb)
    told = {task.file for task in wanted if results.get(task) is not None}
    here = {file.name for file in results.folder.glob("*.json")}
    assert {name for name in here - told if "vit" not in name} == set()


def test_tables_are_of_the_seeds_and_the_lambda_that_count(
    moving: ModuleType, tmp_path: Path
) -> None:
    results = moving.Results(tmp_path, moving.Scale())
    for task, score in zip(results.searched("lite0-affine"), (0.4, 0.5), strict=True):
        results.write(task, _stored(task, score))
    accuracies = {("lfl", 20): 0.60, ("a-lfl", 20): 0.61, ("lfl", 21): 0.60, ("a-lfl", 21): 0.63}
    for lamb in (400.0, 4000.0):
        for (row, seed), accuracy in accuracies.items():
            task = moving.make_task("lite0-affine", row, seed, lamb, True, results.scale)
            results.write(task, _stored(task, accuracy if lamb == 4000 else 0.0))

    runs = results.done("lite0-affine")
    assert {kind: set(by_seed) for kind, by_seed in runs.items()} == {
        ("lfl", True): {20, 21},
        ("a-lfl", True): {20, 21},
    }
    first = next(line for line in moving.gap_lines(results) if line.startswith("| A-LFL"))
    # 1 and 3 points: mean 2, standard error 1, t = 12.71 with one degree of freedom.
    assert first == "| A-LFL − LFL to old | +2.00 [-10.71, +14.71] (n=2) | – | – |"


def test_pages_say_what_the_table_says(moving: ModuleType) -> None:
    results = moving.Results(moving.FOLDER / "results", moving.Scale())
    number = r"([+-]\d+\.\d+) \[([+-]\d+\.\d+), ([+-]\d+\.\d+)\] \(n=(\d)\)"
    rows = {line.split(" | ")[0].strip("| "): line for line in moving.gap_lines(results)}
    primary = re.findall(number, rows["A-LFL − LFL to old"])[-1]
    frozen = re.findall(number, rows["LFL to old − frozen"])[0]
    docs = PAGE.parents[1]
    page, index, advice = (
        " ".join(file.read_text("utf-8").split())
        for file in (PAGE, PAGE.with_name("index.md"), docs / "adapters.md")
    )

    mean, low, high, n = primary
    told = f"{mean} points (95 % interval {low} to {high}, n = {n})"
    assert f"A-LFL − LFL is {told}" in page
    assert told in index
    assert f"({mean} points, {low} to {high})" in advice
    mean, low, high, _ = frozen
    assert f"LFL is {mean} points above the frozen network ({low} to {high})" in page
    assert f"{mean} points there" in index
    shown = [f"{abs(float(value)):.1f}" for value in (mean, low, high)]
    told = (
        f"ended {shown[0]} points above the frozen network (95 % interval {shown[1]} to {shown[2]})"
    )
    assert told in advice


def test_the_advice_on_transformers_is_what_the_table_says(moving: ModuleType) -> None:
    runs = moving.Results(moving.FOLDER / "results", moving.Scale()).done("rates-vit")
    accuracy = {
        row: np.array([runs[row, True][s]["metrics"]["final_accuracy"] for s in moving.SEEDS])
        for row, _ in runs
        if len(runs[row, True]) == len(moving.SEEDS)
    }
    advice = (PAGE.parents[1] / "adapters.md").read_text("utf-8")
    page = " ".join(PAGE.read_text("utf-8").split())
    lines = [line for line in advice.splitlines() if re.match(r"\| `(body|adapter)`.*\d \|$", line)]
    rows = ["but embedding, 0.01 x 0.01", "but embedding, 0.01 x 0.1", "adapter, 0.01 x 0.3"]
    shown = [rows[0], f"{rows[0]}, slda", rows[1], rows[2], f"{rows[2]}, slda"]
    for line, row in zip(lines, shown, strict=True):
        gaps = 100 * (accuracy[row] - accuracy["slda"])
        assert line.endswith(f"| {gaps.mean():+.1f} | {gaps.min():+.1f} |"), row
        assert f"{100 * accuracy[row].mean():.1f}" in page
    for row in rows[:2]:
        gaps = 100 * (accuracy[f"{row}, slda"] - accuracy["slda"])
        assert f"{gaps.mean():+.1f}" in page
        assert gaps.min() > 0


def _stored(task: Any, accuracy: float) -> dict[str, Any]:
    return {
        "table": task.table,
        "row": task.row,
        "transport": task.transport,
        "spec": task.plain,
        "score": accuracy,
        "failed": "",
        "metrics": {"final_accuracy": accuracy, "aiac": accuracy},
        "drifts": [],
        "passes": {"main": 1},
    }


def test_a_second_network_has_the_same_rows_but_for_its_norms(moving: ModuleType) -> None:
    rows = moving.RATE_ROWS
    assert set(rows["rates"]) - set(rows["rates-vit"]) == {"affine, 0.01 x 0.3"}
    assert {"0.01 x 0.1", "adapter, 0.01 x 0.3", "before"} <= set(rows["rates-vit"])
    assert len(moving.rate_tasks("rates", moving.Scale())) == 33
    assert moving.rate_tasks("rates-vit", moving.Scale()) == []  # its weights are not given
    page = " ".join(PAGE.read_text().split())
    assert "`rates-vit`: a DINOv2 ViT-S/14 of timm at 112x112" in page
    assert moving.RATE_NETWORKS["rates-vit"]["data.size"] == 112


def test_a_row_with_a_computed_classifier_is_trained_as_the_row_it_is_compared_with(
    moving: ModuleType,
) -> None:
    for row, trained in moving.COMPUTED.items():
        ours, other = (moving.rate_task(name, 20, moving.Scale()).spec for name in (row, trained))
        assert (ours.training, ours.network) == (other.training, other.network)
        assert ours.options["classifier"] == "slda"
        assert other.options.get("classifier", "head") == "head"
        assert row in moving.RATE_ROWS["rates-vit"]


def test_a_file_of_weights_counts_by_its_name_and_not_by_its_place(moving: ModuleType) -> None:
    task = moving.rate_task("ncm", 20, moving.Scale())
    files = set()
    for place in ("/a/w.safetensors", "/b/w.safetensors", "/a/v.safetensors"):
        network = {**task.spec.network, "weights": place}
        placed = replace(task, spec=task.spec.model_copy(update={"network": network}))
        files.add(placed.file)
        assert placed.plain["network"]["weights"] == Path(place).name
    assert len(files) == 2
    assert task.file not in files
