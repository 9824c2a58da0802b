"""Numbers that do not flatter: one label for an image, the same held images before and after."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import ancl
from ancl import Events, Learner, Memory, ScenarioError
from tests.lab import digits


class Heard(Events):
    """Keeps what is said, and counts epochs."""

    def __init__(self) -> None:
        self.said, self.epochs = list[str](), 0

    def say(self, message: str) -> None:
        self.said.append(message)

    def epoch_ends(self, stage: Any, epoch: Any) -> None:
        self.epochs += 1


def part(*classes: int, skip: int = 0, count: int = 40) -> tuple[Tensor, list[str]]:
    train = digits().train
    index = torch.cat([train.of_class(number)[skip : skip + count] for number in classes])
    return train.x[index], [f"d{number}" for number in train.y[index].tolist()]


def begun(method: str = "icarl", **options: Any) -> Learner:
    given = {
        "training": {"epochs": 4, "batch_size": 32},
        "network_options": {"hidden": (32,)},
        "memory": Memory(per_class=6),
        "events": Heard(),
    }
    return Learner(method, "mlp", **{**given, **options})


def held_rows(learner: Learner) -> list[bytes]:
    assert learner._held is not None
    return [image.numpy().tobytes() for image in learner._held.samples.x.dense()]


# -- one label -------------------------------------------------------------------------------


def test_an_image_with_two_labels_is_refused_with_both_places(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    for name, number in (("robin", 0), ("wren", 1)):
        (tmp_path / name).mkdir()
        for count in range(6):
            pixels = draw.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / f"{number}{count}.png")
    image = (tmp_path / "robin" / "03.png").read_bytes()
    (tmp_path / "wren" / "copy.png").write_bytes(image)
    heard = Heard()

    with pytest.raises(ScenarioError, match="The same image has two labels") as caught:
        ancl.teach(tmp_path / "L", f"folder:{tmp_path}", method="lwf", network="mlp", events=heard)

    assert "robin/03.png is 'robin'" in str(caught.value)
    assert "wren/copy.png is 'wren'" in str(caught.value)
    assert heard.epochs == 0
    assert not (tmp_path / "L").exists()


@pytest.mark.parametrize("again", [False, True])
def test_an_image_that_was_learned_under_another_label_is_refused(
    again: bool, tmp_path: Path
) -> None:
    learner = begun()
    x, labels = part(0, 1)
    learner.learn(x, labels, ids=[f"jan/{n}" for n in range(80)])
    if again:
        learner.save(tmp_path / "L")
        learner = Learner.load(tmp_path / "L", events=Events())
    other, own = part(2, 3)

    with pytest.raises(ScenarioError, match="is 'd0', and feb/80 is 'd2'") as caught:
        learner.learn(torch.cat([other, x[:1]]), [*own, "d2"], ids=[f"feb/{n}" for n in range(81)])

    assert "jan/0, learned in task 1" in str(caught.value)
    assert learner.classes == ["d0", "d1"]


def test_the_same_image_twice_under_one_label_is_fine() -> None:
    x, labels = part(0, 1, count=12)
    learner = begun()
    learner.learn(torch.cat([x, x[:3]]), [*labels, *labels[:3]])
    learner.learn(torch.cat([x, part(2)[0]]), [*labels, *part(2)[1]])
    assert learner.classes == ["d0", "d1", "d2"]


# -- held images -----------------------------------------------------------------------------


def test_swapped_labels_make_the_printed_accuracy_fall_as_the_test_does() -> None:
    """Once it rose: mislabelled images of the new month joined those that it was measured on."""
    learner = begun()
    learner.learn(*part(0, 1, 2))
    x, labels = part(0, 1, skip=40)
    swapped = [{"d0": "d1", "d1": "d0"}[label] for label in labels]
    test = digits().test
    index = torch.cat([test.of_class(number) for number in range(3)])
    images, own = test.x[index], [f"d{number}" for number in test.y[index].tolist()]
    before = learner.evaluate(images, own)

    told = learner.learn(x, swapped)

    groups = {change.of: change for change in told["held"]}
    known, returning = groups["classes known before"], groups["new images of known classes"]
    assert learner.evaluate(images, own) < before - 0.2
    assert known.after < known.before - 0.2
    assert returning.before < 0.2  # what knew better says that the labels are strange
    heard = learner._events
    assert isinstance(heard, Heard)
    fallen = [line for line in heard.said if line.startswith("The recall of")]
    assert [line.split()[3] for line in fallen] == ["'d0'", "'d1'"]


@pytest.mark.parametrize("scenario", ["cil", "til", "dil"])
def test_held_images_stay_and_none_of_them_is_ever_trained_on(scenario: Any) -> None:
    learner = begun("lwf", scenario=scenario, val_fraction=0.25)
    seen: list[set[bytes]] = []
    for skip in (0, 20, 10, 0):  # the third brings images of both, the last those of the first
        learner.learn(*part(0, 1, skip=skip, count=20 + skip))
        seen.append(set(held_rows(learner)))
        assert len(held_rows(learner)) == len(seen[-1])
    trained = {
        row
        for images in learner._history
        if images
        for row, use in zip(images.rows(), images.use.tolist(), strict=True)
        if use == 0
    }

    for before, after in pairwise(seen):
        assert before <= after
    assert learner._held is not None
    assert not trained & {row.tobytes() for row in learner._held.samples.x.digests().astype(">u8")}


def test_before_and_after_are_measured_on_the_same_images() -> None:
    """Against the learner of before, asked one image at a time."""
    learner = begun()
    learner.learn(*part(0, 1))
    candidates = list[Learner]()
    told = learner.learn(
        *part(1, 2, skip=40), accept=lambda candidate: bool(candidates.append(candidate))
    )
    candidate, old = candidates[0], set(held_rows(learner))
    held = candidate._held
    assert held is not None
    groups: dict[str, list[tuple[bool, bool]]] = {}
    for image, number in zip(held.samples.x.dense(), held.samples.y.tolist(), strict=True):
        own = candidate.classes[number]
        kind = "new classes" if own not in learner.classes else "new images of known classes"
        if image.numpy().tobytes() in old:
            kind = "classes known before"
        answers = (who.predict(image.unsqueeze(0))[0] == own for who in (learner, candidate))
        groups.setdefault(kind, []).append(tuple(answers))

    assert {change.of: change.images for change in told["held"]} == {
        kind: len(rows) for kind, rows in groups.items()
    }
    for change in told["held"]:
        was, now = zip(*groups[change.of], strict=True)
        assert change.after == pytest.approx(sum(now) / len(now))
        if change.of == "new classes":
            assert change.before is None
        else:
            assert change.before == pytest.approx(sum(was) / len(was))


def test_methods_that_hold_features_measure_before_and_after_too() -> None:
    learner = begun("slda", training=None, memory=None)
    learner.learn(*part(0, 1, 2))
    told = learner.learn(*part(1, 3, skip=40))

    groups = {change.of: change for change in told["held"]}
    assert set(groups) == {
        "classes known before",
        "new images of known classes",
        "new classes",
    }
    known = groups["classes known before"]
    assert (known.before or 0) > 0.8
    assert sum(change.images for change in told["held"]) == learner.report().images


# -- lines -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "line"),
    [
        ({"School bus": 20, "school bus": 20}, "The classes 'School bus' and 'school bus' differ"),
        ({"café": 20, "cafe": 20}, "The classes 'cafe' and 'café' differ by case, spaces or"),
        ({"tit_mouse": 20, "titmouse": 20}, "The classes 'tit_mouse' and 'titmouse' differ"),
        ({"a": 20, "b": 9, "c": 3}, "Fewer than 10 images: 'b' (9), 'c' (3)."),
        ({"a": 121, "b": 12}, "'a' has 121 images and 'b' 12: more than 10 times as many."),
    ],
)
def test_a_line_is_said_of_classes_that_look_like_a_mistake(
    labels: dict[str, int], line: str
) -> None:
    heard = Heard()
    _learned(labels, heard)
    (said,) = [message for message in heard.said if message.startswith(line)]
    assert "\n" not in said


def test_no_line_is_said_of_classes_without_fault() -> None:
    heard = Heard()
    learner = _learned({"robin": 20, "wren": 120}, heard)
    learner.learn(*_images({"tit": 12, "wren": 12}, seed=1))
    assert not [line for line in heard.said if "differ by" in line or "images" in line]
    learner.learn(*_images({"Robin": 12}, seed=2))
    (line,) = [line for line in heard.said if "differ by" in line]
    assert line.startswith("The classes 'robin' and 'Robin'")


def _learned(labels: dict[str, int], events: Events) -> Learner:
    learner = Learner("lwf", "mlp", training={"epochs": 1}, scenario="cil", memory=2, events=events)
    learner.learn(*_images(labels))
    return learner


def _images(labels: dict[str, int], seed: int = 0) -> tuple[Tensor, list[str]]:
    draw = torch.Generator().manual_seed(seed)
    names = [name for name, count in labels.items() for _ in range(count)]
    return torch.randint(0, 256, (len(names), 4, 4, 1), generator=draw).to(torch.uint8), names
