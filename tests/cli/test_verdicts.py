"""Sentences and names that the numbers bear: no verdict of few seeds, no benchmark that is none."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.lab import (
    BENCHMARKS,
    Layer,
    collect,
    latex,
    make_report,
    markdown,
    read_run,
    resolve,
    t_interval,
    verdict,
)

from ..reporting.conftest import write_synthetic

WORDS = ("higher", "lower", "better", "Highest", "then", "more and forgets", "less and forgets")


def made(runs: Path, finals: dict[str, Sequence[float]], images: int = 1000) -> list[str]:
    """The sentences of runs that end here, one number of every seed."""
    for method, ends in finals.items():
        for seed, end in enumerate(ends):
            rows = [[0.9], [end, end]]
            write_synthetic(runs, method, seed, rows, sizes=[images // 2] * 2)
    (said,) = make_report(collect([runs])).findings.values()
    return [each.text for each in said]


@pytest.mark.parametrize("seeds", [1, 2])
def test_below_three_seeds_there_is_no_verdict(tmp_path: Path, seeds: int) -> None:
    bases = {"lwf": 0.5, "a-lwf": 0.6, "ewc": 0.4, "a-ewc": 0.3, "mas": 0.2, "a-mas": 0.1}
    finals = {name: [end] * seeds for name, end in {**bases, "si": 0.7, "finetune": 0.1}.items()}

    text = " ".join(made(tmp_path, finals))

    assert [word for word in WORDS if word in text] == []
    assert "fewer than 3 seeds do not rank them" in text


def test_the_first_sentence_ranks_only_what_the_interval_tells_apart(tmp_path: Path) -> None:
    near = {"lwf": [0.80, 0.82, 0.81], "a-lwf": [0.82, 0.81, 0.815], "ewc": [0.5, 0.51, 0.52]}
    first, *rest = made(tmp_path / "near", near)
    assert first == (
        "No clear highest of 3: LwF 81.0 ± 0.6 %, A-LwF 81.5 ± 0.3 % AAC (n = 3) are not told "
        "apart."
    )
    assert "no clear difference" in " ".join(rest)

    far = {"lwf": [0.80, 0.82, 0.81], "a-lwf": [0.85, 0.87, 0.86], "ewc": [0.5, 0.51, 0.52]}
    first = made(tmp_path / "far", far)[0]
    assert first == "Highest of 3: A-LwF 86.0 ± 0.6 % AAC (n = 3), then LwF 81.0 ± 0.6 %."

    second = far | {"ewc": [0.81, 0.815, 0.81]}
    first = made(tmp_path / "second", second)[0]
    assert first == "Highest of 3: A-LwF 86.0 ± 0.6 % AAC (n = 3), then 2 from 81.0 to 81.2 %."


def test_equal_differences_of_less_than_an_image_are_no_difference(tmp_path: Path) -> None:
    # 1000 test images: one of them is 0.1 points, and all seeds differ by 0.05
    finals = {"lwf": [0.5, 0.6, 0.7], "a-lwf": [0.5005, 0.6005, 0.7005]}

    *_, variant = made(tmp_path, finals)

    assert variant.endswith(
        "+0.05 points, 95 % interval -0.05 to +0.15 over 3 seeds, on these test images: no clear "
        "difference."
    )


def test_the_p_value_and_the_interval_agree_where_an_image_decides() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        values = rng.normal(0.01, rng.choice([0.0, 1e-4, 0.01]), rng.integers(2, 6)).tolist()
        found = t_interval(values, least=0.008)
        assert min(found.mean - found.low, found.high - found.mean) >= 0.008 * (1 - 1e-9)
        assert (found.p < 0.05) == (not found.low <= 0 <= found.high) or math.isclose(found.p, 0.05)


# -- names -----------------------------------------------------------------------------------


def test_every_benchmark_is_called_by_its_name_until_its_data_is_changed() -> None:
    for name in BENCHMARKS:
        spec = resolve("lwf", name, [Layer("test", {"data.per_class": 9})]).spec
        assert spec.stream == name
        assert spec.model_copy(update={"benchmark": "mine/3"}).stream == "mine/3"
    for changes, called in (
        ({"data.source": "hard-digits"}, "hard-digits, 5 tasks, til"),
        ({"data.tasks": 2}, "digits, 2 tasks, til"),
        ({"data.scenario": "cil"}, "digits, 5 tasks, cil"),
        ({"data.order": "seed:1"}, "digits, 5 tasks, order seed:1, til"),
    ):
        assert resolve("lwf", "digits/5", [Layer("test", changes)]).spec.stream == called


def test_a_benchmark_on_other_images_is_not_typeset_as_the_benchmark(
    ancl, tmp_path: Path, no_figures: None
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (120, 4, 4, 1), dtype=np.uint8)
    np.savez(tmp_path / "tiny10.npz", x=x, y=np.arange(120) % 10)
    words = "lwf finetune --on digits/5 --data arrays:tiny10.npz --epochs 1 --threads 1 --quiet"

    out = ancl("compare", *words.split()).out
    assert out.startswith("tiny10.npz, 5 tasks, til: mean")
    told = ancl("report", "--runs", "runs", "-o", "rep")

    assert told.code == 0, told.err
    written = [file.read_text() for file in Path("rep").rglob("*.*") if file.is_file()]
    assert len(written) > 9
    page = next(text for text in written if text.startswith("<!"))
    tables = [text for text in written if text is not page]
    assert [text for text in [*tables, out, told.out] if "digits/5" in text] == []
    assert "tiny10.npz, 5 tasks, til" in page
    report = make_report(collect([Path("runs")]))
    assert {group.stream for group in report.groups} == {"tiny10.npz, 5 tasks, til"}
    assert all("tiny10.npz" in render(report.tables[0]) for render in (markdown, latex))
    for run in Path("runs").glob("digits-5_*_s0_*"):
        assert verdict([read_run(run)]) is None
