"""A whole study on digits: searches, rows, resuming from results alone, and its numbers."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ancl import AnclError, Events, SpecError, spec, study
from tests.lab import (
    MethodFollower,
    MethodResult,
    Study,
    StudyPlan,
    StudyRun,
    StudyRuns,
    around,
    best_value,
    beyond,
    equal_epochs,
    read_study_plan,
    t_interval,
    write_study,
)

FILE = """
search_seeds: [10]
table_seeds: [20, 21]
reference_seeds: [20]
benchmarks:
  digits/5:
    settings: &short
      data.tasks: 2
      data.per_class: 10
      training.epochs: 1
      training.schedule: cosine
    methods:
      lwf: {lamb: [1, 3, 10], lamb_a: [0.1, 1, 10], afec: [1, 10]}
    references: {finetune: {}}
  hard-digits/5:
    settings:
      <<: *short
      data.scenario: cil
      memory.per_class: 2
      network.width: 4
    methods:
      icarl: {lamb: [0.5, 1, 2], lamb_a: [0.1, 1, 10], settings: {mirrored: false}}
"""


class Watch(Events):
    """Notes the runs that end, and stops after some of them as Ctrl-C does."""

    def __init__(self, most: int = 1000) -> None:
        self.specs: list[dict[str, Any]] = []
        self._most = most

    def run_ends(self, directory: Path, result: Mapping[str, Any]) -> None:
        self.specs.append(dict(result["spec"]))
        if len(self.specs) == self._most:
            raise KeyboardInterrupt


def names(specs: Iterable[Mapping[str, Any]]) -> set[str]:
    return {json.dumps(each, sort_keys=True) for each in specs}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    place = tmp_path / "study" / "digits.yaml"
    place.parent.mkdir()
    place.write_text(FILE)
    return place


def test_a_stopped_study_goes_on_from_its_results_alone(file: Path, tmp_path: Path) -> None:
    first, second, third = Watch(most=9), Watch(), Watch()
    with pytest.raises(KeyboardInterrupt):
        study(file, runs=tmp_path / "one", events=first)
    kept = {path: path.read_bytes() for path in (file.parent / "results").iterdir()}
    result = study(file, runs=tmp_path / "two", events=second)
    again = study(file, runs=tmp_path / "three", events=third)

    assert len(kept) == len(first.specs) == 9
    assert all(path.read_bytes() == content for path, content in kept.items())
    assert not names(first.specs) & names(second.specs)
    assert third.specs == []
    assert (result.left, again.left) == (0, 0)
    done = [json.loads(path.read_text()) for path in (file.parent / "results").iterdir()]
    assert len(done) == len(first.specs) + len(second.specs)
    assert {(each["spec"]["threads"], each["spec"]["device"]) for each in done} == {(1, "cpu")}

    lwf, icarl = result.methods
    assert (lwf.method, icarl.method) == ("lwf", "icarl")
    assert set(lwf.rows) == {"cl", "equal_search", "equal_compute", "afec", "ancl"}
    assert set(icarl.rows) == {"cl", "equal_search", "equal_compute", "ancl"}
    for each in result.methods:
        assert all([run.spec.seed for run in row] == [20, 21] for row in each.rows.values())
        assert {run.spec.seed for tried in each.trials["lamb"].values() for run in tried} == {10}
        for step, row in (("lamb", "cl"), ("lamb_a", "ancl")):
            means = {v: np.mean([r.score for r in runs]) for v, runs in each.trials[step].items()}
            assert means[each.chosen[step]] == max(means.values())
            assert {run.spec.options[step] for run in each.rows[row]} == {each.chosen[step]}
        assert len(each.trials["more"]) == 4
        [stretched, plain] = (each.rows[row][0].spec for row in ("equal_compute", "cl"))
        assert (stretched.training.epochs, stretched.training.epochs_first) == (2, 1)
        assert stretched.options == plain.options
    assert [run.spec.method for run in result.references["digits/5", "finetune"]] == ["finetune"]
    gaps = np.mean([list(each.gaps("ancl", "equal_search").values()) for each in result.methods], 0)
    image = max(each.rows["ancl"][0].test_image for each in result.methods)
    assert result.primary() == t_interval(gaps.tolist(), image)


def test_only_what_a_changed_file_asks_for_is_computed(file: Path, tmp_path: Path) -> None:
    one, other = Watch(), Watch()
    text = FILE.split("  hard-digits/5")[0]
    file.write_text(text)
    study(file, runs=tmp_path / "runs", events=one)
    file.write_text(text.replace("finetune: {}", "finetune: {training.epochs: 2}, freeze: {}"))
    result = study(file, runs=tmp_path / "runs", events=other)

    assert len(one.specs) > 20
    assert [(each["method"], each["training"]["epochs"]) for each in other.specs] == [
        ("finetune", 2),
        ("freeze", 1),
    ]
    assert result.references.keys() == {("digits/5", "finetune"), ("digits/5", "freeze")}

    (file.parent / "results" / "lost").mkdir()
    written = write_study(result, tmp_path / "out")
    assert [path.name for path in written][:2] == ["tables.md", "expected.csv"]
    tables = written[0].read_text()
    [lwf] = result.methods
    assert f"| lwf | CL | {lwf.chosen['lamb']:g} |" in tables
    assert "mean of 1 of 1 methods" in tables
    mean = 100 * np.mean([run.value for run in lwf.rows["ancl"]])
    assert f"a-lwf,{lwf.chosen['lamb']},{lwf.chosen['lamb_a']},aac,{mean:.2f}" in (
        written[1].read_text()
    )
    assert [path.name for path in written][2:] == ["tables.tex", "frontier_digits-5_lwf.png"]


ROWS_ALONE = """
search_seeds: [10]
table_seeds: [20]
reference_seeds: [20, 21]
benchmarks:
  digits/5:
    settings: &short
      {data.tasks: 2, data.per_class: 10, data.scenario: cil, memory.per_class: 2,
       network.name: resnet8, network.width: 4, training.epochs: 1, training.schedule: cosine}
    references:
      joint: {}
      icarl: {lamb: 1}
      two-branches: {method: aanets-icarl, lamb: 1, alpha_lr: 0}
