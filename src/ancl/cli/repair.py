"""``ancl forget``, ``ancl rename`` and ``ancl merge-classes``: a learner without its mistakes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ancl.cli.flag_values import exported_name, thread_limit
from ancl.cli.flags import Machine, with_flags
from ancl.cli.text import held_text

if TYPE_CHECKING:
    from ancl.learner.edit_saved import EditOutcome
    from ancl.stages.events import Events


@dataclass(frozen=True, kw_only=True)
class Repair:
    """How a learner is opened and changed."""

    method: str | None = None
    network: str | None = None
    augment: str | None = None
    accept_changed: bool = False
    export: bool = False
    wait: float | None = None
    as_json: bool = False
    quiet: bool = False

    def settings(self, learner: Path, machine: Machine, events: Events) -> dict[str, Any]:
        """As the library takes them."""
        file = exported_name(learner) if self.export else None
        code = {name: getattr(self, name) for name in ("method", "network", "augment")}
        return {
            **code,
            "accept_changed": self.accept_changed,
            "export": file,
            "device": machine.device or "auto",
            "wait": self.wait,
            "events": events,
        }


@with_flags
def forget(
    learner: Path,
    *,
    images: list[Path] | None = None,
    class_: list[str] | None = None,
    id_: list[str] | None = None,
    retrain: bool = False,
    keep_networks: bool = False,
    allow_again: bool = False,
    machine: Machine,
    repair: Repair,
) -> None:
    """Forget images: a person's photo, wrong ones, or a whole class. It cannot be undone.

    ancl forget birds --images photo.jpg

    They leave the learner, all its versions, its stores, caches of pixels and exported files. They
    are refused if they come again. Your own files stay where they are.
    """
    from ancl.learner import edit_saved
    from ancl.stages.progress import make_progress

    exports = [exported_name(learner, form) for form in ("onnx", "pt2")]
    with thread_limit(machine.threads), make_progress(repair.quiet) as events:
        outcome = edit_saved.forget(
            learner,
            images=images or None,
            classes=class_ or None,
            ids=id_ or None,
            retrain=retrain,
            keep_networks=keep_networks,
            allow_again=allow_again,
            exports=exports,
            **repair.settings(learner, machine, events),
        )
    _show(outcome, repair.as_json)


@with_flags
def rename(learner: Path, old: str, new: str, *, machine: Machine, repair: Repair) -> None:
    """Give a class another name; all answers stay."""
    from ancl.learner import edit_saved
    from ancl.stages.progress import make_progress

    with thread_limit(machine.threads), make_progress(repair.quiet) as events:
        settings = repair.settings(learner, machine, events)
        outcome = edit_saved.rename(learner, {old: new}, **settings)
    _show(outcome, repair.as_json)


@with_flags
def merge_classes(
    learner: Path,
    classes: list[str],
    *,
    into: str | None = None,
    retrain: bool = False,
    machine: Machine,
    repair: Repair,
) -> None:
    """Merge several classes into one, such as 'School bus' and 'school bus'."""
    from ancl.learner import edit_saved
    from ancl.stages.progress import make_progress

    with thread_limit(machine.threads), make_progress(repair.quiet) as events:
        settings = repair.settings(learner, machine, events)
        outcome = edit_saved.merge_classes(learner, classes, into=into, retrain=retrain, **settings)
    _show(outcome, repair.as_json)


def _show(outcome: EditOutcome, as_json: bool) -> None:
    print(json.dumps(_json(outcome)) if as_json else _text(outcome))


def _json(outcome: EditOutcome) -> dict[str, Any]:
    report = outcome.report
    return {
        "directory": str(outcome.directory),
        "version": outcome.version.number,
        **report._asdict(),
        "versions_dropped": list(outcome.dropped),
        "versions_changed": list(outcome.changed),
        "exports_removed": [str(file) for file in outcome.exports],
        "exported": str(outcome.exported.path) if outcome.exported else None,
        "known_classes": outcome.learner.classes,
    }


def _text(outcome: EditOutcome) -> str:
    from ancl.errors import counted, one_line

    report, name = outcome.report, outcome.directory
    lines = []
    if report.images:
        gone = ", ".join(map(one_line, report.classes))
        lines.append(f"Forgot {counted(report.images, 'image')}{gone and ', all of '}{gone}.")
    lines.append(report.meaning)
    if report.unknown:
        shown = ", ".join(map(one_line, report.unknown[:5]))
        more = f" and {len(report.unknown) - 5} more" if len(report.unknown) > 5 else ""
        lines.append(f"Never learned, so that nothing was to be forgotten: {shown}{more}.")
    lines += _removed(outcome)
    if report.images:
        lines.append("Your own files stay where they are: delete them yourself if need be.")
    if outcome.exported:
        lines.append(f"Wrote {outcome.exported.path}: ancl serve {name} answers with it.")
    parts = ["\n".join(lines)]
    if report.images or report.kind != "forget":
        held = outcome.version.held
        compared = all(before is not None for _, _, before, _ in held)
        parts.append(held_text(outcome.learner, held if compared else ()))
    known = len(outcome.learner.classes)
    parts.append(f"The learner knows {known} classes; it is at version {outcome.version.number}.")
    return "\n\n".join(parts)


def _removed(outcome: EditOutcome) -> list[str]:
    """What went besides."""
    from ancl.errors import counted

    report, lines = outcome.report, []
    if outcome.changed:
        numbers = ", ".join(map(str, outcome.changed))
        lines.append(f"Earlier versions were made again without them: {numbers}.")
    if outcome.dropped:
        numbers = ", ".join(map(str, outcome.dropped))
        lines.append(f"Earlier versions whose network was trained on them were removed: {numbers}.")
    if report.entries:
        lines.append(f"Removed {counted(report.entries, 'stored result')} of its stages.")
    if report.caches:
        lines.append(f"Removed {counted(report.caches, 'cache')} of pixels.")
    for file in outcome.exports:
        lines.append(f"Removed {file}, which answered with them: ancl export {outcome.directory}")
    return lines
