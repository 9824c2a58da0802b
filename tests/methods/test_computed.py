"""Methods that compute their classifier: exact numbers, and what no order of images changes."""

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ancl
from ancl import ExportError, Learner, MethodError, SpecError, load_run, make_method
from ancl.extend import architecture
from tests.lab import (
    COMPUTED,
    ImageFormat,
    Normalization,
    Samples,
    build,
    digits,
    read_run,
)

# Toy data with exact numbers.
X = torch.tensor(
    [[0, 0], [2, 0], [0, 2], [2, 2], [4, 0], [6, 2], [0, 5], [1, 7], [2, 6]], dtype=torch.float
)
Y = [0, 0, 0, 0, 1, 1, 2, 2, 2]
QUERIES = torch.tensor([[2.8, 1.5], [3.4, 0.5], [1, 3.6], [4, 4]])
NAMES = [*COMPUTED]
MLP: dict[str, Any] = {"network": "mlp", "network_options": {"hidden": [24]}}
MOMENTS: dict[str, Any] = {"normalization": (0.3, 0.4), "grid": 10}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*trains no weight.*")
        yield


def toy(method: str, **settings: Any) -> Learner:
    learner = Learner(method, "features", val_fraction=0, **settings)
    learner.learn(X[:6], Y[:6])
    learner.learn(torch.cat([X[6:], X[:1]]), [*Y[6:], 0])  # one known image comes again
    return learner


def weights(learner: Learner) -> Tensor:
    """The class weights, (D, C), as the formulas have them."""
    return learner.module.get_buffer("fixed_weight").T


# -- numbers ---------------------------------------------------------------------------------------


def test_nearest_means_on_the_toy() -> None:
    euclid = toy("ncm", metric="euclid")
    cosine = toy("ncm", centre=False)

    assert euclid.predict(QUERIES) == [0, 1, 2, 1]
    lengths = QUERIES.square().sum(dim=1, keepdim=True)
    distances = torch.tensor([[3.49, 5.09, 23.49], [6.01, 2.81, 36.01], [6.76, 22.76, 5.76]])
    assert torch.allclose((lengths - euclid.scores(QUERIES))[:3], distances, atol=1e-4)
    assert cosine.predict(QUERIES) == [0, 1, 2, 0]
    near = torch.tensor([0.957211, 0.956972, 0.610711])
    assert torch.allclose(cosine.scores(QUERIES)[0], near, atol=1e-5)


def test_ridge_on_the_toy() -> None:
    plain = [[0.0510663, 0.1682867, -0.0378645], [0.0179893, -0.0316263, 0.1571159]]
    balanced = [[0.026390, 0.180961, -0.034873], [0.016023, -0.032988, 0.157399]]

    for learner in (toy("acil", penalty=1.0), toy("ridge", penalty=1.0, balanced=False)):
        assert torch.allclose(weights(learner), torch.tensor(plain), atol=1e-6)
        assert learner.predict(QUERIES) == [1, 1, 2, 1]
    assert torch.allclose(weights(toy("ridge", penalty=1.0)), torch.tensor(balanced), atol=1e-6)


def test_the_discriminant_on_the_toy() -> None:
    scatter = np.array([[8.0, 3.0], [3.0, 8.0]]) / 9
    shrunk = 0.9 * scatter + 0.1 * np.trace(scatter) / 2 * np.eye(2)
    means = np.array([[1.0, 1], [5, 1], [1, 6]])
    expected = np.linalg.inv(shrunk) @ means.T

    assert np.allclose(weights(toy("slda")), expected, atol=1e-4)


def test_the_recursion_of_acil_ends_where_the_sums_do() -> None:
    penalty, images, labels = 2.0, X.double().numpy(), np.eye(3)[Y]
    inverse, solution = np.eye(2) / penalty, np.zeros((2, 3))
    for row, target in zip(images, labels, strict=True):  # one image at a time
        step = inverse @ row
        inverse = inverse - np.outer(step, step) / (1 + row @ step)
        solution = solution + np.outer(inverse @ row, target - row @ solution)

    assert np.allclose(weights(toy("acil", penalty=penalty)), solution, atol=1e-6)


