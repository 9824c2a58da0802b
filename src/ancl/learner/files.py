"""A learner's answers for image files, and its accuracy task by task."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from ancl.data import ImageView, Label, is_picture
from ancl.errors import ScenarioError
from ancl.learner.learner import Learner
from ancl.learner.measures import GIVEN, ClassRates, confused, report_of

_AT_ONCE = 256
_SHOWN = 5


class Answer(NamedTuple):
    """The most probable labels of a file with their probabilities, best first."""

    image: Path
    labels: list[tuple[Label, float]]


def predict_files(
    learner: Learner, paths: Sequence[Path], k: int = 1, task: int | None = None
) -> list[Answer]:
    """The most probable labels of image files, and of all those below folders.

    Args:
        learner: Who answers.
        paths: Files and folders; an image of another size is resized.
        k: The number of labels for each.
        task: The task whose classes are possible, from 0; all if left out.

    Raises:
        ScenarioError: A file does not exist or is not an image, or a folder holds none.
    """
    if task is not None and not 0 <= task < len(learner.tasks):
        raise ScenarioError(
            f"There is no task {task + 1}. The learner knows the tasks 1 to {len(learner.tasks)}."
        )
    files = list(_image_files(paths))
    found: list[Answer] = []
    for start in range(0, len(files), _AT_ONCE):
        some = files[start : start + _AT_ONCE]
        answers = learner.top_k([str(file) for file in some], k, task)
        found += [Answer(file, labels) for file, labels in zip(some, answers, strict=True)]
    return found


def _image_files(paths: Sequence[Path]) -> Iterator[Path]:
    missing = [str(path) for path in paths if not path.exists()]
    if missing:
        more = f" and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
        raise ScenarioError(f"There is no {', '.join(missing[:_SHOWN])}{more}. Give image files.")
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        below = sorted(file for file in path.rglob("*") if is_picture(file.name))
        if not below:
            raise ScenarioError(f"There are no images below {path} (.png, .jpg, .webp, …).")
        yield from below


class TaskAccuracy(NamedTuple):
    """The accuracy on the images of a task's classes."""

    task: int
    labels: list[Label]
    images: int
    accuracy: float


class Evaluation(NamedTuple):
    """Accuracy in all, per task and per class.

    Args:
        accuracy: The share of images that get the right label.
        images: The number of images.
        task_known: Whether only the classes of an image's task competed.
        tasks: Every task that has images here.
        classes: Every class.
    """

    accuracy: float
    images: int
    task_known: bool
    tasks: list[TaskAccuracy]
    classes: list[ClassRates]


def evaluate_tasks(learner: Learner, x: ImageView, labels: Sequence[Label]) -> Evaluation:
    """The accuracy of a learner; with ``til`` each image is answered within its own task.

    Raises:
        ScenarioError: A label was never learned.
    """
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
        answers = _within_tasks(learner, x, [of[label] for label in labels])
    else:
        answers = learner.predict(x)
    position = {label: index for index, label in enumerate(learner.classes)}
    own, got = ([position[label] for label in each] for each in (labels, answers))
    found = report_of(confused(learner.classes, own, got, GIVEN), [of[n] for n in learner.classes])
    right = [a == b for a, b in zip(own, got, strict=True)]
    rates = []
    for number, names in enumerate(tasks):
        here = [ok for ok, label in zip(right, labels, strict=True) if of[label] == number]
        if here:
            rates.append(TaskAccuracy(number, names, len(here), sum(here) / len(here)))
    return Evaluation(sum(right) / len(right), len(right), task_known, rates, list(found.rows))


def _within_tasks(learner: Learner, x: ImageView, tasks: Sequence[int]) -> list[Label]:
    answers: dict[int, Label] = {}
    for task in sorted(set(tasks)):
        here = [index for index, of in enumerate(tasks) if of == task]
        answers |= zip(here, learner.predict(x.take(torch.tensor(here)), task), strict=True)
    return [answers[index] for index in range(len(tasks))]
