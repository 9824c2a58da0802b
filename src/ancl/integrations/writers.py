"""Curves for TensorBoard, in the run's own directory, and for Weights & Biases.

WANDB_PROJECT, WANDB_ENTITY and WANDB_MODE hold as usual.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from ancl.errors import SpecError
from ancl.integrations.scalars import Point, Writer


class TensorBoard(Writer):
    """Event files below ``tensorboard/`` of a run: ``tensorboard --logdir runs``.

    Raises:
        SpecError: The package is not installed.
    """

    def __init__(self) -> None:
        try:
            self._make: Any = import_module("torch.utils.tensorboard").SummaryWriter
        except ImportError as error:
            raise SpecError(
                "--log tensorboard needs a package that is not installed. "
                "Install it: pip install 'ancl[tensorboard]'"
            ) from error
        self._writer: Any = None

    def begin(self, directory: Path, spec: Mapping[str, Any]) -> None:
        """Open the run's event file."""
        self._writer = self._make(str(directory / "tensorboard"))

    def write(self, point: Point) -> None:
        """Add each scalar at its step."""
        for tag, value in point.scalars.items():
            self._writer.add_scalar(tag, value, point.step)

    def end(self) -> None:
        """Write what is buffered."""
        self._writer.close()


class WandB(Writer):
    """One W&B run for each run, with the spec as its config and the directory's name as its id.

    The same command resumes the same W&B run.

    Raises:
        SpecError: The package is not installed.
    """

    def __init__(self) -> None:
        try:
            self._wandb: Any = import_module("wandb")
        except ImportError as error:
            raise SpecError(
                "--log wandb needs a package that is not installed. "
                "Install it: pip install 'ancl[wandb]'"
            ) from error
        self._run: Any = None

    def begin(self, directory: Path, spec: Mapping[str, Any]) -> None:
        """Open the W&B run."""
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "ancl"),
            id=directory.name,
            name=directory.name,
            dir=str(directory),
            config=dict(spec),
            resume="allow",
            reinit="create_new",  # runs that share stages are open at the same time
        )
        # Stages have epochs of their own: W&B's one running step would put them in a row.
        self._run.define_metric("*", step_metric="step")

    def write(self, point: Point) -> None:
        """Log the scalars with their step."""
        self._run.log({**point.scalars, "step": point.step})

    def end(self) -> None:
        """Send what is buffered."""
        self._run.finish()
