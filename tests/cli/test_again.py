"""Known classes come again, by commands alone."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from ancl import Events, Learner, Memory, Training, load_run
from tests.lab import labelled_part, read_run

FOLDERS = {"first": (0, 1, 2, 3, 4), "mixed": (0, 2, 4, 5, 6), "known": (1, 5)}
SMALL = (
    *("--network", "mlp", "--epochs", "3", "--memory-per-class", "4", "--threads", "1"),
    *("--set", "training.batch_size=16", "--set", "network.hidden=[16]"),
)


@pytest.fixture
def photos(tmp_path: Path, write_digits: Callable[..., str]) -> None:
    for place, (name, classes) in enumerate(FOLDERS.items()):
        count = 20 * (place + 1)
        source = write_digits(tmp_path / name, {f"d{n}": n for n in classes}, each=count)
        folder = Path(source.partition(":")[2])
        for file in folder.glob("*/*.png"):  # other images than those that came before
            if int(file.stem) < count - 20:
                file.unlink()


def test_a_learner_and_the_command_are_the_same(ancl, photos) -> None:
    """Five classes, then three known and two new ones, then known ones alone."""
    training = Training(epochs=3, batch_size=16)
    made = Learner(
        "a-icarl",
        "mlp",
        training=training,
        memory=Memory(per_class=4),
        network_options={"hidden": (16,)},
        events=Events(),
    )
    said = []
    for name in FOLDERS:
        begin = ("--method", "a-icarl", *SMALL) if name == "first" else ("--threads", "1")
        ended = ancl("learn", "mine", "--data", f"folder:{name}", *begin)
        assert ended.code == 0, ended.err
        said.append(ended.out.splitlines()[0])
        made.learn(*labelled_part(f"folder:{name}", "train", None, None, print))

    assert said == [
        "Learned task 1: d0, d1, d2, d3, d4.",
        "Learned task 2: d5, d6; again: d0, d2, d4.",
        "Learned task 3: no new classes; again: d1, d5.",
    ]
    found = Learner.load("mine")
    ours, theirs = made._entries(), found._entries()
    assert ours.keys() == theirs.keys()
    for part, entry in ours.items():
        assert all(t.equal(theirs[part].tensors[n]) for n, t in entry.tensors.items()), part
    again = ancl("learn", "mine", "--data", "folder:known", "--threads", "1", "--json").json
    assert again["learned_before"] is True
    assert again["returning"] == [[], ["d0", "d2", "d4"], ["d1", "d5"]]


RUN = (
    *("run", "a-bic", "digits/5", "--scenario", "cir", "--classes", "4,3,0,3", "--epochs", "2"),
    *("--set", "network.hidden=[16]", "--set", "data.per_class=20", "--set", "bias_epochs=2"),
    *("--set", "data.returning=0.4", "--threads", "1", "--quiet"),
)


def test_a_run_its_tables_and_a_learner_of_it(ancl, no_figures) -> None:
    ended = ancl(*RUN, "--seeds", "0,1")
    other = ancl(*RUN[:1], "bic", *RUN[2:], "--seeds", "0,1")
    one = ancl(*RUN, "--seed", "0")

    assert (ended.code, other.code, one.code) == (0, 0, 0), ended.err + other.err
    assert "bic: task 3 brings no new classes; left out: the stage 'bias'." in other.err
    assert "after   task 1  task 2  task 4" in one.out
    places = sorted(Path("runs").glob("*a-bic*"))
    result = read_run(places[0])
    assert result.counted.shape == (4, 3)
    assert [images[2] for images in result.images] == [240, 181, 0, 178]
    assert result.sizes == (240, 181, 178)
    head = (places[0] / "accuracy_tag.csv").read_text().splitlines()[0]
    assert head == "after,task 0,task 1,task 3"
    reported = ancl("report", "runs", "--json")
    assert reported.code == 0, reported.err
    groups = {each["method"]: each for each in reported.json["groups"]}
    assert groups["a-bic"]["scenario"] == "cir"
    mean = np.mean([read_run(place).metrics["aiac"] for place in places])
    assert groups["a-bic"]["metrics"]["aiac"][0] == pytest.approx(mean, abs=1e-4)
    opened = load_run(places[0], events=Events())
    assert opened.scenario == "cil"
    assert [len(each) for each in opened.returning] == [0, 2, 3, 3]
    x = torch.arange(6, dtype=torch.uint8).reshape(6, 1, 1, 1)
    opened.learn(x.expand(6, *opened.input_shape[1:], 1), [0, 0, 0, 1, 1, 1])
    assert opened.returning[-1] == [0, 1]


def test_the_plan_shows_what_comes_again_and_what_is_left_out(ancl) -> None:
    two = ancl(*RUN, "--seeds", "0,1", "--dry-run")
    (one,) = ancl(*RUN, "--dry-run", "--json").json["runs"]

    assert [len(task.get("returning", ())) for task in one["tasks"]] == [0, 2, 3, 3]
    again = ", ".join(map(str, one["tasks"][1]["returning"]))
    assert f"2/4   4, 5, 6; again: {again} " in two.out
    assert two.out.count("1/4   0, 1, 2, 3 ") == 2  # the seed decides which classes return
    said = "a-bic: task 3 brings no new classes; left out: the stage 'bias'."
    assert said in two.out
    assert said in one["notes"]
    bias = [stage["task"] for stage in one["stages"] if stage["stage"] == "bias"]
    assert bias == [1, 3]


def test_a_comparison_and_a_search(ancl) -> None:
    given = ["--scenario", "cir", "--classes", "4,3,0,3", "--epochs", "1", "--threads", "1"]
    given += ["--set", "network.hidden=[8]", "--set", "data.per_class=12", "--quiet"]

    compared = ancl("compare", "lwf", "wa", "--on", "digits/5", *given, "--json")
    searched = ancl("search", "lwf", "digits/5", *given, "--lamb-grid", "1,10", "--json")
    refused = ancl("search", "lwf", "digits/5", *given, "--protocol", "per-task")

    assert compared.code == 0, compared.err
    assert [*compared.json["methods"]] == ["lwf", "wa"]
    assert searched.code == 0, searched.err
    assert refused.code == 2
    assert "in the scenario cir known classes come with them" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "dmc", "digits/5", "--scenario", "cir"], "would both speak for classes that come"),
        (["run", "a-lucir", "digits/5", "--scenario", "cir"], "train_old_rows=true"),
        (["run", "lwf", "digits/5", "--set", "data.returning=0.5"], "data.returning: for the scen"),
        (["run", "lwf", "digits/5", "--classes", "5,5,0"], "hold a task without classes"),
        (
            ["run", "lwf", "digits/5", "--scenario", "cir", "--set", "data.returning=2"],
            "data.returning is 2; it must be less than or equal to 1",
        ),
        (
            ["analyze", "lwf", "digits/5", "--scenario", "cir", "--lamb-a", "1"],
            "whose classes are all new",
        ),
        (["run", "lwf", "digits/5", "--scenario", "cri"], "'til', 'cil', 'dil' or 'cir'"),
    ],
)
def test_what_is_wrong_is_said_in_one_message(ancl, words, said) -> None:
    ended = ancl(*words)

    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err
    assert not list(Path("runs").glob("digits*"))
