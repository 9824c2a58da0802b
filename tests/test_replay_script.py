"""The script behind docs/evidence/replay.md follows the protocol of its page."""

import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"


@pytest.fixture(name="replay")
def _replay(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    for name in ("replay", "protocol_runs"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return __import__("replay")


def finish(replay, results, run, **found):
    stored = {"spec": run.spec.plain(), "failed": "", **found}
    results.write(run, stored)


def search(replay, results, table, method, best):
    for value in replay.SEARCHED[table, method][1]:
        for seed in replay.SEARCH_SEEDS:
            assert results.chosen(table, method) is None
            run = replay.trial(table, method, seed, value)
            finish(replay, results, run, score=0.5 + 0.1 * (value == best))
    assert results.chosen(table, method) == best


def test_a_table_waits_for_its_search(replay, tmp_path):
    results = replay.Results(tmp_path)
    assert results.run("200", "a-dark-er-pp", 20) is None
    assert results.run("200", "er", 20) is not None
    search(replay, results, "200", "dark-er-pp", 0.3)
    for name in ("dark-er-pp", "a-dark-er-pp", "dark-er-pp, equal"):
        assert results.run("200", name, 20).spec.options["lamb"] == 0.3
    assert results.run("1000", "dark-er-pp", 20) is None


def test_equal_compute_has_the_passes_of_both_networks(replay):
    for name in ("dark-er-pp", "icarl", "bic"):
        value = 0.1 if name == "dark-er-pp" else None
        plain, ancl, equal = (
            replay.make_run("1000", row, 20, value).spec
            for row in (name, f"a-{name}", f"{name}, equal")
        )
        counts = []
        for spec in (plain, ancl, equal):
            each = sys.modules["protocol_runs"].images_per_epoch(spec, replay.OFFLINE_IMAGES)[1:]
            main = sum(count for count, _ in each) * spec.training.epochs
            auxiliary = sum(count for _, count in each) * spec.auxiliary.epochs
            counts.append(main + auxiliary * (spec is ancl))
        assert counts[0] < counts[1]
        # Whole epochs: half of one at most.
        assert counts[2] == pytest.approx(counts[1], abs=counts[0] / plain.training.epochs)


def test_rows_have_the_settings_of_the_page(replay):
    er, gdumb, icarl = (replay.make_run("200", n, 20, None).spec for n in ("er", "gdumb", "icarl"))
    assert (er.memory.total, er.memory.selection, er.memory.batch) == (200, "reservoir", 50)
    assert (gdumb.memory.selection, gdumb.options["passes"]) == ("greedy", 256)
    assert (icarl.memory.selection, icarl.options["lamb"]) == ("herding", 0.3)
    online = replay.make_run("online", "dark-er-pp, two steps", 20, 0.03).spec
    assert (online.training.lr, online.training.inner, online.training.epochs) == (0.03, 2, 1)
    assert (online.data.every, online.data.per_class, online.memory.total) == (50, None, 1000)
    assert online.training.at(0).lr == 0.03


def test_all_runs_are_different_and_in_the_order_of_the_page(replay, tmp_path):
    results = replay.Results(tmp_path)
    for (table, method), (_, grid) in replay.SEARCHED.items():
        search(replay, results, table, method, grid[0])
    steps = list(replay.steps(results))
    files = [run.file for _, runs in steps for run in runs]
    assert len(files) == len(set(files)) == 53 + 53 + 45
    assert [name.partition("-")[0] for name, _ in steps][:5] == ["200"] * 5
    assert {run.row for _, runs in steps[-6:] for run in runs} == {"gdumb"}


def test_a_result_of_other_settings_is_refused(replay, tmp_path):
    results = replay.Results(tmp_path)
    run = replay.make_run("200", "er", 20, None)
    (tmp_path / run.file).write_text('{"spec": {}, "failed": ""}')
    with pytest.raises(SystemExit, match="of another run"):
        results.get(run)


def test_tables_are_made_of_results(replay, tmp_path):
    results = replay.Results(tmp_path)
    search(replay, results, "200", "dark-er-pp", 0.1)
    for seed in replay.TABLE_SEEDS:
        for name, value in (("dark-er-pp", 0.30), ("a-dark-er-pp", 0.31), ("er", 0.2)):
            metrics = dict.fromkeys(replay.METRICS, value + (seed - 21) / 100)
            found = {"metrics": metrics, "passes": {"main": 10**6}, "seconds": 60}
            finish(replay, results, results.run("200", name, seed), **found)
    text = replay.tables(results)["replay-200"]
    assert "| er |  | 20.0 ± 0.6 |" in text
    assert "| a-dark-er-pp | 0.1 | 31.0 ± 0.6 |" in text
    assert "| a-dark-er-pp − dark-er-pp | +1.00 | +1.00 to +1.00 | 3 |" in text
