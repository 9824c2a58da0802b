"""``ancl evaluate``: how many images of a folder get the right label."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from ancl.cli import flag_values, flags, learner_flags
from ancl.cli.flags import grouped
from ancl.cli.learner_flags import GivenAgain

if TYPE_CHECKING:
    from ancl.learner.files import Evaluation

Images = Annotated[
    str, Option("--data", metavar="SOURCE", help="Images with labels, such as folder:photos")
]


@grouped
def evaluate(
    learner: learner_flags.Learner,
    *,
    data: Images,
    skip_bad_images: flags.SkipBadImages = False,
    given: GivenAgain,
    store: learner_flags.LearnerStore = None,
    data_root: flags.DataRoot = None,
    device: flags.Device = None,
    as_json: flags.Json = False,
) -> None:
    """Accuracy in total, per task and per class; on a folder's test part if it has one."""
    from ancl.data import labelled_part
    from ancl.learner.files import evaluate_tasks
    from ancl.learner.opening import open_learner
    from ancl.stages.progress import Progress

    named, events = flag_values.without_bad_images(data) if skip_bad_images else data, Progress()
    opened = open_learner(
        learner, **vars(given), store=store, device=device or "auto", events=events
    )
    x, labels = labelled_part(named, "test", data_root, opened.input_shape, events.say)
    found = evaluate_tasks(opened, x, labels)
    print(json.dumps(evaluation_json(found)) if as_json else evaluation_text(found))


def evaluation_json(found: Evaluation) -> dict[str, Any]:
    """Accuracy as JSON; tasks count from 1."""
    classes = [{**asdict(row), "task": row.task + 1} for row in found.classes]
    tasks = [{**task._asdict(), "task": task.task + 1} for task in found.tasks]
    return {
        "accuracy": found.accuracy,
        "images": found.images,
        "task_known": found.task_known,
        "tasks": tasks,
        "classes": classes,
    }


def evaluation_text(found: Evaluation) -> str:
    """Accuracy in tables."""
    from ancl.wording import percent, table

    tasks = [[str(each.task + 1), str(each.images), percent(each.accuracy)] for each in found.tasks]
    classes = [
        [
            str(row.label),
            str(row.task + 1),
            str(row.images),
            "" if row.recall is None else percent(row.recall),
            "" if row.precision is None else percent(row.precision),
            "" if row.mistaken_for is None else str(row.mistaken_for),
        ]
        for row in found.classes
        if row.images
    ]
    how = ", the task of each image known" if found.task_known else ""
    head = ["class", "task", "images", "recall %", "precision %", "mostly mistaken for"]
    return "\n\n".join(
        [
            f"Accuracy: {percent(found.accuracy)} % on {found.images} images{how}",
            table(["task", "images", "accuracy %"], tasks, "lrr"),
            table(head, classes, "llrrrl"),
        ]
    )