@pytest.mark.filterwarnings("ignore:'large' has 500 images")
@pytest.mark.parametrize("name", ["ridge", "logistic"])
def test_a_small_class_is_answered_as_well_as_a_large_one(name: str) -> None:
    """Two clouds of equal shape: the better half of the plane must not go to the larger one."""
    random = torch.Generator().manual_seed(0)
    clouds = torch.randn(2, 1000, 2, generator=random) + torch.tensor([[[-1.0, 0]], [[1.0, 0]]])
    learner = Learner(name, "features", val_fraction=0)
    learner.learn(torch.cat([clouds[0, :500], clouds[1, :10]]), ["large"] * 500 + ["small"] * 10)

    answers = [learner.predict(cloud[500:]) for cloud in clouds]
    recall = [part.count(label) / 500 for part, label in zip(answers, learner.classes, strict=True)]

    assert abs(recall[0] - recall[1]) < 0.2, recall
    assert min(recall) > 0.7


def test_ranpac_is_ridge_on_lifted_features() -> None:
    learner = toy("ranpac", penalty=5.0, lift=7, balanced=False)
    projection = learner.module.get_buffer("fixed_projection").double()
    lifted = (X.double() @ projection).clamp(min=0)
    gram = lifted.T @ lifted + 5 * torch.eye(7, dtype=torch.double)
    expected = torch.linalg.solve(gram, lifted.T @ torch.eye(3, dtype=torch.double)[Y])

    assert torch.allclose(weights(learner).double(), expected, atol=1e-3)
    scores = (QUERIES.double() @ projection).clamp(min=0) @ expected
    assert torch.allclose(learner.scores(QUERIES).double(), scores, atol=1e-2)


def test_neighbours_vote_on_the_toy() -> None:
    learner = toy("knn", k=2, temperature=0.5)
    unit = X / X.norm(dim=1, keepdim=True).clamp(min=1e-12)
    near = (QUERIES[0] / QUERIES[0].norm()) @ unit.T
    best = near.argsort(descending=True)[:2]
    votes = (near[best] / 0.5).softmax(dim=0)
    expected = torch.full((3,), 0.5)
    for vote, place in zip(votes, best.tolist(), strict=True):
        expected[Y[place]] += vote

    assert torch.allclose(learner.scores(QUERIES)[0], expected.log(), atol=1e-5)


# -- order, batches, visits ------------------------------------------------------------------------


def part(classes: list[int], start: int = 0, stop: int = 40) -> tuple[Tensor, list[str]]:
    train = digits().train
    index = torch.cat([train.of_class(number)[start:stop] for number in classes])
    return train.x[index], [f"class {number}" for number in train.y[index].tolist()]


MONTHS = [part([0, 1, 2]), part([3, 1], 40, 60), part([4, 5])]


def taught(method: str, months: Any, **settings: Any) -> Learner:
    learner = Learner(method, **MLP, **MOMENTS, **settings)
    for images, labels in months:
        learner.learn(images, labels)
    return learner


def at_once(months: Any) -> list[tuple[Tensor, list[str]]]:
    return [(torch.cat([x for x, _ in months]), [label for _, y in months for label in y])]


def computed(learner: Learner) -> dict[str, Tensor]:
    """What scores are computed from, the classes by name."""
    module, order = learner.module, np.argsort(learner.classes)
    names = [name for name, _ in module.named_buffers() if name.startswith("fixed_")]
    tensors = {name: module.get_buffer(name) for name in names}
    for name in {"fixed_weight", "fixed_bias"} & {*tensors}:
        tensors[name] = tensors[name][torch.from_numpy(order)]
    if "fixed_labels" in tensors:
        tensors["fixed_labels"] = torch.from_numpy(np.argsort(order))[tensors["fixed_labels"]]
    return tensors


def same(one: Learner, two: Learner) -> bool:
    first, second = computed(one), computed(two)
    assert first.keys() == second.keys()
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", NAMES)
def test_order_months_and_visits_change_no_bit(name: str) -> None:
    learner = taught(name, MONTHS)
    whole = taught(name, at_once(MONTHS))
    images, labels = at_once(MONTHS)[0]
    back = torch.arange(len(labels) - 1, -1, -1)
    shuffled = taught(name, [(images[back], [labels[place] for place in back.tolist()])])

    assert same(learner, whole)
    assert same(learner, shuffled)
    assert same(learner, taught(name, [MONTHS[2], MONTHS[0], MONTHS[1]]))
    assert same(learner, taught(name, [*MONTHS, MONTHS[0]]))  # known images alone, once more
    assert learner.choice == whole.choice
    assert {entry.hash: entry.held for entry in learner.ledger} == {
        entry.hash: entry.held for entry in whole.ledger
    }


