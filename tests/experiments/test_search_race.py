"""A race: what cannot win stops, nothing stops too early, and nothing is lost."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import Events, SearchResult, SpecError, Store, search, spec
from tests.lab import FAVOURED, TOLERANCE, Graph, Stop, aac, earliest, hopeless, race, standing

TASKS = 6
NOISE = (0.004, -0.004, 0.002, -0.002, 0.001, -0.001)
SMALLER, LARGER = FAVOURED["lamb"], FAVOURED["lamb_a"]
Curves = Mapping[float, Sequence[float]]


class Table:
    """Made-up scores of each value after each task; the noise of tasks differs by value."""

    def __init__(self, curves: Curves, failing: Mapping[float, int] | None = None) -> None:
        self.curves, self.failing = curves, failing or {}
        self.asked: list[tuple[tuple[float, ...], int]] = []

    def learn(self, values: Sequence[float], tasks: int) -> dict[float, list[Any]]:
        self.asked.append((tuple(values), tasks))
        return {
            value: [self._row(value, learned) for learned in range(1, tasks + 1)]
            for value in values
            if self.failing.get(value, TASKS + 1) > tasks
        }

    def _row(self, value: float, learned: int) -> Any:
        sign = 1 if value < 5 else -1
        row = [self.curves[value][learned - 1] + sign * NOISE[task] for task in range(learned)]
        return np.array([row])


def test_nothing_stops_before_half_of_the_tasks_and_a_clearly_worse_value_stops_there() -> None:
    table = Table({1.0: [0.9] * TASKS, 6.0: [0.895] * TASKS, 3.0: [0.5] * TASKS})
    heard: list[tuple[float, Stop]] = []

    stopped = race([1.0, 6.0, 3.0], TASKS, table.learn, SMALLER, lambda *news: heard.append(news))

    assert list(stopped) == [3.0]
    assert (stopped[3.0].after, stopped[3.0].best, stopped[3.0].pairs) == (3, 1.0, 3)
    assert stopped[3.0].gap == pytest.approx(0.4)
    assert heard == list(stopped.items())
    # 6 is worse at every moment, but by half a point: it may still be the best.
    assert table.asked == [
        ((1.0, 6.0, 3.0), 3),
        ((1.0, 6.0), 4),
        ((1.0, 6.0), 5),
        ((1.0, 6.0), 6),
    ]


def test_a_value_that_is_worse_early_and_best_late_is_kept() -> None:
    late = [0.9, 0.4, 0.6, 0.75, 0.85, 0.95]  # it comes nearer fast enough at every task
    flat = [0.9, 0.6, 0.6, 0.6, 0.6, 0.6]
    early = [0.9] * TASKS
    table = Table({1.0: early, 10.0: late, 20.0: flat})

    stopped = race([1.0, 10.0, 20.0], TASKS, table.learn, SMALLER)

    assert list(stopped) == [20.0]
    assert table.asked[-1] == ((1.0, 10.0), TASKS)


def test_the_last_value_learns_no_further_and_what_failed_is_left_out() -> None:
    alone = Table({1.0: [0.9] * TASKS, 10.0: [0.2] * TASKS})
    failing = Table({1.0: [0.9] * TASKS, 2.0: [0.9] * TASKS, 3.0: [0.9] * TASKS}, {2.0: 3, 3.0: 5})

    assert list(race([1.0, 10.0], TASKS, alone.learn, SMALLER)) == [10.0]
    assert alone.asked == [((1.0, 10.0), 3)]
    assert race([1.0, 2.0, 3.0], TASKS, failing.learn, SMALLER) == {}
    assert failing.asked == [((1.0, 2.0, 3.0), 3), ((1.0, 3.0), 4), ((1.0, 3.0), 5)]
    one = Table({1.0: [0.9] * TASKS})
    assert race([1.0], TASKS, one.learn, SMALLER) == {}
    assert one.asked == [((1.0,), 3)]


def interval(gaps: Any) -> tuple[float, float, float]:
    """Mean and 95 % t-interval of four values; 3.182446 is the quantile in every table."""
    reach = 3.182446 * math.sqrt(sum((gap - sum(gaps) / 4) ** 2 for gap in gaps) / 3 / 4)
    return sum(gaps) / 4, sum(gaps) / 4 - reach, sum(gaps) / 4 + reach


def test_a_value_stops_if_its_interval_leaves_it_at_most_the_tolerance() -> None:
    best, before = np.array([[0.9, 0.8, 0.7, 0.85]]), [np.array([[0.9]])] * 3
    steady, unsteady = [0.05, 0.04, 0.05, 0.04], [0.1, 0.05, 0.02, 0.0]

    def at(gaps: Sequence[float]) -> list[Any]:
        return [*before, best - np.array([gaps])]

    def stopped(gaps: Sequence[float]) -> dict[float, Stop]:
        return hopeless({5.0: at(gaps), 2.0: at([0.0] * 4)}, 4, SMALLER)

    [(value, stop)] = stopped(steady).items()

    assert (value, stop.after, stop.best, stop.pairs) == (5.0, 4, 2.0, 4)
    assert (stop.gap, stop.low, stop.high) == pytest.approx(interval(steady))
    assert not stop.favoured
    assert interval(unsteady)[1] < -TOLERANCE
    assert stopped(unsteady) == {}
    # On both sides of the tolerance: the same differences, moved as a whole.
    for above, found in ((0.1 * TOLERANCE, 1), (-0.1 * TOLERANCE, 0)):
        moved = above - TOLERANCE - interval(unsteady)[1]
        gaps = [gap + moved for gap in unsteady]
        assert sum(gaps) > 0
        assert len(stopped(gaps)) == found
    alone = {2.0: [np.array([[0.5]])], 1.0: [np.array([[0.9]])]}
    assert hopeless(alone, 1, SMALLER) == {}  # one pair proves nothing


def test_what_early_tasks_favour_stops_as_soon_as_it_is_behind() -> None:
    rows = {1.0: [[0.80, 0.60]], 3.0: [[0.75, 0.66]], 9.0: [[0.70, 0.70]]}
    standings = {value: [np.array(row)] for value, row in rows.items()}

    of_lamb = hopeless(standings, 2, SMALLER)
    of_lamb_a = hopeless(standings, 2, LARGER)

    # 3 is the best. A smaller λ learns more and forgets later, and so does a larger λ_a.
    assert list(of_lamb) == [1.0]
    assert list(of_lamb_a) == [9.0]
    assert of_lamb_a[9.0].favoured
    assert of_lamb_a[9.0].gap == pytest.approx(0.005)
    equal = {1.0: standings[3.0], 3.0: standings[3.0]}
    assert hopeless(equal, 2, SMALLER) == {}


def test_a_favoured_value_that_catches_up_is_kept_and_one_pair_has_no_interval() -> None:
    best = [np.array([[0.9]]), np.array([[0.9, 0.9]])]
    near = [np.array([[0.8]]), np.array([[0.86, 0.86]])]  # 10 points behind, then 4

    assert hopeless({1.0: near, 3.0: best}, 1, SMALLER) == {}
    [stop] = hopeless({1.0: near[:1], 3.0: best[:1]}, 1, SMALLER).values()
    assert (stop.low, stop.high, stop.pairs) == (None, None, 1)
    assert json.loads(json.dumps(stop.json(), allow_nan=False))["favoured"] is True


def test_what_tasks_differ_in_for_all_seeds_is_no_noise() -> None:
    gaps = np.array([[0.06, 0.02, -0.03], [0.08, 0.03, -0.01]])  # a small λ: good on the newest
    best = np.full((2, 3), 0.9)

    [stop] = hopeless({2.0: [best - gaps], 1.0: [best]}, 3, SMALLER).values()

    # Around each task's mean: ±.01, ±.005, ±.01, so the squares sum to .00045, with 3 degrees of
    # freedom; 3.182446 is their quantile.
    reach = 3.182446 * math.sqrt(0.00045 / 3 / 6)
    assert (stop.gap, stop.low, stop.high) == pytest.approx((0.025, 0.025 - reach, 0.025 + reach))
    assert stop.pairs == 6
    one_seed = {2.0: [best[:1] - gaps[:1]], 1.0: [best[:1]]}
    assert hopeless(one_seed, 3, SMALLER) == {}  # one seed cannot tell


def test_what_is_compared_has_the_mean_that_decides() -> None:
    nan = np.nan
    one = np.array([[0.8, nan, nan], [0.6, 0.9, nan], [0.5, 0.7, 0.9]])
    other = one - 0.1
    aware = standing([(one, (4, 4, 8)), (other, (4, 4, 8))], task_aware=True)
    blind = standing([(one, (4, 4, 8))], task_aware=False)

    assert [each.shape for each in aware] == [(2, 1), (2, 2), (2, 3)]
    assert np.mean(aware[-1]) == pytest.approx((aac(one) + aac(other)) / 2)
    # All classes so far, by size: (.6 + .9) / 2, then (.5 + .7 + 2 * .9) / 4.
    assert blind[0].shape == (1, 0)
    assert blind[1][0] == pytest.approx([0.75])
    assert blind[2][0] == pytest.approx([0.75, 0.75])
    assert hopeless({1.0: blind[:1], 2.0: blind[:1]}, 1, SMALLER) == {}


# -- real races ------------------------------------------------------------------------------

SHORT: dict[str, Any] = {"training.epochs": 2, "threads": 1, "network.hidden": [16]}


class Epochs(Events):
    """Counts epochs; stops the search after some of them."""

    def __init__(self, most: int | None = None) -> None:
        self.count, self.most = 0, most
        self.notes: list[str] = []

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.count += 1
        if self.count == self.most:
            raise KeyboardInterrupt

    def note(self, message: str) -> None:
        self.notes.append(message)


def searched(
    runs: Path, race: bool, method: str = "a-lwf", most: int | None = None
) -> tuple[SearchResult, Epochs]:
    events = Epochs(most)
    found = search(
        method,
        "digits/5",
        lamb_grid=[1, 3, 1000],
        lamb_a_grid=[0.5, 300] if method == "a-lwf" else None,
        search_seeds=[0, 1],
        settings=SHORT,
        race=race,
        runs=runs,
        events=events,
    )
    return found, events


def keys(runs: Path) -> set[str]:
    return {each.key for each in Store(runs / ".store").entries()}


def test_a_race_picks_what_the_grid_picks_with_fewer_epochs_and_loses_none(tmp_path: Path) -> None:
    raced, spent = searched(tmp_path / "race", race=True)
    kept = keys(tmp_path / "race")
    full, all_epochs = searched(tmp_path / "grid", race=False)
    later, rest = searched(tmp_path / "race", race=False)

    assert raced.chosen == full.chosen
    assert spent.count < 0.8 * all_epochs.count
    assert spent.count + rest.count == all_epochs.count  # what stopped goes on where it was
    assert later.trials == full.trials
    assert kept < keys(tmp_path / "race") == keys(tmp_path / "grid")
    assert kept == set(json.loads((raced.directory / "stages.json").read_text())["keys"])

    stops = [(trial["step"], trial[trial["step"]], trial["stopped"]) for trial in raced.trials]
    losers = [(step, value) for step, value, stop in stops if stop]
    assert ("lamb", 1000.0) in losers
    assert ("lamb_a", 300.0) in losers
    assert all(not trial["stopped"] and trial["tasks_learned"] == 5 for trial in full.trials)
    for trial in raced.trials:
        if stop := trial["stopped"]:
            assert earliest(5) <= stop["after"] == trial["tasks_learned"]
            assert stop["gap"] > 0
            assert stop["favoured"] or stop["low"] > -TOLERANCE
            assert trial["mean"] is None
            assert not trial["chosen"]
    written = json.loads((raced.directory / "trials.json").read_text())
    assert written == list(raced.trials)
    assert json.loads((raced.directory / "decision.json").read_text())["race"] == [
        {"step": step, "value": value, **stop} for step, value, stop in stops if stop
    ]
    assert sum(" stopped after task " in note for note in spent.notes) == len(losers)


def test_a_race_that_is_interrupted_decides_the_same_when_resumed(tmp_path: Path) -> None:
    whole, all_epochs = searched(tmp_path / "whole", True, "lwf")
    for most in (7, 15):
        with pytest.raises(KeyboardInterrupt):
            searched(tmp_path / "parts", True, "lwf", most)
    resumed, rest = searched(tmp_path / "parts", True, "lwf")

    assert 0 < rest.count < all_epochs.count
    for name in ("trials.json", "trials.csv", "decision.json", "stages.json"):
        assert (resumed.directory / name).read_bytes() == (whole.directory / name).read_bytes()
    again, none = searched(tmp_path / "parts", True, "lwf")
    assert (again.trials, none.count) == (whole.trials, 0)


def test_the_first_tasks_of_a_run_have_the_keys_of_the_whole_run() -> None:
    run = spec("a-lwf", "digits/5", settings=SHORT)
    [whole], [first] = Graph([run]).plans, Graph([run], first_tasks=3).plans

    assert [key for key, node in whole.items() if node.stage.task < 3] == [*first]
    assert first.sizes == whole.sizes


def test_no_race_task_by_task(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="so no values race"):
        search("lwf", "digits/5", protocol="per-task", race=True, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()
