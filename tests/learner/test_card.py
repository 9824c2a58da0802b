"""The model card: what it says, and that names from outside cannot change what it is."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ancl import Events, Learner, Memory, StoreError, Training
from tests.lab import Measured, _accuracy, _code, digits, read_measured

SHORT = Training(epochs=2, batch_size=32, lr=0.05)


def part(*classes: int) -> tuple[Any, Any]:
    samples = digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


@pytest.fixture(scope="module")
def taught() -> Learner:
    learner = Learner(
        "icarl", "mlp", training=SHORT, memory=Memory(per_class=4), seed=7, events=Events()
    )
    learner.learn(*part(0, 1))
    learner.learn(*part(2))
    return learner


def rows(card: str, heading: str) -> list[list[str]]:
    """The cells of the table under a heading."""
    lines = card.split(f"## {heading}")[1].split("## ")[0].splitlines()
    return [[c.strip() for c in line.split("|")[1:-1]] for line in lines if line[:1] == "|"][2:]


def test_a_saved_learner_has_a_card(taught: Learner, tmp_path: Path) -> None:
    taught.save(tmp_path / "mine")
    card = (tmp_path / "mine" / "README.md").read_text()

    counts = [sum(y == label for y in part(0, 1, 2)[1]) for label in (0, 1, 2)]
    data = rows(card, "Classes and data")
    assert [row[:2] for row in data] == [["1", "`0`, `1`"], ["2", "`2`"]]
    assert int(data[1][2]) + int(data[1][3]) == counts[2]
    assert data[0][4] != data[1][4]
    held = rows(card, "Accuracy in %")
    report = taught.report()
    new = next(row.recall for row in report.rows if row.label == 2)
    assert held[1][2] == f"{100 * new:.1f}"
    for text in ("| method | `icarl`", "| seed | 7 |", "| images kept | 12 |", "torch 2."):
        assert text in card


def test_saving_again_replaces_the_card_and_nothing_else(taught: Learner, tmp_path: Path) -> None:
    taught.save(tmp_path / "mine")
    taught.save(tmp_path / "mine")
    (tmp_path / "mine" / "README.md").write_text("my own words")

    with pytest.raises(StoreError, match="it is not replaced"):
        taught.save(tmp_path / "mine")

    assert (tmp_path / "mine" / "README.md").read_text() == "my own words"
    loaded = Learner.load(tmp_path / "mine")  # the card is for readers
    assert loaded.card() == taught.card()


def test_forgetting_compares_what_was_measured_on_the_same_images() -> None:
    text = _accuracy(
        [
            Measured("held images", (0.9,)),
            Measured("held images", (0.95, 0.8)),
            Measured("held images", (0.7, None, 1.0)),
        ],
        [1, 2, 3],
    )

    assert rows(text, "Accuracy in %")[2] == [
        "task 3",
        "70.0",
        "not measured",
        "100.0",
        "held images",
    ]
    assert "task 1: 25.0 points; task 2: not measured." in text
    rows_of_two = [Measured("test images", (0.9,)), Measured("held images", (0.5, 0.5))]
    assert "task 1: not measured." in _accuracy(rows_of_two, [1, 2])
    assert "Not measured." in _accuracy([None, None], [1, 2])


def test_a_task_of_known_classes_alone_has_a_row_and_no_column() -> None:
    text = _accuracy(
        [
            Measured("held images", (0.9,)),
            Measured("held images", (0.95,)),
            Measured("held images", (0.7, 1.0)),
        ],
        [1, 3],
    )

    assert "| after | task 1 | task 3 | on |" in text
    assert rows(text, "Accuracy in %")[1] == ["task 2", "95.0", "", "held images"]
    assert "last task: task 1: 25.0 points." in text


def test_names_cannot_change_the_card() -> None:
    assert _code("a_b") == "`a_b`"
    assert _code("a|b`c\n# d") == "a\\|b\\`c \\# d"


@pytest.mark.parametrize(
    "values",
    [
        [{"on": "x", "accuracy": [0.5]}],
        [{"on": "x", "accuracy": [0.5]}, {"on": "x", "accuracy": [1.5, 0.5]}],
        [{"on": "x", "accuracy": [0.5]}, {"on": "x", "accuracy": [0.5]}],
        "text",
    ],
)
def test_saved_measurements_are_checked(values: Any) -> None:
    with pytest.raises(ValueError, match=r"does not fit the tasks|less than or equal|tuple|must"):
        read_measured(values, [1, 2])
    assert read_measured([None, {"on": "x", "accuracy": [0.5, None]}], [1, 2])[1] == Measured(
        "x", (0.5, None)
    )
