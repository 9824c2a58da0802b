import json
from pathlib import Path
from typing import Any

FILE = """
search_seeds: [10]
table_seeds: [20]
reference_seeds: [20]
benchmarks:
  digits/5:
    settings:
      {data.tasks: 2, data.per_class: 10, training.epochs: 1, training.schedule: cosine}
    methods:
      lwf: {lamb: [1, 3, 10], lamb_a: [0.1, 1, 10]}
    references: {joint: {}}
"""


def test_a_study_shows_its_plan_runs_and_draws_from_results_alone(ancl: Any) -> None:
    Path("a.yaml").write_text(FILE)
    plan = ancl("study", "a.yaml", "--dry-run")
    before = ancl("study", "a.yaml", "--tables")
    counts = ancl("study", "a.yaml", "--dry-run", "--json").json["runs"]
    ran = ancl("study", "a.yaml", "--json", "--quiet", "--results", "kept")
    Path("runs").rename("elsewhere")
    drawn = ancl("study", "a.yaml", "--tables", "--results", "kept", "--output", "out")
    again = ancl("study", "a.yaml", "--dry-run", "--json", "--results", "kept").json

    # 3 + 4 values of λ, 3 of λ_a, and 4 rows of one seed.
    assert counts == {"digits/5 references": [1, 1], "digits/5 lwf": [14, 14]}
    assert "all                    15     15" in plan.out
    assert "with 1 worker: an estimate, from a few timed steps" in plan.out
    assert "4 runs left to do." in before.out
    assert "No row of the table is complete yet." not in ran.out
    found = ran.json
    assert found["left"] == 0
    [lwf] = found["methods"]
    assert set(lwf["rows"]) == {"cl", "equal_search", "equal_compute", "ancl"}
    gap = lwf["rows"]["ancl"][0] - lwf["rows"]["equal_search"][0]
    assert found["primary"]["mean"] == gap
    assert Path("out/tables.md").read_text() == Path("tables.md").read_text()
    assert "out/tables.md" in drawn.out
    assert not Path("runs").exists()
    assert [todo for _, todo in again["runs"].values()] == [0, 0]
    assert again["seconds"] == 0


def test_a_mistake_in_the_file_ends_with_a_message(ancl: Any) -> None:
    Path("a.yaml").write_text(FILE.replace("lamb_a:", "lamba:"))
    ended = ancl("study", "a.yaml", "--json")

    assert ended.code == 2
    assert (
        "a.yaml:10: benchmarks.digits/5.methods.lwf.lamb_a is missing. Write lamb_a: [0"
        in json.loads(ended.out)["error"]
    )


def test_flags_that_do_not_fit_change_nothing(ancl: Any) -> None:
    Path("a.yaml").write_text(FILE)
    both = ancl("study", "a.yaml", "--tables", "--dry-run")
    file = ancl("study", "a.yaml", "--results", "a.yaml")

    assert (both.code, file.code) == (2, 2)
    assert both.err == "--tables trains nothing, and --dry-run draws nothing. Leave out one.\n"
    assert file.err == "a.yaml is not a folder. Give one for results: --results DIR.\n"
    assert [path.name for path in Path().iterdir()] == ["a.yaml"]
