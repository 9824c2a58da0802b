"""Methods whose backbone learns and whose classifier is computed from statistics."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ancl import Learner, MethodError, SpecError, Training, make_method, run, spec
from ancl.extend import Output
from tests.lab import ComputedAnswers, ImageView, digits, pixel_hashes, read_run

TRAINING = Training(epochs=2, lr=0.05, schedule="cosine", batch_size=16)
SETTINGS: dict[str, Any] = {
    "data.scenario": "cil",
    "data.classes": "4,3x2",
    "data.per_class": 20,
    "data.test_per_class": 10,
    "network.name": "mlp",
    "network.hidden": [16],
    "training.epochs": 3,
    "training.schedule": "cosine",
    "threads": 1,
}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(mirrored|validate).*")
        yield


def months(learner: Learner, tasks: int = 2) -> Learner:
    images = digits().train
    for task in range(tasks):
        part = images.take(torch.cat([images.of_class(2 * task + k)[:30] for k in (0, 1)]))
        learner.learn(part.x, part.y.tolist())
    return learner


def module(frozen: bool) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.Tanh())
    return made.requires_grad_(not frozen)


def test_on_a_network_that_does_not_move_all_are_the_computed_classifier() -> None:
    moving = months(Learner("finetune", module(True), classifier="slda", training=TRAINING))
    exact = months(Learner("slda", module(True)))
    images = digits().test.take(torch.arange(50))

    assert moving.predict(images.x) == exact.predict(images.x)
    scores = (each.module(images.x[:50]) for each in (moving, exact))
    assert torch.allclose(*scores, atol=1e-5)


def test_what_is_measured_on_held_images_is_what_the_network_answers_for_them(
    tmp_path: Path,
) -> None:
    fast = Training(epochs=6, lr=1.0, schedule="cosine", batch_size=8)
    learner = Learner("finetune", module(False), classifier="slda", training=fast, val_fraction=0.3)
    months(learner, 4)
    learner.save(tmp_path / "L")
    images = digits().train
    x = torch.cat([images.x[images.of_class(k)[:30]] for k in range(8)])
    hashes = [row.hex() for row in pixel_hashes(ImageView.of(x))]
    held = {image.sha256: image.label for image in learner.images if "held" in image.kept}
    rows = [row for row, text in enumerate(hashes) if text in held]

    answers = learner.predict(x[rows])
    right = [answer == held[hashes[row]] for row, answer in zip(rows, answers, strict=True)]
    assert 0.1 < sum(right) / len(right) < 0.9  # so much moved that estimates would be seen
    for known in (learner, Learner.load(tmp_path / "L", network=module(False))):
        report = known.report()
        assert report.images == len(right)
        assert report.accuracy == pytest.approx(sum(right) / len(right))


def test_transport_follows_a_network_that_moves_and_its_drift_is_in_the_results(
    tmp_path: Path,
) -> None:
    fast = {**SETTINGS, "classifier": "slda", "training.lr": 0.3, "training.lr_first": 0.05}
    found = {
        transport: run(
            spec("finetune", "digits/5", settings={**fast, "transport": transport}),
            runs=tmp_path,
        )
        for transport in (True, False)
    }

    moved, stale = (found[transport].metrics["final_accuracy"] for transport in (True, False))
    assert moved > stale + 0.05
    drifts = found[True].drifts
    assert len(drifts) == 2
    assert all(drift.moved > 0.01 and 0 < drift.residual < 1 for drift in drifts)
    assert [d.transported for d in found[False].drifts] == [False, False]
    assert found[False].drifts[0].moved == drifts[0].moved
    directories = [path.parent for path in tmp_path.glob("*/result.json")]
    assert {read_run(each).drifts for each in directories} == {r.drifts for r in found.values()}


def test_a_first_session_trains_once_and_then_nothing(tmp_path: Path) -> None:
    settings = {**SETTINGS, "classifier": "ridge"}
    result = run(spec("freeze", "digits/5", settings=settings), runs=tmp_path)

    assert {epoch["task"] for epoch in result.log} == {0}
    assert result.drifts == ()
    first, last = (result.network(task).weights() for task in (0, 2))
    assert all(torch.equal(first[name], last[name]) for name in first)
    assert result.metrics["final_accuracy"] > 0.3


def test_a_first_session_may_have_a_cosine_head(tmp_path: Path) -> None:
    own = {**SETTINGS, "classifier": "slda", "training.epochs": 8}
    found = {}
    for head in ("linear", "cosine"):
        result = run(spec("freeze", "digits/5", settings={**own, "head": head}), runs=tmp_path)
        found[head] = result.network(2)
        assert result.metrics["final_accuracy"] > 0.4
    assert found["linear"].head.scale is None
    assert found["cosine"].head.scale != 1  # it is learned
    plain = spec("freeze", "digits/5", settings=own).plain()
    assert "head" not in plain["options"]


@pytest.mark.parametrize(
    ("method", "lamb"),
    [("lfl", 40), ("a-lfl", 40), ("ewc", 100), ("a-mas", 1), ("a-lwf", 1), ("connector", None)],
)
def test_every_anchor_goes_with_a_computed_classifier(
    method: str, lamb: float | None, tmp_path: Path
) -> None:
    settings = {**SETTINGS, "classifier": "slda", "data.classes": "5,5"}
    settings |= {} if lamb is None else {"lamb": lamb}
    result = run(spec(method, "digits/5", settings=settings), runs=tmp_path)

    assert len(result.drifts) == 1
    assert result.metrics["final_accuracy"] > 0.3  # heads alone would lose the first task


def test_a_strong_pull_to_old_features_leaves_them_where_they_are(tmp_path: Path) -> None:
    moved = {}
    for distance, lamb in (("squared", 0.0), ("squared", 100.0), ("cosine", 10.0)):
        own = {"lamb": lamb, "distance": distance, "classifier": "slda", "data.classes": "5,5"}
        result = run(spec("lfl", "digits/5", settings={**SETTINGS, **own}), runs=tmp_path)
        moved[distance, lamb] = result.drifts[0].moved
    free = moved.pop(("squared", 0.0))
    assert all(value < 0.7 * free for value in moved.values())


@pytest.mark.parametrize("method", ["lwf", "a-lwf"])
def test_lwf_holds_a_moving_network_at_its_default_lambda(method: str, tmp_path: Path) -> None:
    def ended(name: str, **more: Any) -> tuple[float, float]:
        own = {**SETTINGS, "classifier": "slda", "training.epochs": 8, **more}
        result = run(spec(name, "digits/5", settings=own), runs=tmp_path)
        return result.metrics["final_accuracy"], sum(drift.moved for drift in result.drifts)

    free, held = ended("finetune"), ended(method)
    unlimited = ended(method, **{"training.clip": 1e9})

    assert held[0] > free[0] + 0.03
    assert held[1] < 0.7 * free[1]
    assert unlimited[0] < free[0] - 0.1  # plain steps overshoot: why the gradient is limited


def test_what_a_run_says_of_the_gradient_stays() -> None:
    def clip(method: str, **more: Any) -> float | None:
        return spec(method, "digits/5", **more).training.clip

    assert clip("lwf", classifier="slda") == 1.0
    assert clip("lwf", classifier="slda", training=Training(epochs=3)) == 1.0
    assert clip("lwf", classifier="slda", training=Training(clip=5.0)) == 5.0
    assert clip("lwf", classifier="slda", settings={"training.clip": 0.3}) == 0.3
    assert clip("lfl", classifier="slda") is None
    assert clip("lwf") is None


def test_lwf_answers_old_classes_by_the_classifier_of_the_last_task() -> None:
    infer = make_method("lwf", classifier="slda").infer
    assert isinstance(infer, ComputedAnswers)
    extra = {
        "weight": torch.tensor([[1.0, 0], [0, 2]]),
        "bias": torch.tensor([0.5, 0]),
        "temperature": torch.tensor(2.0),
    }
    output = Output(torch.tensor([[9.0, 9, 7]]), torch.tensor([[3.0, 4]]))

    assert infer.correct(output, extra).logits.tolist() == [[1.75, 4, 7]]
    assert infer.correct(output, {}) is output  # nothing is known in the first task
    student = infer.student(extra)
    assert student is not None
    assert student(output).logits.tolist() == [[1.75, 4, 7]]
    assert infer.scores(output, extra).tolist() == [[3.5, 8]]


def test_a_learner_keeps_a_ledger_answers_alike_after_loading_and_is_not_merged(
    tmp_path: Path,
) -> None:
    learner = months(Learner("lfl", module(False), classifier="slda", training=TRAINING))
    learner.save(tmp_path / "model")
    again = Learner.load(tmp_path / "model", network=module(False))
    images = digits().test.x[:40]

    assert again.predict(images) == learner.predict(images)
    assert len(learner.ledger) == 120
    with pytest.raises(SpecError, match="trains its network in every task: once it has moved"):
        learner.merge(again)
    more = digits().train.take(torch.cat([digits().train.of_class(n)[:20] for n in (4, 5)]))
    again.learn(more.x, more.y.tolist())
    assert len(again.ledger) == 160


def test_transport_without_statistics_is_refused() -> None:
    with pytest.raises(MethodError, match="keeps no statistics that could follow"):
        make_method("lfl", transport=False)
    assert not make_method("lfl", classifier="slda").collapses("cil", None)
    assert make_method("lfl").collapses("cil", None)


def test_keys_of_methods_without_the_new_settings_stay() -> None:
    plain = spec("lfl", "digits/5").plain()["options"]
    assert not {"classifier", "transport", "distance"} & plain.keys()
    assert spec("lfl", "digits/5", settings={"classifier": "slda"}).plain()["options"] == {
        **plain,
        "classifier": "slda",
    }
