import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.lab import (
    QUICK,
    QUICK_CIFAR100,
    QUICK_LOOK,
    Choice,
    Estimate,
    Number,
    ParameterCount,
    Report,
    Table,
    collect,
    comma_separated,
    content,
    latex,
    make_report,
    markdown,
)

Make = Callable[..., Path]


def report(runs: Path) -> Report:
    return make_report(collect([runs]))


def named(found: Report, name: str) -> Table:
    return next(table for table in found.tables if table.name == name)


def square(value: float) -> list[list[float]]:
    return [[value], [value, value]]


@pytest.fixture
def compared(make: Make, runs: Path) -> Report:
    whole = {"benchmark": "cifar100/10", "sizes": [5000, 5000], "images": (22500, 2500)}
    for seed, shift in enumerate((-0.01, 0.0, 0.01)):
        make("lwf", seed=seed, rows=square(0.70 + shift), **whole)
        make("a-lwf", seed=seed, rows=square(0.72 + 2 * shift), **whole)
        make("afec-lwf", seed=seed, rows=square(0.71 + shift), **whole, lamb=3.0)
        make("lwf", seed=seed, rows=square(0.5))
    return report(runs)


def test_accuracy_stands_beside_the_papers(compared: Report) -> None:
    text = markdown(named(compared, "aac_til"))

    # s = 0.01 and 0.02 over 3 seeds: 0.01 / sqrt(3) = 0.58 %, 0.02 / sqrt(3) = 1.15 %
    assert "| method | cifar100/10 | cifar100/10, paper | digits/5 |" in text
    assert "| LwF | 70.00 ± 0.58 | 78.87 ± 0.69 | 50.00 ± 0.00 |" in text
    assert "| AFEC-LwF | 71.00 ± 0.58 | 78.77 ± 0.72 |  |" in text
    assert "| A-LwF | 72.00 ± 1.15 | 79.42 ± 0.57 |  |" in text
    assert "n = 3." in text
    assert "AAC: 1/T sum_j R[T,j]" in text
    wanted = "Not the protocol of the expected number: AFEC-LwF on cifar100/10: lamb is 3 instead"
    assert wanted in text


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"images": (40, 10)}, "100 of the publisher's 50,000 training images"),
        ({"training.epochs": 5}, "training.epochs is 5 instead of 200"),
        ({"network.name": "resnet8"}, 'network.name is "resnet8" instead of "resnet32"'),
        (QUICK_CIFAR100, 'data.source is "cifar100-16" instead of "cifar100"'),
    ],
)
def test_a_look_never_stands_beside_the_papers_number(
    make: Make, runs: Path, given: dict[str, Any], reason: str
) -> None:
    whole = {"benchmark": "cifar100/10", "sizes": [5000, 5000], "images": (22500, 2500)}
    make("lwf", rows=square(0.7), **{**whole, **given})

    found = report(runs)

    for table in found.tables:
        for text in (markdown(table), latex(table), comma_separated(table)):
            assert "78.87" not in text
    assert f"No expected number stands beside LwF on {found.groups[0].stream}: " in markdown(
        named(found, "aac_til")
    )
    assert reason in found.groups[0].obstacles
    assert content(found)["groups"][0]["expected"] is None


def test_a_quick_look_says_so_in_the_overview(make: Make, runs: Path) -> None:
    make("lwf", **QUICK)
    make("ewc", **QUICK)

    assert f"All on digits/5: {QUICK_LOOK}" in markdown(named(report(runs), "overview"))


def test_differences_are_by_seed_with_what_else_differs_beside_them(compared: Report) -> None:
    text = markdown(named(compared, "difference_til"))

    # A-LwF minus LwF: 0.01, 0.02, 0.03: ± t(2) 4.303 * 0.577; AFEC-LwF minus LwF: 0.01 thrice
    assert "| A-LwF − LwF | cifar100/10 | +2.00 ± 0.58 | [-0.48, +4.48] |  |" in text
    row = "| AFEC-LwF − LwF | cifar100/10 | +1.00 ± 0.00 | [+0.99, +1.01] | λ 3 instead of 10 |"
    assert row in text
    assert "λ 3 instead of 10" in comma_separated(named(compared, "difference_til"))
    assert r"$\lambda$ 3 instead of 10" in latex(named(compared, "overview"))


