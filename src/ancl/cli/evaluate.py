"""``ancl evaluate``: how many images of a folder get the right label."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.cli.flag_values import without_bad_images
from ancl.cli.flags import Opening, with_flags

if TYPE_CHECKING:
    from ancl.learner.files import Evaluation


@with_flags
def evaluate(
    learner: Path,
    *,
    data: str,
    skip_bad_images: bool = False,
    opening: Opening,
    data_root: Path | None = None,
    device: str | None = None,
    as_json: bool = False,
) -> None:
    """Accuracy in total, per task and per class; on a folder's test part if it has one."""
    from ancl.data import labelled_part
    from ancl.learner.directory import open_learner
    from ancl.learner.files import evaluate_tasks
    from ancl.stages.progress import Progress

    named, events = without_bad_images(data) if skip_bad_images else data, Progress()
    opened = open_learner(learner, **vars(opening), device=device or "auto", events=events)
    form = (opened.input_shape, events.say, opened.resizes_to)
    x, labels = labelled_part(named, "test", data_root, *form)
    evaluation = evaluate_tasks(opened, x, labels)
    print(json.dumps(evaluation_json(evaluation)) if as_json else evaluation_text(evaluation))


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """Accuracy as JSON; tasks count from 1."""
    classes = [{**asdict(row), "task": row.task + 1} for row in evaluation.classes]
    tasks = [{**task._asdict(), "task": task.task + 1} for task in evaluation.tasks]
    return {
        "accuracy": evaluation.accuracy,
        "images": evaluation.images,
        "task_known": evaluation.task_known,
        "tasks": tasks,
        "classes": classes,
    }


def evaluation_text(evaluation: Evaluation) -> str:
    """Accuracy in tables."""
    from ancl.wording import percent, table

    tasks = [
        [str(task.task + 1), str(task.images), percent(task.accuracy)] for task in evaluation.tasks
    ]
    classes = [
        [
            str(row.label),
            str(row.task + 1),
            str(row.images),
            "" if row.recall is None else percent(row.recall),
            "" if row.precision is None else percent(row.precision),
            "" if row.mistaken_for is None else str(row.mistaken_for),
        ]
        for row in evaluation.classes
        if row.images
    ]
    how = ", the task of each image known" if evaluation.task_known else ""
    head = ["class", "task", "images", "recall %", "precision %", "mostly mistaken for"]
    return "\n\n".join(
        [
            f"Accuracy: {percent(evaluation.accuracy)} % on {evaluation.images} images{how}",
            table(["task", "images", "accuracy %"], tasks, "lrr"),
            table(head, classes, "llrrrl"),
        ]
    )