"""


def test_rows_alone_show_what_they_store_and_how_long_they_take(file: Path, tmp_path: Path) -> None:
    file.write_text(ROWS_ALONE)
    result = study(file, runs=tmp_path / "runs")
    tables, expected, _ = (path.read_text() for path in write_study(result, tmp_path / "out"))

    assert (result.methods, result.left) == ((), 0)
    rows = {name: runs for (_, name), runs in result.references.items()}
    assert list(rows) == ["joint", "icarl", "two-branches"]
    assert [run.spec.seed for run in rows["two-branches"]] == [20, 21]
    sizes = {name: {run.parameters[-1].stored for run in runs} for name, runs in rows.items()}
    [plain], [two] = sizes["icarl"], sizes["two-branches"]
    # A second branch, a factor for each of the 676 kernels, and three weights α.
    branch = plain - 17 * 10  # the rest is the head's: 10 classes of 16 features and a bias
    assert two - plain == branch + 676 + 3
    head = "| Final accuracy, % | Learning accuracy, % | Forgetting, points | parameters stored |"
    assert head in tables
    lines = [line.split(" | ") for line in tables.splitlines() if line.startswith("| ")]
    stored = {cells[0][2:]: cells[-3:-1] for cells in lines[1:4]}
    # Two images of each of the ten classes, and all ten of each.
    assert stored == {
        "joint": [f"{plain:,}", "100"],
        "icarl": [f"{plain:,}", "20"],
        "two-branches": [f"{two:,}", "20"],
    }
    mean = np.mean([run.seconds for run in rows["joint"]])
    assert lines[1][-1].startswith(f"{mean:.0f} ± ")
    assert [line.split(",")[1] for line in expected.splitlines()] == ["method", "joint", "icarl"]


def test_results_without_counts_have_no_costs_beside_them(file: Path, tmp_path: Path) -> None:
    file.write_text(ROWS_ALONE)
    study(file, runs=tmp_path / "runs")
    for place in (file.parent / "results").iterdir():
        stored = json.loads(place.read_text())
        del stored["parameters"]
        place.write_text(json.dumps(stored))
    tables = write_study(Study(file).result(), tmp_path / "out")[0].read_text()

    assert "| Forgetting, points |\n" in tables
    assert "| icarl | reference | 1 |" in tables


# -- the rules, on made-up runs --------------------------------------------------------------


def plan(**changes: Any) -> StudyPlan:
    methods = {"lwf": {"lamb": [1, 2, 4, 8], "lamb_a": [1, 2, 4, 8], **changes}}
    entry = {"settings": {"training.schedule": "cosine"}, "methods": methods}
    seeds = {"search_seeds": [0, 1], "table_seeds": [2, 3], "reference_seeds": [2]}
    return StudyPlan.model_validate({**seeds, "benchmarks": {"digits/5": entry}})


def followed(asked: StudyPlan, lamb: float, lamb_a: float) -> MethodResult:
    """A study all of whose runs are done; the nearer to these values, the better they are."""

    def get(wanted: Any) -> StudyRun:
        aims = {"lamb": lamb, "lamb_a": lamb_a}
        far = sum(abs(np.log(wanted.options[k] / aims[k])) for k in aims if k in wanted.options)
        images = ((100, 10, 10),) * 5
        metrics = {"aac": 0.1, "forgetting": far, "learning_accuracy": 0.5 + far}
        return StudyRun(wanted, -far, metrics, images)

    entry = asked.benchmarks["digits/5"]
    return MethodFollower(asked, entry, "digits/5", "lwf", StudyRuns(get)).follow()


def test_an_edge_is_extended_once_by_the_factor_of_the_grid() -> None:
    inner, outer = followed(plan(), 2.0, 4.0), followed(plan(afec=[1, 2]), 0.01, 100.0)

    assert list(inner.trials["lamb"]) == [1, 2, 4, 8]
    assert (inner.chosen["lamb"], inner.chosen["lamb_a"]) == (2, 4)
    assert list(outer.trials["lamb"]) == [0.5, 1, 2, 4, 8]
    assert list(outer.trials["lamb_a"]) == [1, 2, 4, 8, 16]
    assert list(outer.trials["afec"]) == [1, 2]
    assert (outer.chosen["lamb"], outer.chosen["lamb_a"], outer.chosen["afec"]) == (0.5, 16, 2)
    assert outer.chosen["equal_search"] == min(outer.trials["more"]) == 0.315


def test_equal_search_tries_four_more_values_around_the_best() -> None:
    found = followed(plan(), 2.6, 4.0)

    assert list(found.trials["more"]) == [1.26, 1.59, 2.52, 3.17]
    assert (found.chosen["lamb"], found.chosen["equal_search"]) == (2, 2.52)
    assert {run.spec.options["lamb"] for run in found.rows["equal_search"]} == {2.52}
    assert {run.spec.options["lamb"] for run in found.rows["ancl"]} == {2}
    assert around([1, 10, 100], 1) == [0.215, 0.464, 2.15, 4.64]
    assert (beyond([1, 10, 100], 100), beyond([1, 10, 100], 1)) == (1000, 0.1)


def test_what_failed_never_wins() -> None:
    failed = float("nan")

    assert best_value({1.0: [0.9, failed], 2.0: [0.1, 0.1]}) == 2.0
    assert best_value({1.0: [failed]}) is None
    assert best_value({1.0: [0.1, 0.3], 2.0: [0.2, 0.2]}) == 1.0  # the smallest of equals


def test_the_frontier_is_that_of_every_trial_of_a_seed() -> None:
    found = followed(plan(), 2.0, 4.0)

    assert {seed: len(points) for seed, points in found.frontier("lamb", "more").items()} == {
        0: 8,
        1: 8,
    }
    # Both lie on learning accuracy = 0.5 + forgetting.
    assert found.frontier_gaps() == {0: 0.0, 1: 0.0}


@pytest.mark.parametrize(
    ("method", "settings", "images", "epochs"),
    [
        # Twice the passes: the auxiliary network sees what the main one does.
        ("a-lwf", {}, ((100, 0, 10),) * 5, 20),
        ("a-lwf", {"auxiliary.epochs": 5}, ((100, 0, 10),) * 5, 15),
        # Main: 100 + 5 · 4 and 100 + 5 · 6; auxiliary: 100 each. 10 · (1 + 200 / 250).
        (
            "a-icarl",
            {"data.scenario": "cil", "data.tasks": 3, "data.first": 4, "memory.per_class": 5},
            ((200, 0, 10), (100, 0, 10), (100, 0, 10)),
            18,
        ),
        # BiC holds 2 of 20 out: main 60 + 72 and 60 + 108, auxiliary 60 each. 10 · (1 + 120 / 300).
        (
            "a-bic",
            {"data.scenario": "cil", "data.tasks": 3, "data.first": 4, "memory.per_class": 20},
            ((200, 0, 10), (66, 0, 10), (66, 0, 10)),
            14,
        ),
    ],
)
def test_equal_computation_counts_backward_passes(
    method: str, settings: dict[str, Any], images: Any, epochs: int
) -> None:
    given = {"training.schedule": "cosine", "training.epochs": 10, **settings}

    assert equal_epochs(spec(method, "digits/5", settings=given), images) == epochs


def test_a_schedule_that_cannot_be_stretched_is_refused_before_training(file: Path) -> None:
    file.write_text(FILE.replace("      training.schedule: cosine\n", ""))

    with pytest.raises(SpecError, match=r"training.schedule=cosine or constant, .* not patience"):
        Study(file)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1, 3, 10]", "[3, 1, 10]", "benchmarks.digits/5.methods.lwf.lamb: .*must ascend"),
        ("[1, 3, 10]", "[1, 3]", "benchmarks.digits/5.methods.lwf.lamb: must have 3 or more"),
        ("[1, 3, 10]", "[1.0e-320, 1, 1.0e+308]", r"lwf.lamb: must be between 1e-30 and 1e30\."),
        ("[1, 3, 10]", "[1, 3, .inf]", "lwf.lamb: must be between 1e-30 and 1e30"),
        ("[20, 21]", "[-1]", r"^\S+: table_seeds.0: must be greater than or equal to 0\.$"),
        ("data.tasks: 2", "data.val_fraction: 0", "data.val_fraction is 0"),
        (FILE, "benchmarks", "the file: must be names with values, such as 'table_seeds:"),
        (FILE, "a: b: c", r"yaml:1: this is not YAML: mapping values are not allowed here\. "),
        ("[20, 21]", "[10, 21]", "the seeds 10 decide and are reported"),
        (
            "afec:",
            "afce:",
            "methods.lwf 'afce'. Did you mean 'afec'?",
        ),
        ("lwf:", "lfw:", "no method 'lfw'"),
        ("data.tasks: 2", "data.taks: 2", "no setting 'taks'"),
        ("benchmarks:", "benchmarks: [", "this is not YAML"),
    ],
)
def test_mistakes_are_named(file: Path, old: str, new: str, message: str) -> None:
    file.write_text(FILE.replace(old, new))

    with pytest.raises(Exception, match=message) as caught:
        Study(file)
    assert issubclass(caught.type, AnclError)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no\.yaml cannot be read"):
        read_study_plan(tmp_path / "no.yaml")
