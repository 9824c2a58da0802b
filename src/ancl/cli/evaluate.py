"""``ancl evaluate``: how many images of a folder get the right label."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flag_values import read_share, thread_limit, without_bad_images
from ancl.cli.flags import GateFlags, Machine, Opening, with_flags
from ancl.cli.text import REFUSED, gate_text
from ancl.errors import SpecError

if TYPE_CHECKING:
    from ancl.learner.evaluation import Evaluation


@with_flags
def evaluate(
    learner: Path,
    *,
    data: str,
    skip_bad_images: bool = False,
    reject: str | None = None,
    against: int | None = None,
    gate: GateFlags,
    opening: Opening,
    data_root: Path | None = None,
    machine: Machine,
    as_json: bool = False,
) -> None:
    """Accuracy in total, per task and per class; on a folder's test part if it has one.

    With conditions, the exit code is 3 if one does not hold.
    """
    from ancl.learner.gate import GateConditions, evaluate_on_test
    from ancl.learner.inputs import source_images
    from ancl.learner.opening import open_learner
    from ancl.stages.progress import Progress

    named, events = without_bad_images(data) if skip_bad_images else data, Progress()
    conditions, share = (
        GateConditions(**gate.conditions()),
        read_share("--reject", reject, "probability"),
    )
    if conditions.max_drop is not None and against is None:
        raise SpecError("--max-drop compares two versions. Give the earlier one: --against N.")
    if share is not None and (conditions or against is not None):
        raise SpecError(
            "--reject leaves some images without an answer, so conditions and --against, which "
            "count all images, are not possible with it. Leave out one of the two."
        )
    given: dict[str, Any] = {**vars(opening), "device": machine.device or "auto", "events": events}
    with thread_limit(machine.threads):
        opened = open_learner(learner, **given)
        earlier = open_learner(learner, **{**given, "version": against}) if against else None
        x, labels = source_images(opened, named, "test", data_root, events.say)
        measured = evaluate_on_test(earlier, opened, x, labels, conditions, events.say, share)
    refused = conditions.unmet(measured)
    if as_json:
        compared = {"comparison": measured.json()} if earlier else {}
        print(json.dumps({**evaluation_json(measured.evaluation), **compared, "refused": refused}))
    else:
        parts = [evaluation_text(measured.evaluation), *([gate_text(measured)] if earlier else [])]
        if measured.never_learned:
            parts.append("None of these images was ever learned: this is test accuracy.")
        print("\n\n".join([*parts, *(["\n".join(["Refused:", *refused])] if refused else [])]))
    if refused:
        raise typer.Exit(REFUSED)


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
