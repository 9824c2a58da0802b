"""``ancl predict``: the labels of images."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flag_values import read_share, thread_limit
from ancl.cli.flags import Machine, Opening, with_flags
from ancl.errors import SpecError

if TYPE_CHECKING:
    from ancl.learner.file_answers import Answer

UNREADABLE = 1
"""The exit code where some files have no answer."""
_SHOWN = 20


@with_flags
def predict(
    learner: Path,
    images: list[Path],
    *,
    top_k: int = 1,
    task: int | None = None,
    reject: str | None = None,
    skip_bad_images: bool = False,
    opening: Opening,
    machine: Machine,
    as_json: bool = False,
    as_csv: bool = False,
) -> None:
    """The most probable labels of image files, which are resized to the learner's size.

    If some files cannot be read, they are named, all others are answered, and the exit code is 1.
    """
    from ancl.learner.file_answers import predict_files
    from ancl.learner.opening import open_learner
    from ancl.stages.progress import Progress

    if as_json and as_csv:
        raise SpecError("--json and --csv were both given. Leave out one.")
    share, events = read_share("--reject", reject, "probability"), Progress()
    with thread_limit(machine.threads):
        device = machine.device or "auto"
        opened = open_learner(learner, **vars(opening), device=device, events=events)
        answers = predict_files(opened, images, top_k, None if task is None else task - 1, share)
    bad = [answer for answer in answers if answer.problem]
    for answer in bad[:_SHOWN]:
        events.say(answer.problem)
    if bad:
        events.say(f"{len(bad):,} of {len(answers):,} files cannot be read.")
    if as_json:
        print(json.dumps({"images": [_answer_json(answer, share) for answer in answers]}))
    elif as_csv:
        _write_csv(answers)
    else:
        print(_text(answers))
    if bad and not skip_bad_images:
        raise typer.Exit(UNREADABLE)


def _answer_json(answer: Answer, share: float | None) -> dict[str, Any]:
    shown: dict[str, Any] = {"image": str(answer.image)}
    if answer.problem:
        return shown | {"labels": [], "error": answer.problem}
    shown["labels"] = [*map(_label_json, answer.labels)]
    return shown | ({} if share is None else {"rejected": answer.rejected})


def _label_json(labelled: tuple[str | int, float]) -> dict[str, str | int | float]:
    return {"label": labelled[0], "probability": labelled[1]}


def _write_csv(answers: list[Answer]) -> None:
    from ancl.files import csv_cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["image", "rank", "label", "probability"])
    for answer in answers:
        for rank, (label, share) in enumerate(answer.labels, start=1):
            name = "" if answer.rejected and rank == 1 else csv_cell(label)
            writer.writerow([csv_cell(str(answer.image)), rank, name, share])


def _text(answers: list[Answer]) -> str:
    from ancl.wording import percent, table

    rows = [
        [
            "" if rank else str(answer.image),
            f"rejected ({label})" if answer.rejected and not rank else str(label),
            percent(share),
        ]
        for answer in answers
        for rank, (label, share) in enumerate(answer.labels)
    ]
    return table(["image", "label", "%"], rows, "llr")
