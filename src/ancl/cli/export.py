"""``ancl export``: a learner as one file that answers without this library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

from typer import Option

from ancl.cli import flags, learner_flags
from ancl.cli.flags import grouped
from ancl.cli.learner_flags import GivenAgain

File = Annotated[
    Path | None,
    Option("--output", "-o", metavar="FILE", help="The file. [LEARNER's name, here]"),
]
Format = Annotated[
    str | None,
    Option("--format", metavar="onnx|pt2", help="For any ONNX runtime, or torch.export. [onnx]"),
]


@grouped
def export(
    learner: learner_flags.Learner,
    *,
    output: File = None,
    format: Format = None,
    given: GivenAgain,
    store: learner_flags.LearnerStore = None,
    overwrite: flags.Overwrite = False,
    as_json: flags.Json = False,
) -> None:
    """Write one file: uint8 images in, scores out, labels inside; and a model card."""
    from ancl.learner.opening import open_learner
    from ancl.stages.progress import Progress
    from ancl.wording import byte_size

    opened = open_learner(learner, **vars(given), store=store, device="cpu", events=Progress())
    file = output or Path(f"{learner.absolute().name}.{format or 'onnx'}")
    found = opened.export(file, format=format, overwrite=overwrite)
    if as_json:
        shown = {"path": str(found.path), "card": str(found.card)}
        print(json.dumps({**shown, "images": found.images, "difference": found.difference}))
        return
    print(
        f"Wrote {found.path} ({byte_size(found.path.stat().st_size)}). On {found.images} images no "
        f"score differs from the learner's by more than {found.difference:.1e}.\n"
        f"Model card: {found.card}"
    )
