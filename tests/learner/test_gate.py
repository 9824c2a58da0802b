"""The gate: a version is taken only if conditions on test images hold."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ancl
from ancl import AnclError, Events, Learner, Memory, ScenarioError, SpecError, StoreError
from tests.lab import GateConditions, compare_on_test, digits, read_versions

SETTINGS = {
    "training.epochs": 3,
    "training.batch_size": 32,
    "network.hidden": [32],
    "memory.per_class": 6,
}
BEGIN = {"method": "icarl", "network": "mlp", "settings": SETTINGS}
KNOWN = {"zero": 0, "one": 1, "two": 2}
SWAPPED = {"zero": 1, "one": 0, "three": 3}
RIGHT = {"zero": 0, "one": 1, "three": 3}


class Heard(Events):
    """Counts trainings, and keeps what is said."""

    def __init__(self) -> None:
        self.epochs, self.said = 0, list[str]()

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1

    def say(self, message: str) -> None:
        self.said.append(message)


@pytest.fixture(scope="module")
def data(
    tmp_path_factory: pytest.TempPathFactory, write_digits: Callable[..., str]
) -> dict[str, str]:
    folder, write = tmp_path_factory.mktemp("photos"), partial(write_digits, each=30)
    return {
        "first": write(folder / "first", KNOWN),
        "swapped": write(folder / "swapped", SWAPPED, skip=30),
        "right": write(folder / "right", RIGHT, skip=30),
        "test": write(folder / "test", {**KNOWN, "three": 3}, "test", each=20),
        "early": write(folder / "early", KNOWN, "test", each=20),
    }


@pytest.fixture(scope="module")
def saved(data: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("saved") / "L"
    ancl.teach(place, data["first"], **BEGIN, events=Events())
    return place


@pytest.fixture
def place(saved: Path, tmp_path: Path) -> Path:
    shutil.copytree(saved, tmp_path / "L")
    return tmp_path / "L"


def scores(place: Path, **options: Any) -> Tensor:
    return Learner.load(place, events=Events(), **options).scores(digits().test.x)


def test_a_month_with_swapped_labels_is_refused_and_kept_beside(
    place: Path, data: dict[str, str]
) -> None:
    before = scores(place)

    outcome = ancl.teach(
        place, data["swapped"], test=data["test"], max_drop=0.02, min_recall={"zero": 0.8},
        min_accuracy=0.1, events=Events(),
    )  # fmt: skip

    assert len(outcome.refused) == 2
    assert outcome.refused[0].startswith("On classes known before it fell from")
    assert outcome.refused[1].startswith("The recall of zero is")
    assert torch.equal(scores(place), before)
    assert outcome.version.number == 2
    assert read_versions(place).current == 1
    candidate = Learner.load(place, version=2, events=Events())
    assert candidate.classes == ["one", "two", "zero", "three"]
    assert torch.equal(candidate.scores(digits().test.x), outcome.learner.scores(digits().test.x))
    assert outcome.test is not None
    assert outcome.version.test == outcome.test.json()


def test_what_is_repaired_is_taken(place: Path, data: dict[str, str]) -> None:
    conditions = {"test": data["test"], "max_drop": 0.15, "min_recall": {"zero": 0.8}}
    refused = ancl.teach(place, data["swapped"], **conditions, events=Events())
    taken = ancl.teach(place, data["right"], **conditions, events=Events())

    assert (bool(refused.refused), taken.refused) == (True, ())
    assert (taken.version.number, taken.version.parent) == (3, 1)
    assert read_versions(place).current == 3
    assert Learner.load(place, events=Events()).classes[-1] == "three"


def test_a_candidate_is_measured_again_and_not_learned_again(
    place: Path, data: dict[str, str]
) -> None:
    strict = {"test": data["test"], "min_accuracy": 1.0}
    first = ancl.teach(place, data["right"], **strict, events=Events())
    heard = Heard()
    again = ancl.teach(place, data["right"], **strict, events=heard)
    loose = ancl.teach(place, data["right"], test=data["test"], min_accuracy=0.3, events=heard)

    assert heard.epochs == 0
    assert (first.version.number, again.version.number, loose.version.number) == (2, 2, 2)
    assert (bool(first.refused), bool(again.refused), loose.refused) == (True, True, ())
    assert read_versions(place).current == 2
    assert [version.number for version in ancl.versions(place)] == [1, 2]
    assert torch.equal(scores(place), first.learner.scores(digits().test.x))


def test_a_first_version_that_is_refused_answers_nothing(
    tmp_path: Path, data: dict[str, str]
) -> None:
    place = tmp_path / "new"
    refused = ancl.teach(
        place, data["first"], **BEGIN, test=data["early"], min_accuracy=1.0, events=Events()
    )
    assert refused.refused
    with pytest.raises(StoreError, match=r"No version of .* was taken: version 1 was refused"):
        Learner.load(place)
    assert len(Learner.load(place, version=1).classes) == 3
    with pytest.raises(StoreError, match="no version before"):
        ancl.undo(place)
    taken = ancl.teach(place, data["right"], **BEGIN, events=Events())
    assert (taken.version.number, taken.version.parent) == (2, None)
    assert Learner.load(place).classes == ["one", "three", "zero"]
    ancl.undo(place, 1)
    assert Learner.load(place).classes == ["one", "two", "zero"]


def test_a_first_version_is_learned_again_with_other_settings(
    tmp_path: Path, data: dict[str, str]
) -> None:
    place, heard = tmp_path / "new", Heard()
    strict = {"test": data["early"], "min_accuracy": 1.0, "events": heard}
    ancl.teach(place, data["first"], **BEGIN, **strict)
    ancl.teach(place, data["first"], **BEGIN, **strict)
    assert heard.epochs == 3
    longer = {**BEGIN, "settings": {**SETTINGS, "training.epochs": 4}}
    again = ancl.teach(place, data["first"], **longer, **strict)
    assert heard.epochs == 7
    assert (again.version.number, read_versions(place).current) == (2, None)


@pytest.mark.parametrize(
    ("options", "phrase"),
    [
        ({"test": "first", "min_accuracy": 0.5}, r"90 of 90 test images .*learns from:\n.*task 1"),
        ({"test": "right", "min_accuracy": 0.5}, r"90 of 90 test images .*to be learned"),
        ({"test": "test", "min_recall": {"robin": 0.5}}, "no test images of 'robin'"),
        ({"test": "test", "min_accuracy": 85}, "min_accuracy is 85; it is a share"),
        ({"test": "test", "max_drop": -0.1}, "max_drop is -0.1; it is a share"),
        ({"test": "test", "min_recall": {"one": "x"}}, "min_recall of 'one' is 'x'"),
        ({"min_accuracy": 0.5}, "none are given. Give them: --test"),
        ({"keep_versions": 0}, "keep_versions is 0"),
    ],
)
def test_what_cannot_be_measured_is_said_before_training(
    place: Path, data: dict[str, str], options: dict[str, Any], phrase: str
) -> None:
    heard, before = Heard(), read_versions(place)
    if "test" in options:
        options = {**options, "test": data[options["test"]]}
    with pytest.raises((ScenarioError, SpecError), match=f"(?s){phrase}"):
        ancl.teach(place, data["right"], **options, events=heard)
    assert heard.epochs == 0
    assert read_versions(place) == before


def test_test_images_of_classes_that_nobody_learns_are_refused(
    place: Path, data: dict[str, str], tmp_path: Path, write_digits: Callable[..., str]
) -> None:
    heard = Heard()
    strange = write_digits(tmp_path / "strange", {"zero": 0, "nine": 9}, "test", each=3)
    only = write_digits(tmp_path / "only", {"three": 3}, "test", each=3)
    with pytest.raises(ScenarioError, match="labels that are never learned: 'nine'"):
        ancl.teach(place, data["right"], test=strange, events=heard)
    with pytest.raises(ScenarioError, match="no test images of classes known before"):
        ancl.teach(place, data["right"], test=only, max_drop=0.1, events=heard)
    assert heard.epochs == 0


# -- from Python -----------------------------------------------------------------------------


def part(*classes: int, skip: int = 0, count: int = 20) -> tuple[Tensor, list[int]]:
    train = digits().train
    index = torch.cat([train.of_class(number)[skip : skip + count] for number in classes])
    return train.x[index], train.y[index].tolist()


@pytest.mark.parametrize("method", ["icarl", "lwf", "slda"])
def test_accept_decides_on_the_learner_as_it_would_be(method: str) -> None:
    options: dict[str, Any] = {"events": Events()}
    if method != "slda":
        options |= {"training": {"epochs": 2}, "memory": Memory(per_class=4)}
    learner = Learner(method, "mlp", network_options={"hidden": (16,)}, **options)
    learner.learn(*part(0, 1, 2))
    test, seen = digits().test.x, list[Learner]()
    before, measured = learner.scores(test), learner._measured

    def refuse(candidate: Learner) -> bool:
        seen.append(candidate)
        return False

    told = learner.learn(*part(3, 4), accept=refuse)
    assert (told["accepted"], told["candidate"] is seen[0]) == (False, True)
    assert learner.classes == [0, 1, 2]
    assert torch.equal(learner.scores(test), before)
    assert learner._measured == measured
    taken = learner.learn(*part(3, 4), accept=lambda candidate: len(candidate.classes) == 5)
    assert taken["accepted"]
    assert "candidate" not in taken
    assert torch.equal(learner.scores(test), seen[0].scores(test))
    learner.learn(*part(5, 6))
    assert learner.classes == [0, 1, 2, 3, 4, 5, 6]


def test_a_candidate_that_fails_to_be_judged_changes_nothing() -> None:
    learner = Learner("lwf", "mlp", training={"epochs": 1}, events=Events())
    learner.learn(*part(0, 1))

    def fails(candidate: Learner) -> bool:
        raise RuntimeError("no test images")

    with pytest.raises(RuntimeError, match="no test images"):
        learner.learn(*part(2, 3), accept=fails)
    assert learner.classes == [0, 1]


@pytest.mark.parametrize("scenario", ["cil", "til"])
def test_the_comparison_is_that_of_counting_one_by_one(scenario: Any) -> None:
    """An independent slow version: one image at a time."""
    learner = Learner(
        "lwf", "mlp", scenario=scenario, training={"epochs": 2}, memory=3, events=Events()
    )
    learner.learn(*part(0, 1))
    seen = list[Learner]()
    learner.learn(*part(0, 2, 3, skip=20), accept=lambda candidate: bool(seen.append(candidate)))
    samples = digits().test
    index = torch.cat([samples.of_class(number)[:15] for number in range(4)])
    x, labels = samples.x.take(index), samples.y[index].tolist()

    measured = compare_on_test(learner, seen[0], x, labels)

    def right(answering: Learner, place: int) -> bool:
        task = None
        if scenario == "til":
            task = next(n for n, names in enumerate(answering.tasks) if labels[place] in names)
        return answering.predict(x[place : place + 1], task) == [labels[place]]

    known = [place for place, label in enumerate(labels) if label < 2]
    assert measured.known == (
        sum(right(learner, place) for place in known) / 30,
        sum(right(seen[0], place) for place in known) / 30,
    )
    assert measured.accuracy == sum(right(seen[0], place) for place in range(60)) / 60
    for recall in measured.recalls:
        places = [place for place, label in enumerate(labels) if label == recall.label]
        assert recall.after == sum(right(seen[0], place) for place in places) / 15
        if recall.label < 2:
            assert recall.before == sum(right(learner, place) for place in places) / 15
        else:
            assert recall.before is None


def test_conditions_hold_up_to_the_number_itself() -> None:
    learner = Learner("lwf", "mlp", training={"epochs": 1}, events=Events())
    learner.learn(*part(0, 1))
    samples = digits().test
    index = torch.cat([samples.of_class(number)[:7] for number in (0, 1)])
    measured = compare_on_test(learner, learner, samples.x.take(index), samples.y[index].tolist())
    share = measured.accuracy
    recalls = {str(recall.label): recall.after for recall in measured.recalls}

    assert GateConditions(share, 0.0, recalls).unmet(measured) == ()
    over = {label: min(value + 0.001, 1.0) for label, value in recalls.items() if value < 1}
    assert len(GateConditions(min_recall=over).unmet(measured)) == len(over)
    if share < 1:
        assert len(GateConditions(share + 0.001).unmet(measured)) == 1
    worse = measured._replace(known=(share, share - 0.021))
    assert len(GateConditions(max_drop=0.02).unmet(worse)) == 1
    assert GateConditions(max_drop=0.021).unmet(worse) == ()
    assert not GateConditions()
    with pytest.raises(AnclError, match="it is a share"):
        GateConditions(float("nan"))
