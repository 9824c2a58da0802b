"""Numbers on the first page and the evidence's tables are those of the committed results."""

import functools
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from ancl import StudyResult
from tests.lab import Study, markdown, study_tables

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
STUDIES = ("small", "balance", "grow")
STUDENT = {3: 4.302653, 5: 2.776445}
"""The 97.5 % point of Student's t by the number of seeds, from a printed table."""


@functools.cache
def study(name: str) -> StudyResult:
    return Study(EVIDENCE / name / "study.yaml").result()


def readme() -> str:
    return " ".join((ROOT / "README.md").read_text("utf-8").replace("−", "-").split())


@pytest.mark.parametrize("name", STUDIES)
def test_tables_are_those_of_the_results(name: str) -> None:
    page = (EVIDENCE / name / "tables.md").read_text("utf-8")

    rows = [line for table in study_tables(study(name)) for line in markdown(table).splitlines()]

    assert len(rows) > 10
    missing = [row for row in rows if row not in page.splitlines()]
    assert not missing


@pytest.mark.parametrize("name", ["replay", "moving"])
def test_the_tables_of_a_page_are_those_of_its_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    script, shared = __import__(name), __import__("protocol_runs")
    page = EVIDENCE / f"{name}.md"
    copy = tmp_path / page.name
    copy.write_text(page.read_text("utf-8"), "utf-8")
    more = (script.Scale(),) if name == "moving" else ()
    results = script.Results(EVIDENCE / name / "results", *more)

    shared.fill_tables([copy], script.tables(results))

    assert "<!-- table: " in copy.read_text("utf-8")
    told = f"run: python scripts/{name}.py --tables"
    assert copy.read_text("utf-8") == page.read_text("utf-8"), told


def points(gaps: dict[str, dict[int, float]]) -> tuple[float, float, float]:
    """The mean over methods for each seed; mean and 95 % t-interval over seeds, in points."""
    seeds = sorted(set.intersection(*(set(by_seed) for by_seed in gaps.values())))
    means = [100 * np.mean([by_seed[seed] for by_seed in gaps.values()]) for seed in seeds]
    middle, error = np.mean(means), np.std(means, ddof=1) / len(means) ** 0.5
    reach = STUDENT[len(means)] * error
    return float(middle), float(middle - reach), float(middle + reach)


def test_what_an_auxiliary_network_gives_at_equal_search() -> None:
    methods = study("small").methods
    gaps = {method.method: method.gaps("ancl", "equal_search") for method in methods}

    middle, low, high = points(gaps)

    assert len(gaps) == 8
    assert f"[{middle:+.2f} points above the plain methods]" in readme()
    assert f"(95 % interval {low:.2f} to {high:+.2f})" in readme()
    compute = {method.method: method.gaps("ancl", "equal_compute") for method in methods}
    middle, low, high = points(compute)
    assert high < 0  # "the plain methods are better there"
    page = " ".join((EVIDENCE / "trade-off.md").read_text("utf-8").replace("−", "-").split())
    assert f"ANCL minus it is {middle:.2f} points, 95 % interval {low:.2f} to {high:.2f}" in page
    alone = {name: points({name: gap}) for name, gap in compute.items()}
    assert max(mean for mean, _, _ in alone.values()) < 0
    assert {name for name, (_, _, high) in alone.items() if high > 0} == {"ewc", "podnet"}
    assert "six of them their own interval leaves out 0" in page


def test_what_the_rule_for_lamb_a_gives() -> None:
    methods = study("balance").methods
    gaps = {method.method: method.gaps("balance", "ancl") for method in methods}

    middle, low, high = points(gaps)
    without = points({name: gap for name, gap in gaps.items() if name != "lwf"})

    assert f"[{middle:+.2f} points from a searched λ_a]" in readme()
    told = f"({low:.2f} to {high:+.2f} over three seeds; without LwF {without[0]:.2f}, "
    told += f"{without[1]:.3f} to {without[2]:+.3f}, just past the -0.3 that was allowed)"
    assert told in readme()
    rows = re.findall(
        r"^\| (\w+) \| ANCL, (grid|rule for λ_a) \|.* (\d+) \|$",
        (EVIDENCE / "balance" / "tables.md").read_text("utf-8"),
        re.MULTILINE,
    )
    epochs = {(method, row): int(count) for method, row, count in rows}
    shares = [epochs[name, "rule for λ_a"] / epochs[name, "grid"] for name in gaps]
    assert max(shares) < 0.5  # "less than half of the epochs"


def test_what_an_auxiliary_network_gives_beside_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    replay = __import__("replay")
    results = replay.Results(EVIDENCE / "replay" / "results")
    means = {}
    for table in ("200", "1000"):
        rows = ("a-dark-er-pp", "dark-er-pp, equal")
        ours, theirs = (replay.finished(results, table, row) for row in rows)
        gaps = {s: ours[s]["metrics"]["aiac"] - theirs[s]["metrics"]["aiac"] for s in ours}
        means[table] = points({"dark-er-pp": gaps})

    middle, low, high = means["200"]
    assert f"[{middle:+.2f} points above DER++]" in readme()
    assert f"({low:+.2f} to {high:+.2f}, three seeds)" in readme()
    middle, low, high = means["1000"]
    assert f"with 1,000 images {middle:+.2f} ({low:+.2f} to {high:+.2f})." in readme()


def test_every_number_of_the_first_page_is_checked_or_no_result() -> None:
    """A new number on the page needs a line here, which says where it comes from."""
    page = re.sub(r"<!-- table: (\w+) -->.*?<!-- end -->", "", readme(), flags=re.DOTALL)
    page = re.sub(r"```.*?```|`[^`]*`|\([^()]*\.md[^()]*\)", "", page)
    numbers = set(re.findall(r"[+-]?\d+\.\d+", page))

    computed = {"+0.08", "-0.15", "+0.31", "+0.04", "-0.25", "+0.32", "-0.09"}
    computed |= {"+0.99", "+0.60", "+1.38", "-1.26", "-1.68", "-0.84"}
    computed |= {"-0.305", "+0.132", "-0.3"}
    assert numbers - computed == {"3.11"}  # the version of Python
