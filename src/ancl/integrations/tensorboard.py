"""Curves for TensorBoard, in the run's own directory."""

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
