import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab import QUICK_LOOK, comparison_text, program, signed

SHORT = ("--epochs", "1", "--tasks", "2", "--threads", "1")


def results(runs: Path) -> dict[str, Any]:
    found = {}
    for file in runs.glob("*/result.json"):
        found[file.parent.name] = json.loads(file.read_text())["matrices"]
    return found


def test_means_paired_differences_and_files(ancl: Any) -> None:
    asked = ("compare", "a-lwf", "lwf", "finetune", "--on", "digits/5", *SHORT, "--seeds", "0-2")
    found = ancl(*asked, "--json", "--quiet").json
    ended = ancl(*asked, "--quiet")

    aac = {
        method: [
            json.loads((Path(run) / "result.json").read_text())["metrics"]["aac"]
            for run in each["runs"]
        ]
        for method, each in found["methods"].items()
    }
    pairs = [a - b for a, b in zip(aac["a-lwf"], aac["lwf"], strict=True)]
    mean = sum(pairs) / 3
    error = (sum((pair - mean) ** 2 for pair in pairs) / 2 / 3) ** 0.5
    difference = found["methods"]["a-lwf"]["minus_baseline"]["aac"]
    written = json.loads(next(Path("runs/comparisons").glob("*.json")).read_text())

    assert [each["baseline"] for each in found["methods"].values()] == ["lwf", None, "lwf"]
    assert list(aac) == ["a-lwf", "lwf", "finetune"]
    assert difference["n"] == 3
    assert difference["mean"] == pytest.approx(mean)
    assert difference["standard_error"] == pytest.approx(error)
    assert found["methods"]["lwf"]["minus_baseline"] == {}
    assert written["methods"] == found["methods"]
    row = next(line for line in ended.out.splitlines() if line.startswith("a-lwf "))
    assert row.endswith(f"3  {100 * mean:+14.1f} ± {100 * error:.1f}".split("  ")[-1].strip())
    assert ended.code == 0


def test_a_comparison_gives_what_single_runs_give_and_trains_nothing_twice(ancl: Any) -> None:
    ancl("compare", "lwf", "a-lwf", "--on", "digits/5", *SHORT, "--quiet")
    plan = ancl("compare", "lwf", "a-lwf", "--on", "digits/5", *SHORT, "--dry-run", "--json").json
    ancl("run", "a-lwf", "digits/5", *SHORT, "--quiet", "--runs", "alone")

    assert plan["stages_to_do"] == 0
    assert plan["stages"] - plan["unique_stages"] == 4  # the first task, the second one's head
    assert results(Path("alone")).items() <= results(Path("runs")).items()


def test_each_variant_is_compared_with_its_own_host(ancl: Any) -> None:
    asked = ("compare", "lwf", "a-lwf", "ewc", "a-ewc", "--on", "digits/5", *SHORT, "--quiet")
    found = ancl(*asked, "--json").json["methods"]
    several, forced = ancl(*asked).out, ancl(*asked, "--baseline", "ewc").out

    aac = {method: each["metrics"]["aac"]["mean"] for method, each in found.items()}
    rows = {line.split()[0]: line.split() for line in several.splitlines() if line}
    assert "AAC minus baseline, points  baseline" in several
    assert [rows[name][-1] for name in ("a-lwf", "ewc", "a-ewc")] == ["lwf", "lwf", "ewc"]
    assert rows["a-ewc"][-2] == signed(aac["a-ewc"] - aac["ewc"])
    assert "AAC minus ewc, points" in forced
    assert "-0.0" not in several + forced


def test_what_else_differs_stands_beside_a_difference(ancl: Any) -> None:
    asked = ("compare", "lwf", "a-lwf", "--on", "digits/5", *SHORT, "--quiet")
    plain = ancl(*asked).out
    found = ancl(*asked, "--json").json["methods"]["a-lwf"]

    assert "what else differs" not in plain
    assert (found["differs_also"], found["not_compared"]) == ([], [])


