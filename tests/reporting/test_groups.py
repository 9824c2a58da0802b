import math
from collections.abc import Callable
from pathlib import Path

import pytest

from ancl.reporting import collect
from ancl.reporting.groups import Group, difference, group_runs

Make = Callable[..., Path]


def groups(runs: Path) -> list[Group]:
    return group_runs(collect([runs]).runs)[0]


def test_seeds_become_one_group_with_mean_and_standard_error(make: Make, runs: Path) -> None:
    for seed, last in enumerate((0.6, 0.7, 0.8)):
        make(seed=seed, rows=[[0.9], [last, 0.8]])

    (group,) = groups(runs)

    # AAC 0.7, 0.75, 0.8: mean 0.75, s = 0.05 over n - 1, s / sqrt(3)
    assert group.seeds == [0, 1, 2]
    assert group.estimate("aac").mean == pytest.approx(0.75)
    assert group.estimate("aac").error == pytest.approx(0.05 / math.sqrt(3))
    assert group.finals()[0].mean == pytest.approx(0.7)
    assert group.cells()[0][1] is None
    assert group.seconds()["main"].mean == 2.0 + 3.0


def test_phases_weigh_as_the_decisive_metric_does(make: Make, runs: Path) -> None:
    rows = [[0.8], [0.6, 0.9]]
    make("lwf", rows=rows, sizes=[30, 10])
    make("icarl", rows=rows, sizes=[30, 10], **{"data.scenario": "cil"})

    known, not_known = groups(runs)

    # TIL: (0.6 + 0.9) / 2; CIL: (30 * 0.6 + 10 * 0.9) / 40
    assert [each.mean for each in known.phases()] == pytest.approx([0.8, 0.75])
    assert [each.mean for each in not_known.phases()] == pytest.approx([0.8, 0.675])


def test_other_settings_are_another_group_and_named(make: Make, runs: Path) -> None:
    make("a-lwf", lamb_a=0.5)
    make("a-lwf", lamb_a=2.0)
    make("lwf", **{"training.epochs": 7})
    make("lwf", **{"data.per_class": 9})

    assert [(group.stream, group.title) for group in groups(runs)] == [
        ("digits/5 (per_class=9)", "LwF"),
        ("digits/5 (per_class=None)", "LwF"),
        ("digits/5 (per_class=None)", "A-LwF (lamb_a=0.5)"),
        ("digits/5 (per_class=None)", "A-LwF (lamb_a=2)"),
    ]


def test_the_same_seed_twice_counts_once(make: Make, runs: Path) -> None:
    make(seed=0)
    make(seed=0, threads=2)

    found, duplicates = group_runs(collect([runs]).runs)

    assert [group.seeds for group in found] == [[0]]
    assert "seed 0 is already in" in duplicates[0].reason


def test_differences_are_paired_by_seed(make: Make, runs: Path) -> None:
    plain, variant = {0: 0.5, 1: 0.6, 2: 0.9}, {0: 0.6, 1: 0.8, 5: 0.1}
    for seed, value in plain.items():
        make("lwf", seed=seed, rows=[[value], [value, value]])
    for seed, value in variant.items():
        make("a-lwf", seed=seed, rows=[[value], [value, value]])

    host, ancl = groups(runs)
    found = difference(ancl, [host, ancl])

    # on seeds 0 and 1 only: 0.1 and 0.2, s = 0.0707, s / sqrt(2) = 0.05
    assert difference(host, [host, ancl]) is None
    assert found is not None
    assert found.estimate == pytest.approx((0.15, 0.05, 2))
    assert found.differing == ()


def test_the_likest_host_is_taken_and_what_is_unlike_named(make: Make, runs: Path) -> None:
    make("lwf", lamb=3.0, rows=[[0.1], [0.1, 0.1]], **{"training.epochs": 2})
    make("lwf", lamb=3.0, rows=[[0.4], [0.4, 0.4]])
    make("a-lwf", lamb=10.0, rows=[[0.5], [0.5, 0.5]])

    found = groups(runs)
    gap = difference(next(g for g in found if g.variant == "ANCL"), found)

    assert gap is not None
    assert gap.estimate.mean == pytest.approx(0.1)
    assert gap.differing == ("lamb",)
