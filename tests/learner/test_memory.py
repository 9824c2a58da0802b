"""A learner with exemplars: saved, loaded in another process, and taught on."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ancl import Events, Learner, Memory, ScenarioError, SpecError, Training

TRAINING = Training(epochs=15, lr=0.1, lr_first=0.1, batch_size=16, schedule="cosine")
OPTIONS = {"network_options": {"hidden": (32,)}, "training": TRAINING}


class Said(Events):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


def images(lab, label: int, part: str = "train") -> Tensor:
    samples = getattr(lab.source, part)
    return samples.x[samples.y == label]


def taught(lab, method: str, **options) -> Learner:
    learner = Learner(method, "mlp", **{**OPTIONS, **options})
    for names, labels in ((("ant", "bee"), (0, 1)), (("cat", "fox"), (2, 3))):
        x = [images(lab, label) for label in labels]
        learner.learn(torch.cat(x), [n for n, part in zip(names, x, strict=True) for _ in part])
    return learner


@pytest.mark.filterwarnings("ignore:.*keeps no images of earlier tasks")
@pytest.mark.parametrize(
    ("method", "options", "parts"),
    [
        ("bic", {"memory": Memory(per_class=8), "bias_epochs": 20}, {"network", "bias", "memory"}),
        ("der", {"memory": Memory(per_class=8), "balanced_epochs": 5}, {"network", "memory"}),
        ("connector", {}, {"network"}),
        ("connector", {"stability": "projected"}, {"network", "covariance"}),
    ],
)
def test_what_a_method_keeps_is_saved_with_the_network(
    method, options, parts, lab, tmp_path: Path
) -> None:
    learner = taught(lab, method, **options)
    learner.save(tmp_path / "learner")
    query = images(lab, 3, "test")

    loaded = Learner.load(tmp_path / "learner")
    for each in (learner, loaded):
        each.learn(torch.cat([images(lab, 4), images(lab, 5)]), ["owl"] * 20 + ["pig"] * 20)

    assert torch.equal(loaded.scores(query), learner.scores(query))
    assert loaded._state == learner._state
    assert parts <= set(loaded._state)


@pytest.mark.parametrize("method", ["icarl", "eeil", "bic", "wa", "lucir", "der"])
def test_every_method_answers_by_its_own_inference(method, lab) -> None:
    settings = {"bias_epochs": 20} if method == "bic" else {}
    learner = taught(lab, method, memory=Memory(per_class=8), **settings)
    accuracies = [
        learner.evaluate(images(lab, label, "test"), [name] * 6)
        for label, name in enumerate(learner.classes)
    ]

    assert sum(accuracies) / 4 > 0.75
    scores = learner.scores(images(lab, 0, "test"), task=0)
    assert scores[:, 2:].isneginf().all()
    # Nearest means give minus a squared distance of unit vectors, at least −4 and at most 0.
    free = learner.scores(images(lab, 0, "test"))
    assert (bool((free <= 0).all()) and bool((free >= -4.001).all())) == (method == "icarl")


def test_what_is_kept_by_default_none_or_asked_for(lab) -> None:
    def kept(learner: Learner) -> int | None:
        key = learner._state.get("memory")
        return None if key is None else len(learner._obtain(key).tensors["memory/y"])

    assert kept(taught(lab, "wa", memory=Memory(total=10))) == 8
    assert kept(taught(lab, "wa", memory=Memory(), events=Events())) is None
    assert kept(taught(lab, "lwf", events=Events())) is None
    assert kept(taught(lab, "lwf", memory=Memory(per_class=3))) == 12
    # The method's own memory of 20 a class is more than 18, all there are to train on.
    assert kept(taught(lab, "icarl")) == 4 * 18


def test_a_memory_that_does_not_fit_leaves_the_learner_as_it_was(lab) -> None:
    with pytest.raises(SpecError, match="cannot keep one of each of 4 classes"):
        taught(lab, "icarl", memory=Memory(total=3))
    with pytest.raises(SpecError, match="there is no memory"):
        taught(lab, "bic", memory=Memory())
    learner = Learner("icarl", "mlp", memory=Memory(total=3), **OPTIONS)
    x = torch.cat([images(lab, 0), images(lab, 1)])
    learner.learn(x, [0] * 20 + [1] * 20)
    with pytest.raises(SpecError):
        learner.learn(torch.cat([images(lab, 2), images(lab, 3)]), [2] * 20 + [3] * 20)
    assert learner.classes == [0, 1]


def test_features_of_a_resnet_end_as_the_method_wants(lab) -> None:
    options = {"training": Training(epochs=1), "memory": Memory(per_class=2)}
    small = {"width": 4}
    for method, signs in (("lucir", True), ("icarl", False)):
        learner = Learner(method, "resnet8", network_options=small, **options)
        learner.learn(torch.cat([images(lab, 0), images(lab, 1)]), [0] * 20 + [1] * 20)
        assert learner._setting.architecture.options["last_relu"] is not signs


ONE = Training(epochs=15, lr=0.05, lr_first=0.05, batch_size=16, patience=3)


@pytest.mark.parametrize("method", ["wa", "icarl", "lucir", "a-wa"])
def test_one_image_a_class_is_learned_and_kept(method: str, lab) -> None:
    said = Said()
    learner = Learner(
        method,
        "mlp",
        network_options={"hidden": (32,)},
        training=ONE,
        memory=Memory(per_class=20),
        events=said,
    )
    learner.learn(torch.cat([images(lab, label)[:1] for label in (0, 1)]), ["ant", "bee"])
    learner.learn(images(lab, 2)[:1], "cat")
    kept = learner._obtain(learner._state["memory"]).tensors["memory/y"]

    assert learner.classes == ["ant", "bee", "cat"]
    assert kept.bincount().tolist() == [1, 1, 1]
    assert learner.predict(torch.cat([images(lab, label)[:1] for label in range(3)])) == [
        "ant",
        "bee",
        "cat",
    ]
    assert any("Task 1 has no images to validate on" in message for message in said.messages)
    assert learner.report().basis == "not measured"


def test_a_searched_rate_needs_no_validation_images(lab) -> None:
    training = replace(ONE, epochs=2, lr_search=True)
    learner = Learner("wa", "mlp", training=training, memory=Memory(per_class=2), events=Said())
    learner.learn(torch.cat([images(lab, label)[:1] for label in (0, 1)]), ["ant", "bee"])
    assert len(learner.predict(images(lab, 0))) == 20


def test_a_class_with_few_images_beside_others_is_kept_whole(lab) -> None:
    learner = Learner("icarl", "mlp", memory=Memory(per_class=8), **OPTIONS)
    x = torch.cat([images(lab, 0), images(lab, 1)[:3]])
    learner.learn(x, ["ant"] * 20 + ["bee"] * 3)
    kept = learner._obtain(learner._state["memory"]).tensors["memory/y"]

    # One of three goes to validation.
    assert kept.bincount().tolist() == [8, 2]
    bic = Learner("bic", "mlp", memory=Memory(per_class=8), **OPTIONS)
    x = torch.cat([images(lab, 0), images(lab, 2)[:2]])
    with pytest.raises(ScenarioError, match="'cat' has 1 image to train on"):
        bic.learn(x, ["ant"] * 20 + ["cat"] * 2)


@pytest.mark.filterwarnings("ignore:.*keeps the last free kernels")
@pytest.mark.parametrize("method", ["aanets-icarl", "ccgn"])
def test_two_branches_and_gates_are_saved_and_learn_on_as_if_never_stopped(
    method, lab, tmp_path: Path
) -> None:
    training = replace(TRAINING, epochs=2)
    learner = Learner(
        method,
        "resnet8",
        network_options={"width": 2},
        scenario="cil",
        training=training,
        memory=Memory(per_class=4),
    )
    for label in (0, 2):
        x = [images(lab, label), images(lab, label + 1)]
        learner.learn(torch.cat(x), [label] * len(x[0]) + [label + 1] * len(x[1]))
    learner.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    test = lab.source.test.x
    assert torch.equal(loaded.scores(test), learner.scores(test))

    x, y = images(lab, 4), [4] * len(images(lab, 4))
    x, y = torch.cat([x, images(lab, 5)]), y + [5] * len(images(lab, 5))
    for each in (learner, loaded):
        each.learn(x, y)

    assert loaded.classes == [0, 1, 2, 3, 4, 5]
    assert torch.equal(loaded.scores(test), learner.scores(test))