def test_a_row_ends_with_what_else_differs(compared: Any) -> None:
    found = compared({"lamb": 1e9}, {"lamb": 10.0})

    text = comparison_text(found, Path("x.json"), quick=False)

    row = next(line for line in text.splitlines() if line.startswith("a-lwf"))
    assert row.endswith("+50.0  λ 10 instead of 1e+09")
    assert QUICK_LOOK not in text


def test_a_row_has_no_difference_between_networks(compared: Any) -> None:
    found = compared({}, {"network.name": "resnet8"})

    text = comparison_text(found, Path("x.json"), quick=True)

    assert "50.0" not in text
    assert "not compared: network.name resnet8 instead of mlp" in text
    assert QUICK_LOOK in text


def test_a_quick_comparison_says_what_a_quick_run_says(ancl: Any) -> None:
    asked = ("compare", "lwf", "a-lwf", "--on", "digits/5", "--quick", "--quiet", "--threads", "1")
    text, found = ancl(*asked).out, ancl(*asked, "--json").json
    cut = ancl(*asked, "--set", "data.per_class=25", "--json").json

    assert QUICK_LOOK in text
    assert "paper" not in text
    assert (found["quick"], cut["quick"]) == (True, True)
    assert QUICK_LOOK in Path(found["report"]).read_text()


def test_a_setting_goes_to_the_methods_that_have_it(ancl: Any) -> None:
    Path("c.yaml").write_text("options: {alpha: 0.25}\n")
    given = ("--lamb-a", "3", "--set", "temperature=4", "--config", "c.yaml")
    found = ancl(
        "compare", "lwf", "a-ewc", "finetune", "--on", "digits/5", *SHORT, *given, "--json"
    ).json

    options = {
        method: json.loads((Path(each["runs"][0]) / "result.json").read_text())["spec"]["options"]
        for method, each in found["methods"].items()
    }
    assert options["finetune"] == {"loss_over": "auto"}
    assert options["lwf"].items() >= {"lamb": 10.0, "temperature": 4.0}.items()
    assert "lamb_a" not in options["lwf"]
    assert (options["a-ewc"]["lamb_a"], options["a-ewc"]["alpha"]) == (3.0, 0.25)


def test_what_no_method_has_is_refused_and_told_of_each_once(ancl: Any) -> None:
    ended = ancl("compare", "lwf", "mas", "--on", "digits/5", "--set", "foo=1", "--set", "x")

    lines = ended.err.splitlines()
    assert ended.code == 2
    assert lines[0].startswith("--set: 'x' is not a setting.")
    assert [line.split(" has no")[0] for line in lines[1:]] == ["--set: lwf", "--set: mas"]
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("--baseline", "mas"), "--baseline: There is no compared method 'mas'."),
        (("--executor", "pol"), "There is no executor 'pol'. Did you mean 'pool'?"),
        (("--workers", "two"), "--workers: 'two' is not a number of workers."),
        (("--executor", "serial", "--workers", "2"), "--workers is for --executor pool or ray"),
        (("--executor", "pool", "--address", "x"), "--address is for --executor ray"),
    ],
)
def test_flags_that_do_not_fit(ancl: Any, given: tuple[str, ...], message: str) -> None:
    ended = ancl("compare", "lwf", "ewc", "--on", "digits/5", *given)

    assert ended.code == 2
    assert message in ended.err


def test_a_failure_is_told_the_others_finish_and_the_code_is_1(ancl: Any) -> None:
    Path("mine.py").write_text(
        program(
            "import dataclasses\n"
            "from ancl.extend import Method, Term\n"
            "from tests.lab import Lwf\n\n"
            "@dataclasses.dataclass(frozen=True)\n"
            "class Broken(Lwf):\n"
            "    def penalty(self, step, anchor):\n"
            "        raise ZeroDivisionError('as written')\n\n"
            "def broken() -> Method:\n"
            "    return Method('broken', old=Term(Broken(2.0), 1.0))\n"
        )
    )
    ended = ancl("compare", "lwf", "mine.py:broken", "--on", "digits/5", *SHORT, "--quiet")

    assert ended.code == 1
    assert "ZeroDivisionError: as written" in ended.out
    assert len(list(Path("runs").glob("*lwf*/result.json"))) == 1
    assert not list(Path("runs").glob("*broken*/result.json"))
