"""``ancl evaluate``: how many images of a folder get the right label."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.cli.flag_values import read_share, thread_limit, without_bad_images
from ancl.cli.flags import Machine, Opening, with_flags

if TYPE_CHECKING:
    from ancl.learner.files import Evaluation


@with_flags
def evaluate(
    learner: Path,
    *,
    data: str,
    skip_bad_images: bool = False,
    reject: str | None = None,
    opening: Opening,
    data_root: Path | None = None,
    machine: Machine,
    as_json: bool = False,
) -> None:
    """Accuracy in total, per task and per class; on a folder's test part if it has one."""
    from ancl.data import labelled_part
    from ancl.learner.directory import open_learner
    from ancl.learner.files import evaluate_tasks
    from ancl.stages.progress import Progress

    named, events = without_bad_images(data) if skip_bad_images else data, Progress()
    share, device = read_share("--reject", reject), machine.device or "auto"
    with thread_limit(machine.threads):
        opened = open_learner(learner, **vars(opening), device=device, events=events)
        x, labels = labelled_part(
            named, "test", data_root, opened.input_shape, events.say, rule=opened.picture_rule
        )
        evaluation = evaluate_tasks(opened, x, labels, share)
    print(json.dumps(evaluation_json(evaluation)) if as_json else evaluation_text(evaluation))


def evaluation_json(evaluation: Evaluation) -> dict[str, Any]:
    """Accuracy as JSON; tasks count from 1."""
    classes = [{**asdict(row), "task": row.task + 1} for row in evaluation.classes]
    tasks = [{**task._asdict(), "task": task.task + 1} for task in evaluation.tasks]
    return {
        "accuracy": evaluation.accuracy,
        "images": evaluation.images,
        "rejected": evaluation.rejected,
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
    rejected = f"; rejected: {evaluation.rejected} more" if evaluation.rejected else ""
    head = ["class", "task", "images", "recall %", "precision %", "mostly mistaken for"]
    return "\n\n".join(
        [
            f"Accuracy: {percent(evaluation.accuracy)} % on {evaluation.images} images{how}"
            f"{rejected}",
            table(["task", "images", "accuracy %"], tasks, "lrr"),
            table(head, classes, "llrrrl"),
        ]
    )
