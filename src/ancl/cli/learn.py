"""``ancl learn``: a classifier that learns the images of a folder, month after month."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.cli.flag_values import exported_name, thread_limit, without_bad_images
from ancl.cli.flags import Machine, Weights, make_layer, with_flags

if TYPE_CHECKING:
    from ancl.learner.directory import LearnOutcome


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a new learner is made of."""

    scenario: str | None = None
    memory_per_class: str | None = None
    memory: str | None = None
    memory_selection: str | None = None
    epochs: str | None = None
    lr: str | None = None
    batch_size: str | None = None
    resize: str | None = None
    background: str | None = None
    seed: str | None = None
    setting: list[str] | None = None


@with_flags
def learn(
    learner: Path,
    *,
    data: str,
    skip_bad_images: bool = False,
    output: Path | None = None,
    method: str | None = None,
    network: str | None = None,
    augment: str | None = None,
    accept_changed: bool = False,
    weights: Weights,
    start: Start,
    machine: Machine,
    data_root: Path | None = None,
    store: Path | None = None,
    overwrite: bool = False,
    export: bool = False,
    wait: float | None = None,
    as_json: bool = False,
    quiet: bool = False,
) -> None:
    """Learn the images of a folder; the same command resumes what was stopped.

    To begin: ancl learn birds --method icarl --data folder:photos@32

    A month later: ancl learn birds --data folder:new-photos

    The folder may hold new classes, more images of known classes, or both.

    A second command on the same learner waits for the first, and learns on from there.
    """
    from ancl.learner.directory import teach
    from ancl.stages.progress import make_progress

    layer = make_layer(weights, start)
    with thread_limit(machine.threads), make_progress(quiet) as events:
        taught = teach(
            learner,
            without_bad_images(data) if skip_bad_images else data,
            output=output,
            method=method,
            network=network,
            augment=augment,
            settings=layer,
            accept_changed=accept_changed,
            overwrite=overwrite,
            store=store,
            data_root=data_root,
            device=machine.device or "auto",
            wait=wait,
            events=events,
        )
        exported = taught.learner.export(exported_name(taught.directory)) if export else None
    if as_json:
        file = {} if exported is None else {"exported": str(exported.path)}
        print(json.dumps(taught_json(taught) | file))
        return
    print(taught_text(taught))
    if exported is not None:
        print(f"Wrote {exported.path}: ancl serve {taught.directory} answers with it.")


def taught_json(taught: LearnOutcome) -> dict[str, Any]:
    """What was learned, as JSON."""
    held = taught.learner.report()
    return {
        "directory": str(taught.directory),
        "learned_before": taught.found,
        "tasks": taught.learner.tasks,
        "returning": taught.learner.returning,
        "classes": taught.learner.classes,
        "held": {"accuracy": held.accuracy, "images": held.images, "basis": held.basis},
    }


def taught_text(taught: LearnOutcome) -> str:
    """What was learned, in a few lines."""
    from ancl.errors import one_line
    from ancl.wording import percent

    held = taught.learner.report()
    known = len(taught.learner.classes)
    new = ", ".join(map(one_line, taught.learner.tasks[-1])) or "no new classes"
    again = ", ".join(map(one_line, taught.learner.returning[-1]))
    lines = [
        f"{taught.directory} has learned exactly these images before: nothing was done."
        if taught.found
        else f"Learned task {len(taught.learner.tasks)}: {new}{again and '; again: '}{again}.",
        f"Accuracy on {held.images} held images ({held.basis}): {percent(held.accuracy)} %."
        if held.accuracy is not None
        else "The accuracy was not measured: no images were held out of training.",
        f"The learner knows {known} classes. Its model card: {taught.directory / 'README.md'}",
    ]
    return "\n".join(lines)
