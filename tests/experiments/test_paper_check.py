"""Runs beside the paper's numbers: compared only where the protocol is the paper's."""

from dataclasses import replace
from typing import Any

import pytest

from tests.lab import verdict, verdict_json


def test_a_whole_protocol_is_comparable(paper_runs: Any) -> None:
    runs = paper_runs([0.78, 0.79, 0.80])
    found = verdict(runs)

    assert found is not None
    as_json = verdict_json(found, runs)
    assert as_json["comparable"]
    assert as_json["metrics"]["aac"]["paper"]["mean"] == pytest.approx(0.7942)
    assert as_json["metrics"]["aac"]["got"]["mean"] == pytest.approx(0.79)
    assert found.notes[0].startswith("training.lr 0.05 is ours: the paper")


def test_what_differs_is_listed(paper_runs: Any) -> None:
    [run] = paper_runs([0.5], training__epochs=5, lamb=3)
    found = verdict([replace(run, images=((1500, 500, 1000),) * 10)])

    assert found is not None
    assert found.differences == [
        "lamb is 3 instead of 10",
        "training.epochs is 5 instead of 200",
        "auxiliary.epochs is 5 instead of 200",
        "20,000 of the publisher's 50,000 training images",
        "n is 1 instead of 3 seeds",
    ]


def test_a_searched_rate_is_the_papers_own_rule(paper_runs: Any) -> None:
    found = verdict(paper_runs([0.7, 0.7, 0.7], training__lr="search"))

    assert found is not None
    assert found.differences == []
    assert found.notes == ["training.lr=search: by the released code's rule."]


def test_a_method_the_paper_does_not_report_has_no_verdict(paper_runs: Any) -> None:
    assert verdict(paper_runs([0.7], method="rwalk")) is None
