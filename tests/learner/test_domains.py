"""A learner whose tasks bring the same classes again, each time in another domain."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ancl import AnclError, Events, Learner, Memory, ScenarioError, SpecError, Training, make_method
from tests.lab import Domain, Samples, task_from

TRAINING = Training(epochs=2, lr=0.1, lr_first=0.1, batch_size=16, schedule="cosine")
LONG = replace(TRAINING, epochs=15)
NAMES = ["fox", "ant", "owl"]
CLASSES = ["ant", "fox", "owl"]


def domain(lab, number: int, part: str = "train", classes: int = 3) -> tuple[Tensor, list[str]]:
    samples = getattr(lab.source, part)
    chosen = samples.y < classes
    seen = Domain("permutation", number)(samples.x[chosen])
    return seen, [[*NAMES, "pig"][label] for label in samples.y[chosen].tolist()]


def learner(method: str, **options: Any) -> Learner:
    given: dict[str, Any] = {"training": TRAINING, "network_options": {"hidden": (32,)}, **options}
    return Learner(method, "mlp", scenario="dil", **given)


def taught(lab, method: str, domains: int = 2, **options: Any) -> Learner:
    made = learner(method, **options)
    for number in range(domains):
        made.learn(*domain(lab, number))
    return made


def test_classes_stay_and_all_domains_are_answered(lab) -> None:
    made = taught(lab, "joint", 3, training=LONG)
    x, _ = domain(lab, 1, "test")

    assert made.classes == CLASSES
    assert made.tasks == [CLASSES] * 3
    assert made.scores(x).shape == (18, 3)
    # Every task has all classes, so naming one tells nothing.
    assert torch.equal(made.scores(x, task=1), made.scores(x))
    assert [made.evaluate(*domain(lab, number, "test")) for number in range(3)] == [1.0] * 3
    assert set(made.predict(x)) == set(CLASSES)


def test_images_kept_of_earlier_domains_are_not_forgotten(lab) -> None:
    def on_first(made: Learner) -> float:
        return made.evaluate(*domain(lab, 0, "test"))

    memory = Memory(per_class=10)
    assert on_first(taught(lab, "finetune", 3, memory=memory, training=LONG)) > 0.9
    assert on_first(taught(lab, "finetune", 3, training=LONG)) < 0.7


@pytest.mark.parametrize("method", ["a-ewc", "lwf"])
def test_it_learns_what_a_stream_of_domains_learns(method: str, lab) -> None:
    made = taught(lab, method, 3)
    position = {name: index for index, name in enumerate(CLASSES)}
    tasks = []
    for number in range(3):
        x, labels = domain(lab, number)
        samples = Samples(x, torch.tensor([position[name] for name in labels]))
        place = {"index": number, "classes": slice(0, 3), "names": tuple(CLASSES)}
        tasks.append(task_from(samples, **place, seed=0, val_fraction=0.1, test=None))
    setting = made._setting
    assert setting is not None

    learned = lab.learn(make_method(method), setting, tasks)

    final = learned.entry("main", 2).tensors
    ours = made._obtain(made._state["network"]).tensors
    assert not setting.task_aware
    assert all(torch.equal(ours[name], value) for name, value in final.items())
    assert ours["network/head.weights.0"].shape == (3, 32)
    assert "network/head.weights.1" not in ours


@pytest.mark.parametrize("method", ["a-ewc", "afec-si", "a-icarl"])
def test_saved_and_taught_on_equals_one_that_never_stopped(
    method: str, lab, tmp_path: Path
) -> None:
    whole = taught(lab, method, memory=Memory(per_class=3) if method == "a-icarl" else None)
    whole.save(tmp_path / "saved")
    loaded = Learner.load(tmp_path / "saved")
    x, _ = domain(lab, 2, "test")
    assert torch.equal(loaded.scores(x), whole.scores(x))

    for each in (whole, loaded):
        each.learn(*domain(lab, 2))

    assert loaded.scenario == "dil"
    assert (loaded.classes, loaded.tasks) == (CLASSES, [CLASSES] * 3)
    assert loaded._state == whole._state
    assert torch.equal(loaded.scores(x), whole.scores(x))


def test_exemplars_are_kept_by_class_and_domain(lab) -> None:
    def kept(made: Learner) -> list[int]:
        memory = made._obtain(made._state["memory"]).tensors
        group = memory["memory/y"] + 3 * memory["memory/task"]
        return group.bincount().tolist()

    assert kept(taught(lab, "icarl", 3, memory=Memory(per_class=2))) == [2] * 9
    assert kept(taught(lab, "icarl", 2, memory=Memory(total=20))) == [3] * 6
    assert kept(taught(lab, "icarl", 3, memory=Memory(total=20))) == [2] * 9


def test_labels_come_in_any_order(lab) -> None:
    first, second = taught(lab, "lwf", 1), taught(lab, "lwf", 1)
    x, labels = domain(lab, 1)
    first.learn(x, labels)
    second.learn(x.flip(0), labels[::-1])

    assert torch.equal(first.scores(x), second.scores(x))


class Said(Events):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def say(self, message: str) -> None:
        self.messages.append(message)


def test_what_needs_new_classes_is_left_out_and_said(lab) -> None:
    said = Said()
    made = taught(lab, "lucir", memory=Memory(per_class=4), events=said)

    assert made.classes == CLASSES
    assert said.messages == [
        "lucir: tasks bring no new classes; left out: the margin term, imprinting, the factor on λ."
    ]


@pytest.mark.parametrize("method", ["bic", "wa", "dmc", "a-wa"])
def test_what_weighs_new_against_old_classes_is_refused_at_once(method: str) -> None:
    with pytest.raises(SpecError, match=f"{method} has no meaning in the scenario dil"):
        learner(method)


def test_classes_other_than_the_first_ones_are_refused(lab) -> None:
    made = taught(lab, "lwf", 1)
    x, labels = domain(lab, 1)
    only = [index for index, name in enumerate(labels) if name != "owl"]
    numbers = [CLASSES.index(name) for name in labels]
    wrong: list[tuple[Tensor, list[Any], str]] = [
        (*domain(lab, 1, classes=4), "The classes 'pig' are new, but .* 'ant', 'fox', 'owl'"),
        (x[only], [labels[index] for index in only], "no images of the classes 'owl'"),
        (x, numbers, "The classes 0, 1, 2 are new"),
    ]
    before = made.scores(x)
    for images, given, said in wrong:
        with pytest.raises(ScenarioError, match=said):
            made.learn(images, given)

    assert made.tasks == [CLASSES]
    assert torch.equal(made.scores(x), before)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"memory": Memory(total=5)}, "5 images cannot keep one of each of 6 classes in their dom"),
        ({"memory": Memory(per_class=1, total=1)}, "both given"),
    ],
)
def test_a_memory_that_does_not_fit_is_told_before_training(options, said: str, lab) -> None:
    with pytest.raises(AnclError, match=said):
        taught(lab, "icarl", **options)


def test_other_scenarios_are_refused_by_name(lab) -> None:
    with pytest.raises(SpecError, match="scenario is 'domains'; it must be 'til', 'cil'"):
        Learner("lwf", "mlp", scenario="domains")  # type: ignore[arg-type]
