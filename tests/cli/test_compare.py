import csv
import json
from pathlib import Path
from typing import Any

import pytest

from tests.lab import QUICK_LOOK, comparison_text, program

SHORT = ("--epochs", "1", "--tasks", "2", "--threads", "1")


OWN = program(
    "from dataclasses import dataclass\n"
    "from ancl.extend import Method, Regularizer, Term\n\n"
    "@dataclass(frozen=True)\n"
    "class L1(Regularizer):\n"
    "    def penalty(self, step, anchor):\n"
    "        theirs = step.of(anchor).logits[:, anchor.classes]\n"
    "        return (step.out.logits[:, anchor.classes] - theirs).abs().mean()\n\n"
    "def l1(lamb: float = 0.1) -> Method:\n"
    "    return Method('l1', old=Term(L1(), lamb))\n"
)


def results(runs: Path) -> dict[str, Any]:
    found = {}
    for file in runs.glob("*/result.json"):
        found[file.parent.name] = json.loads(file.read_text())["matrices"]
    return found


def test_means_paired_differences_and_files(ancl: Any) -> None:
    asked = ("compare", "lwf", "a-lwf", "finetune", "--on", "digits/5", *SHORT, "--seeds", "0-2")
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

    assert [each["baseline"] for each in found["methods"].values()] == [None, "lwf", "lwf"]
    assert list(aac) == ["lwf", "a-lwf", "finetune"]
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


def test_values_of_one_method_and_rows_minus_any_baseline_in_all_outputs(ancl: Any) -> None:
    Path("own.py").write_text(OWN)
    rows = ("lwf@lamb=3", "own.py:l1@lamb=0.03", "lwf@lamb=10")
    asked = ("compare", *rows, "--on", "digits/5", *SHORT, "--seeds", "0,1", "--quiet")
    found, text = ancl(*asked, "--json").json, ancl(*asked).out
    other = ancl(*asked, "--baseline", "own.py:l1").out
    (stored,) = Path("runs/comparisons").glob("*.json")
    ancl("report", str(stored), "-o", "paper", "--baseline", "lwf@lamb=3")
    ancl("report", str(stored), "-o", "own")

    aac = {name: each["metrics"]["aac"]["mean"] for name, each in found["methods"].items()}
    gap = aac[rows[1]] - aac[rows[0]]
    assert found["methods"][rows[1]]["minus_baseline"]["aac"]["mean"] == pytest.approx(gap)
    assert "AAC minus lwf@lamb=3, points" in text
    assert "λ 10 instead of 3" in text
    assert "AAC minus own.py:l1@lamb=0.03, points" in other
    for directory, name in (("paper", "LwF (λ=3)"), ("own", "l1")):
        tables = Path(directory) / "tables"
        ours = "l1" if directory == "paper" else "LwF (λ=3)"
        pair = f"{ours} − {name}"
        sign = gap if directory == "paper" else -gap
        assert f"| {pair} |" in (tables / "difference_til.md").read_text()
        lines = (tables / "difference_til.csv").read_text().splitlines()
        row = next(row for row in csv.reader(lines) if row[0] == pair)
        assert float(row[2]) == pytest.approx(100 * sign)
        latex = (tables / "difference_til.tex").read_text()
        shown = f"{round(100 * sign, 2) + 0.0:+.2f}".replace("-", "$-$").replace("+", "$+$")
        tex_name = pair.replace("λ", r"$\lambda$").replace("−", "$-$")
        assert f"{tex_name} &" in latex
        assert f"& {shown} $\\pm$" in latex
        assert f'"baselines":{{"digits, 2 tasks, til":"{name}"}}' in (
            Path(directory) / "report.html"
        ).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("named", "said"),
    [("mas", "There is no reported method 'mas'."), ("lwf@lamb=7", "There is no reported method")],
)
def test_a_report_refuses_a_baseline_that_is_not_there(
    ancl: Any, finished: Path, named: str, said: str
) -> None:
    ended = ancl("report", "--runs", str(finished), "--baseline", named, "-o", "x")

    assert (ended.code, said in ended.err, Path("x").exists()) == (2, True, False)


def test_an_unequal_search_is_told_in_the_table(ancl: Any) -> None:
    grid = ("--lamb-grid", "1,3,10")
    ancl("search", "lwf", "digits/5", *SHORT, *grid, "--quiet")
    (decision,) = Path("runs/searches").glob("*/decision.json")
    chosen = json.loads(decision.read_text())["lamb"]
    asked = ("compare", f"lwf@lamb={chosen}", "ewc", "--on", "digits/5", *SHORT, "--quiet")
    found = ancl(*asked, "--json").json["methods"]["ewc"]

    assert found["differs_also"] == ["0 values of λ and λ_a searched instead of 3"]
    assert "0 values of λ and λ_a searched instead of 3" in ancl(*asked).out


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
