"""Files of somebody else in the way of results: refused before training, replaced on demand."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ancl import Store

SHORT = ("--epochs", "1", "--tasks", "2", "--threads", "1", "--quiet")
SMALL = ("--set", "data.per_class=10", "--set", "network.name=mlp")
STUDY = """\
search_seeds: [0]
table_seeds: [1]
reference_seeds: [2]
benchmarks:
  digits/5:
    settings: {data.tasks: 2, training.schedule: cosine, training.epochs: 1}
    methods:
      lwf: {lamb: [1, 3, 10], lamb_a: [1, 3, 10]}
"""
COMMANDS: dict[str, tuple[tuple[str, ...], str]] = {
    "run": (("run", "lwf", "digits/5", *SHORT, *SMALL), "runs/digits*/stages.json"),
    "compare": (
        ("compare", "finetune", "lwf", "--on", "digits/5", *SHORT, *SMALL),
        "runs/comparisons/*.json",
    ),
    "search": (
        ("search", "lwf", "digits/5", "--lamb-grid", "1,10", *SHORT, *SMALL),
        "runs/searches/*/stages.json",
    ),
    "analyze": (
        ("analyze", "ewc", "digits/5", "--lamb-a", "1", "--grid", "0", *SHORT, *SMALL),
        "runs/analyses/*/stages.json",
    ),
    "study": (("study", "s/study.yaml", "--tables"), "s/tables.md"),
}


def trained() -> set[str]:
    return {info.key for info in Store("runs/.store").entries()}


@pytest.mark.parametrize(("words", "pattern"), COMMANDS.values(), ids=COMMANDS)
def test_a_file_in_the_way_is_refused_before_training_and_replaced_where_allowed(
    ancl: Any, words: tuple[str, ...], pattern: str
) -> None:
    Path("s").mkdir()
    Path("s/study.yaml").write_text(STUDY)
    assert ancl(*words).code == 0
    file = sorted(Path().glob(pattern))[0]
    ours = file.read_text()
    file.write_text("my own work")
    if file.parts[0] == "runs":  # nothing else is left of it
        shutil.rmtree("runs")
        file.parent.mkdir(parents=True)
        file.write_text("my own work")
    (file.parent / "beside.txt").write_text("mine")

    refused = ancl(*words)

    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert file.read_text() == "my own work"
    assert trained() == set()

    allowed = ancl(*words, "--overwrite")

    assert allowed.code == 0, allowed.err
    if file.suffix == ".md" or file.name == "stages.json":
        assert file.read_text() == ours
    else:
        assert "written by ancl" in file.read_text()  # with other seconds in it
    assert (file.parent / "beside.txt").read_text() == "mine"
    assert ancl(*words).code == 0  # it is ours again