@pytest.mark.parametrize("name", ["ncm", "ranpac", "auto"])
def test_sums_alone_compute_the_same_classifier(name: str) -> None:
    whole, sums = taught(name, MONTHS[:2]), taught(name, MONTHS[:2], keep="sums")

    if name != "auto":  # which has one candidate fewer
        assert same(whole, sums)
    assert all(entry.held for entry in sums.ledger)
    assert len(sums.ledger) == sum(entry.held for entry in whole.ledger) > 0
    assert sums.size().disk < whole.size().disk


def test_an_image_is_held_whatever_comes_with_it() -> None:
    images, labels = at_once(MONTHS)[0]
    held = {entry.hash for entry in taught("ncm", [(images, labels)]).ledger if entry.held}
    other = taught("ncm", [(images[::2], labels[::2])])

    assert {e.hash for e in other.ledger if e.held} == held & {e.hash for e in other.ledger}
    assert 5 < len(held) < 40
    seeded = Learner("ncm", seed=1, **MLP, **MOMENTS)
    seeded.learn(images, labels)
    assert {entry.hash for entry in seeded.ledger if entry.held} != held


def test_a_class_of_one_image_is_known_even_if_that_is_held() -> None:
    learner = taught("ridge", MONTHS[:1], val_fraction=0.9)
    images, _ = part([7], 0, 1)
    for number in range(12):
        learner.learn(images.clone().fill_(10 * number), [f"single {number}"])

    assert sum(entry.held for entry in learner.ledger if "single" in str(entry.label)) > 5
    assert learner.scores(images).isfinite().all()
    assert len(learner.predict(images)) == 1


def test_features_do_not_depend_on_the_images_beside_them() -> None:
    network = architecture("resnet8", (3, 32, 32)).build((2,))
    draw = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (150, 32, 32, 3), generator=draw).to(torch.uint8)
    form = ImageFormat(Normalization((0.5,) * 3, (0.5,) * 3), 7)
    features = form.exactly(network, torch.device("cpu"))

    def of(index: Tensor) -> Any:
        return features(Samples(images[index], torch.zeros(len(index), dtype=torch.long)))

    whole = of(torch.arange(150))
    for index in (torch.tensor([77]), torch.arange(140, 150), torch.arange(149, -1, -1)):
        assert torch.equal(of(index), whole[index])
    plain = form.answering(network, torch.device("cpu"))
    labels = torch.zeros(150, dtype=torch.long)
    assert torch.allclose(plain(Samples(images, labels)).features, whole, atol=1e-4)


# -- runs ------------------------------------------------------------------------------------------

TINY: dict[str, Any] = {
    "network": {"name": "mlp", "hidden": [24]},
    "data": {"scenario": "cil", "per_class": 30, "test_per_class": 20},
    "threads": 1,
}


@pytest.mark.parametrize("name", ["auto", "ranpac", "knn"])
def test_a_run_trains_nothing_and_is_a_learner(name: str, tmp_path: Path) -> None:
    result = ancl.run(name, "digits/5", runs=tmp_path, **TINY)
    learner = load_run(next(tmp_path.glob("digits*")))
    test = digits().test
    first = torch.cat([test.of_class(number)[:20] for number in range(10)])

    assert result.log == ()
    assert result.metrics["aiac"] > 0.8
    right = learner.evaluate(test.x[first], test.y[first].tolist())
    assert abs(right - result.metrics["final_accuracy"]) < 0.06  # other test images
    assert sum(entry.held for entry in learner.ledger) == sum(val for _, val, _ in result.images)
    if name == "auto":
        assert len(result.choices) == 5
        assert result.choices[-1] == learner.choice
        assert read_run(next(tmp_path.glob("digits*"))).choices == result.choices


@pytest.mark.parametrize("scenario", ["til", "dil", "cir"])
@pytest.mark.parametrize("name", ["auto"])
def test_all_scenarios(name: str, scenario: str) -> None:
    data = {**TINY["data"], "scenario": scenario}
    data |= {"domains": "rotation", "tasks": 3} if scenario == "dil" else {"tasks": 5}
    result = ancl.run(name, "digits/5", runs=None, **{**TINY, "data": data})

    assert result.metrics["final_accuracy"] > (0.6 if scenario == "dil" else 0.8)


