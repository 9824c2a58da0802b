"""A study of one's own method: written by --new, edited, run, resumed and tabulated."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_compare import OWN

NEW = ("study", "--new", "study.yaml", "lwf", "a-lwf", "own.py:l1", "--on", "digits/5")


def test_a_new_study_is_edited_in_two_lines_run_resumed_and_tabulated(ancl: Any) -> None:
    Path("own.py").write_text(OWN)
    written = ancl(*NEW)
    text = Path("study.yaml").read_text()
    edited = text.replace("training.epochs: 30", "{data.tasks: 2, training.epochs: 1}")
    Path("study.yaml").write_text(edited.replace("table_seeds: [20, 21, 22]", "table_seeds: [20]"))
    ran = ancl("study", "study.yaml", "--quiet")
    again = ancl("study", "study.yaml", "--dry-run", "--json").json
    drawn = ancl("study", "study.yaml", "--tables", "--output", "out")

    assert written.out == "Wrote study.yaml. Edit it, then: ancl study study.yaml --dry-run\n"
    assert "lamb: {row: lwf}" in text
    assert ran.code == 0
    assert again["runs"] == {"digits/5 references": [21, 0]}  # 2 · (3 + 3 + 3) + 3
    for name in ("a-lwf − lwf", "own.py:l1 − lwf"):
        assert name in ran.out
        assert name in drawn.out
        assert f"| {name} |" in Path("out/tables.md").read_text()
    assert "6 values of λ and λ_a searched instead of 3" in ran.out
    assert "own.py:l1 $-$ lwf &" in Path("out/tables.tex").read_text()


def test_a_new_study_replaces_no_file_and_needs_methods(ancl: Any) -> None:
    Path("study.yaml").write_text("mine\n")
    there, none = ancl(*NEW), ancl("study", "--new", "x.yaml")
    unknown = ancl("study", "--new", "x.yaml", "lwff", "--on", "digits/5")
    wrong = ancl("study", "study.yaml", "lwf")

    assert [each.code for each in (there, none, unknown, wrong)] == [2, 2, 2, 2]
    assert "study.yaml is there. Give another name, or --overwrite" in there.err
    assert "--new needs methods: ancl study --new study.yaml lwf" in none.err
    assert "Did you mean 'lwf'?" in unknown.err
    assert "METHOD and --on are for --new" in wrong.err
    assert Path("study.yaml").read_text() == "mine\n"
    assert not Path("x.yaml").exists()


FILE = """\
search_seeds: [10]
table_seeds: [20]
benchmarks:
  digits/5:
    settings:
      training.epochs: 1
    baseline: ewc
    references:
      ewc: {lamb: {grid: [1, 10]}}
      mine:
        method: lwf
        lamb: {row: ewc}
"""


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("search_seeds", "seach_seeds", "1: There is no part of a study 'seach_seeds'. Did you"),
        ("[20]", "[20, x]", "2: table_seeds.1: must be a valid integer."),
        ("[20]", "[10]", "2: the seeds 10 decide and are reported."),
        ("digits/5:", "digits/6:", "4: There is no benchmark 'digits/6'. Did you mean 'digits/5'?"),
        ("epochs: 1", "epoch: 1", "6: training has no setting 'epoch'. Did you mean 'epochs'?"),
        ("epochs: 1", "epochs: few", "6: training.epochs is 'few'; it must be a valid integer"),
        ("baseline: ewc", "baseline: mas", "7: There is no row of references 'mas'. Possible: ewc"),
        ("[1, 10]", "[1]", "9: benchmarks.digits/5.references.ewc.lamb.grid.grid: must have 2"),
        ("[1, 10]", "[1, -3]", "9: lamb is -3"),
        ("method: lwf", "method: lwff", "10: There is no method 'lwff'. Did you mean 'lwf'?"),
        (
            "lamb: {row",
            "lam: {row",
            "12: lam is that of the row ewc, which does not have it. It has:",
        ),
        ("row: ewc", "row: mas", "12: lamb is that of the row mas, and no row above it has this"),
        ("lamb: {row: ewc}", "tempreture: 3", "12: lwf has no setting 'tempreture'. Did you mean"),
    ],
)
def test_a_mistake_is_told_with_its_line_and_what_is_possible(
    ancl: Any, old: str, new: str, said: str
) -> None:
    assert old in FILE
    Path("a.yaml").write_text(FILE.replace(old, new, 1))

    ended = ancl("study", "a.yaml", "--dry-run")

    assert ended.code == 2
    assert f"a.yaml:{said}" in ended.err


def test_all_mistakes_are_told_together(ancl: Any) -> None:
    Path("a.yaml").write_text(FILE.replace("epochs: 1", "epoch: 1").replace("row: ewc", "row: mas"))

    lines = ancl("study", "a.yaml", "--dry-run").err.splitlines()

    assert [line.split(":")[1] for line in lines] == ["12", "6"]
