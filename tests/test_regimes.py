"""The script behind docs/evidence/regimes.md follows the protocol of its page."""

import json
import math
import random
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(name="regimes")
def _regimes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("regimes", "regimes_tables", "protocol_runs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("regimes")


@pytest.fixture(name="pages")
def _pages(regimes: ModuleType) -> ModuleType:
    return __import__("regimes_tables")


def finish(regimes, results, task, **found):
    stored = {"spec": task.spec.plain(), "failed": "", **found}
    results.write(task, stored)


def test_lamb_is_the_smallest_of_the_best_and_a_failed_one_never_wins(regimes, tmp_path):
    results = regimes.Results(tmp_path)
    scores = {3.0: (0.5, 0.7), 10.0: (0.6, 0.6), 30.0: (0.9, None)}
    for lamb, values in scores.items():
        for seed, score in zip(regimes.SEARCH_SEEDS, values, strict=True):
            assert results.chosen(regimes.PRIMARY, "lwf") is None
            task = regimes.make_task(regimes.PRIMARY, "search", "lwf", seed, lamb)
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
        return regimes.make_task("5x10-60", "cl", method, seed, 1.0).spec.data.order

    assert order("lwf", 20) == order("icarl", 20) != order("lwf", 21)
    assert len(set(order("lwf", 20))) == 50


def test_a_result_of_other_settings_is_refused(regimes, tmp_path):
    results = regimes.Results(tmp_path)
    task = regimes.make_task(regimes.PRIMARY, "cl", "lwf", 20, 3.0)
    (tmp_path / task.file).write_text(json.dumps({"spec": {}, "failed": ""}))
    with pytest.raises(SystemExit, match="of another run"):
        results.get(task)


def test_a_pass_of_the_last_stage_alone_counts_as_its_share(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path)
    for seed in regimes.SEARCH_SEEDS:
        for lamb in regimes.GRIDS["lwf"]:
            task = regimes.make_task("5x10-60", "search", "lwf", seed, lamb)
            finish(regimes, results, task, score=lamb)
    costs = {"ancl": (100, 800.0), "third": (30, 240.0), "last": (100, 200.0)}
    for row, (auxiliary, flops) in costs.items():
        task = results.task("5x10-60", row, "lwf", 20, 30.0)
        counted = {"passes": {"main": 50, "auxiliary": auxiliary}}
        counted["flops"] = {"main": 500.0, "auxiliary": flops}
        finish(regimes, results, task, **counted)
    last = results.task("5x10-60", "last", "lwf", 21, 30.0)  # the ANCL row of its seed is missing
    finish(regimes, results, last, passes={"main": 1, "auxiliary": 1}, flops={"auxiliary": 1.0})

    table = pages.Table("5x10-60", results)
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


def test_of_equal_means_the_smaller_value_wins_whatever_their_last_bit(regimes):
    tried = {3.0: (3394 / 5000, 3307 / 5000), 10.0: (3346 / 5000, 3355 / 5000)}
    assert 3394 + 3307 == 3346 + 3355
    for first, second in (tried.values(), reversed(tried.values())):
        assert sys.modules["protocol_runs"].best_value({3.0: first, 10.0: second}, 2) == 3.0


# -- tables and figure of synthetic results --------------------------------------------------


def search(regimes, results, name, methods=None, failed=()):
    """Finish every trial; the middle λ is the best."""
    for method in methods or regimes.REGIMES[name].grids:
        grid = regimes.REGIMES[name].grids[method]
        for seed in regimes.SEARCH_SEEDS:
            for lamb in grid:
                task = regimes.make_task(name, "search", method, seed, lamb)
                score = 0.5 + 0.1 * (lamb == grid[1])
                finish(regimes, results, task, score=score, failed="NaN" * (method in failed))


def finish_row(regimes, results, name, row, seeds, accuracy, passes=(100, 0)):
    """Finish a row of all methods; ``accuracy`` is a number, or made of method and seed."""
    for method in regimes.REGIMES[name].grids:
        for seed in seeds:
            value = accuracy(method, seed) if callable(accuracy) else accuracy
            task = results.task(name, row, method, seed, results.chosen(name, method))
            metrics = dict.fromkeys(("aac", "aiac", "learning_accuracy", "forgetting"), value)
            stored = {
                "metrics": metrics,
                "passes": dict(zip(("main", "auxiliary"), passes, strict=True)),
                "flops": {"main": 8.0 * passes[0], "auxiliary": 8.0 * passes[1]},
            }
            finish(regimes, results, task, **stored)


def written(pages, results):
    pages.tables(results)
    return (results.folder.parent / "tables.md").read_text("utf-8")


def test_the_primary_number_is_the_mean_over_methods_by_seed(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path / "results")
    draw = random.Random(0)
    values = {
        (row, method, seed): draw.uniform(0.3, 0.7)
        for row in ("cl", "ancl", "equal")
        for method in regimes.GRIDS
        for seed in regimes.TABLE_SEEDS
    }
    search(regimes, results, regimes.PRIMARY)
    for row in ("cl", "ancl", "equal"):

        def of_row(method, seed, row=row):
            return values[row, method, seed]

        finish_row(regimes, results, regimes.PRIMARY, row, regimes.TABLE_SEEDS, of_row)

    by_seed = []
    for seed in (20, 21, 22, 23, 24):
        total = 0.0
        for method in ("lwf", "ewc", "icarl", "lucir"):
            total += 100 * (values["ancl", method, seed] - values["equal", method, seed])
        by_seed.append(total / 4)
    mean = sum(by_seed) / 5
    error = math.sqrt(sum((gap - mean) ** 2 for gap in by_seed) / 4 / 5)
    reach = 2.776445 * error  # Student's t of four degrees of freedom, from a printed table
    told = f"{mean:+.2f} [{mean - reach:+.2f}, {mean + reach:+.2f}] (n=5) points; "
    told += ", ".join(f"{gap:+.2f} (seed {20 + k})" for k, gap in enumerate(by_seed)) + "."
    page = written(pages, results)
    line = next(line for line in page.splitlines() if line.startswith("The primary number"))
    assert line.endswith(f"four methods: {told}")
    assert "84 runs are finished." in page
    assert "- lwf: 3: 50.00, 50.00; **10**: 60.00, 60.00; 30: 50.00, 50.00" in page
    assert "![Differences by regime, and accuracy against passes](regimes.png)" in page
    assert (tmp_path / "regimes.png").stat().st_size > 10_000


def test_fewer_seeds_are_named_and_not_the_result(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path / "results")
    search(regimes, results, regimes.PRIMARY)
    assert "no seed is whole yet" in written(pages, results)
    assert not (tmp_path / "regimes.png").exists()

    for row, accuracy in (("cl", 0.5), ("ancl", 0.52), ("equal", 0.51)):
        finish_row(regimes, results, regimes.PRIMARY, row, (20, 22), accuracy)
    page = written(pages, results)
    assert (
        "+1.00 [+1.00, +1.00] (n=2) points; +1.00 (seed 20), +1.00 (seed 22). "
        "These are 2 of 5 seeds: not the result." in page
    )


def test_failed_runs_and_files_of_no_run_are_named_and_not_counted(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path / "results")
    search(regimes, results, regimes.PRIMARY)
    broken = []
    for seed in regimes.TABLE_SEEDS:
        task = results.task(regimes.PRIMARY, "ancl", "ewc", seed, 16000.0)
        broken.append(task.file)
        assert "no seed is whole yet" in written(pages, results)
        finish(regimes, results, task, failed="The loss\nis NaN")
    (results.folder / "other.json").write_text("{}")

    page = written(pages, results)

    assert "24 runs are finished.\n\nRuns that failed, and are left out (5):\n" in page
    assert all(f"- `{name}`: The loss is NaN" in page for name in broken)
    told = "Files that belong to no run of the protocol, not counted (1):\n\n- `other.json`"
    assert told in page
    assert "no seed can become whole, since runs of every seed failed." in page


def test_a_search_that_failed_has_no_runs_to_wait_for(regimes, pages, tmp_path, capsys):
    results = regimes.Results(tmp_path / "results")
    search(regimes, results, regimes.PRIMARY, failed=("ewc",))

    page = written(pages, results)

    assert "- ewc: 4000: failed, failed; 16000: failed, failed; 64000: failed, failed. No λ" in page
    assert "nan" not in page
    assert "no seed can become whole" in page
    regimes.forecast(results)
    lines = capsys.readouterr().out.splitlines()
    assert re.search(r"20x5-60 +search +seeds 10-11: +0 runs, +0\.0 h;", lines[0])
    planned = [
        task for name, step in regimes.steps(results) if name == "20x5-60-s20" for task in step
    ]
    assert {task.method for task in planned} == {"lwf", "icarl", "lucir"}
    assert re.search(rf"20x5-60 +cl,ancl,equal +seeds 20-24: +{5 * len(planned)} runs,", lines[1])


def test_the_forecast_adds_up_what_is_left(regimes, tmp_path, capsys):
    results = regimes.Results(tmp_path)
    regimes.forecast(results)
    counts = [int(n) for n in re.findall(r": +(\d+) runs", capsys.readouterr().out)]
    assert counts[:4] == [24, 60, 24, 36]
    search(regimes, results, regimes.PRIMARY, ("lwf", "icarl"))
    regimes.forecast(results)
    left = [int(n) for n in re.findall(r": +(\d+) runs", capsys.readouterr().out)]
    assert left == [12, *counts[1:]]


def test_the_frontier_compares_rows_by_mean_accuracy_and_passes(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path / "results")
    name, seeds = regimes.FRONTIER, regimes.TABLE_SEEDS
    search(regimes, results, name)
    rows = {
        "cl": (0.50, (100, 0)),
        "ancl": (0.55, (100, 100)),
        "equal": (0.54, (200, 0)),
        "third": (0.53, (100, 30)),
        "last": (0.56, (100, 100)),
    }
    for row, (accuracy, passes) in rows.items():
        finish_row(regimes, results, name, row, seeds, accuracy, passes)
        if row == "third":
            assert "without the rows ANCL, the auxiliary" in written(pages, results)

    page = written(pages, results)

    assert "The mean over all methods and seeds 20, 21, 22, 23, 24." in page
    told = dict(re.findall(r"^\| ([^|]+) \| [\d.]+ \| \d+ \| (yes|no) \|$", page, re.M))
    assert told == {
        regimes.ROWS["cl"]: "yes",
        regimes.ROWS["ancl"]: "no",  # the last stage alone is better with as many passes
        regimes.ROWS["equal"]: "no",
        regimes.ROWS["third"]: "yes",
        regimes.ROWS["last"]: "yes",
    }
    assert "not the result" not in page.partition("on the frontier |")[2].partition("\n\n")[0]


def test_rows_that_are_equal_keep_each_other_from_the_frontier(pages):
    points = {"cl": (100.0, 0.1 + 0.2), "equal": (100.0, 0.3), "ancl": (200.0, 0.4)}
    assert pages.on_frontier(points) == ["ancl"]


def drawn(regimes, pages, results, *names):
    made = pages.figure([pages.Table(name, results) for name in names])
    made.draw_without_rendering()
    sys.modules["matplotlib.pyplot"].close(made)
    return made


def test_the_figure_covers_no_data_and_names_what_is_there(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path)
    search(regimes, results, regimes.PRIMARY)
    for row in ("cl", "ancl"):
        finish_row(regimes, results, regimes.PRIMARY, row, (20, 21), 0.5)

    made = drawn(regimes, pages, results, regimes.PRIMARY)

    left, right = made.axes
    boxes = [legend.get_window_extent() for legend in made.legends]
    assert not any(box.overlaps(axes.get_window_extent()) for box in boxes for axes in made.axes)
    assert not boxes[0].overlaps(boxes[1])
    assert [label.get_text() for label in left.get_xticklabels()] == ["20x5-60\nn = 2"]
    assert left.get_xlim() == (-1, 1)
    texts = [[text.get_text() for text in legend.get_texts()] for legend in made.legends]
    assert texts[0] == ["ANCL − CL; 95 % interval where n ≥ 2"]
    assert texts[1] == [*sorted(regimes.GRIDS), "CL", "ANCL, balance", "20x5-60"]
    colors = {line.get_color() for line in right.get_lines() if line.get_marker() == "^"}
    assert len(colors - {"grey"}) == 4


def test_the_figure_says_where_nothing_is_finished(regimes, pages, tmp_path):
    results = regimes.Results(tmp_path)
    search(regimes, results, regimes.PRIMARY)
    finish_row(regimes, results, regimes.PRIMARY, "cl", (20,), 0.5)

    made = drawn(regimes, pages, results, regimes.PRIMARY)

    left, right = made.axes
    assert len(made.legends) == 1
    assert [text.get_text() for text in left.texts] == ["No seed is whole yet."]
    assert not left.axison
    assert right.axison


def test_tables_of_other_results_fill_no_page(regimes, tmp_path, capsys, monkeypatch):
    shared = sys.modules["protocol_runs"]
    monkeypatch.setattr(shared, "EVIDENCE", tmp_path)
    page = tmp_path / "replay.md"
    page.write_text("<!-- table: a -->\nold\n<!-- end -->\n")

    shared.publish("replay", regimes.Results(tmp_path / "trial"), {"a": "new"})
    assert page.read_text() == "<!-- table: a -->\nold\n<!-- end -->\n"
    assert capsys.readouterr().out == "\na\nnew\n"

    shared.publish("replay", regimes.Results(tmp_path / "replay" / "results"), {"a": "new"})
    assert page.read_text() == "<!-- table: a -->\nnew\n<!-- end -->\n"
