"""The script behind docs/evidence/moving.md follows the protocol of its page."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

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


def test_the_page_shows_the_rates_that_are_stored(moving: ModuleType) -> None:
    results = moving.Results(moving.FOLDER / "results", moving.Scale())
    for file in (moving.FOLDER / "results").glob("*.json"):
        assert json.loads(file.read_text())["table"] in {"rates", *moving.BACKBONES}
    page = PAGE.read_text()
    for line in list(moving.rate_lines(results))[2:]:
        assert line in page


def test_a_second_network_has_the_same_rows_but_for_its_norms(moving: ModuleType) -> None:
    rows = moving.RATE_ROWS
    assert set(rows["rates"]) - set(rows["rates-vit"]) == {"affine, 0.01 x 0.3"}
    assert {"0.01 x 0.1", "adapter, 0.01 x 0.3", "before"} <= set(rows["rates-vit"])
    assert len(moving.rate_tasks("rates", moving.Scale())) == 33
    assert moving.rate_tasks("rates-vit", moving.Scale()) == []  # its weights are not given
    page = " ".join(PAGE.read_text().split())
    assert "`rates-vit`: a DINOv2 ViT-S/14 of timm at 112x112" in page
    assert moving.RATE_NETWORKS["rates-vit"]["data.size"] == 112


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
