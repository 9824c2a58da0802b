"""``ancl learn``: a classifier that learns the images of a folder, month after month."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ancl.cli.flag_values import exported_name, read_count, thread_limit, without_bad_images
from ancl.cli.flags import GateFlags, Machine, Weights, make_layer, with_flags
from ancl.cli.text import REFUSED, gate_text, held_text

if TYPE_CHECKING:
    from ancl.learner.teach import LearnOutcome


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
    test: str | None = None,
    gate: GateFlags,
    keep_versions: str | None = None,
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

    To begin: ancl learn birds --data folder:photos

    A month later: ancl learn birds --data folder:new-photos

    The folder may hold new classes, more images of known classes, or both.

    Every month is a new version: ancl versions birds, ancl undo birds. With --test and conditions
    the new version is taken only if they hold; otherwise the exit code is 3, and the old one stays.

    A second command on the same learner waits for the first, and continues from what it saved.
    """
    from ancl.learner.teach import teach
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
            test=test,
            **gate.conditions(),
            keep_versions=read_count("--keep-versions", keep_versions),
            store=store,
            data_root=data_root,
            device=machine.device or "auto",
            wait=wait,
            events=events,
        )
        taken = not taught.refused
        exported = (
            taught.learner.export(exported_name(taught.directory)) if export and taken else None
        )
    if as_json:
        file = {} if exported is None else {"exported": str(exported.path)}
        print(json.dumps(taught_json(taught) | file))
    else:
        print(taught_text(taught))
        if exported is not None:
            print(f"Wrote {exported.path}: ancl serve {taught.directory} answers with it.")
    if not taken:
        raise typer.Exit(REFUSED)


def taught_json(taught: LearnOutcome) -> dict[str, Any]:
    """What was learned, as JSON."""
    held = taught.learner.report()
    changes = [] if taught.found else taught.version.held
    names = ("of", "images", "before", "after")
    return {
        "directory": str(taught.directory),
        "learned_before": taught.found,
        "version": taught.version.number,
        "refused": list(taught.refused),
        "tasks": taught.learner.tasks,
        "returning": taught.learner.returning,
        "classes": taught.learner.classes,
        "held": {
            "accuracy": held.accuracy,
            "images": held.images,
            "basis": held.basis,
            "changes": [dict(zip(names, change, strict=True)) for change in changes],
        },
        "test": taught.test.json() if taught.test else None,
        "choice": choice.json() if (choice := taught.learner.choice) else None,
        "drift": drift.json() if (drift := taught.learner.drifts[-1]) else None,
    }


def taught_text(taught: LearnOutcome) -> str:
    """What was learned, in a few lines and tables."""
    from ancl.errors import one_line

    name, number = taught.directory, taught.version.number
    known = len(taught.learner.classes)
    new = ", ".join(map(one_line, taught.learner.tasks[-1])) or "no new classes"
    again = ", ".join(map(one_line, taught.learner.returning[-1]))
    if taught.found:
        first = f"{name} has learned exactly these images before: nothing was done."
    else:
        first = f"Learned task {len(taught.learner.tasks)}: {new}{again and '; again: '}{again}."
    parts = [first, held_text(taught.learner, () if taught.found else taught.version.held)]
    if taught.learner.choice:
        parts.append(str(taught.learner.choice))
    if drift := taught.learner.drifts[-1]:
        parts.append(str(drift))
    if taught.test:
        parts.append(gate_text(taught.test))
    if taught.refused:
        before = taught.version.parent
        stays = f"version {before} stays" if before else "no version was taken"
        lines = [
            f"Refused: {stays}.",
            *taught.refused,
            f"It is kept as version {number} (--version {number}). To take it all the same: "
            f"ancl undo {name} --to {number}",
        ]
    else:
        lines = [
            f"The learner knows {known} classes; it is at version {number}. Its model card: "
            f"{name / 'README.md'}"
        ]
    return "\n\n".join([*parts, "\n".join(lines)])
