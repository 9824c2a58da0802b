"""From a folder of photos to answers, by commands alone."""

import csv
import io
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from ancl import Learner
from tests.lab import labelled_part

BEGIN = (
    *("--method", "icarl", "--network", "mlp", "--epochs", "4", "--memory-per-class", "4"),
    *("--set", "training.batch_size=16", "--set", "network.hidden=[16]", "--threads", "1"),
)
OLD, NEW = {"zero": 0, "one": 1, "two": 2}, {"three": 3, "=four": 4}


@pytest.fixture
def photos(tmp_path: Path, write_digits: Callable[..., str]) -> None:
    for name, classes in (("old", OLD), ("new", NEW)):
        write_digits(tmp_path / name, classes)
        write_digits(tmp_path / f"test-{name}", classes, part="test")


def test_a_learner_learns_answers_and_is_evaluated(ancl, photos) -> None:
    first = ancl("learn", "mine", "--data", "folder:old", *BEGIN, "--json")
    again = ancl("learn", "mine", "--data", "folder:old", *BEGIN, "--json")
    second = ancl("learn", "mine", "--data", "folder:new", "--threads", "1")

    assert first.json["tasks"] == [["one", "two", "zero"]]
    assert (first.json["learned_before"], again.json["learned_before"]) == (False, True)
    assert second.code == 0, second.err
    assert second.out.startswith("Learned task 2: =four, three.\n")
    learner = Learner.load("mine")
    held = learner.report()
    rows = second.out.partition("after %")[2].splitlines()[2:4]
    told = [(*line.split()[:-2], line.split()[-2], line.split()[-1]) for line in rows]
    assert [" ".join(row[:-3]) for row in told[:1]] == ["classes known before"]
    assert (held.images, rows[0].split()[3], rows[1].split()[2]) == (10, "6", "4")

    labels = learner.predict(*labelled_part("folder:test-new", "test")[:1])
    text = ancl("predict", "mine", "test-new").out.splitlines()[2:]
    assert len(text) == 40
    predicted = ancl("predict", "mine", "test-new", "--top-k", "2", "--json").json["images"]
    # Files come in the order of their names, and so do the images of a folder.
    assert [each["labels"][0]["label"] for each in predicted] == labels
    assert all(a["labels"][0]["probability"] >= a["labels"][1]["probability"] for a in predicted)
    rows = list(csv.reader(io.StringIO(ancl("predict", "mine", "test-new", "--csv").out)))
    assert rows[0] == ["image", "rank", "label", "probability"]
    # A spreadsheet must not take a name for a formula.
    assert [row[2].lstrip("'") for row in rows[1:]] == labels
    assert "'=four" in {row[2] for row in rows[1:]}

    found = ancl("evaluate", "mine", "--data", "folder:test-new", "--json").json
    truth = labelled_part("folder:test-new", "test")[1]
    right = sum(a == b for a, b in zip(labels, truth, strict=True)) / 40
    assert found["accuracy"] == right
    assert [(task["task"], task["images"]) for task in found["tasks"]] == [(2, 40)]
    assert (
        f"Accuracy: {100 * right:.1f} % on 40 images"
        in ancl("evaluate", "mine", "--data", "folder:test-new").out
    )


def test_a_task_that_is_known_is_used(ancl, photos) -> None:
    ancl("learn", "mine", "--data", "folder:old", *BEGIN, "--method", "lwf", "--scenario", "til")
    ended = ancl("learn", "mine", "--data", "folder:new")
    assert ended.code == 0, ended.err

    found = ancl("evaluate", "mine", "--data", "folder:test-old", "--json").json
    first = ancl("predict", "mine", "test-new", "--task", "1", "--json").json["images"]

    learner = Learner.load("mine")
    x, y = labelled_part("folder:test-old", "test")
    assert found["task_known"] is True
    assert found["accuracy"] == learner.evaluate(x, y, task=0)
    assert {each["labels"][0]["label"] for each in first} <= set(OLD)


def test_a_finished_run_is_opened_by_every_command(ancl, photos, tmp_path) -> None:
    run = ("run", "icarl", "--data", "folder:old", "--tasks", "1", "--scenario", "cil")
    assert ancl(*run, "--quick", *BEGIN[4:], "--network", "mlp").code == 0
    (place,) = (tmp_path / "runs").glob("folder*")

    evaluated = ancl("evaluate", str(place), "--data", "folder:test-old", "--json").json
    exported = ancl("export", str(place), "--format", "pt2", "--json").json
    refused = ancl("learn", str(place), "--data", "folder:new")
    learned = ancl("learn", str(place), "--data", "folder:new", "-o", "on", "--json").json

    assert [(task["task"], task["images"]) for task in evaluated["tasks"]] == [(1, 60)]
    assert Path(exported["path"]).name == f"{place.name}.pt2"
    assert exported["difference"] < 1e-5
    assert "test images of the run" in Path(exported["card"]).read_text()
    assert (refused.code, "is a run, which stays as it is" in refused.err) == (2, True)
    assert learned["tasks"] == [["one", "two", "zero"], ["=four", "three"]]
    answers = torch.export.load(exported["path"]).module()
    x, y = labelled_part("folder:test-old", "test")
    names = [*OLD]
    right = [sorted(names)[n] == label for n, label in zip(answers(x[:]).argmax(1), y, strict=True)]
    assert sum(right) / 60 == evaluated["accuracy"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["learn", "none", "--data", "folder:new", *BEGIN, "--epochs", "x"], "--epochs: training"),
        (["learn", "none", "--data", "folder:new", *BEGIN, "--threads", "0"], "--threads: '0'"),
        (["learn", "none", "--data", "folder:new", *BEGIN, "--set", "x"], "--set: 'x' is no"),
        (["learn", "none", "--data", "folder:none", *BEGIN], "There is no folder none."),
        (["learn", "mine", "--data", "folder:new", "--epochs", "3"], "--epochs: mine keeps the"),
        (["predict", "none", "old"], "none does not exist. Give the directory of a run"),
        (["predict", "old", "old"], "old is neither a finished run nor a saved learner."),
        (["predict", "mine", "none.png", "no.png"], "There is no file none.png."),
        (["predict", "mine", "mine"], "There are no images below mine"),
        (["predict", "mine", "mine/README.md"], "README.md is not an image"),
        (["predict", "mine", "old", "--task", "4"], "There is no task 4. The learner knows"),
        (["predict", "mine", "old", "--csv", "--json"], "--json and --csv were both given"),
        (["evaluate", "mine", "--data", "folder:test-new"], "The labels =four, three were never"),
        (["export", "mine", "-o", "m.h5"], "m.h5 does not end with the name of a format"),
        (["export", "mine", "--format", "tflite"], "There is no format 'tflite'"),
        (["export", "mine", "-o", "old/zero/000.png", "--format", "pt2"], "it is not replaced"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(ancl, photos, words: list[str], said: str) -> None:
    if "mine" in words:
        ancl("learn", "mine", "--data", "folder:old", *BEGIN, "--epochs", "1", "--quiet")

    ended = ancl(*words)

    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err
