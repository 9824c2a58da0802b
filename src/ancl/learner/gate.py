"""The gate: test images before and after, class by class, and conditions that must hold."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from ancl.data import ImageView, Label
from ancl.errors import ScenarioError, SpecError, one_line
from ancl.learner.evaluation import Evaluation, evaluate_tasks
from ancl.learner.images import (
    check_never_learned,
    image_ids,
    known_hashes,
    pixel_hashes,
)
from ancl.learner.learner import Learner
from ancl.wording import percent

_SHOWN = 5
_ROUNDING = 1e-9


class Recall(NamedTuple):
    """How many test images of a class get its label.

    Args:
        label: The class.
        images: Its test images.
        before: The share before, among all classes known then; nothing if it was not one of them.
        after: The share now, among all classes.
    """

    label: Label
    images: int
    before: float | None
    after: float


class GateResult(NamedTuple):
    """Two versions on the same test images.

    Args:
        accuracy: The share of all images that get the right label now.
        images: Their number.
        known: The same on images of classes known before, before and after; nothing without any.
        known_images: Their number.
        recalls: Class by class.
        evaluation: All that was measured now.
        never_learned: Whether it is known of every image that it was never learned.
    """

    accuracy: float
    images: int
    known: tuple[float, float] | None
    known_images: int
    recalls: tuple[Recall, ...]
    evaluation: Evaluation
    never_learned: bool = False

    def json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "accuracy": self.accuracy,
            "images": self.images,
            "known_before": self.known and self.known[0],
            "known_after": self.known and self.known[1],
            "known_images": self.known_images,
            "classes": [recall._asdict() for recall in self.recalls],
        }


def compare_on_test(
    before: Learner | None,
    after: Learner,
    x: ImageView,
    labels: Sequence[Label],
    reject: float | None = None,
) -> GateResult:
    """Measure two learners on the same images; with ``til`` each image within its own task.

    Args:
        before: The earlier one, which may know fewer classes; none where nothing was learned.
        after: The later one.
        x: Test images.
        labels: Their labels.
        reject: The later one leaves images without an answer that are less probable than this.

    Raises:
        ScenarioError: A label was never learned.
    """
    evaluation = evaluate_tasks(after, x, labels, reject)
    rates = {row.label: row for row in evaluation.classes if row.images}
    earlier: dict[Label, float | None] = {}
    known = [
        position for position, label in enumerate(labels) if before and label in before.classes
    ]
    if before and known:
        known_labels = [labels[position] for position in known]
        was = evaluate_tasks(before, x.take(torch.tensor(known)), known_labels)
        earlier = {row.label: row.recall for row in was.classes if row.images}
    recalls = tuple(
        Recall(label, row.images, earlier.get(label), row.recall or 0.0)
        for label, row in rates.items()
    )
    shares = None
    if known:
        chosen = [recall for recall in recalls if recall.before is not None]
        total = sum(recall.images for recall in chosen)
        shares = (
            sum(recall.images * (recall.before or 0.0) for recall in chosen) / total,
            sum(recall.images * recall.after for recall in chosen) / total,
        )
    return GateResult(
        evaluation.accuracy, evaluation.images, shares, len(known), recalls, evaluation
    )


def evaluate_on_test(
    before: Learner | None,
    after: Learner,
    x: ImageView,
    labels: Sequence[Label],
    conditions: "GateConditions",
    say: Callable[[str], None],
    reject: float | None = None,
) -> GateResult:
    """Measure a learner, and an earlier version of it, on images that it should never have learned.

    Args:
        before: The earlier version, if there is one.
        after: The learner.
        x: Test images.
        labels: Their labels.
        conditions: What must hold.
        say: Is told how many of the images were learned, where nothing depends on it.
        reject: See ``compare_on_test``.

    Raises:
        ScenarioError: A label was never learned; or, with conditions, an image was.
    """
    tested, _ = after._read(x, labels)
    rows, ids = pixel_hashes(tested), image_ids(x, None, len(x))
    if conditions:
        check_never_learned(rows, ids, after._history)
        conditions.check_classes(labels)
    learned = known_hashes(after._history)
    if count := sum(row in learned for row in rows):
        say(
            f"{count} of {len(rows)} images were learned from, or chosen by while learning: this "
            f"is no test accuracy."
        )
    never = not count and all(after._history)
    measured = compare_on_test(before, after, tested, labels, reject)
    return measured._replace(never_learned=never)


@dataclass(frozen=True)
class GateConditions:
    """What must hold on test images.

    Args:
        min_accuracy: The smallest share of images that get the right label.
        max_drop: How much smaller than before this share may be, at most, on images of classes
            known before, answered among all classes.
        min_recall: The smallest share of the images of a class that get its label, by class.

    Raises:
        SpecError: One is not a share.
    """

    min_accuracy: float | None = None
    max_drop: float | None = None
    min_recall: Mapping[Label, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        recalls = {f"min_recall of {label!r}": share for label, share in self.min_recall.items()}
        given = {"min_accuracy": self.min_accuracy, "max_drop": self.max_drop, **recalls}
        for name, share in given.items():
            if share is None:
                continue
            number = isinstance(share, int | float) and not isinstance(share, bool)
            if not number or not math.isfinite(share) or not 0 <= share <= 1:
                raise SpecError(f"{name} is {share!r}; it is a share, from 0 to 1, such as 0.85.")

    def __bool__(self) -> bool:
        return self.min_accuracy is not None or self.max_drop is not None or bool(self.min_recall)

    def check_classes(self, labels: Sequence[Label]) -> None:
        """Refuse a class that no test image has: its condition could never be known to hold.

        Raises:
            ScenarioError: There is one.
        """
        missing = [repr(label) for label in self._recalls(labels)[1]]
        if missing:
            there = ", ".join(map(repr, sorted(set(labels), key=str)[:_SHOWN]))
            raise ScenarioError(
                f"min_recall: there are no test images of {', '.join(missing)}. Test images are of "
                f"{there}{', …' if len(set(labels)) > _SHOWN else ''}."
            )

    def _recalls(self, labels: Sequence[Label]) -> tuple[dict[Label, float], list[Label]]:
        """The shares by class as it is labelled, and classes without images.

        A command gives texts: the text of a whole number is that class, where no text is.
        """
        texts = {str(label): label for label in labels} | {label: label for label in labels}
        shares = {texts[label]: s for label, s in self.min_recall.items() if label in texts}
        return shares, [label for label in self.min_recall if label not in texts]

    def unmet(self, measured: GateResult) -> tuple[str, ...]:
        """The conditions that do not hold, a sentence each."""
        problems = []
        least = self.min_accuracy
        if least is not None and measured.accuracy < least - _ROUNDING:
            problems.append(
                f"The test accuracy is {percent(measured.accuracy)} %, below the least of "
                f"{percent(least)} %."
            )
        if self.max_drop is not None and measured.known:
            before, after = measured.known
            if before - after > self.max_drop + _ROUNDING:
                problems.append(
                    f"On classes known before it fell from {percent(before)} % to "
                    f"{percent(after)} %, by more than {percent(self.max_drop)} points."
                )
        recalls = {recall.label: recall.after for recall in measured.recalls}
        for label, share in self._recalls(list(recalls))[0].items():
            if recalls[label] < share - _ROUNDING:
                problems.append(
                    f"The recall of {one_line(label)} is {percent(recalls[label])} %, below the "
                    f"least of {percent(share)} %."
                )
        return tuple(problems)
