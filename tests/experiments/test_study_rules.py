"""A study of rules: what decides, which rows follow, what it lacks, and that it is resumed."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ancl
from ancl import Events, RunSpec, SpecError
from tests.lab import NUMERICS, ResultFolder, Study, kind_of, write_study

GRIDS = """
search_seeds: [10]
table_seeds: [20, 21]
reference_seeds: [20]
benchmarks:
  digits/5:
    settings:
      data.tasks: 2
      data.per_class: 10
      training.epochs: 2
      training.schedule: cosine
    methods:
      lwf: {lamb: [1, 3, 10], lamb_a: [0.1, 1, 10]}
      ewc: {lamb: [10, 100, 1000], lamb_a: [1, 10, 100]}
"""
RULES = """
of: ../grids/study.yaml
search_seeds: [10, 11]
table_seeds: [20, 21]
rules:
  deciding: [lwf]
  lamb_a: ["balance:0.1", "balance:0.3"]
  lamb: {answers: ["auto:0.2", "auto:0.4", "auto:0.8"], weights: [auto]}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A study of grids and one of rules, in folders of their own."""
    found = []
    for name, text in (("grids", GRIDS), ("rules", RULES)):
        place = tmp_path / name / "study.yaml"
        place.parent.mkdir()
        place.write_text(text)
        found.append(place)
    return found[0], found[1]


def write(folder: ResultFolder, spec: RunSpec, score: float) -> None:
    """A finished run: its accuracy on every task, and a test accuracy one point below it."""
    matrices = {
        f"{kind}{split}": [[score - less, None], [score - less] * 2]
        for kind in ("taw", "tag")
        for split, less in (("", 0.01), ("_val", 0.0))
    }
    folder.save(
        {
            "spec": spec.plain(),
            "metrics": {"aac": score - 0.01, "forgetting": 0.0, "learning_accuracy": score - 0.01},
            "images": [[100, 10, 10]] * 2,
            "matrices": matrices,
            "numerics": {"ancl": NUMERICS},
            "parameters": [],
            "seconds": {"main": 1.0},
            "outside": {},
        }
    )


def fill(study: Study, scores: Mapping[Any, float], default: float = 0.5) -> None:
    """Finish all that can be run, again and again; scores go by λ or λ_a."""
    while todo := missing(study):
        for spec in todo:
            options = spec.options
            found = [scores[v] for k in ("lamb_a", "lamb") if (v := options.get(k)) in scores]
            write(study.folder, spec, (found or [default])[0] + 0.001 * spec.seed)


def missing(study: Study) -> list[RunSpec]:
    return [spec for batch in study.result().todo.values() for spec in batch]


def tried(specs: Sequence[RunSpec]) -> set[tuple[str, Any, Any, int]]:
    return {(s.method, s.options["lamb"], s.options.get("lamb_a"), s.seed) for s in specs}


def test_rules_decide_then_the_rows_follow(files: tuple[Path, Path]) -> None:
    fill(Study(files[0]), {3.0: 0.6, 100.0: 0.6})
    study = Study(files[1])
    result = study.result()

    # First what decides: λ_a's rules at the grid's λ (3 was best), and λ's rules alone.
    rules = ("balance:0.1", "balance:0.3")
    kappas = ("auto:0.2", "auto:0.4", "auto:0.8")
    expected = {("a-lwf", 3.0, rule, seed) for rule in rules for seed in (10, 11)}
    expected |= {("lwf", rule, None, seed) for rule in kappas for seed in (10, 11)}
    assert tried(missing(study)) == expected
    assert result.rules == {"weights": "auto"}
    assert result.missing == ()

    fill(study, {"balance:0.3": 0.8, "auto:0.4": 0.75, "auto:0.8": 0.7})
    result = study.result()

    assert result.rules == {"lamb_a": "balance:0.3", "answers": "auto:0.4", "weights": "auto"}
    lwf, ewc = result.methods
    assert set(lwf.rows) == set(ewc.rows) == {"cl", "ancl", "balance", "both"}
    options = [lwf.rows[row][0].spec.options for row in ("balance", "both")]
    assert [(o["lamb"], o["lamb_a"]) for o in options] == [
        (3.0, "balance:0.3"),
        ("auto:0.4", "balance:0.3"),
    ]
    assert ewc.rows["both"][0].spec.options["lamb"] == "auto"
    assert [run.spec.seed for run in lwf.rows["both"]] == [20, 21]
    assert lwf.gaps("both", "cl") == {20: pytest.approx(0.2), 21: pytest.approx(0.2)}
    assert result.left == 0


def test_epochs_are_those_of_finding_the_values_and_of_one_run(files: tuple[Path, Path]) -> None:
    fill(Study(files[0]), {3.0: 0.6, 1.0: 0.7})
    study = Study(files[1])
    fill(study, {})
    [lwf, _] = study.result().methods

    # Two tasks of 2 epochs: 4 a plain run, 6 with an auxiliary network. λ: 3 values and one beyond
    # the edge where it won; λ_a: 3 values; one search seed.
    lambs, lamb_as = (len(lwf.trials[kind]) for kind in ("lamb", "lamb_a"))
    assert lwf.epochs == {
        "cl": 4 * lambs + 4,
        "ancl": 4 * lambs + 6 * lamb_as + 6,
        "balance": 4 * lambs + 6,
        "both": 6,
    }


def test_what_the_grids_lack_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    result = Study(files[1]).result()

    assert result.todo == {}
    assert len(result.missing) == 2
    assert result.missing[0] == (
        f"lwf on digits/5: λ and λ_a of its grid are not chosen yet. Finish its searches: "
        f"ancl study {files[0]}"
    )
    [tables] = [p for p in write_study(result, tmp_path / "out") if p.name == "tables.md"]
    assert result.missing[0] in tables.read_text()


def test_tables_and_figures_are_drawn_from_results_alone(
    files: tuple[Path, Path], tmp_path: Path
) -> None:
    fill(Study(files[0]), {3.0: 0.6, 1.0: 0.7})
    fill(Study(files[1]), {"balance:0.3": 0.8, "auto:0.4": 0.75})

    result = ancl.study(files[1], compute=False)
    written = write_study(result, tmp_path / "out")
    text = written[0].read_text()

    assert "| lwf | ANCL, rules for λ and λ_a | auto:0.4 | balance:0.3 | AAC |" in text
    assert "| mean | λ_a | balance:0.1: 51.05, **balance:0.3**: 81.05 |" in text
    names = {"answers_digits-5_lwf.png", "lamb_a_digits-5_lwf.png"}
    assert {path.name for path in written[1:]} in (names, set())  # none without matplotlib


class Watch(Events):
    def __init__(self, most: int = 1000) -> None:
        self.ended, self.most = 0, most

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        self.ended += 1
        if self.ended == self.most:
            raise KeyboardInterrupt


def test_it_is_carried_out_and_resumed(files: tuple[Path, Path], tmp_path: Path) -> None:
    files[0].write_text(
        GRIDS.replace("      ewc: {lamb: [10, 100, 1000], lamb_a: [1, 10, 100]}\n", "")
    )
    fill(Study(files[0]), {3.0: 0.6, 1.0: 0.7})
    short = RULES.replace("[20, 21]", "[20]").replace("[10, 11]", "[10]")
    files[1].write_text(short)
    with pytest.raises(KeyboardInterrupt):
        ancl.study(files[1], runs=tmp_path / "runs", events=Watch(most=3))
    kept = {path: path.read_bytes() for path in (files[1].parent / "results").iterdir()}

    watch = Watch()
    result = ancl.study(files[1], runs=tmp_path / "again", events=watch)

    assert len(kept) == 3
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert watch.ended == 2 + 3 - 3 + 2  # rules for λ_a and for λ, without those kept; two rows
    assert result.left == 0
    scores = {
        kind: {rule: np.mean([run.score for run in runs]) for rule, runs in each.items()}
        for kind, each in result.methods[0].tries.items()
    }
    for kind, each in scores.items():
        assert result.rules[kind] == max(each, key=lambda rule: each[rule])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("[lwf]", "[lwff]"), "deciding names lwff, and ../grids/study.yaml has no such method"),
        ((", weights: [auto]", ""), "lamb has no rule for methods with Ω on weights"),
        (("weights: [auto]", 'weights: [auto, "auto:2"]'), "no deciding method has such an Ω"),
        (('"auto:0.8"', '"auto:-1"'), "must be auto or auto:κ with κ > 0"),
        (('"balance:0.1"', '"balance:x"'), "must be balance or balance:ρ with ρ ≥ 0"),
        (("[10, 11]", "[10, 20]"), "the seeds 20 decide and are reported"),
        (("deciding", "decide"), "There is no part of rules 'decide'. Did you mean 'deciding'?"),
        (("../grids/study.yaml", "study.yaml"), "of is study.yaml, a study of rules. Name one of"),
        (("../grids/study.yaml", "no.yaml"), "no.yaml cannot be read (No such file"),
        (("../grids/study.yaml", "/dev/zero"), "/dev/zero cannot be read (it is not a plain file"),
        (("../grids/study.yaml", '"\\0"'), "cannot be read (no file has such a name)"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    files: tuple[Path, Path], change: tuple[str, str], message: str
) -> None:
    files[1].write_text(RULES.replace(*change))
    with pytest.raises(SpecError, match=re.escape(message)):
        Study(files[1])


def test_rules_are_of_answers_or_of_weights() -> None:
    assert [kind_of(name) for name in ("lwf", "ewc", "si", "podnet")] == [
        "answers",
        "weights",
        "weights",
        "answers",
    ]


def test_one_file_may_have_grids_and_rules(files: tuple[Path, Path], tmp_path: Path) -> None:
    """What two files say of each other, one says of itself; and the rows are the same."""
    fill(Study(files[0]), {3.0: 0.6, 100.0: 0.6})
    fill(Study(files[1]), {"balance:0.3": 0.8, "auto:0.4": 0.75})
    rules = RULES[RULES.index("rules:") :]
    both = tmp_path / "both" / "study.yaml"
    both.parent.mkdir()
    both.write_text(GRIDS + rules)
    fill(Study(both), {3.0: 0.6, 100.0: 0.6, "balance:0.3": 0.8, "auto:0.4": 0.75})

    one, two = Study(both).result(), Study(files[1]).result()

    assert one.rules == two.rules
    for ours, theirs in zip(one.methods, two.methods, strict=True):
        assert ours.epochs == theirs.epochs
        for row, runs in theirs.rows.items():
            assert [(r.spec, r.value) for r in ours.rows[row]] == [(r.spec, r.value) for r in runs]
    text = write_study(one, tmp_path / "out")[0].read_text()
    assert "ANCL against CL on equal terms" in text
    assert "Rules against grids" in text
