"""The script behind docs/evidence/regimes.md follows the protocol of its page."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(name="regimes")
def _regimes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("regimes", "protocol_runs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("regimes")


def finish(regimes, results, task, **found):
    stored = {"spec": task.spec.plain(), "failed": "", **found}
    results.write(task, stored)


def test_lamb_is_the_smallest_of_the_best_and_a_failed_one_never_wins(regimes, tmp_path):
    results = regimes.Results(tmp_path)
    scores = {3.0: (0.5, 0.7), 10.0: (0.6, 0.6), 30.0: (0.9, None)}
    for lamb, values in scores.items():
        for seed, score in zip(regimes.SEARCH_SEEDS, values, strict=True):
            assert results.chosen(regimes.PRIMARY, "lwf") is None
            task = regimes.make_task(regimes.PRIMARY, "search", "lwf", seed, lamb, {})
            finish(regimes, results, task, score=score, failed="" if score else "diverged")
    assert results.chosen(regimes.PRIMARY, "lwf") == 3.0


def test_equal_compute_takes_the_backward_passes_of_both_networks(regimes, tmp_path):
    results = regimes.Results(tmp_path)
    for method in regimes.GRIDS:
        plain, auxiliary, equal = (
            results.task("5x10-60", row, method, 20, 1.0) for row in ("cl", "ancl", "equal")
        )
        shared, sizes = sys.modules["protocol_runs"], regimes.images(regimes.REGIMES["5x10-60"])
        counts = [
            sum(shared.passes(epochs(spec), shared.images_per_epoch(spec, sizes)).values())
            for spec in (plain.spec, auxiliary.spec, equal.spec)
        ]
        assert counts[0] < counts[1]
        assert counts[2] == pytest.approx(counts[1], rel=0.01)


def epochs(spec):
    """The log of a run that trains all its epochs."""
    log = []
    for task in range(5):
        log += [{"task": task, "role": "main"}] * spec.training.at(task).epochs
        if task and spec.method.startswith("a-"):
            log += [{"task": task, "role": "auxiliary"}] * spec.auxiliary.at(task).epochs
    return log


def test_seeds_change_the_classes_and_methods_share_them(regimes):
    def order(method, seed):
        return regimes.make_task("5x10-60", "cl", method, seed, 1.0, {}).spec.data.order

    assert order("lwf", 20) == order("icarl", 20) != order("lwf", 21)
    assert len(set(order("lwf", 20))) == 50


def test_a_result_of_other_settings_is_refused(regimes, tmp_path):
    results = regimes.Results(tmp_path)
    task = regimes.make_task(regimes.PRIMARY, "cl", "lwf", 20, 3.0, {})
    (tmp_path / task.file).write_text(json.dumps({"spec": {}, "failed": ""}))
    with pytest.raises(SystemExit, match="of another run"):
        results.get(task)


def test_a_pass_of_the_last_stage_alone_counts_as_its_share(regimes, tmp_path, monkeypatch):
    monkeypatch.delitem(sys.modules, "regimes_tables", raising=False)
    tables = __import__("regimes_tables")
    results = regimes.Results(tmp_path)
    for seed in regimes.SEARCH_SEEDS:
        for lamb in regimes.GRIDS["lwf"]:
            task = regimes.make_task("5x10-60", "search", "lwf", seed, lamb, {})
            finish(regimes, results, task, score=lamb)
    costs = {"ancl": (100, 800.0), "third": (30, 240.0), "last": (100, 200.0)}
    for row, (auxiliary, flops) in costs.items():
        task = results.task("5x10-60", row, "lwf", 20, 30.0)
        counted = {"passes": {"main": 50, "auxiliary": auxiliary}}
        counted["flops"] = {"main": 500.0, "auxiliary": flops}
        finish(regimes, results, task, **counted)
    last = results.task("5x10-60", "last", "lwf", 21, 30.0)  # the ANCL row of its seed is missing
    finish(regimes, results, last, passes={"main": 1, "auxiliary": 1}, flops={"auxiliary": 1.0})

    table = tables.Table("5x10-60", results)
    counts = {row: table.passes("lwf", row) for row in costs}
    assert counts == {"ancl": 150, "third": 80, "last": 75}
    assert results.task("5x10-60", "last", "lwf", 20, 30.0).spec.options["auxiliary_trains"] == (
        "last"
    )


def test_flops_are_added_up_by_network(regimes):
    cost = sys.modules["protocol_runs"].Cost
    costs = {"main 0": cost(1, 1, 2.0), "auxiliary 1": cost(1, 1, 3.0), "main 1": cost(1, 1, 4.0)}
    shared = sys.modules["protocol_runs"]
    assert shared.flops(costs | {"bias 1": cost(1, 1, 9.0)}) == {"main": 6.0, "auxiliary": 3.0}
