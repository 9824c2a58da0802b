"""The studies of docs/studies.md run as written, with fewer seeds, images and epochs."""

import re
from pathlib import Path

import ancl
from tests.lab import Study, read_study_plan, write_study

PAGE = Path(__file__).parents[1] / "docs" / "studies.md"
BLOCK = re.compile(r"^```yaml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STUDY, RULES = BLOCK.findall(PAGE.read_text("utf-8"))


def smaller(text: str) -> str:
    """The same study of seconds: one seed each, two tasks of few images, one epoch."""
    few = "      data.tasks: 2\n      data.per_class: 10\n      training.schedule: cosine\n"
    text = text.replace("      training.schedule: cosine\n", few)
    for old, new in (
        ("[10, 11]", "[10]"),
        ("[20, 21, 22]", "[20]"),
        ("[20, 21]", "[20]"),
        ("training.epochs: 5", "training.epochs: 1"),
        ("training.epochs: 10", "training.epochs: 2"),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def test_the_example_as_written(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    assert Study(file).result().left == 2 * (3 + 2) + 2  # λ of lwf and ewc, and fine-tuning

    file.write_text(smaller(STUDY))
    result = ancl.study(file, runs=tmp_path / "runs")

    assert result.left == 0
    [lwf] = result.methods
    assert set(lwf.rows) == {"cl", "equal_search", "equal_compute", "afec", "ancl"}
    rows = {name: runs[0].spec for (_, name), runs in result.references.items()}
    assert [spec.method for spec in rows.values()] == ["finetune", "ewc", "ewc"]
    assert [spec.training.epochs for spec in rows.values()] == [1, 1, 2]
    # The grid's best λ is taken, by the row with the grid and by the one that names it.
    tried = result.trials["digits/5", "ewc"]
    means = {value: runs[0].score for (value,), runs in tried.items()}
    assert {runs[0].spec.seed for runs in tried.values()} == {10}
    best = max(means, key=lambda value: means[value])
    assert rows["ewc"].options["lamb"] == rows["ewc-longer"].options["lamb"] == best
    tables = write_study(result, tmp_path / "out")[0].read_text()
    shown = [f"{'**' * (v == best)}{v}{'**' * (v == best)}: {100 * means[v]:.2f}" for v in means]
    assert f"| ewc | lamb | {', '.join(shown)} |" in tables


def test_rules_as_written(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY + RULES)
    Study(file)
    plan = read_study_plan(file)

    assert plan.rules is not None
    assert plan.rules.of("answers") == ("auto:0.2", "auto:0.4")
