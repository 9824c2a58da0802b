"""``ancl predict``: the labels of images."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ancl.cli.flags import Opening, with_flags
from ancl.errors import SpecError

if TYPE_CHECKING:
    from ancl.learner.files import Answer


@with_flags
def predict(
    learner: Path,
    images: list[Path],
    *,
    top_k: int = 1,
    task: int | None = None,
    opening: Opening,
    device: str | None = None,
    as_json: bool = False,
    as_csv: bool = False,
) -> None:
    """The most probable labels of image files, which are resized to the learner's size."""
    from ancl.learner.directory import open_learner
    from ancl.learner.files import predict_files
    from ancl.stages.progress import Progress

    if as_json and as_csv:
        raise SpecError("--json and --csv were both given. Leave out one.")
    opened = open_learner(learner, **vars(opening), device=device or "auto", events=Progress())
    answers = predict_files(opened, images, top_k, None if task is None else task - 1)
    if as_json:
        found = [{"image": str(a.image), "labels": [*map(_label_json, a.labels)]} for a in answers]
        print(json.dumps({"images": found}))
    elif as_csv:
        _write_csv(answers)
    else:
        print(_text(answers))


def _label_json(labelled: tuple[str | int, float]) -> dict[str, str | int | float]:
    return {"label": labelled[0], "probability": labelled[1]}


def _write_csv(answers: list[Answer]) -> None:
    from ancl.files import csv_cell

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["image", "rank", "label", "probability"])
    for answer in answers:
        for rank, (label, share) in enumerate(answer.labels, start=1):
            writer.writerow([csv_cell(str(answer.image)), rank, csv_cell(label), share])


def _text(answers: list[Answer]) -> str:
    from ancl.wording import percent, table

    rows = [
        ["" if rank else str(answer.image), str(label), percent(share)]
        for answer in answers
        for rank, (label, share) in enumerate(answer.labels)
    ]
    return table(["image", "label", "%"], rows, "llr")
