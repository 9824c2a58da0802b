"""Progress of one command, with the tools that ``--log`` names."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from ancl.stages.events import Events, Forward
from ancl.stages.progress import make_progress

__all__ = ["check_log", "make_progress", "progress_and_log"]


def check_log(log: str | None) -> None:
    """Refuse, as ``SpecError``, what ``--log`` names and is not there; a dry run asks too."""
    from ancl.integrations import make_log

    if log is not None:
        make_log(log).close()


@contextmanager
def progress_and_log(quiet: bool, log: str | None) -> Iterator[Events]:
    """Progress for one command, and the tools that ``--log`` names.

    Raises:
        SpecError: There is no such tool, or its package is not installed.
    """
    from ancl.integrations import make_log

    progress = make_progress(quiet)
    if log is None:
        with progress:
            yield progress
        return
    with closing(make_log(log)) as runs, progress:
        yield Forward(progress, runs)
