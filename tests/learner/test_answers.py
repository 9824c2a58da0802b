"""Probabilities, best labels, rejections and reports, measured on held images."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import Learner, Memory, ScenarioError, StoreError, Training
from tests.lab import Samples, StageResult, calibration_error, digits
from tests.saved_learners import read_saved, write_saved

TRAINING = Training(epochs=10, batch_size=32, lr=0.02, lr_first=0.05, schedule="cosine")


def part(*classes: int, test: bool = False) -> tuple[Tensor, list[int]]:
    samples: Samples = digits().test if test else digits().train
    chosen = torch.isin(samples.y, torch.tensor(classes))
    return samples.x[chosen], samples.y[chosen].tolist()


def taught(method: str = "icarl", *tasks: tuple[int, ...], **options: Any) -> Learner:
    given: dict[str, Any] = {"training": TRAINING, "val_fraction": 0.2, **options}
    made = Learner(method, "mlp", **{"memory": Memory(per_class=10), **given})
    for classes in tasks or ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9)):
        made.learn(*part(*classes))
    return made


@pytest.fixture(scope="module")
def icarl() -> Learner:
    return taught()


@pytest.fixture(scope="module")
def lucir() -> Learner:
    return taught("lucir")


@pytest.fixture(scope="module")
def til() -> Learner:
    return taught("lwf", (0, 1), (2, 3), scenario="til", memory=None)


@pytest.mark.parametrize("kind", ["icarl", "lucir"])
def test_probabilities_sum_to_one_and_are_calibrated(
    kind: str, request: pytest.FixtureRequest
) -> None:
    learner, test = request.getfixturevalue(kind), digits().test
    shares = learner.predict_proba(test.x)
    before = calibration_error(learner.scores(test.x).softmax(dim=1), test.y)
    after = calibration_error(shares, test.y)

    torch.testing.assert_close(shares.sum(dim=1), torch.ones(len(test)))
    assert bool((shares >= 0).all())
    assert [learner.classes[i] for i in shares.argmax(dim=1)] == learner.predict(test.x)
    # Measured on 599 test images: icarl 0.71 -> 0.03, lucir 0.10 -> 0.02.
    assert before > 0.08
    assert after < 0.06
    found = learner.calibration()
    assert (found.basis, found.images) == ("all tasks", 200)
    assert found.error is not None
    assert found.error_before is not None
    assert found.error < 0.1 < found.error_before


def test_held_images_are_validation_images_and_at_most_twenty_a_class(icarl: Learner) -> None:
    held = icarl._held
    assert held is not None
    assert held.samples.y.bincount().tolist() == [20] * 10
    assert held.task.tolist() == [0] * 100 + [1] * 100

    train = {bytes(image.numpy()) for image in digits().train.x}
    kept = {bytes(image.numpy()) for image in held.samples.x}
    memory = icarl._exemplars()
    assert memory is not None
    assert kept <= train
    assert not kept & {bytes(image.numpy()) for image in memory.samples.x}
    task = icarl._tasks[0]
    assert task.sizes[1] >= 100


def test_what_is_held_does_not_change_what_is_learned() -> None:
    one, other = (taught("lwf", (0, 1), (2, 3), scenario="til", held=held) for held in (0, 20))
    x = digits().test.x

    assert torch.equal(one.scores(x), other.scores(x))
    assert one._state == other._state
    assert one._held is None
    assert one.report().basis == "not measured"


def test_the_best_labels_come_with_their_probabilities(icarl: Learner, til: Learner) -> None:
    x = part(3, test=True)[0]
    shares, found = icarl.predict_proba(x), icarl.top_k(x, 3)

    assert [row[0][0] for row in found] == icarl.predict(x)
    assert all(a[1] >= b[1] >= c[1] for a, b, c in found)
    assert found[0][1][1] == pytest.approx(float(shares[0].sort(descending=True).values[1]))
    assert {len(row) for row in icarl.top_k(x, 99)} == {10}
    assert {name for name, _ in til.top_k(x, 5, task=1)[0]} == {2, 3}
    with pytest.raises(ScenarioError, match="k is 0"):
        icarl.top_k(x, 0)


def test_unknown_classes_are_rejected_more_than_known_ones() -> None:
    made = taught("lucir", (0, 1, 2, 3), (4, 5, 6))
    threshold = made.reject_threshold(0.1)
    known = made.predict(part(0, 1, 2, 3, 4, 5, 6, test=True)[0], reject=threshold)
    strange = made.predict(part(7, 8, 9, test=True)[0], reject=threshold)
    rates = [answers.count(None) / len(answers) for answers in (known, strange)]

    # Measured: 11 % of known images are rejected, and 40 % of unknown ones.
    assert rates[0] < 0.15
    assert rates[1] > 2.5 * rates[0]
    x = part(0, test=True)[0]
    assert made.predict(x, reject=0.0) == made.predict(x)
    assert made.predict(x, reject=1.0).count(None) > 0


def test_the_threshold_rejects_the_share_of_held_images_that_is_asked_for(icarl: Learner) -> None:
    held = icarl._held
    assert held is not None
    for rate in (0.0, 0.05, 0.25):
        answers = icarl.predict(held.samples.x, reject=icarl.reject_threshold(rate))
        assert answers.count(None) == int(rate * 200)
    for wrong in (-0.1, 1.0):
        with pytest.raises(ScenarioError, match="rate is"):
            icarl.reject_threshold(wrong)
    with pytest.raises(ScenarioError, match="a probability, from 0 to 1"):
        icarl.predict(held.samples.x, reject=5)


def test_a_report_measures_what_evaluate_does(icarl: Learner) -> None:
    x, y = digits().test.x, digits().test.y.tolist()
    report, found = icarl.report(x, y), icarl.confusion(x, y)

    assert report.accuracy == icarl.evaluate(x, y)
    assert (report.images, report.basis) == (599, "given images")
    answers = icarl.predict(x)
    assert found.counts[3][8] == sum((a, b) == (3, 8) for a, b in zip(y, answers, strict=True))
    assert [row.images for row in report.rows] == torch.tensor(y).bincount().tolist()
    assert [row.task for row in report.rows] == [0] * 5 + [1] * 5
    held = icarl.report()
    assert (held.images, held.basis) == (200, "all tasks")
    assert str(held).endswith("on 200 held images (all tasks)")


def test_held_accuracy_of_every_task_is_kept_for_the_card(icarl: Learner) -> None:
    first, second = icarl._measured
    assert first is not None
    assert second is not None
    assert (len(first.accuracy), len(second.accuracy)) == (1, 2)
    rows = icarl.report().rows
    for task, own in enumerate((rows[:5], rows[5:])):
        assert second.accuracy[task] == pytest.approx(sum(row.recall or 0 for row in own) / 5)


def test_with_the_task_known_classes_compete_within_it(til: Learner) -> None:
    x = part(2, 3, test=True)[0]
    shares = til.predict_proba(x, task=1)

    assert bool((shares[:, :2] == 0).all())
    torch.testing.assert_close(shares.sum(dim=1), torch.ones(len(x)))
    known, free = til.calibration(), til.calibration(task_known=False)
    assert known == til.calibration(task_known=True)
    assert known.temperature != free.temperature
    counts = torch.tensor(til.confusion().counts)
    assert bool((counts[:2, 2:] == 0).all())
    assert bool((counts[2:, :2] == 0).all())


def test_without_a_task_it_is_said_once_that_the_scores_choose_it() -> None:
    made = taught("lwf", (0, 1), scenario="til", memory=None)
    x, y = part(0, 1, test=True)
    made.predict(x)  # with one task there is nothing to choose
    made.learn(*part(2, 3))
    made.scores(x)
    made.evaluate(x, y, task=0)
    with pytest.warns(UserWarning, match="No task is given, so the scores choose it") as said:
        made.predict(x)
    made.predict(x)
    made.evaluate(x, y)
    assert said[0].filename == __file__


def test_it_is_said_once_that_probabilities_are_not_measured() -> None:
    made = taught("lwf", (0, 1), scenario="til", memory=None, held=0)
    x = part(0, 1)[0]
    with pytest.warns(UserWarning, match="is not measured: the learner holds no images of its"):
        shares = made.predict_proba(x)
    made.top_k(x)
    torch.testing.assert_close(shares, made.scores(x).softmax(dim=1))
    with pytest.raises(ScenarioError, match="this learner has none"):
        made.reject_threshold()


def test_images_held_since_a_later_task_are_said_to_be_of_the_newest_only() -> None:
    made = taught("lwf", (0, 1), scenario="til", memory=None, held=0)
    made._most_held = 20
    made.learn(*part(2, 3))

    assert made.calibration().basis == "newest task only"
    assert made.report().basis == "newest task only"
    assert [row.images for row in made.report().rows][:2] == [0, 0]
    with pytest.warns(UserWarning, match="newest task only: the learner holds no images of earl"):
        made.predict_proba(part(2)[0], task=1)


def test_held_images_are_saved_checked_and_used_after_loading(
    icarl: Learner, tmp_path: Path
) -> None:
    icarl.save(tmp_path / "m")
    loaded = Learner.load(tmp_path / "m")
    x = digits().test.x

    assert loaded.calibration() == icarl.calibration()
    assert torch.equal(loaded.predict_proba(x), icarl.predict_proba(x))
    assert loaded.report() == icarl.report()
    assert loaded._measured == icarl._measured

    entry = read_saved(tmp_path / "m")
    changes: dict[str, Tensor] = {
        "held/y": torch.full((200,), 10),
        "held/task": torch.full((200,), 2),
        "held/x": torch.zeros(200, 9, 8, 1, dtype=torch.uint8),
        "held/held": torch.zeros(200, dtype=torch.bool),
    }
    for name, value in changes.items():
        write_saved(tmp_path / "m", StageResult({**entry.tensors, name: value}, entry.meta))
        with pytest.raises(StoreError, match="the held images"):
            Learner.load(tmp_path / "m")
    for values in ([2.0, 1.0], ["a", 1.0]):
        forged = {**entry.meta, "values": values}
        write_saved(tmp_path / "m", StageResult(entry.tensors, forged))
        with pytest.raises(StoreError, match="cannot be opened"):
            Learner.load(tmp_path / "m")


def test_its_size_is_that_of_its_directory(icarl: Learner, tmp_path: Path) -> None:
    icarl.save(tmp_path / "m")
    files = (path for path in (tmp_path / "m").rglob("*") if path.is_file())
    written = sum(path.stat().st_size for path in files)
    size = icarl.size()

    assert size.disk == sum(size.parts.values())
    assert size.disk < written < size.disk + 30_000 + 100 * len(digits().train)
    assert set(size.parts) == {"network", "memory", "held"}
    assert size.parts["held"] == 200 * (64 + 8 + 8 + 1)
    assert size.memory == size.disk + size.parts["network"]
    assert str(size).startswith("3")


def test_images_of_tasks_are_not_kept_in_memory_unless_they_are_read_again() -> None:
    made = taught("joint", (0, 1), scenario="til", memory=None)
    assert made.size().parts["images"] == 64 * len(part(0, 1)[1])
    other = taught("lwf", (0, 1), scenario="til", memory=None)
    assert "images" not in other.size().parts
    with pytest.raises(Exception, match="keeps the images of task 1"):
        other._tasks[0].load()


def test_it_shows_what_it_is(icarl: Learner) -> None:
    assert repr(icarl).startswith(
        "<Learner icarl on mlp, cil: 10 classes in 2 tasks, images 1x8x8, 100 in memory, 200 held, "
    )
    assert repr(Learner("lwf")) == "<Learner lwf on resnet32, cil: nothing learned>"


def test_what_was_fitted_on_held_images_is_saved_with_the_learner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saved learner answers its first image without a look at all of its held ones."""
    learner = taught()
    expected, calibration = learner.top_k(digits().test.x[:5]), learner.calibration()
    learner.save(tmp_path / "kept")
    again, answered = Learner.load(tmp_path / "kept"), list[int]()
    score = Learner._score
    monkeypatch.setattr(
        Learner, "_score", lambda self, x: (answered.append(len(x)), score(self, x))[1]
    )

    assert again.calibration() == calibration
    assert again.top_k(digits().test.x[:5]) == expected
    assert answered == [5]


@pytest.mark.parametrize("wrong", [{"temperature": -1.0}, {"temperature": "x"}, {"error": 2.0}])
def test_a_forged_temperature_is_refused(
    icarl: Learner, tmp_path: Path, wrong: dict[str, Any]
) -> None:
    icarl.save(tmp_path / "m")
    entry = read_saved(tmp_path / "m")
    forged = {**entry.meta, "calibration": {**entry.meta["calibration"], **wrong}}
    write_saved(tmp_path / "m", StageResult(entry.tensors, forged))
    with pytest.raises(StoreError, match="cannot be opened"):
        Learner.load(tmp_path / "m")


def test_what_was_fitted_on_other_images_counts_for_nothing(icarl: Learner, tmp_path: Path) -> None:
    icarl.save(tmp_path / "m")
    entry = read_saved(tmp_path / "m")
    other = {**entry.meta["calibration"], "images": 7, "temperature": 1e6}
    for calibration in (other, None):
        meta = {**entry.meta, "calibration": calibration}
        write_saved(tmp_path / "m", StageResult(entry.tensors, meta))
        assert Learner.load(tmp_path / "m").calibration() == icarl.calibration()
