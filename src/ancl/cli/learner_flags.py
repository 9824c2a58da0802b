"""The flags of commands that open a learner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

Learner = Annotated[
    Path, Argument(metavar="LEARNER", help="A saved learner, or the directory of a finished run.")
]
LearnerStore = Annotated[
    Path | None, Option("--store", metavar="DIR", help="The store of a run. [.store beside it]")
]
TaskNumber = Annotated[
    int | None,
    Option("--task", metavar="N", help="Only the classes of this task compete; 1 is the first."),
]
GivenMethod = Annotated[
    str | None,
    Option("--method", metavar="NAME", help="The method again, if it is your own code."),
]
GivenNetwork = Annotated[
    str | None, Option("--network", metavar="NAME", help="The same for the network.")
]
GivenAugment = Annotated[
    str | None, Option("--augment", metavar="NAME", help="The same for the augmentation.")
]
AcceptChanged = Annotated[
    bool, Option("--accept-changed", help="Accept that code although it has changed since.")
]


@dataclass(frozen=True, kw_only=True)
class GivenAgain:
    """Code from outside the package that a learner was trained with, named again."""

    method: GivenMethod = None
    network: GivenNetwork = None
    augment: GivenAugment = None
    accept_changed: AcceptChanged = False