def test_another_network_gives_no_number_in_any_table(make: Make, runs: Path) -> None:
    make("lwf", rows=square(0.5), **{"network.name": "resnet8"})
    make("a-lwf", rows=square(0.75))

    found = report(runs)

    for name in ("overview", "difference_til"):
        for text in map(lambda form: form(named(found, name)), (markdown, latex, comma_separated)):
            assert "25.0" not in text
            assert "not compared: network" in text


def test_csv_has_full_numbers_in_columns(compared: Report) -> None:
    rows = list(csv.DictReader(io.StringIO(comma_separated(named(compared, "aac_til")))))

    ours = next(row for row in rows if row["method"] == "A-LwF")
    assert float(ours["cifar100/10"]) == pytest.approx(72.0)
    assert float(ours["cifar100/10: standard error"]) == pytest.approx(2 / 3**0.5)
    assert ours["cifar100/10: n"] == "3"
    assert ours["cifar100/10, paper"] == "79.420000"
    assert ours["digits/5"] == ""


def test_class_incremental_runs_have_aiac_and_final_accuracy(make: Make, runs: Path) -> None:
    rows = [[0.8], [0.6, 0.9]]
    make("icarl", rows=rows, sizes=[30, 10], **{"data.scenario": "cil"})

    found = report(runs)

    # AIAC (0.8 + 0.675) / 2, final 0.675; a single seed has no error
    assert "| iCaRL | 73.75 |" in markdown(named(found, "aiac_cil"))
    assert "| iCaRL | 67.50 |" in markdown(named(found, "final_accuracy_cil"))


def test_grids_show_the_chosen_value_in_bold_beside_the_papers(
    make_search: Make, runs: Path
) -> None:
    make_search()

    table = named(report(runs), "grids")

    row = "| LwF | cifar100/10 | λ | 5, **10** | validation AAC | 0.1, 1, **10**, 100, 200, 400 |"
    assert row in markdown(table)
    assert "| A-LwF | cifar100/10 | λ_a | 0.5, **1** |" in markdown(table)
    assert r"5, \textbf{10}" in latex(table)
    assert comma_separated(table).splitlines()[1].startswith("LwF,cifar100/10,λ,5 10,10,")


def test_different_n_is_shown_in_every_cell() -> None:
    cells = ((Number(Estimate(0.5, 0.1, 3)),), (Number(Estimate(0.25, float("nan"), 1)),))
    table = Table("t", "Title", ("AAC",), cells)

    assert "| 50.00 ± 10.00 (n=3) |\n| 25.00 (n=1) |" in markdown(table)


def test_latex_is_balanced_and_escaped() -> None:
    title = "50% of a_b & {c} #1 ~ ^ \\ < λ_a"
    number = Number(Estimate(-0.0123, 0.004, 3), signed=True)
    table = Table("a_b", title, ("x_1", "y & z", "grid"), (("m_1", number, Choice((1, 2), 2)),))

    text = latex(table)

    assert r"50\% of a\_b \& \{c\} \#1" in text
    assert r"m\_1 & $-$1.23 $\pm$ 0.40 & 1, \textbf{2} \\" in text
    bare = re.sub(r"\\[\\{}$%&#_]", "", text)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"[%#~^λ±−]", bare)
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {2}


def test_a_pipe_does_not_break_a_markdown_row() -> None:
    assert "| a\\|b |" in markdown(Table("t", "Title", ("name",), (("a|b",),)))


def test_parameters_stored_and_trained_after_every_task(make: Make, runs: Path) -> None:
    counts = (ParameterCount(1000, 900), ParameterCount(2500, 1200))
    make("der", rows=square(0.5), parameters=counts)
    make("der", seed=1, rows=square(0.5), parameters=(counts[0], ParameterCount(2301, 1200)))
    make("lwf", rows=square(0.5))

    text = markdown(named(report(runs), "parameters")).lower()

    # Masks leave another number of weights in every seed: (2500 + 2301) / 2, rounded
    assert "| der | stored | 1,000 | 2,400 |" in text
    assert "| der | trained | 900 | 1,200 |" in text
    assert "lwf" not in text
