import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.lab import Group, collect, differences, group_runs, sweeps
from tests.lab import GroupDifference as Difference

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
    assert group.curve("finals")[0].mean == pytest.approx(0.7)
    assert group.curves()["finals"] == [[0.6, 0.8], [0.7, 0.8], [0.8, 0.8]]
    assert group.curves()["news"] == [[0.9, 0.8]] * 3
    assert group.curves()["first"] == [[0.9, 0.6], [0.9, 0.7], [0.9, 0.8]]
    assert group.cells()[0][1] is None
    assert group.seconds()["main"].mean == 2.0 + 3.0


def test_phases_weigh_as_the_decisive_metric_does(make: Make, runs: Path) -> None:
    rows = [[0.8], [0.6, 0.9]]
    make("lwf", rows=rows, sizes=[30, 10])
    make("icarl", rows=rows, sizes=[30, 10], **{"data.scenario": "cil"})

    known, not_known = groups(runs)

    # TIL: (0.6 + 0.9) / 2; CIL: (30 * 0.6 + 10 * 0.9) / 40
    assert [each.mean for each in known.curve("phases")] == pytest.approx([0.8, 0.75])
    assert [each.mean for each in not_known.curve("phases")] == pytest.approx([0.8, 0.675])


def test_other_settings_are_another_group_and_named(make: Make, runs: Path) -> None:
    for lamb_a in (10.0, 2.0, 0.5):
        make("a-lwf", lamb_a=lamb_a)
    make("lwf", **{"training.epochs": 7})
    make("lwf", **{"data.per_class": 9})

    assert [(group.stream, group.title) for group in groups(runs)] == [
        ("digits/5 (per_class=9)", "LwF"),
        ("digits/5 (per_class=none)", "LwF"),
        ("digits/5 (per_class=none)", "A-LwF (λ_a=0.5)"),
        ("digits/5 (per_class=none)", "A-LwF (λ_a=2)"),
        ("digits/5 (per_class=none)", "A-LwF (λ_a=10)"),
    ]


def test_the_same_seed_twice_counts_once(make: Make, runs: Path) -> None:
    make(seed=0)
    make(seed=0, threads=2)

    found, duplicates = group_runs(collect([runs]).runs)

    assert [group.seeds for group in found] == [[0]]
    (left_out,) = duplicates
    assert left_out.reason == (
        f"left out: seed 0 is already in {found[0].runs[0].directory.name}, with the same settings "
        "but for threads, device or version"
    )


def test_differences_are_paired_by_seed(make: Make, runs: Path) -> None:
    plain, variant = {0: 0.5, 1: 0.6, 2: 0.9}, {0: 0.6, 1: 0.8, 5: 0.1}
    for seed, value in plain.items():
        make("lwf", seed=seed, rows=[[value], [value, value]])
    for seed, value in variant.items():
        make("a-lwf", seed=seed, rows=[[value], [value, value]])

    host, ancl = groups(runs)
    found = differences([host, ancl])

    # on seeds 0 and 1 only: 0.1 and 0.2, s = 0.0707, s / sqrt(2) = 0.05
    assert list(found) == [ancl]
    assert found[ancl].host is host
    assert found[ancl].gaps("aac") == pytest.approx({0: 0.1, 1: 0.2})
    assert found[ancl].estimate("aac") == pytest.approx((0.15, 0.05, 2))
    # t of one degree of freedom at 95 %: 12.706
    interval = found[ancl].interval("aac")
    assert interval is not None
    assert interval[:3] == pytest.approx((0.15, 0.15 - 0.6353, 0.15 + 0.6353), abs=1e-4)
    assert found[ancl].pairing == ((), ())


def only(runs: Path) -> Difference:
    (found,) = differences(groups(runs)).values()
    return found


def test_the_likest_host_is_taken_and_what_is_unlike_named(make: Make, runs: Path) -> None:
    make("lwf", lamb=3.0, rows=[[0.1], [0.1, 0.1]], **{"training.epochs": 2})
    make("lwf", lamb=3.0, rows=[[0.4], [0.4, 0.4]])
    make("a-lwf", lamb=10.0, rows=[[0.5], [0.5, 0.5]])

    gap = only(runs)

    assert gap.gaps("aac") == pytest.approx({0: 0.1})
    assert gap.pairing.differing == ("λ 10 instead of 3",)
    assert gap.pairing.text == "λ 10 instead of 3"


def test_another_network_gives_no_difference_but_a_reason(make: Make, runs: Path) -> None:
    make("lwf", **{"network.name": "resnet8"})
    make("a-lwf", **{"network.name": "mlp"})

    gap = only(runs)

    assert (gap.gaps("aac"), gap.estimate("aac"), gap.interval("aac")) == ({}, None, None)
    assert gap.pairing.text.startswith("not compared: ")
    assert "network.name mlp instead of resnet8" in gap.pairing.refused


def test_a_host_with_the_same_network_is_taken_before_a_liker_one(make: Make, runs: Path) -> None:
    make("lwf", rows=[[0.1], [0.1, 0.1]], **{"network.name": "resnet8"})
    make("lwf", rows=[[0.4], [0.4, 0.4]], lamb=3.0, **{"training.epochs": 7})
    make("a-lwf", rows=[[0.5], [0.5, 0.5]])

    gap = only(runs)

    assert gap.gaps("aac") == pytest.approx({0: 0.1})
    assert len(gap.pairing.differing) == 2


def test_sweeps_are_in_the_order_of_their_number_and_begin_with_the_host(
    make: Make, runs: Path
) -> None:
    for lamb in (10.0, 1.0):
        make("lwf", lamb=lamb)
    for lamb_a in (20.0, 3.0):
        make("a-lwf", lamb=10.0, lamb_a=lamb_a)
    make("a-lwf", lamb=5.0, lamb_a=3.0)  # another λ: alone on its curve

    found = groups(runs)
    plain, variant = sweeps(found, differences(found))

    assert (plain.setting, plain.values) == ("lamb", (1.0, 10.0))
    assert (variant.setting, variant.values) == ("lamb_a", (0.0, 3.0, 20.0))
    assert [group.spec.method for group in variant.groups] == ["lwf", "a-lwf", "a-lwf"]


def test_more_steps_than_tasks_are_read_by_their_columns(make: Make, runs: Path) -> None:
    make("icarl", rows=[[0.8], [0.6, 0.9]], sizes=[30, 10], **{"data.scenario": "cil"})
    (group,) = groups(runs)
    nan = float("nan")
    # After a third step that brought no class: a third row, two columns.
    group.__dict__["matrices"] = [np.array([[0.8, nan], [0.6, 0.9], [0.7, 0.5]])]

    assert group.tasks == 2
    assert group.curves()["phases"] == [pytest.approx([0.8, 0.675, (30 * 0.7 + 10 * 0.5) / 40])]
    assert group.curves()["news"] == [[0.8, 0.9]]
    assert [[c and c.mean for c in row] for row in group.cells()] == [
        [0.8, None],
        [0.6, 0.9],
        [0.7, 0.5],
    ]
