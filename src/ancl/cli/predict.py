"""``ancl predict``: the labels of images."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from ancl.cli import flags, learner_flags
from ancl.cli.flags import grouped
from ancl.cli.learner_flags import GivenAgain
from ancl.errors import SpecError

if TYPE_CHECKING:
    from ancl.learner.files import Answer

Images = Annotated[
    list[Path], Argument(metavar="IMAGES...", help="Image files, or folders of them.")
]
TopK = Annotated[int, Option("--top-k", metavar="K", min=1, help="How many labels for each image.")]
Csv = Annotated[bool, Option("--csv", help="CSV on standard output: a line for each label.")]


@grouped
def predict(
    learner: learner_flags.Learner,
    images: Images,
    *,
    top_k: TopK = 1,
    task: learner_flags.TaskNumber = None,
    given: GivenAgain,
    store: learner_flags.LearnerStore = None,
    device: flags.Device = None,
    as_json: flags.Json = False,
    as_csv: Csv = False,
) -> None:
    """The most probable labels of image files, which are resized to the learner's size."""
    from ancl.learner.files import predict_files
    from ancl.learner.opening import open_learner
    from ancl.stages.progress import Progress

    if as_json and as_csv:
        raise SpecError("--json and --csv were both given. Leave out one.")
    opened = open_learner(
        learner, **vars(given), store=store, device=device or "auto", events=Progress()
    )
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
