"""``ancl learn``: a classifier that learns the images of a folder, month after month."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from ancl.cli import flag_values, flags, learner_flags
from ancl.cli.flags import Machine, Weights, grouped

if TYPE_CHECKING:
    from ancl.learner.teaching import Taught

Place = Annotated[
    Path,
    Argument(metavar="LEARNER", help="A saved learner, a finished run, or a new directory."),
]
Images = Annotated[
    str,
    Option("--data", metavar="SOURCE", help="The images to learn, such as folder:photos"),
]
Output = Annotated[
    Path | None,
    Option("--output", "-o", metavar="DIR", help="Where the learner is saved. [LEARNER]"),
]
Method = Annotated[
    str | None,
    Option(
        "--method",
        metavar="NAME",
        help="For a new learner: icarl, a-icarl, wa … Later only if it is your own code.",
    ),
]
Network = Annotated[
    str | None, Option("--network", metavar="NAME", help="The same: ancl list networks")
]
Store = Annotated[
    Path | None,
    Option(
        "--store", metavar="DIR", help="Where stages are kept. [beside LEARNER, until it is saved]"
    ),
]
Wait = Annotated[
    float | None,
    Option(
        "--wait",
        metavar="SECONDS",
        min=0,
        help="How long to wait while another process changes the learner. [until it is done]",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Start:
    """What a new learner is made of."""

    scenario: flags.Scenario = None
    memory_per_class: flags.MemoryPerClass = None
    memory: flags.Memory = None
    memory_selection: flags.MemorySelection = None
    epochs: flags.Epochs = None
    lr: flags.LearningRate = None
    batch_size: flags.BatchSize = None
    seed: flags.Seed = None
    setting: flags.Set = None


@grouped
def learn(
    learner: Place,
    *,
    data: Images,
    skip_bad_images: flags.SkipBadImages = False,
    output: Output = None,
    method: Method = None,
    network: Network = None,
    augment: learner_flags.GivenAugment = None,
    accept_changed: learner_flags.AcceptChanged = False,
    weights: Weights,
    start: Start,
    machine: Machine,
    data_root: flags.DataRoot = None,
    store: Store = None,
    overwrite: flags.Overwrite = False,
    wait: Wait = None,
    as_json: flags.Json = False,
    quiet: flags.Quiet = False,
) -> None:
    """Learn the images of a folder; the same command resumes what was stopped.

    To begin: ancl learn birds --method icarl --data folder:photos@32

    A month later: ancl learn birds --data folder:new-photos

    The folder may hold new classes, more images of known classes, or both.

    A second command on the same learner waits for the first, and learns on from there.
    """
    from ancl.experiments.build import threads
    from ancl.learner.teaching import teach
    from ancl.stages.progress import make_progress

    layer, count = (
        flag_values.make_layer(weights, start),
        flag_values.read_count("--threads", machine.threads),
    )
    with make_progress(quiet) as events, threads(count) if count else nullcontext():
        taught = teach(
            learner,
            flag_values.without_bad_images(data) if skip_bad_images else data,
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
    print(json.dumps(taught_json(taught)) if as_json else taught_text(taught))


def taught_json(taught: Taught) -> dict[str, Any]:
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


def taught_text(taught: Taught) -> str:
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
