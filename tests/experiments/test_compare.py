"""Comparisons: each variant against its own host, seed by seed."""

import json
from pathlib import Path
from typing import Any

import pytest

import ancl
from ancl import SpecError, compare
from tests.lab import choose_baselines

SHORT = {"training.epochs": 1, "data.tasks": 2, "threads": 1, "data.per_class": 20}


@pytest.mark.parametrize(
    ("methods", "forced", "chosen"),
    [
        (["a-lwf", "lwf"], None, ["lwf", "lwf"]),
        (["finetune", "afec-ewc", "ewc"], None, ["ewc", "ewc", "ewc"]),
        (["mas", "a-lwf"], None, ["mas", "mas"]),
        (["lwf", "a-lwf", "afec-lwf", "ewc", "a-ewc"], None, ["lwf", "lwf", "lwf", "lwf", "ewc"]),
        (["lwf", "a-lwf", "ewc", "a-ewc"], "ewc", ["ewc", "ewc", "ewc", "ewc"]),
        (["lwf+ancl", "lwf"], "a-lwf", ["lwf+ancl", "lwf+ancl"]),
    ],
)
def test_baselines(methods: list[str], forced: str | None, chosen: list[str]) -> None:
    assert list(choose_baselines(methods, forced).values()) == chosen


def test_differences_are_paired_and_taken_to_each_variants_host(tmp_path: Path) -> None:
    methods = ["lwf", "a-lwf", "ewc", "a-ewc"]
    found = compare(methods, "digits/5", seeds=(0, 1), settings=SHORT, runs=tmp_path)
    forced = compare(
        methods, "digits/5", seeds=(0, 1), settings=SHORT, runs=tmp_path, baseline="lwf"
    )

    aac = {m: [each.result.metrics["aac"] for each in found.of(m)] for m in methods}
    for method, host in (("a-lwf", "lwf"), ("ewc", "lwf"), ("a-ewc", "ewc")):
        gap = found.difference(method, "aac")
        assert gap is not None
        pairs = [a - b for a, b in zip(aac[method], aac[host], strict=True)]
        assert (gap.mean, gap.n) == (pytest.approx(sum(pairs) / 2), 2)
    assert found.difference("lwf", "aac") is None
    to_lwf = forced.difference("a-ewc", "aac")
    assert to_lwf is not None
    assert to_lwf.mean == pytest.approx((sum(aac["a-ewc"]) - sum(aac["lwf"])) / 2)
    baselines = {name: each["baseline"] for name, each in found.json()["methods"].items()}
    assert baselines == {"lwf": None, "a-lwf": "lwf", "ewc": "lwf", "a-ewc": "ewc"}
    written = json.loads(found.write(tmp_path).read_text())
    assert written.pop("format") == "comparison, written by ancl"
    assert written == found.json()
    assert ancl.compare is compare


def test_a_setting_goes_to_the_methods_that_have_it_and_mistakes_are_told_together(
    tmp_path: Path,
) -> None:
    with pytest.raises(SpecError) as caught:
        compare(["lwf", "finetune", "lwff"], "digits/5", settings={"foo": 1}, runs=tmp_path)
    found = compare(
        ["lwf", "finetune"], "digits/5", settings={**SHORT, "temperature": 4.0}, runs=tmp_path
    )

    lines = str(caught.value).splitlines()
    starts = [line.split(" has no")[0] for line in lines]
    assert starts[:2] == ["settings: lwf", "settings: finetune"]
    assert "lwff" in lines[2]
    assert [spec.options.get("temperature") for spec in found.specs] == [4.0, None]


def test_a_difference_names_what_else_differs(compared: Any) -> None:
    found = compared({"lamb": 1e9}, {"lamb": 10.0})

    gap = found.difference("a-lwf", "aac")
    assert gap is not None
    assert gap.mean == 0.5
    assert found.json()["methods"]["a-lwf"]["differs_also"] == ["λ 10 instead of 1e+09"]


def test_no_difference_is_taken_between_networks(compared: Any) -> None:
    found = compared({}, {"network.name": "resnet8"})

    assert found.difference("a-lwf", "aac") is None
    method = found.json()["methods"]["a-lwf"]
    assert method["minus_baseline"] == {}
    assert "network.name resnet8 instead of mlp" in method["not_compared"]
