"""What a learner answers about images, and how sure that is: all of it follows from scores."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from ancl.data import ImageView, Label, Task
from ancl.errors import ScenarioError
from ancl.learner.form import Form
from ancl.learner.held import HeldOut
from ancl.learner.inputs import Data, read_images, read_labelled
from ancl.learner.measures import (
    ALL,
    GIVEN,
    NEWEST,
    NONE,
    AccuracyReport,
    Calibration,
    Confusion,
    calibration_error,
    confused,
    report_of,
)
from ancl.learner.moves import TaskMove, drift_line
from ancl.learner.scorer import Scorer, mask_other_tasks, numbers
from ancl.methods.task_history import adds_classes
from ancl.statistics import Drift, fit_temperature


class Answers(ABC):
    """The answering side of a learner."""

    scenario: str
    _tasks: tuple[Task, ...] = ()
    _form: Form | None = None
    _say: Callable[[str], None]
    _fitted: dict[bool, Calibration]
    """What was fitted on held images, with the task known or not."""
    _held_answers: tuple[Scorer, Tensor] | None = None
    """The scores of held images, where they were computed: by this scorer, not by another."""

    _moves: tuple[TaskMove, ...] = ()
    """What each task did to the network, where the classifier is computed."""

    @abstractmethod
    def _score(self, x: Tensor | ImageView) -> Tensor:
        """The scores of all classes for images in the learner's form."""

    @abstractmethod
    def _made_scorer(self) -> Scorer:
        """What scores are computed by."""

    @abstractmethod
    def _held_out(self) -> HeldOut | None:
        """The images that answers are measured on, if there are any."""

    @abstractmethod
    def _say_once(self, subject: str, message: str) -> None:
        """A warning, given once."""

    @property
    def classes(self) -> list[Label]:
        """The labels of all classes learned, in the order of the network's answers."""
        return [name for task in self._tasks if adds_classes(task) for name in task.names]

    @property
    def tasks(self) -> list[list[Label]]:
        """The labels that each task was the first to bring; none where known ones came alone."""
        return [list(task.names) for task in self._tasks]

    @property
    def returning(self) -> list[list[Label]]:
        """The known labels that came again in each task."""
        names = self.classes
        return [[names[position] for position in task.returning] for task in self._tasks]

    # -- answers -----------------------------------------------------------------------------

    @torch.no_grad()
    def scores(self, data: Data, task: int | None = None) -> Tensor:
        """The score of every class, the larger the better; minus infinity outside a given task."""
        return self._among(self._score(self._images(data)), task)

    @overload
    def predict(self, data: Data, task: int | None = None) -> list[Label]: ...
    @overload
    def predict(
        self, data: Data, task: int | None = None, *, reject: float
    ) -> list[Label | None]: ...
    def predict(
        self, data: Data, task: int | None = None, *, reject: float | None = None
    ) -> list[Any]:
        """The label of each image, among all classes or among those of one task.

        Args:
            data: One image or many, see ``learn``; labels that come with them are not looked at.
            task: The task whose classes are possible, counted from 0.
            reject: The answer is ``None`` where the most probable class is less probable than
                this, from 0 to 1; see ``reject_threshold``.
        """
        names = self.classes
        if reject is None:
            answers = self.scores(data, task).argmax(dim=1).tolist()
            self._warn_without(task)
            return [names[index] for index in answers]
        check_reject(reject)
        sure, best = self.predict_proba(data, task).max(dim=1)
        pairs = zip(sure.tolist(), best.tolist(), strict=True)
        return [names[index] if share >= reject else None for share, index in pairs]

    def predict_proba(self, data: Data, task: int | None = None) -> Tensor:
        """The probability of every class (N, C), in the order of ``classes``.

        It is softmax(scores / T). T is fitted on held images, see ``calibration``. The score of a
        nearest-mean classifier is minus a squared distance, so its classes are taken for
        Gaussians of one width around their means, and T is twice their variance.
        """
        scores = self.scores(data, task)
        self._warn_without(task)
        fitted = self.calibration(task_known=task is not None)
        if fitted.basis != ALL:
            self._say_once(
                "calibration",
                f"The temperature behind the probabilities is {fitted.basis}: the learner holds no "
                f"images of {'earlier' if fitted.images else 'its'} tasks. They rank classes, and "
                f"may be too sure or not sure enough.",
            )
        return (scores.double() / fitted.temperature).softmax(dim=1).float()

    def top_k(
        self, data: Data, k: int = 5, task: int | None = None
    ) -> list[list[tuple[Label, float]]]:
        """The most probable labels of each image with their probabilities, best first.

        Args:
            data: See ``predict``.
            k: How many; fewer where fewer classes are possible.
            task: See ``predict``.
        """
        if not _is_whole(k) or k < 1:
            raise ScenarioError(f"k is {k!r}; give a whole number, 1 or more.")
        names = self.classes
        possible = len(names) if task is None else len(self._task(task).names)
        best = self.predict_proba(data, task).topk(min(k, possible), dim=1)
        return [
            [(names[index], share) for index, share in zip(row, shares, strict=True)]
            for row, shares in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    @property
    def drifts(self) -> tuple[Drift | None, ...]:
        """How far the network moved in each task, where statistics of earlier images followed it.

        Nothing for the first task, and for methods whose network does not move then.
        """
        moves = self._moves or (None,) * len(self._tasks)
        return tuple(move and move.drift for move in moves)

    def evaluate(self, data: Data, labels: Any = None, task: int | None = None) -> float:
        """The share of images that get the right label."""
        expected, answers = self._answered(data, labels, task)
        return sum(a == b for a, b in zip(expected, answers, strict=True)) / len(expected)

    def confusion(
        self, data: Data = None, labels: Any = None, task: int | None = None
    ) -> Confusion:
        """How often images of each class get each label.

        Args:
            data: Images, or a dataset of (image, label); the held images if left out.
            labels: Their labels.
            task: See ``predict``; held images have their own task where the scenario is ``til``.
        """
        if data is not None:
            return confused(self.classes, *self._answered(data, labels, task), GIVEN)
        held = self._held_out()
        if held is None:
            return confused(self.classes, [], [], NONE)
        scores = self._held_scores(held, task_known=self.scenario == "til")
        expected, answers = held.y.tolist(), scores.argmax(dim=1).tolist()
        return confused(self.classes, expected, answers, self._basis)

    def report(
        self, data: Data = None, labels: Any = None, task: int | None = None
    ) -> AccuracyReport:
        """Accuracy in all, and recall and precision per class; see ``confusion``.

        Without images it is measured on held ones, and says which tasks those are of. It also says
        how far the network moved, see ``drifts``.
        """
        tasks = [task.index for task in self._tasks if adds_classes(task) for _ in task.names]
        report = report_of(self.confusion(data, labels, task), tasks)
        return replace(report, drift=drift_line(self.drifts))

    # -- how sure ----------------------------------------------------------------------------

    def calibration(self, *, task_known: bool | None = None) -> Calibration:
        """The temperature of probabilities, fitted on held images, and the error left.

        Args:
            task_known: Whether classes compete only within their task; left out, as the
                scenario says.
        """
        aware = self.scenario == "til" if task_known is None else task_known
        held = self._held_out()
        if held is None:
            return Calibration(1.0, 0, NONE)
        if aware not in self._fitted:
            scores, y = self._held_scores(held, task_known=aware), held.y
            warmth = fit_temperature(scores, y)
            before, after = (
                calibration_error((scores.double() / t).softmax(dim=1), y) for t in (1.0, warmth)
            )
            self._fitted[aware] = Calibration(warmth, len(y), self._basis, after, before)
        return self._fitted[aware]

    def reject_threshold(self, rate: float = 0.05, *, task_known: bool | None = None) -> float:
        """A value for ``reject`` that rejects this share of the held images, which are all known.

        Raises:
            ScenarioError: There are no held images.
        """
        if not _is_number(rate) or not 0 <= rate < 1:
            raise ScenarioError(f"rate is {rate!r}; it is from 0 to below 1.")
        calibration, held = self.calibration(task_known=task_known), self._held_out()
        if held is None:
            raise ScenarioError(
                "A threshold is found on held images, and this learner has none. Give reject a "
                "probability, such as 0.5."
            )
        aware = self.scenario == "til" if task_known is None else task_known
        scores = self._held_scores(held, task_known=aware).double() / calibration.temperature
        sure = scores.softmax(dim=1).float().amax(dim=1).sort().values
        return float(sure[int(rate * len(sure))])

    # -- inside ------------------------------------------------------------------------------

    def _images(self, data: Data) -> Tensor | ImageView:
        if self._form is None:
            raise nothing_learned()
        return read_images(data, self._form, self._say)

    def _answered(self, data: Data, labels: Any, task: int | None) -> tuple[list[int], list[int]]:
        """The position of each image's own class and of its answer."""
        x, given = read_labelled(data, labels, self._form, self._say)
        position = {name: index for index, name in enumerate(self.classes)}
        strangers = sorted(set(given) - position.keys(), key=str)
        if strangers:
            raise ScenarioError(
                f"The labels {', '.join(map(repr, strangers[:5]))} were never learned. Known "
                f"labels: {', '.join(map(repr, self.classes))}."
            )
        self._warn_without(task)
        with torch.no_grad():
            scores = self._among(self._score(x), task)
        return [position[name] for name in given], scores.argmax(dim=1).tolist()

    def _task(self, task: int) -> Task:
        if not _is_whole(task) or not 0 <= task < len(self._tasks):
            raise ScenarioError(
                f"There is no task {task!r}. The tasks are 0 to {len(self._tasks) - 1}: they count "
                f"from 0 here."
            )
        if not self._tasks[task].is_column:
            raise ScenarioError(
                "This task brought no classes of its own: a class belongs to the task that "
                "brought it first. Give that task."
            )
        return self._tasks[task]

    def _among(self, scores: Tensor, task: int | None) -> Tensor:
        """Scores of the classes of a task, where one is given."""
        if task is not None:
            known = self._task(task)
            chosen = torch.full((len(scores),), known.index)
            return mask_other_tasks(scores, chosen, [known], first=known.index)
        return scores

    def _warn_without(self, task: int | None) -> None:
        """Say once that the task of an image is chosen too, where it should be given."""
        if task is None and self.scenario == "til" and len(self._tasks) > 1:
            self._say_once(
                "task",
                "No task is given, so the scores choose it too, among the classes of all tasks. "
                "With scenario='til' classes were learned within their own task alone: give "
                "the task of the images, predict(images, task=0), or learn with scenario='cil'.",
            )

    @torch.no_grad()
    def _held_scores(self, held: HeldOut, *, task_known: bool) -> Tensor:
        scorer = self._made_scorer()
        if self._held_answers is None or self._held_answers[0] is not scorer:
            self._held_answers = scorer, held.scores(scorer)
        scores = numbers(self._held_answers[1])
        return mask_other_tasks(scores, held.task, self._tasks) if task_known else scores

    @property
    def _basis(self) -> str:
        """Which tasks the held images are of."""
        held = self._held_out()
        if held is None:
            return NONE
        held_tasks = sorted(set(held.task.tolist()))
        tasks = [task.index for task in self._tasks if task.is_column]
        if held_tasks == tasks:
            return ALL
        if held_tasks == tasks[-1:]:
            return NEWEST
        return f"tasks {', '.join(map(str, held_tasks))}"


def nothing_learned() -> ScenarioError:
    """What is wrong where a learner is asked before its first task."""
    return ScenarioError("This learner has not learned anything yet. Call learn() first.")


def check_reject(reject: float | None) -> None:
    """Refuse what is not a probability.

    Raises:
        ScenarioError: It is none.
    """
    if reject is not None and (not _is_number(reject) or not 0 <= reject <= 1):
        raise ScenarioError(
            f"reject is {reject!r}; it is a probability, from 0 to 1. Use 0.5, or "
            f"reject_threshold(0.05) to reject 5 % of known images."
        )


def _is_whole(value: object) -> bool:
    return hasattr(value, "__index__")  # numpy's whole numbers, too


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number)
