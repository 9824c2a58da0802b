"""Who computes the stages: executor, workers and the threads of each, from text."""

from ancl.errors import SpecError
from ancl.executors import ExecutorChoice, choose_executor


def choose_labour(
    name: str | None, workers: str | None, address: str | None, threads: str | None
) -> ExecutorChoice:
    """The executor that flags ask for.

    Raises:
        SpecError: Flags that do not fit together.
    """
    if workers is not None and not workers.isdecimal():
        raise SpecError(f"--workers: {workers!r} is no number of workers. Write 1 or more.")
    count = int(workers) if workers is not None else None
    each = int(threads) if threads is not None and threads.isdecimal() else None
    return choose_executor(name, count, address, each)
