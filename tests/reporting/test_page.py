"""The page as one file."""

import json
import re
from collections.abc import Callable
from pathlib import Path

from tests.lab import collect, content, make_report, page

Make = Callable[..., Path]


def test_the_page_is_one_file_with_its_data_escaped(make: Make, runs: Path) -> None:
    place = make()
    (place / "environment.json").write_text('{"platform": "</script><b>&\\u2028"}')

    text = page(make_report(collect([runs])))

    assert "</script><b>" not in text
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)\s*=\s*.(?!data:)", text)
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert data is not None
    (group,) = json.loads(data[1])["groups"]
    assert "</script><b>&\\u2028" in group["environment"]
    assert group["metrics"]["aac"] == [0.75, None, 1]
    assert group["cells"] == [[[0.8, None, 1], None], [[0.6, None, 1], [0.9, None, 1]]]


def test_the_same_results_give_the_same_bytes(make: Make, make_analysis: Make, runs: Path) -> None:
    make()
    make_analysis()

    first, second = (page(make_report(collect([runs]))) for _ in range(2))

    assert first == second


def test_links_to_runs_are_seen_from_the_page(make: Make, runs: Path) -> None:
    place = make().rename(runs / "a run#1")
    found = make_report(collect([runs]))

    (group,) = content(found, runs / "report")["groups"]

    assert group["links"] == ["./../a%20run%231/"]
    assert content(found)["groups"][0]["links"] == [None]
    assert group["runs"] == [place.name]
