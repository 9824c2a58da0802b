import json
from pathlib import Path
from typing import Any

import pytest

from ancl import Store
from tests.lab import patch_part

ASKED = ("analyze", "ewc", "digits/5", "--lamb-a", "10,1", "--epochs", "1", "--grid", "2")
QUICK = (*ASKED, "--images", "40", "--set", "network.hidden=[8]")


@pytest.fixture(autouse=True)
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take longer than everything else."""
    patch_part(monkeypatch, "analysis_can_draw", lambda: False)


def test_networks_are_measured_written_and_drawn(
    ancl: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    patch_part(monkeypatch, "analysis_can_draw", lambda: True)

    ended = ancl(*QUICK, "--json")
    found = ended.json
    directory = Path(found["directory"])

    assert ended.code == 0
    assert found["method"] == "a-ewc"
    assert found["options"]["lamb_as"] == [1.0, 10.0]
    assert json.loads((directory / "result.json").read_text())["tables"] == found["tables"]
    assert {path.stem for path in directory.glob("*.csv")} == set(found["tables"])
    assert len(found["figures"]) == 6
    assert all(Path(path).is_file() for path in found["figures"])


def test_the_second_time_everything_is_found_and_prune_keeps_it(ancl: Any) -> None:
    first = ancl(*QUICK, "--json").json
    held = {info.key for info in Store(Path("runs/.store")).entries()}

    again = ancl(*QUICK, "--json").json
    pruned = ancl("store", "prune", "--json")

    assert again["tables"] == first["tables"]
    assert {info.key for info in Store(Path("runs/.store")).entries()} == held == set(first["keys"])
    assert pruned.code == 0


def test_ordinary_runs_share_the_networks(ancl: Any) -> None:
    ancl(*QUICK, "--quiet")

    ended = ancl("run", "ewc", "digits/5", "--epochs", "1", "--set", "network.hidden=[8]")

    # The first task whole, and of the second all but what later tasks read.
    assert "7 stored, 13 to do" in ended.err
    assert "task 2/5 main" not in ended.err


def test_text_has_a_row_for_every_network_and_tells_the_time(ancl: Any) -> None:
    ended = ancl(*QUICK)
    rows = [line.split() for line in ended.out.splitlines()]

    assert [row[:2] for row in rows if row[:1] == ["ANCL"]] == [["ANCL", "1"], ["ANCL", "10"]]
    assert any(row[:1] == ["CL"] for row in rows)
    assert "Rank correlations (Spearman's ρ) over 2 values of λ_a, mean over 1 seed:" in ended.out
    assert "  λ_a with the distance to the auxiliary network: " in ended.out
    assert "  CKA to the multitask network with the mean accuracy: " in ended.out
    assert "ANCL, λ_a = 10" in ended.err
    assert "landscape: 2 more points at" in ended.err


def test_lamb_is_searched_by_validation(ancl: Any) -> None:
    found = ancl(*QUICK, "--search-lamb", "1,1000", "--seeds", "0,1", "--json").json
    tried = found["tables"]["lamb"]

    means = {
        lamb: sum(row["validation"] for row in tried if row["lamb"] == lamb) / 2
        for lamb in (1.0, 1000.0)
    }
    assert len(tried) == 4
    assert found["lamb"] == max(sorted(means), key=lambda lamb: means[lamb])
    assert found["seeds"] == [0, 1]
    assert found["rank_correlations"]["distance_old_with_lamb_a"]["n"] == 2


def test_a_dry_run_trains_nothing_and_tells_the_cost(ancl: Any) -> None:
    plan = ancl(*QUICK, "--dry-run", "--json").json
    text = ancl(*QUICK, "--dry-run").out

    # 2 x 2 of landscape, 6 networks, 4 paths of 11.
    assert plan["points"] == 4 + 6 + 1 + 44
    assert plan["most_epochs_to_do"] == 6  # main 0; auxiliary, CL, ANCL twice, multitask
    assert plan["seconds_per_point"] > 0
    assert "timed just now" in text
    assert not Path("runs").exists()


def test_without_matplotlib_it_says_how_to_install(ancl: Any) -> None:
    ended = ancl(*QUICK)

    assert ended.code == 0
    assert "pip install 'ancl[report]'" in ended.out
    assert not list(Path("runs").rglob("*.png"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("afec-ewc", "digits/5", "--lamb-a", "1"), "Use ewc or a-ewc"),
        (("finetune", "digits/5", "--lamb-a", "1"), "has no regularizer"),
        (("dmc", "digits/5", "--lamb-a", "1"), "already has an auxiliary network"),
        (("ewc", "digits/5", "--lamb-a", "1,zero"), "not a list of positive numbers"),
        (("ewc", "digits/5", "--lamb-a", "0"), "not a list of positive numbers"),
        (("ewc", "digits/5", "--lamb-a", "1", "--split", "tests"), "Did you mean 'test'?"),
        (("ewc", "digits/5", "--lamb-a", "1", "--cka", "bias"), "Did you mean 'biased'?"),
        (("ewc", "digits/5", "--lamb-a", "1", "--grid", "1"), "grid 1 is not a landscape"),
        (("ewc", "digits/5", "--lamb-a", "1", "--task", "9"), "Possible: --task 2 to 5"),
        (
            ("ewc", "digits/5", "--lamb-a", "1", "--lamb", "1", "--search-lamb", "1"),
            "Leave out one",
        ),
    ],
)
def test_mistakes_are_told(ancl: Any, arguments: tuple[str, ...], message: str) -> None:
    ended = ancl("analyze", *arguments)

    assert ended.code == 2
    assert message in ended.err
