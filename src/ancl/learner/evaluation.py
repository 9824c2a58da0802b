"""A learner's accuracy on given images: in all, task by task and class by class."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ancl.data import ImageView, Label
from ancl.errors import ScenarioError
from ancl.learner.answers import check_reject
from ancl.learner.learner import Learner
from ancl.learner.measures import GIVEN, ClassRates, confused, report_of

_SHOWN = 5


class TaskAccuracy(NamedTuple):
    """The accuracy on the images of a task's classes."""

    task: int
    labels: list[Label]
    images: int
    accuracy: float


class Evaluation(NamedTuple):
    """Accuracy in all, per task and per class.

    Args:
        accuracy: The share of answered images that get the right label.
        images: The number of images that are answered.
        task_known: Whether only the classes of an image's task competed.
        tasks: Every task that has images here.
        classes: Every class.
        rejected: The number of images that are not answered, as no class is probable enough.
    """

    accuracy: float
    images: int
    task_known: bool
    tasks: list[TaskAccuracy]
    classes: list[ClassRates]
    rejected: int = 0


def evaluate_tasks(
    learner: Learner, x: ImageView, labels: Sequence[Label], reject: float | None = None
) -> Evaluation:
    """The accuracy of a learner; with ``til`` each image is answered within its own task.

    Args:
        learner: Who answers.
        x: The images.
        labels: Their labels.
        reject: Images whose most probable class is less probable than this are not answered.

    Raises:
        ScenarioError: A label was never learned, or no image is answered.
    """
    check_reject(reject)
    domains = learner.scenario == "dil"
    tasks = learner.tasks[:1] if domains else learner.tasks
    of = {label: number for number, names in enumerate(tasks) for label in names}
    strangers = sorted({str(label) for label in labels if label not in of})
    if strangers:
        raise ScenarioError(
            f"The labels {', '.join(strangers[:_SHOWN])} were never learned. Known labels: "
            f"{', '.join(map(str, learner.classes))}."
        )
    task_known = learner.scenario == "til"
    if task_known:
        answers = _within_tasks(learner, x, [of[label] for label in labels], reject)
    else:
        answers = _answers(learner, x, None, reject)
    pairs = [
        (expected, got) for expected, got in zip(labels, answers, strict=True) if got is not None
    ]
    if not pairs:
        raise ScenarioError(
            f"All {len(labels)} images are rejected: no class is as probable as {reject}. Give a "
            f"smaller value."
        )
    position = {label: index for index, label in enumerate(learner.classes)}
    expected, got = ([position[pair[side]] for pair in pairs] for side in (0, 1))
    report = report_of(
        confused(learner.classes, expected, got, GIVEN), [of[n] for n in learner.classes]
    )
    right = [a == b for a, b in pairs]
    rates = []
    for number, names in enumerate(tasks):
        here = [ok for ok, (label, _) in zip(right, pairs, strict=True) if of[label] == number]
        if here:
            rates.append(TaskAccuracy(number, names, len(here), sum(here) / len(here)))
    share, rejected = sum(right) / len(right), len(labels) - len(right)
    return Evaluation(share, len(right), task_known, rates, list(report.rows), rejected)


def _answers(
    learner: Learner, x: ImageView, task: int | None, reject: float | None
) -> list[Label | None]:
    # Labels of plain scores need no probabilities, and no word on how good these are.
    return (
        [*learner.predict(x, task)] if reject is None else learner.predict(x, task, reject=reject)
    )


def _within_tasks(
    learner: Learner, x: ImageView, tasks: Sequence[int], reject: float | None
) -> list[Label | None]:
    answers: dict[int, Label | None] = {}
    for task in sorted(set(tasks)):
        here = [index for index, of in enumerate(tasks) if of == task]
        some = _answers(learner, x.take(torch.tensor(here)), task, reject)
        answers |= zip(here, some, strict=True)
    return [answers[index] for index in range(len(tasks))]