def test_classifiers_share_features_and_statistics() -> None:
    keys: dict[str, dict[str, str]] = {}
    for name in ("ncm", "ridge", "auto"):
        spec = ancl.spec(name, "digits/5", **TINY)
        keys[name] = {f"{s.name} {s.task}": s.key for s in build(spec).stages}

    own = {
        kind: {keys[name][f"{kind} 4"] for name in keys} for kind in ("statistics", "classifier")
    }
    assert len(own["statistics"]) == 1
    assert len(own["classifier"]) == 3
    assert not any(kind.startswith("main") for kind in keys["ncm"])


# -- auto ------------------------------------------------------------------------------------------


def test_auto_is_what_held_images_favour() -> None:
    learner = taught("auto", MONTHS)
    choice = learner.choice
    assert choice is not None
    alone = taught(choice.method, MONTHS)

    assert same(learner, alone)
    held = sum(entry.held for entry in learner.ledger)
    assert choice.held == held
    report = learner.report()
    assert report.accuracy == choice.right[choice.method] / held
    assert list(choice.right) == ["ncm", "slda", "ridge", "logistic"]
    simpler = list(choice.right)[: list(choice.right).index(choice.method)]
    assert all(choice.right[choice.method] > choice.right[name] + 1 for name in simpler)


def test_without_held_images_auto_is_the_simplest() -> None:
    choice = taught("auto", MONTHS[:1], val_fraction=0).choice

    assert choice is not None
    assert (choice.method, choice.held) == ("ncm", 0)
    assert "without held images" in str(choice)


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", ["a", "afec"])
@pytest.mark.parametrize("name", NAMES)
def test_there_is_nothing_for_an_auxiliary_network(name: str, variant: str) -> None:
    with pytest.raises(MethodError, match="the classifier of all tasks is exact"):
        make_method(f"{variant}-{name}")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("ridge", {"penalty": 0}, "penalty is 0"),
    ("ridge", {"penalty": "best"}, "penalty is 'best'"),
    ("ridge", {"lamb": 1.0}, "ridge has no setting 'lamb'"),
    ("slda", {"shrinkage": 2.0}, "shrinkage is 2.0"),
    ("ranpac", {"lift": -1}, "lift is -1"),
    ("knn", {"k": 0}, "k is 0"),
    ("knn", {"keep": "sums"}, "knn has no setting 'keep'"),
    ("ncm", {"keep": "images"}, "keep is 'images'"),
    ("ncm", {"metric": "cos"}, "metric is 'cos'"),
    ("auto", {"penalty": 1.0}, "auto has no setting 'penalty'"),
    ("ncm", {"grid": 99}, "grid is 99"),
    ("ncm", {"held": 5}, "holds a share of all images, as features"),
]


@pytest.mark.parametrize(("name", "settings", "said"), WRONG)
def test_bad_settings(name: str, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Learner(name, "mlp", **settings)


def test_a_search_has_nothing_to_find() -> None:
    with pytest.raises(SpecError, match="auto has neither λ nor λ_a"):
        ancl.search("auto", "digits/5")


def test_aliases() -> None:
    assert make_method("simplecil") == make_method("ncm")
    assert make_method("deep_slda") == make_method("slda")
    assert make_method("acil").finish[1] == make_method("ridge", balanced=False).finish[1]


def test_features_that_are_too_large_for_the_grid_are_said(recwarn: Any) -> None:
    learner = Learner("ncm", "features", val_fraction=0)
    learner.learn(X, Y)
    learner.learn(100 * X, Y)

    said = [str(each.message) for each in recwarn]
    assert any("were cut to 32, the largest number of the grid" in text for text in said)


def test_features_that_are_no_numbers_are_refused() -> None:
    learner = Learner("ncm", "features", val_fraction=0)
    with pytest.raises(ancl.ScenarioError, match=r"not finite|NaN|not a number|infinite"):
        learner.learn(torch.full((4, 2), float("nan")), [0, 0, 1, 1])


@pytest.mark.parametrize("name", ["ncm", "ridge", "ranpac"])
def test_one_file_answers_alone(name: str, tmp_path: Path) -> None:
    learner = taught(name, MONTHS[:2])
    assert learner.export(tmp_path / "head.pt2").difference < 1e-3


def test_neighbours_are_not_exported(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="Learn the same images with ridge"):
        taught("knn", MONTHS[:1]).export(tmp_path / "head.pt2")
