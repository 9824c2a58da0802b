"""Other tools: curves of runs, and plug-ins for Avalanche; each is imported only when needed."""

from collections.abc import Callable

from ancl.errors import SpecError, unknown
from ancl.integrations.curves import RunLog, TensorBoard, WandB, Writer

__all__ = ["WRITERS", "RunLog", "Writer", "make_log"]

WRITERS: dict[str, Callable[[], Writer]] = {"tensorboard": TensorBoard, "wandb": WandB}


def make_log(names: str) -> RunLog:
    """Events that go to tools, by their names separated by commas.

    Raises:
        SpecError: There is no such tool, or its package is not installed.
    """
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in WRITERS:
            raise SpecError(f"--log: {unknown('log', name, WRITERS)}")
    makers = [WRITERS[name] for name in dict.fromkeys(wanted)]
    for make in makers:
        make()  # a missing package is found before training
    return RunLog(makers)
