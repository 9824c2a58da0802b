"""Writers by the names ``--log`` takes."""

from collections.abc import Callable

from ancl.errors import SpecError, unknown
from ancl.integrations.scalars import Writer
from ancl.integrations.tensorboard import TensorBoard
from ancl.integrations.wandb import WandB

WRITERS: dict[str, Callable[[], Writer]] = {"tensorboard": TensorBoard, "wandb": WandB}


def make_writers(names: str) -> list[Writer]:
    """The writers of names separated by commas.

    Raises:
        SpecError: There is none of a name, or its package is not installed.
    """
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in WRITERS:
            raise SpecError(f"--log: {unknown('log', name, WRITERS)}")
    return [WRITERS[name]() for name in dict.fromkeys(wanted)]
