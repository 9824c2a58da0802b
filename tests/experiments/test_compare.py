"""Comparisons: values for one method alone, and differences to a baseline, seed by seed."""

import json
from pathlib import Path
from typing import Any

import pytest

import ancl
from ancl import SpecError, compare
from tests.lab import MethodRow, choose_baseline

SHORT = {"training.epochs": 1, "data.tasks": 2, "threads": 1, "data.per_class": 20}


@pytest.mark.parametrize(
    ("methods", "named", "chosen"),
    [
        (["a-lwf", "lwf"], None, "a-lwf"),
        (["lwf", "a-lwf", "ewc"], "ewc", "ewc"),
        (["lwf+ancl", "lwf"], "a-lwf", "lwf+ancl"),
        (["ewc", "lwf@lamb=3"], "lwf", "lwf@lamb=3"),
        (["lwf", "lwf@lamb=3"], "lwf@lamb=3", "lwf@lamb=3"),
    ],
)
def test_the_first_method_is_the_baseline_unless_one_is_named(
    methods: list[str], named: str | None, chosen: str
) -> None:
    assert choose_baseline(methods, named) == chosen


@pytest.mark.parametrize(
    ("methods", "named", "said"),
    [
        (["lwf@lamb=1", "lwf@lamb=3"], "lwf", "lwf stands for lwf@lamb=1 and lwf@lamb=3"),
        (["lwf@lamb=1"], "lwf@lamb=3", "There is no compared method 'lwf@lamb=3'."),
        (["lwf"], "mas", "There is no compared method 'mas'."),
    ],
)
def test_a_baseline_that_is_none_or_several_is_refused(
    methods: list[str], named: str, said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        choose_baseline(methods, named)


def test_values_behind_a_method_go_to_it_alone(tmp_path: Path) -> None:
    texts = ["lwf@lamb=3", "lwf", "a-lwf@lamb_a=0.5,training.epochs=2"]
    found = ancl.specs(texts, "digits/5", settings={**SHORT, "lamb": 7.0})

    assert [spec.options["lamb"] for spec in found] == [3.0, 7.0, 7.0]
    assert [spec.training.epochs for spec in found] == [1, 1, 2]
    assert found[2].options["lamb_a"] == 0.5


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lwf@lamb", "what follows the @ are no values. Write them as lwf@lamb=3"),
        ("lwf@lamb=1,lamb=2", "has two values for lamb"),
        ("lwf@lmb=3", "lwf@lmb=3: lwf has no setting 'lmb'. Did you mean 'lamb'?"),
        ("lwf@lamb_a=3", "lwf@lamb_a=3: lwf has no setting 'lamb_a'"),
        ("lwf@auxiliary.epochs=3", "is of an auxiliary network, and lwf trains none"),
        ("lwf@lamb=-1", "lwf@lamb=-1: lamb is -1"),
    ],
)
def test_a_mistake_behind_a_method_is_told_with_it(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        ancl.specs([text, "a-lwf"], "digits/5")

    assert said in str(caught.value)


@pytest.mark.parametrize("rule", ["balance:0.1", "[1,2]"])
def test_values_may_hold_colons_and_commas(rule: str) -> None:
    row = MethodRow.read(f"some/own.py:mine@lamb_a={rule},x.y=true")

    assert (row.method, row.values["x.y"]) == ("some/own.py:mine", True)
    assert row.values["lamb_a"] == ([1, 2] if rule[0] == "[" else rule)


def test_differences_are_paired_and_taken_to_any_baseline(tmp_path: Path) -> None:
    methods = ["lwf", "a-lwf", "ewc@lamb=100"]
    given: dict[str, Any] = {"seeds": (0, 1), "settings": SHORT, "runs": tmp_path}
    found = compare(methods, "digits/5", **given)
    other = compare(methods, "digits/5", baseline="ewc", **given)

    aac = {m: [each.result.metrics["aac"] for each in found.of(m)] for m in methods}
    for comparison, host in ((found, "lwf"), (other, "ewc@lamb=100")):
        for method in methods:
            gap = comparison.difference(method, "aac")
            if method == host:
                assert gap is None
                continue
            assert gap is not None
            pairs = [a - b for a, b in zip(aac[method], aac[host], strict=True)]
            assert (gap.mean, gap.n) == (pytest.approx(sum(pairs) / 2), 2)
    baselines = {name: each["baseline"] for name, each in other.json()["methods"].items()}
    assert baselines == {"lwf": methods[2], "a-lwf": methods[2], methods[2]: None}
    written = json.loads(found.write(tmp_path).read_text())
    assert written.pop("format") == "comparison, written by ancl"
    assert (written, written["baseline"]) == (found.json(), "lwf")
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
