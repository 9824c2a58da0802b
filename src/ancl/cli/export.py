"""``ancl export``: a learner as one file that answers without this library."""

from __future__ import annotations

import json
from pathlib import Path

from ancl.cli.flag_values import exported_name
from ancl.cli.flags import Opening, with_flags


@with_flags
def export(
    learner: Path,
    *,
    output: Path | None = None,
    format: str | None = None,
    opening: Opening,
    overwrite: bool = False,
    as_json: bool = False,
) -> None:
    """Write one file: uint8 images in, scores out, labels inside; and a model card."""
    from ancl.learner.opening import open_learner
    from ancl.stages.progress import Progress
    from ancl.wording import byte_size

    opened = open_learner(learner, **vars(opening), device="cpu", events=Progress())
    file = output or exported_name(learner, format or "onnx")
    exported = opened.export(file, format=format, overwrite=overwrite)
    if as_json:
        shown = {"path": str(exported.path), "card": str(exported.card)}
        print(json.dumps({**shown, "images": exported.images, "difference": exported.difference}))
        return
    print(
        f"Wrote {exported.path} ({byte_size(exported.path.stat().st_size)}). "
        f"On {exported.images} images no score differs from the learner's by more than "
        f"{exported.difference:.1e}.\n"
        f"Model card: {exported.card}"
    )
