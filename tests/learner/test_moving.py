"""Learners whose backbone learns and whose classifier is computed: drift, forgetting, merging."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ancl
from ancl import Events, Learner, Memory, ScenarioError, SpecError, StoreError, Training
from tests.lab import (
    StageResult,
    Statistics,
    digits,
    patch_part,
    read_versions,
    strip_prefix,
)
from tests.saved_learners import read_saved, write_saved

TRAINING = Training(epochs=2, lr=0.05, schedule="cosine", batch_size=16)
IMAGES = digits().train
TEST = digits().test.x[:60]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(mirrored|validate|weights learn|trains no).*")
        yield


def module(frozen: bool = False) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh())
    return made.requires_grad_(not frozen)


def task(*classes: int, start: int = 0, count: int = 25) -> tuple[Any, list[int]]:
    part = IMAGES.take(torch.cat([IMAGES.of_class(n)[start : start + count] for n in classes]))
    return part.x, part.y.tolist()


def taught(
    method: str, *tasks: tuple[Any, list[int]], frozen: bool = False, **given: Any
) -> Learner:
    settings = {"classifier": "slda", "training": TRAINING, "normalization": (0.3, 0.4), **given}
    made = Learner(method, module(frozen), **settings)
    for images, labels in tasks:
        made.learn(images, labels)
    return made


def known(learner: Learner) -> Any:
    return Statistics.read(strip_prefix("statistics", learner._entries()["statistics"].tensors))


FIRST, SECOND, THIRD = task(0, 1), task(2, 3), task(4, 5)


# -- drift -----------------------------------------------------------------------------------------


class Notes(Events):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)

    def say(self, message: str) -> None:
        self.said.append(message)


def test_learning_says_how_far_the_network_moved(tmp_path: Path) -> None:
    events = Notes()
    made = taught("finetune", FIRST, events=events)
    assert made.drifts == (None,)
    drift = made.learn(*SECOND)["drift"]

    assert drift is not None
    assert drift.moved > 0.001
    assert made.drifts == (None, drift)
    assert str(drift) in events.notes
    assert f"| drift | The backbone moved in task 2: {drift.moved:.3g} " in made.card()
    assert f"The backbone moved in task 2: {drift.moved:.3g} " in str(made.report())
    made.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", network=module())
    assert again.drifts == made.drifts
    assert again.card() == made.card()
    made.merge_classes([0, 1])
    assert made.drifts == (None, drift)


def test_a_run_that_is_opened_knows_its_drift(tmp_path: Path) -> None:
    settings = {"classifier": "slda", "data.scenario": "cil", "data.per_class": 20}
    settings |= {"data.classes": "4,3,3", "training.epochs": 2, "training.schedule": "cosine"}
    result = ancl.run(ancl.spec("finetune", "digits/5", settings=settings), runs=tmp_path)
    directory = next(tmp_path.glob("*/result.json")).parent

    opened = ancl.load_run(directory)
    assert opened.drifts == (None, *result.drifts)
    assert "The backbone moved in tasks 2, 3: " in opened.card()


def test_cut_features_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    events = Notes()
    made = taught("finetune", FIRST, events=events)
    before = known(made)
    assert int(before.ledger.rows.abs().max()) > 100
    patch_part(monkeypatch, "fit_map", lambda before, after: 1000 * torch.eye(12).double())
    drift = made.learn(*SECOND)["drift"]

    assert drift is not None
    assert drift.clipped > 0
    said = [text for text in events.said if "no longer fit the grid" in text]
    assert len(said) == 1
    assert said[0].startswith(f"Task 2: {drift.clipped} numbers of the features of earlier images")
    assert f"cut to the grid: {drift.clipped} (task 2)" in made.card()


def test_other_learners_have_no_drift() -> None:
    made = Learner("slda", module(True))
    outcome = made.learn(*FIRST)
    assert outcome["drift"] is None
    assert made.drifts == (None,)
    assert "drift" not in made.card()
    assert "moved" not in str(made.report())


def test_a_network_in_which_nothing_learns_has_not_moved() -> None:
    made = taught("finetune", FIRST, SECOND, frozen=True)
    drift = made.drifts[1]

    assert known(made).moves == 0
    assert drift is not None
    assert (drift.moved, drift.residual) == (0, 0)
    assert "has not moved since the first task" in made.card()
    report = made.forget(SECOND[0][:1])
    assert not report.exact  # the head has learned from it, though it answers nothing
    assert report.meaning.startswith("Approximate: ")
    assert "followed it" not in report.meaning


@pytest.mark.parametrize(("method", "later"), [("finetune", False), ("freeze", True)])
def test_of_an_earlier_version_the_method_tells_what_moved(
    method: str, later: bool, tmp_path: Path
) -> None:
    taught(method, FIRST, SECOND).save(tmp_path / "saved")
    saved = read_saved(tmp_path / "saved")
    short = {**saved.meta, "moves": saved.meta["moves"][:1]}
    write_saved(tmp_path / "short", StageResult(saved.tensors, short))
    with pytest.raises(StoreError, match="moves does not fit the tasks"):
        Learner.load(tmp_path / "short", network=module())
    before = {name: value for name, value in saved.meta.items() if name != "moves"}
    write_saved(tmp_path / "before", StageResult(saved.tensors, before))
    opened = Learner.load(tmp_path / "before", network=module())

    assert opened.drifts == (None, None)
    assert opened.forget(SECOND[0][:1]).exact is later
    assert not opened.forget(FIRST[0][:1]).exact


# -- forget ----------------------------------------------------------------------------------------


GENTLE = {"lamb": 1.0}
METHODS: list[tuple[str, dict[str, Any]]] = [
    ("finetune", {}),
    ("a-lfl", {}),
    ("ewc", GENTLE),
    ("lwf", {}),
    ("afec-ewc", {**GENTLE, "afec_start": "carried"}),
    ("connector", {}),
]


@pytest.mark.parametrize(("method", "settings"), METHODS)
def test_a_class_is_forgotten_and_what_weights_learned_is_said(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    made = taught(method, FIRST, SECOND, THIRD, **settings)
    report = made.forget(classes=[1])

    assert report.classes == (1,)
    assert not report.exact
    assert report.meaning.startswith("Approximate: ")
    assert "learned from them" in report.meaning
    assert "--retrain" not in report.meaning  # no image is kept
    assert made.classes == [0, 2, 3, 4, 5]
    assert {entry.label for entry in made.ledger} == {0, 2, 3, 4, 5}
    assert set(made.predict(TEST)) <= {0, 2, 3, 4, 5}
    made.save(tmp_path / "saved")
    again = Learner.load(tmp_path / "saved", network=module())
    assert torch.equal(again.scores(TEST), made.scores(TEST))
    again.learn(*task(6, 7))
    assert again.classes == [0, 2, 3, 4, 5, 6, 7]
    again.forget(classes=[4, 5])  # all of a task
    assert (again.classes, len(again.tasks)) == ([0, 2, 3, 6, 7], 3)
    assert len(again.drifts) == 3
    again.learn(*task(8, 9))
    assert again.evaluate(*task(8, 9)) > 0.3
    assert set(again.predict(TEST)) <= {0, 2, 3, 6, 7, 8, 9}


def held_pictures(learner: Learner) -> dict[bytes, Any]:
    """The class of every image that is held as it is, by its pixels."""
    assert learner._held is not None
    samples = learner._held.samples
    rows = [row.numpy().tobytes() for row in samples.x.dense()]
    return dict(zip(rows, (learner.classes[y] for y in samples.y.tolist()), strict=True))


def test_held_pictures_are_forgotten_and_renumbered_with_their_classes(tmp_path: Path) -> None:
    made = taught("finetune", FIRST, SECOND, val_fraction=0.3)
    before = held_pictures(made)
    assert set(before.values()) == {0, 1, 2, 3}
    gone = next(row for row, label in before.items() if label == 2)
    image = next(x for x in SECOND[0] if x.numpy().tobytes() == gone)

    made.forget(image[None])
    assert held_pictures(made) == {row: label for row, label in before.items() if row != gone}
    made.forget(classes=[0])
    left = {row: label for row, label in before.items() if row != gone and label != 0}
    assert held_pictures(made) == left
    made.merge_classes([1, 3])
    one = next(name for name in made.classes if name != 2)
    assert held_pictures(made) == {row: label if label == 2 else one for row, label in left.items()}
    made.save(tmp_path / "L")
    assert held_pictures(Learner.load(tmp_path / "L", network=module())) == held_pictures(made)
    assert made.report().images == len(left)


def test_the_rows_of_the_head_follow_their_classes() -> None:
    made = taught("finetune", FIRST, SECOND)
    rows = made._entries()["network"].tensors
    made.learn(*task(0, 2, start=30))
    rows = made._entries()["network"].tensors
    before = torch.cat([rows["network/head.weights.0"], rows["network/head.weights.1"]])
    made.forget(task(0, 1)[0])  # class 1 is gone, and 0 comes with the last task

    assert made.tasks == [[2, 3], [0]]
    after = made._entries()["network"].tensors
    assert torch.equal(after["network/head.weights.0"], before[2:])
    assert torch.equal(after["network/head.weights.1"], before[:1])


def test_what_no_weight_saw_is_forgotten_exactly() -> None:
    made = taught("freeze", FIRST, SECOND, THIRD)
    never = taught("freeze", FIRST, THIRD)
    first = made.forget(SECOND[0][:1])
    report = made.forget(classes=[2, 3])

    assert (first.exact, report.exact) == (True, True)
    assert report.meaning.startswith("Exact: no weight was trained on these images")
    assert torch.equal(made.scores(TEST), never.scores(TEST))
    assert made.calibration() == never.calibration()
    later = made.forget(FIRST[0][:1])
    assert not later.exact
    assert later.meaning.startswith("Approximate: ")
    assert "followed" not in later.meaning  # the network has not moved since
    made.forget(classes=[0, 1], allow_again=True)
    made.learn(*task(6, 7))
    assert made.forget(task(4)[0][:2]).exact


def test_versions_stay_where_no_weight_saw_what_is_forgotten(tmp_path: Path) -> None:
    made = taught("freeze", FIRST, SECOND)
    made.save(tmp_path / "saved")
    made.learn(*THIRD)
    made.save(tmp_path / "saved")
    made.forget(SECOND[0][:1])
    made.save(tmp_path / "saved")
    kept = read_versions(tmp_path / "saved").kept
    assert len(kept) == 3
    assert kept[3].marks == ()
    made.forget(FIRST[0][:1])
    made.save(tmp_path / "saved")
    kept = read_versions(tmp_path / "saved").kept
    assert list(kept) == [4]
    assert "learned from images that were forgotten" in kept[4].marks[0]


def test_merged_classes_are_one_class_from_then_on() -> None:
    made = taught("freeze", FIRST, SECOND, THIRD)
    exact = made.merge_classes([3, 4], into=3)
    near = made.merge_classes([0, 5], into=0)

    (third, others), (second, labels) = THIRD, SECOND
    never = taught("freeze", FIRST, (second, labels), (third, [3 if y == 4 else y for y in others]))
    assert exact.exact
    assert "to the bit" in exact.meaning
    assert not near.exact
    assert "the network has learned from them as different classes" in near.meaning
    never.merge_classes([0, 5], into=0)
    assert torch.equal(made.scores(TEST), never.scores(TEST))


def test_the_memory_loses_the_class_too() -> None:
    made = taught("finetune", task(0, 1, 6), SECOND, memory=Memory(per_class=4))
    report = made.forget(classes=[1])
    memory = made._exemplars()

    assert memory is not None
    assert sorted(set(memory.samples.y.tolist())) == [0, 1, 2, 3]
    assert "--retrain" in report.meaning
    made.learn(*THIRD)
    again = made.forget(classes=[2, 3], retrain=True)
    assert "trained again" in again.meaning
    assert made.classes == [0, 6, 4, 5]


def test_a_class_whose_head_answers_is_still_refused() -> None:
    made = taught("finetune", FIRST, SECOND, classifier="head", scenario="til")
    with pytest.raises(ScenarioError, match="has trained an output for it"):
        made.forget(classes=[1])


# -- merge -----------------------------------------------------------------------------------------


def test_networks_with_equal_weights_are_merged_whatever_the_method() -> None:
    here, there, whole = (taught("finetune", frozen=True) for _ in range(3))
    for images, *learners in ((FIRST, here, whole), (SECOND, there, whole), (THIRD, there, whole)):
        for site in learners:
            site.learn(*images)
    both = held_pictures(here) | held_pictures(there)
    here.merge(there)

    assert held_pictures(here) == both
    assert here.classes == whole.classes
    assert torch.equal(here.scores(TEST), whole.scores(TEST))
    assert len(here.drifts) == 3
    for site in (here, whole):
        site.learn(*task(6, 7))
    assert torch.equal(here.scores(TEST), whole.scores(TEST))
    assert not here.forget(classes=[2]).exact  # heads have learned from them


def test_a_picture_that_two_learners_hold_is_held_once() -> None:
    here, there = (taught("finetune", FIRST, frozen=True, val_fraction=0.3) for _ in range(2))
    before = held_pictures(here)
    assert before == held_pictures(there)
    here.merge(there)

    assert here._held is not None
    assert len(here._held.task) == len(before)
    assert held_pictures(here) == before


def test_networks_that_moved_apart_say_why_they_are_refused() -> None:
    here, there = taught("finetune", FIRST), taught("finetune", SECOND)
    with pytest.raises(SpecError, match="finetune trains its network in every task: once it has"):
        here.merge(there)
    alike = taught("finetune", FIRST, SECOND), taught("finetune", FIRST, SECOND)
    with pytest.raises(SpecError, match="finetune trains its network in every task: once it has"):
        alike[0].merge(alike[1])


def test_advice_is_not_given_where_it_leads_nowhere() -> None:
    here, there = (taught("freeze", part, scenario="til") for part in (FIRST, SECOND))
    with pytest.raises(SpecError) as error:
        here.merge(there)

    assert "let both continue" not in str(error.value)
    assert "With scenario='til' two learners cannot share a first task" in str(error.value)
    here, there = (taught("finetune", part, scenario="til") for part in (FIRST, SECOND))
    with pytest.raises(SpecError) as error:
        here.merge(there)
    assert "first task" not in str(error.value)


def test_two_grids_of_one_network_name_a_method_that_takes_one() -> None:
    torch.manual_seed(0)
    vectors = torch.randn(60, 12)
    labels = [number % 3 for number in range(60)]
    here, there = (
        Learner("finetune", "features", classifier="slda", training=TRAINING) for _ in range(2)
    )
    here.learn(vectors, labels)
    there.learn(9 * vectors, labels)
    with pytest.raises(SpecError, match=r"Begin both with slda or .* a grid, and one: grid=\d+"):
        here.merge(there)
